"""xgrammar as a grammar backend.

Its termination is state-driven: a matcher knows that its value is complete, and ends when a stop id is accepted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any

import torch
import xgrammar

from ...errors import GrammarCompileError, GrammarError, UnsupportedGrammarError
from ..bitmask import BITS_PER_WORD, clear_bits_inplace, set_bits_inplace
from ..compile_cost import is_tiny_for_xgrammar
from ..ebnf_writer import render_node
from ..forced import spell_forced
from ..inner_schemas import rewritten_inner_schema
from ..matcher import CompiledGrammar, Matcher, Stepper
from ..regex_check import parse_regex
from ..rewrite import JsonSchema
from ..schema_check import close_ranges, without_misread
from ..sources import check_token_ids, ebnf_text, named_token_ids
from ..spec import GrammarSpec
from ..structural_tag import check_tag_tokens, map_formats, name_tokens, named_tokens, tag_schemas
from ..support import rewritten_schema
from ..vocabulary import Vocabulary
from .counted_text import refuse_long_strings
from .lanes import Lanes, RowCost
from .xgrammar_text import SchemaOrder, write_ebnf

_MAX_NAMING_COMPILERS = 4


class XGrammarBackend:
    """Compiles specs with xgrammar for one vocabulary; its verbs may be called from several threads."""

    name = "xgrammar"
    version = version("xgrammar")

    def __init__(self, vocabulary: Vocabulary, *, num_threads: int) -> None:
        self.vocabulary = vocabulary
        self._token_ids = {name: token_id for token_id, name in vocabulary.special_tokens}
        # The cache is the manager's, which counts and caps it.
        self._info = self._make_info(frozenset())
        self._num_threads = num_threads
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=num_threads, cache_enabled=False)
        # Compilers for constraints that name tokens which are no text; making one costs half a second with a large vocabulary.
        self._naming_compilers = lru_cache(maxsize=_MAX_NAMING_COMPILERS)(self._make_naming_compiler)
        self._lanes = Lanes()
        self._batch = xgrammar.BatchGrammarMatcher(max(1, os.cpu_count() or 1))

    def check(self, spec: GrammarSpec) -> None:
        """Parse only, and a schema only where it surely takes no time; others are parsed where they can be stopped.

        Raises:
            UnsupportedGrammarError: xgrammar cannot compile this constraint.
        """
        self._check_tokens(spec)
        refuse_long_strings(spec)
        if spec.kind == "json_schema" and not self.is_surely_quick(spec):
            return
        try:
            self._grammar(spec)
        except GrammarError:
            raise
        except Exception as error:  # xgrammar raises RuntimeError and its own classes for what it cannot parse
            raise UnsupportedGrammarError(
                f"xgrammar cannot compile this {spec.kind.replace('_', ' ')}: {_first_line(error)}",
                hint="simplify the schema, or validate afterwards without a constraint",
            ) from error

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile a schema to a grammar.

        Raises:
            GrammarCompileError: xgrammar failed.
        """
        try:
            named = self._named_ids(spec)
            compiler = self._naming_compilers(named) if named else self._compiler
            compiled = compiler.compile_grammar(self._grammar(spec))
        except GrammarError as error:
            raise GrammarCompileError(
                str(error), pointer=error.pointer, line=error.line, column=error.column, hint=error.hint
            ) from error
        except Exception as error:  # as above
            kind = spec.kind.replace("_", " ")
            raise GrammarCompileError(f"xgrammar failed to compile the {kind}: {_first_line(error)}") from error
        return _XGrammarCompiled(self, compiled, named)

    def is_surely_quick(self, spec: GrammarSpec) -> bool:
        """Only where schema and vocabulary are tiny: with a common one 555 characters took a second, and longer texts minutes."""
        # The compile process knows no tokens by name.
        return bool(self._named_ids(spec)) or is_tiny_for_xgrammar(spec, self.vocabulary.vocab_size)

    def export_source(self, spec: GrammarSpec) -> str:
        """Give the text to parse, as the compile process takes it: parsing one schema took 14 s."""
        if spec.kind == "json_schema":
            order: dict[str, Any] = {"schema": _schema_order(rewritten_schema(spec, backend=self.name), spec)._asdict()}
        elif spec.kind == "structural_tag":
            order = {"grammar": str(self._grammar(spec).serialize_json())}
        else:
            order = {"ebnf": ebnf_text(spec.kind, spec.source)}
        return json.dumps(order)

    def load_compiled(self, text: str) -> CompiledGrammar:
        """Load a compiled grammar that was serialised for the same vocabulary.

        Raises:
            GrammarCompileError: It is damaged, or of another vocabulary or version.
        """
        try:
            return _XGrammarCompiled(self, xgrammar.CompiledGrammar.deserialize_json(text, self._info))
        except Exception as error:  # as above
            raise GrammarCompileError(f"xgrammar cannot load the grammar: {_first_line(error)}") from error

    def _named_ids(self, spec: GrammarSpec) -> frozenset[int]:
        """Give the ids that a constraint names and that are no text."""
        if spec.kind == "json_schema":
            return frozenset()
        if spec.kind == "structural_tag":
            tokens = named_tokens(name_tokens(json.loads(spec.source), self._token_ids))
            named = frozenset(token for token in tokens if isinstance(token, int))
        else:
            named = named_token_ids(spec.kind, spec.source)
        token_bytes, stop_ids = self.vocabulary.token_bytes, self.vocabulary.stop_token_ids
        return frozenset(i for i in named if i < len(token_bytes) and not token_bytes[i] and i not in stop_ids)

    def _make_naming_compiler(self, named: frozenset[int]) -> xgrammar.GrammarCompiler:
        return xgrammar.GrammarCompiler(self._make_info(named), max_threads=self._num_threads, cache_enabled=False)

    def _make_info(self, named: frozenset[int]) -> xgrammar.TokenizerInfo:
        """Describe the vocabulary; `named` tokens get bytes that no text holds, since xgrammar takes no token without bytes."""
        return xgrammar.TokenizerInfo(
            [b"\xff%d" % i if i in named else data for i, data in enumerate(self.vocabulary.token_bytes)],
            xgrammar.VocabType.RAW,
            vocab_size=self.vocabulary.vocab_size,
            stop_token_ids=list(self.vocabulary.stop_token_ids),
        )

    def _check_tokens(self, spec: GrammarSpec) -> None:
        """Refuse tokens that this vocabulary does not have."""
        if spec.kind == "structural_tag":
            check_tag_tokens(spec.source, self.vocabulary.vocab_size, self._token_ids)
        else:
            check_token_ids(spec.kind, spec.source, self.vocabulary.vocab_size)

    def _grammar(self, spec: GrammarSpec) -> xgrammar.Grammar:
        if spec.kind == "structural_tag":
            return xgrammar.Grammar.from_structural_tag(name_tokens(_structural_tag(spec), self._token_ids))
        if spec.kind != "json_schema":
            return xgrammar.Grammar.from_ebnf(ebnf_text(spec.kind, spec.source))
        return xgrammar.Grammar.from_ebnf(_schema_ebnf(rewritten_schema(spec, backend=self.name), spec))

    def fill_bitmasks(self, matchers: Sequence[Matcher], bitmask: torch.Tensor, rows: Sequence[int]) -> None:
        """Fill rows, on all cores where that is faster; see the protocol."""
        own = [matcher for matcher in matchers if isinstance(matcher, _XGrammarMatcher)]
        share = partial(self._fill_on_all_cores, list(zip(own, rows, strict=True)), bitmask)
        self._lanes.fill(matchers, bitmask, rows, costs=[matcher.cost for matcher in own], share=share)

    def _fill_on_all_cores(self, jobs: list[tuple[_XGrammarMatcher, int]], bitmask: torch.Tensor) -> None:
        running = [(matcher, row) for matcher, row in jobs if not matcher.is_terminated()]
        self._batch.batch_fill_next_token_bitmask([matcher.raw for matcher, _ in running], bitmask, [row for _, row in running])
        for matcher, row in running:
            if bitmask.shape[1] != matcher._exact_words:
                matcher.finish_row(bitmask, row)
        for matcher, row in jobs:
            if matcher.is_terminated():
                matcher.fill_bitmask(bitmask, row)


