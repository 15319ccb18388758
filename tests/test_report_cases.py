"""Constraints after public reports on other engines, and in the manner of public schemas: what must be possible, what never.

Ids name the report where there is one (`llama.cpp-4799`), else the kind. The backend is the one that a request would get.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from engine import EngineError, GrammarError, GrammarSpec
from engine.grammar import GrammarBackend
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.choice import BackendChoice
from engine.grammar.compile_cost import CompileCosts
from engine.grammar.selection import BackendSelector
from tests.test_schema_cases import BYTES, is_masked_in, passes_check

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases" / "report_cases.json").read_text(encoding="utf-8"))
TEXT_KINDS: dict[str, Callable[[Any], GrammarSpec]] = {
    "regex": GrammarSpec.regex,
    "choice": GrammarSpec.choice,
    "ebnf": GrammarSpec.ebnf,
    "lark": GrammarSpec.lark,
}
COMMON_VOCAB_SIZE = 128_000
"""Backends are chosen as for a vocabulary of this size: on one of bytes everything is cheap."""


@lru_cache
def backends() -> dict[str, GrammarBackend]:
    return {"xgrammar": XGrammarBackend(BYTES, num_threads=1), "llguidance": LLGuidanceBackend(BYTES, num_threads=1)}


def choose(spec: GrammarSpec) -> BackendChoice:
    return BackendSelector(backends(), CompileCosts(COMMON_VOCAB_SIZE)).choose(spec)


def make_spec(case: dict[str, Any]) -> GrammarSpec:
    if "schema" in case:
        return GrammarSpec.from_json_schema(case["schema"])
    if "tag" in case:
        return GrammarSpec.structural_tag(case["tag"])
    kind = next(kind for kind in TEXT_KINDS if kind in case)
    return TEXT_KINDS[kind](case[kind])


def test_every_case_is_there() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) > 400


@pytest.mark.parametrize("case", [case for case in CASES if case.get("refuse") is True], ids=lambda case: case["id"])
def test_reported_mistake_is_refused_at_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(GrammarError) as caught:
        choose(make_spec(case))
    error = caught.value
    assert error.pointer is not None or error.line is not None
    wanted, named = case.get("pointer", "#"), error.pointer or "#"
    assert wanted.startswith(named) or named.startswith(wanted)


@pytest.mark.parametrize("case", [case for case in CASES if case.get("refuse") is not True], ids=lambda case: case["id"])
def test_reported_constraint_is_met(case: dict[str, Any]) -> None:
    try:
        spec = make_spec(case)
        choice = choose(spec)
    except EngineError:
        assert case.get("refuse") == "allowed"
        return
    grammar = backends()[choice.backend].compile(spec)
    for text in case.get("accept", ()):
        assert is_masked_in(grammar, text), text
        assert passes_check(case, text), text
    for text in case.get("may_accept", ()):
        assert passes_check(case, text), text
    for text in case.get("reject", ()):
        assert not is_masked_in(grammar, text) or (choice.unenforced and not passes_check(case, text)), text
