"""What schemas the grammars cover: invalid documents let through, valid ones refused, schemas refused.

Each schema goes to raw xgrammar, to raw llguidance, and to ours, on a vocabulary of single bytes. A document counts as returned
when the mask takes it and the check afterwards passes it. A valid document is written in the schema's property order, and
it counts as accepted if one spelling of it is (`1` for `1.0`).

    python tests/bench/grammar_coverage.py [--quick] [--json FILE] [--list COLUMN]
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import llguidance
import xgrammar
from real_schemas import real_cases
from reporting import make_parser, print_table, write_json
from schema_documents import in_schema_order
from schema_sources import SchemaCase, combined_cases, suite_cases

from engine import EngineError, GrammarSpec
from engine.grammar import GrammarBackend
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.compile_cost import CompileCosts
from engine.grammar.selection import BackendSelector
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary
from middleware.validation import NotStrictJsonError, SchemaChecker, parse_strict

STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))
COMMON_VOCAB_SIZE = 128_000
"""Backends are chosen as for a vocabulary of this size: on one of bytes everything is cheap."""
MAX_RAW_XGRAMMAR_BYTES = 20_000
"""Raw xgrammar compiles larger schemas for minutes."""
Takes = Callable[[str], bool]
Compile = Callable[[Any], tuple[Takes, tuple[str, ...]]]
"""A schema in; whether a text is taken, and the pointers that are checked afterwards. Raises when it refuses."""


class _ByteTokenizer:
    eos_token_id = STOP
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<|end|>")
    special_token_ids = (STOP,)

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def raw_llguidance() -> Compile:
    """Use llguidance as its documentation does."""
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_ByteTokenizer()))
    compiler = llguidance.JsonCompiler(whitespace_flexible=False, separators=(",", ":"))

    def compile_schema(schema: Any) -> tuple[Takes, tuple[str, ...]]:
        matcher = llguidance.LLMatcher(tokenizer, compiler.compile(json.dumps(schema)), log_level=0)
        if matcher.get_error():
            raise ValueError(matcher.get_error())

        def takes(text: str) -> bool:
            token_ids = [*text.encode(), STOP]
            return bool(matcher.validate_tokens(token_ids) == len(token_ids))

        return takes, ()

    return compile_schema


def raw_xgrammar() -> Compile:
    """Use xgrammar as its documentation does."""
    info = xgrammar.TokenizerInfo([bytes([byte]) for byte in range(256)] + [b""], xgrammar.VocabType.RAW, stop_token_ids=[STOP])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile_schema(schema: Any) -> tuple[Takes, tuple[str, ...]]:
        text = json.dumps(schema)
        if len(text) > MAX_RAW_XGRAMMAR_BYTES:
            raise ValueError("too large for this bench")
        grammar = compiler.compile_json_schema(text, any_whitespace=False, separators=(",", ":"), strict_mode=False)

        def takes(text: str) -> bool:
            matcher = xgrammar.GrammarMatcher(grammar)
            return all(matcher.accept_token(token_id) for token_id in [*text.encode(), STOP])

        return takes, ()

    return compile_schema


def ours(name: str) -> Callable[[], Compile]:
    """Take the whole way of a request: admission, choice of the backend where that is `auto`, rewriting, compiling."""

    def make() -> Compile:
        backends: dict[str, GrammarBackend] = {
            "xgrammar": XGrammarBackend(BYTES, num_threads=1),
            "llguidance": LLGuidanceBackend(BYTES, num_threads=1),
        }
        selector = BackendSelector(backends, CompileCosts(COMMON_VOCAB_SIZE))

        def compile_schema(schema: Any) -> tuple[Takes, tuple[str, ...]]:
            spec = GrammarSpec.from_json_schema(schema)
            if name == "auto":
                choice = selector.choose(spec)
                chosen, checked = choice.backend, choice.unenforced
            else:
                chosen, checked = name, support_report(spec).checked(name)
            if chosen == "xgrammar" and len(spec.source) > MAX_RAW_XGRAMMAR_BYTES:
                raise ValueError("too large for this bench")
            grammar = backends[chosen].compile(spec)
            return lambda text: grammar.new_matcher((STOP,)).accept_tokens([*text.encode(), STOP]), checked

        return compile_schema

    return make


COLUMNS: dict[str, Callable[[], Compile]] = {
    "raw xgrammar": raw_xgrammar,
    "raw llguidance": raw_llguidance,
    "ours, xgrammar": ours("xgrammar"),
    "ours, llguidance": ours("llguidance"),
    "ours, auto": ours("auto"),
}


@dataclass(slots=True)
class Figure:
    """What one column did with the schemas of one source."""

    source: str
    column: str
    schemas: int = 0
    refused: int = 0
    valid: int = 0
    valid_lost: int = 0
    invalid: int = 0
    invalid_masked: int = 0
    invalid_silent: int = 0
    invalid_returned: int = 0
    seconds: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """Give one line of the table."""
        share = f"{100 * self.valid_lost / max(1, self.valid):.1f} %"
        return {
            "source": self.source, "column": self.column, "schemas": self.schemas, "refused": self.refused, "valid": self.valid,
            "valid lost": f"{self.valid_lost} ({share})", "invalid": self.invalid, "masked": self.invalid_masked,
            "let through in silence": self.invalid_silent, "returned": self.invalid_returned, "s": f"{self.seconds:.1f}",
        }  # fmt: skip

    def shares(self) -> dict[str, object]:
        """Give the counts, and the share of valid documents that were lost, in percent."""
        counts: dict[str, object] = {name: getattr(self, name) for name in _COUNTS if name != "seconds"}
        return {**counts, "valid_lost_percent": round(100 * self.valid_lost / max(1, self.valid), 2)}


_COUNTS = (
    "schemas", "refused", "valid", "valid_lost", "invalid", "invalid_masked", "invalid_silent", "invalid_returned", "seconds",
)  # fmt: skip


def spellings(value: Any, schema: Any) -> Iterator[str]:
    """Write a document in the orders that the schema may mean, numbers in the ways that mean the same."""
    seen = set()
    for arranged in (in_schema_order(value, schema), value, *_permutations(value)):
        for plain in (arranged, _whole(arranged)):
            text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
            if text not in seen:
                seen.add(text)
                yield text


def _permutations(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and 1 < len(value) < 5:
        for names in itertools.permutations(value):
            yield {name: value[name] for name in names}
    elif isinstance(value, list) and len(value) == 1:
        yield from ([item] for item in _permutations(value[0]))


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def keywords(schema: Any) -> set[str]:
    """Name the keywords of a schema, roughly: for the explanation of what was lost."""
    if isinstance(schema, Mapping):
        return set(schema).union(*map(keywords, schema.values())) & _KNOWN
    return set().union(*map(keywords, schema)) if isinstance(schema, list) else set()


_KNOWN = set(
    "$ref $dynamicRef $id $anchor $recursiveRef not if contains uniqueItems dependentRequired dependentSchemas dependencies "
    "propertyNames patternProperties unevaluatedProperties unevaluatedItems minProperties maxProperties oneOf allOf anyOf "
    "multipleOf format pattern const enum minContains prefixItems additionalItems minLength maxLength minimum maximum items "
    "properties required type".split()
)


def measure(case: SchemaCase, compile_schema: Compile, figure: Figure) -> None:
    """Put one schema through one column."""
    figure.schemas += 1
    figure.valid += len(case.valid)
    figure.invalid += len(case.invalid)
    start = time.perf_counter()
    try:
        takes, checked = compile_schema(case.schema)
    except BaseException as error:  # every backend has its own kinds of refusal; a panic of llguidance is no `Exception`
        if isinstance(error, KeyboardInterrupt):
            raise
        is_impossible = not case.valid and isinstance(error, EngineError)
        figure.refused += not is_impossible
        figure.valid_lost += len(case.valid)
        figure.invalid_masked += len(case.invalid)
        if case.valid:
            _note(figure, case, "refused: " + re.sub(r"\s+", " ", str(error))[:150])
        return
    finally:
        figure.seconds += time.perf_counter() - start
    checker = _checker(case.schema)
    for value in case.valid:
        if not any(map(takes, spellings(value, case.schema))):
            figure.valid_lost += 1
            _note(figure, case, f"lost: {json.dumps(value)[:150]}")
    for value in case.invalid:
        taken = next(filter(takes, spellings(value, case.schema)), None)
        if taken is None:
            figure.invalid_masked += 1
        else:
            figure.invalid_silent += not checked
            figure.invalid_returned += figure.column.startswith("raw") or checker is None or _passes(checker, taken)
            if not checked:
                _note(figure, case, f"silent: {taken[:150]}")


def _note(figure: Figure, case: SchemaCase, what: str) -> None:
    figure.lost.update(["+".join(sorted(keywords(case.schema))[:8])])
    figure.examples.append(f"{case.source} {case.name} | {what} | {json.dumps(case.schema)[:400]}")


def _checker(schema: Any) -> SchemaChecker | None:
    try:
        return SchemaChecker(schema)
    except Exception:  # as in `measure`
        return None


def _passes(checker: SchemaChecker, text: str) -> bool:
    try:
        return not checker.check(parse_strict(text))
    except NotStrictJsonError:
        return False


def all_cases(*, is_quick: bool) -> list[SchemaCase]:
    """Give every schema to measure with; in the quick run, a fourth to a twelfth of them."""
    step = 6 if is_quick else 1
    cases = [*suite_cases("draft7"), *suite_cases("draft2020-12")][::step]
    return cases + list(combined_cases(50 if is_quick else 300)) + list(real_cases(is_quick=is_quick))


def run(
    *, is_quick: bool = False, columns: Sequence[str] = tuple(COLUMNS), source: str | None = None, is_told: bool = False
) -> dict[str, Any]:
    """Measure the coverage.

    Args:
        is_quick: Take a sample: all columns in about a minute.
        columns: Names of the ways to compile.
        source: One source of schemas instead of all.
        is_told: Keep what was lost or let through, as texts.

    Returns:
        `rows`, one for each source and column; `total`, one for each column: counts, and the shares that have targets; `lost`, by
        column, the keywords of the schemas of which a valid document was lost; `examples`, by column.
    """
    cases = [case for case in all_cases(is_quick=is_quick) if source in (None, case.source)]
    figures: dict[tuple[str, str], Figure] = {}
    for column in columns:
        compile_schema = COLUMNS[column]()
        for case in cases:
            measure(case, compile_schema, figures.setdefault((case.source, column), Figure(case.source, column)))
    ordered = sorted(figures.values(), key=lambda figure: figure.source)
    totals = {column: total([figure for figure in ordered if figure.column == column]) for column in columns}
    return {
        "rows": [figure.row() for figure in ordered],
        "total": {column: whole.shares() for column, whole in totals.items()},
        "lost": {column: dict(whole.lost.most_common(40)) for column, whole in totals.items()},
        "examples": {column: whole.examples for column, whole in totals.items()} if is_told else {},
    }


def total(figures: Sequence[Figure]) -> Figure:
    """Add figures up."""
    whole = Figure("all", figures[0].column)
    for figure in figures:
        for name in _COUNTS:
            setattr(whole, name, getattr(whole, name) + getattr(figure, name))
        whole.lost += figure.lost
        whole.examples += figure.examples
    return whole


def main() -> None:
    """Measure, print and write."""
    parser = make_parser(__doc__ or "")
    parser.add_argument("--list", metavar="COLUMN", choices=tuple(COLUMNS), help="print what one column lost or let through")
    parser.add_argument("--only", metavar="SOURCE", help="one source")
    arguments = parser.parse_args()
    columns = (arguments.list,) if arguments.list else tuple(COLUMNS)
    found = run(is_quick=arguments.quick, columns=columns, source=arguments.only, is_told=bool(arguments.list))
    print_table("Coverage", found["rows"])
    print_table("Coverage, all sources", [{"column": column, **shares} for column, shares in found["total"].items()])
    for examples in found["examples"].values():
        print("\n".join(examples))
    written = [*found["rows"], *({"source": "all", "column": column, **shares} for column, shares in found["total"].items())]
    write_json(arguments.json, "grammar_coverage", written, is_quick=arguments.quick)


if __name__ == "__main__":
    main()