def _schema_order(schema: Any, spec: GrammarSpec) -> SchemaOrder:
    schema = without_misread(schema)
    whitespace = spec.whitespace
    return SchemaOrder(
        schema=json.dumps(schema if spec.max_number_digits is None else close_ranges(schema)),
        any_order=spec.any_order,
        max_digits=spec.max_number_digits,
        indent=whitespace.indent if whitespace.style == "indented" else None,
        max_whitespace=whitespace.max_run if whitespace.style == "flexible" else None,
        whitespace_rule=render_node(parse_regex(whitespace.regex)) if whitespace.style == "pattern" else None,
        is_compact=whitespace.style not in ("flexible", "pattern"),
    )


def _schema_ebnf(schema: Any, spec: GrammarSpec) -> str:
    return write_ebnf(_schema_order(schema, spec), _parse)


def _parse(schema: str, *options: Any) -> str:
    any_whitespace, indent, separators, is_strict, max_whitespace, _, any_order = options
    return str(
        xgrammar.Grammar.from_json_schema(
            schema,
            any_whitespace=any_whitespace,
            indent=indent,
            separators=separators,
            strict_mode=is_strict,
            max_whitespace_cnt=max_whitespace,
            any_order=any_order,
        )
    )


def _structural_tag(spec: GrammarSpec) -> dict[str, Any]:
    """Give the tag with everything in it that we spell ourselves: schemas, regular expressions, Lark."""
    schemas = _tag_schemas(spec)

    def change(found: dict[str, Any]) -> dict[str, Any]:
        text = None
        if "json_schema" in found:
            schema = schemas[json.dumps(found["json_schema"])]
            is_json = found["type"] == "json_schema" and found.get("style", "json") == "json"
            if not is_json or set(found) > {"type", "json_schema", "style"}:
                return {**found, "json_schema": without_misread(schema)}
            text = _schema_ebnf(schema, spec)
        elif found["type"] == "regex":
            text = ebnf_text("regex", found["pattern"])
        elif found["type"] == "grammar":
            text = ebnf_text(found.get("syntax", "ebnf"), found["grammar"])
        return found if text is None else {"type": "grammar", "grammar": text}

    return map_formats(json.loads(spec.source), change)


