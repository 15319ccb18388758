"""What the stages of a cold compile take: admission, rewriting, printing, the backend's compile, the first mask.

Each is called as a request calls it, with nothing remembered of the schema; the best of some rounds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine import GrammarSpec
from engine.grammar import compile_cost, new_bitmask, support
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.rewrite import emit_llguidance, memo, pattern_memo
from engine.grammar.schema_check import check_satisfiable, strip_annotations
from engine.grammar.schema_reading import read_schema

NUM_SLOWEST = 10
ROUNDS = 3
MEMOS: tuple[Any, ...] = (
    memo.program_of, memo.rewriting_of, support._checked, support._schema_report, compile_cost._read_schema,
    emit_llguidance.is_provable, pattern_memo._printed,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColdRun:
    """One schema, and the seconds from nothing to its first mask."""

    source: str
    name: str
    schema: Any
    backend: str
    seconds: float


def slowest(runs: Sequence[ColdRun], backends: Mapping[str, XGrammarBackend | LLGuidanceBackend]) -> list[dict[str, Any]]:
    """Give the slowest runs, and the milliseconds of their stages when they are done again."""
    found = sorted(runs, key=lambda run: run.seconds, reverse=True)[:NUM_SLOWEST]
    return [
        {
            "schema": f"{run.source}/{run.name}"[:60],
            "kB": round(len(json.dumps(run.schema)) / 1000, 1),
            "ms": round(1000 * run.seconds),
            **stages(run.schema, backends[run.backend]),
        }
        for run in found
    ]


def stages(schema: Any, backend: XGrammarBackend | LLGuidanceBackend) -> dict[str, Any]:
    """Give the milliseconds of every stage."""
    rounds = [_one_round(schema, backend) for _ in range(ROUNDS)]
    return {stage: round(1000 * min(times[stage] for times in rounds), 1) for stage in rounds[0]}


def _one_round(schema: Any, backend: XGrammarBackend | LLGuidanceBackend) -> dict[str, float]:
    for remembered in MEMOS:
        remembered.cache_clear()
    times: dict[str, float] = {}

    def timed(stage: str, function: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = function()
        times[stage] = time.perf_counter() - started
        return result

    source = timed(
        "admission", lambda: json.dumps(strip_annotations(read_schema(schema)), ensure_ascii=False, separators=(",", ":"))
    )
    timed("rewriting", lambda: check_satisfiable(source))
    timed("printing", lambda: memo.rewriting_of(source, backend.name))
    compiled = timed("compile", lambda: backend.compile(GrammarSpec("json_schema", source)))
    vocabulary = backend.vocabulary
    bitmask = new_bitmask(1, vocabulary.vocab_size)
    timed("mask", lambda: compiled.new_matcher(vocabulary.stop_token_ids).fill_bitmask(bitmask, 0))
    return times
