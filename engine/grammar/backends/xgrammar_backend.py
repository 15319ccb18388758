"""xgrammar as a grammar backend.

Its termination is state-driven: a matcher knows that its value is complete, and ends when a stop id is accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
import xgrammar

from ...errors import GrammarCompileError, UnsupportedGrammarError
from ..matcher import CompiledGrammar, Matcher
from ..spec import GrammarSpec
from ..vocabulary import Vocabulary

logger = logging.getLogger(__name__)

_COMPACT_SEPARATORS = (",", ":")


class XGrammarBackend:
    """Compiles specs with xgrammar for one vocabulary; its verbs may be called from several threads."""

    name = "xgrammar"

    def __init__(self, vocabulary: Vocabulary, *, num_threads: int) -> None:
        info = xgrammar.TokenizerInfo(
            list(vocabulary.token_bytes),
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.vocab_size,
            stop_token_ids=list(vocabulary.stop_token_ids),
        )
        # The cache is the manager's, which counts and caps it.
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=num_threads, cache_enabled=False)

    def check(self, spec: GrammarSpec) -> None:
        """Parse the schema only.

        Raises:
            UnsupportedGrammarError: xgrammar cannot compile this constraint.
        """
        try:
            xgrammar.Grammar.from_json_schema(
                spec.schema_text, any_whitespace=spec.any_whitespace, separators=_separators(spec), strict_mode=False
            )
        except Exception as error:  # xgrammar raises RuntimeError and its own classes for what it cannot parse
            raise UnsupportedGrammarError(
                f"xgrammar cannot compile this schema: {_first_line(error)}",
                hint="simplify the schema, or validate afterwards without a constraint",
            ) from error

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile a schema to a grammar.

        Raises:
            GrammarCompileError: xgrammar failed.
        """
        try:
            compiled = self._compiler.compile_json_schema(
                spec.schema_text, any_whitespace=spec.any_whitespace, separators=_separators(spec), strict_mode=False
            )
        except Exception as error:  # as above
            raise GrammarCompileError(f"xgrammar failed to compile the schema: {_first_line(error)}") from error
        return _XGrammarCompiled(compiled)


def _separators(spec: GrammarSpec) -> tuple[str, str] | None:
    # Switching free white space off alone leaves ", " and ": ".
    return None if spec.any_whitespace else _COMPACT_SEPARATORS


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


class _XGrammarCompiled:
    def __init__(self, compiled: xgrammar.CompiledGrammar) -> None:
        self._compiled = compiled

    @property
    def memory_size_bytes(self) -> int:
        return int(self._compiled.memory_size_bytes)

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        return _XGrammarMatcher(self._compiled, tuple(stop_token_ids))


class _XGrammarMatcher:
    def __init__(self, compiled: xgrammar.CompiledGrammar, stop_token_ids: tuple[int, ...]) -> None:
        self._stop_token_ids = stop_token_ids
        self._matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=list(stop_token_ids))

    def accept_tokens(self, token_ids: Sequence[int]) -> bool:
        for count, token_id in enumerate(token_ids):
            if self._matcher.is_terminated() or not self._matcher.accept_token(token_id):
                self.rollback(count)
                return False
        return True

    def validate_tokens(self, token_ids: Sequence[int]) -> int:
        count = 0
        for token_id in token_ids:
            if self._matcher.is_terminated() or not self._matcher.accept_token(token_id):
                break
            count += 1
        self.rollback(count)
        return count

    def rollback(self, num_tokens: int) -> None:
        if num_tokens:
            self._matcher.rollback(num_tokens)

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        if self._matcher.is_terminated():
            words = bitmask.numpy().view("uint32")[row]
            words[:] = 0
            for token_id in self._stop_token_ids:
                words[token_id // 32] |= 1 << (token_id % 32)
            return
        self._matcher.fill_next_token_bitmask(bitmask.numpy(), row)

    def is_completed(self) -> bool:
        return bool(self._matcher.is_completed())

    def is_terminated(self) -> bool:
        return bool(self._matcher.is_terminated())

    def reset(self) -> None:
        self._matcher.reset()
