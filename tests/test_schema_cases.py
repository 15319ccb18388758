"""Public reports on schemas as cases: what must be possible, what must never be returned, what must be refused, and where.

A text is never returned if the mask refuses it, or if the final check does and admission had listed a keyword for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import EngineError, GrammarSpec
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.matcher import CompiledGrammar
from engine.grammar.vocabulary import Vocabulary
from middleware.attempt import Problem
from middleware.output_types import OutputType

CASES = json.loads((Path(__file__).parent / "cases" / "schema_cases.json").read_text(encoding="utf-8"))
STOP = 256


@pytest.fixture(scope="module")
def backend() -> XGrammarBackend:
    return XGrammarBackend(Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,)), num_threads=1)


def read_text(text: Any) -> str:
    return "".join(piece * count for piece, count in text["repeat"]) if isinstance(text, dict) else str(text)


def is_masked_in(grammar: CompiledGrammar, text: str) -> bool:
    return grammar.new_matcher((STOP,)).accept_tokens([*text.encode(), STOP])


def passes_check(schema: Any, text: str) -> bool:
    answer: Any = OutputType(schema).validate(text)
    return not (isinstance(answer, tuple) and bool(answer) and isinstance(answer[0], Problem))


def make_spec(case: dict[str, Any]) -> GrammarSpec:
    is_flexible = case.get("options", {}).get("whitespace") == "flexible"
    return GrammarSpec.from_json_schema(case["schema"], any_whitespace=is_flexible)


@pytest.mark.parametrize("case", [case for case in CASES if case.get("refuse") is True], ids=lambda case: case["id"])
def test_case_is_refused_at_its_place(backend: XGrammarBackend, case: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as caught:
        backend.check(make_spec(case))
    wanted, named = case.get("pointer", "#"), getattr(caught.value, "pointer", None) or "#"
    assert wanted.startswith(named) or named.startswith(wanted)


@pytest.mark.parametrize("case", [case for case in CASES if case.get("refuse") is not True], ids=lambda case: case["id"])
def test_case_is_answered_right(backend: XGrammarBackend, case: dict[str, Any]) -> None:
    try:
        spec = make_spec(case)
        backend.check(spec)
    except EngineError:
        assert case.get("refuse") == "allowed"
        return
    grammar = backend.compile(spec)
    for text in map(read_text, case["accept"]):
        assert is_masked_in(grammar, text), text
        assert passes_check(case["schema"], text), text
    for text in map(read_text, case.get("may_accept", ())):
        assert passes_check(case["schema"], text), text
    for text in map(read_text, case["reject"]):
        if is_masked_in(grammar, text):
            assert spec.unenforced, text
            assert not passes_check(case["schema"], text), text