def _tag_schemas(spec: GrammarSpec) -> dict[str, JsonSchema]:
    """Give the schemas inside a tag in the words of xgrammar, by their texts."""
    schemas: dict[str, JsonSchema] = {}
    for place, schema in tag_schemas(spec.source):
        try:
            schemas[json.dumps(schema)] = rewritten_inner_schema(schema, XGrammarBackend.name)
        except GrammarError as error:
            pointer = place + (error.pointer or "#")[1:]
            raise type(error)(f"structural tag, at {pointer}: {error}", pointer=pointer, hint=error.hint) from error
    return schemas


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


class _XGrammarCompiled:
    def __init__(self, backend: XGrammarBackend, compiled: xgrammar.CompiledGrammar, named: frozenset[int] = frozenset()) -> None:
        self._backend = backend
        self._compiled = compiled
        self._named = named
        self._cost = RowCost()

    @property
    def memory_size_bytes(self) -> int:
        return int(self._compiled.memory_size_bytes)

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        stop_ids = tuple(stop_token_ids)
        raw = xgrammar.GrammarMatcher(self._compiled, override_stop_tokens=list(stop_ids))
        return _XGrammarMatcher(self._backend, raw, stop_ids, 0, self._named, self._cost)


class _XGrammarMatcher(Stepper):
    # xgrammar stays usable after a refused token and has no limits that a step could hit.
    error: GrammarError | None = None

    def __init__(
        self,
        backend: XGrammarBackend,
        raw: xgrammar.GrammarMatcher,
        stop_token_ids: tuple[int, ...],
        num_steps: int,
        named: frozenset[int],
        cost: RowCost,
    ) -> None:
        self.backend = backend
        self.raw = raw
        self.cost = cost
        self._stop_token_ids = stop_token_ids
        self._foreign_stop_ids = tuple(set(backend.vocabulary.stop_token_ids).difference(stop_token_ids))
        self._num_steps = num_steps
        self._named = named
        # Width of rows in which xgrammar sets nothing that would have to be denied; None if it always may.
        num_words, num_bits = divmod(backend.vocabulary.vocab_size, BITS_PER_WORD)
        self._exact_words = None if num_bits or self._foreign_stop_ids else num_words
        # xgrammar's own answer, which every row asks for.
        self._is_terminated = bool(raw.is_terminated())

    def accept_bytes(self, data: bytes) -> bool:
        if not data:
            return True
        if self._is_terminated or not self.raw.accept_string(data):
            return False
        self._num_steps += 1
        return True

    def rollback(self, num_steps: int) -> None:
        if num_steps > self._num_steps:
            raise ValueError(f"cannot undo {num_steps} of {self._num_steps} steps")
        if num_steps:
            self.raw.rollback(num_steps)
            self._num_steps -= num_steps
            self._is_terminated = False

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        if self._is_terminated:
            bitmask[row] = 0
            set_bits_inplace(bitmask.numpy()[row], self._stop_token_ids)
            return
        self.raw.fill_next_token_bitmask(bitmask, row)
        if bitmask.shape[1] != self._exact_words:
            self.finish_row(bitmask, row)

    def finish_row(self, bitmask: torch.Tensor, row: int) -> None:
        """Deny what xgrammar 0.2.9 sets and does not take: stop ids that are not the request's, and padding columns."""
        num_words, num_bits = divmod(self.backend.vocabulary.vocab_size, BITS_PER_WORD)
        words = bitmask.numpy()[row]
        clear_bits_inplace(words, self._foreign_stop_ids)
        if num_bits:
            words[num_words] &= (1 << num_bits) - 1
            num_words += 1
        words[num_words:] = 0

    def forced_tokens(self) -> list[int]:
        if self.is_completed():
            return []
        return spell_forced(self, self.raw.find_jump_forward_string().encode(), self.backend.vocabulary)

    def is_completed(self) -> bool:
        return bool(self.raw.is_completed())

    def is_terminated(self) -> bool:
        return self._is_terminated

    def _part(self) -> None:
        self.raw = self.raw.fork()

    def reset(self) -> None:
        self.raw.reset()
        self._num_steps = 0
        self._is_terminated = False

    def _advance(self, token_ids: Sequence[int]) -> int:
        """Accept the longest prefix that the grammar takes, and give its length."""
        for count, token_id in enumerate(token_ids):
            if self._is_terminated or not self._is_text_or_stop(token_id) or not self.raw.accept_token(token_id):
                return count
            self._num_steps += 1
            self._is_terminated = token_id in self._stop_token_ids and bool(self.raw.is_terminated())
        return len(token_ids)

    def _is_text_or_stop(self, token_id: int) -> bool:
        # xgrammar refuses other ids too, with a warning on stderr for each.
        token_bytes = self.backend.vocabulary.token_bytes
        if token_id in self._stop_token_ids or token_id in self._named:
            return True
        return 0 <= token_id < len(token_bytes) and token_bytes[token_id] != b""
