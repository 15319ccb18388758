"""Public reports on constraints as cases: what must be possible, what must never be returned, what must be refused, and where.

A text is never returned if the mask refuses it, or if the final check does and admission had listed a keyword for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from engine import EngineError, GrammarError, GrammarSpec
from engine.grammar import GrammarBackend
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.matcher import CompiledGrammar
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary
from middleware.attempt import Problem
from middleware.output_types import OutputType

CASES = json.loads((Path(__file__).parent / "cases" / "schema_cases.json").read_text(encoding="utf-8"))
STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))
BACKENDS: dict[str, Callable[[], GrammarBackend]] = {
    "xgrammar": lambda: XGrammarBackend(BYTES, num_threads=1),
    "llguidance": lambda: LLGuidanceBackend(BYTES, num_threads=1),
}
make_backend = lru_cache(lambda name: BACKENDS[name]())
TEXT_KINDS: dict[str, Callable[[str], GrammarSpec]] = {
    "regex": GrammarSpec.regex,
    "ebnf": GrammarSpec.ebnf,
    "lark": GrammarSpec.lark,
}
ELSEWHERE: dict[str, set[str]] = {"xgrammar": {"E13"}, "llguidance": set()}
"""Cases that one backend does not take, or takes too long for: the other one does, and `auto` picks it."""


def read_text(text: Any) -> str:
    return "".join(piece * count for piece, count in text["repeat"]) if isinstance(text, dict) else str(text)


def is_masked_in(grammar: CompiledGrammar, text: str) -> bool:
    return grammar.new_matcher((STOP,)).accept_tokens([*text.encode(), STOP])


def passes_check(case: dict[str, Any], text: str) -> bool:
    """The check of a finished answer; other kinds than schemas have none, since their masks are exact."""
    if "schema" not in case and "generator" not in case:
        return True
    answer: Any = OutputType(schema_of(case)).validate(text)
    return not (isinstance(answer, tuple) and bool(answer) and isinstance(answer[0], Problem))


def schema_of(case: dict[str, Any]) -> Any:
    if "generator" not in case:
        return case["schema"]
    params = case["params"]
    assert case["generator"] == "enum_of_strings"
    return {"enum": [f"{params['prefix']}{index:0{params['digits']}}" for index in range(params["count"])]}


def make_spec(case: dict[str, Any]) -> GrammarSpec:
    for kind, make in TEXT_KINDS.items():
        if kind in case:
            return make(case[kind])
    options = case.get("options", {})
    return GrammarSpec.from_json_schema(
        schema_of(case),
        any_whitespace=options.get("whitespace") == "flexible",
        whitespace_pattern=options.get("whitespace_pattern"),
    )


def test_every_case_is_there() -> None:
    assert len({case["id"] for case in CASES}) == 67


@pytest.mark.parametrize("case", [case for case in CASES if case.get("refuse") is True], ids=lambda case: case["id"])
def test_case_is_refused_at_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(GrammarError) as caught:
        make_spec(case)
    wanted, named = case.get("pointer", "#"), caught.value.pointer or "#"
    assert wanted.startswith(named) or named.startswith(wanted)
    if "schema" not in case:
        assert (caught.value.line, caught.value.column) == (1, 1)
    assert is_masked_in(make_backend("xgrammar").compile(GrammarSpec.regex("next")), "next")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("case", [case for case in CASES if case.get("refuse") is not True], ids=lambda case: case["id"])
def test_case_is_answered_right(name: str, case: dict[str, Any]) -> None:
    if case["id"] in ELSEWHERE[name]:
        return
    backend = make_backend(name)
    try:
        spec = make_spec(case)
        backend.check(spec)
    except EngineError:
        assert case.get("refuse") == "allowed"
        return
    grammar = backend.compile(spec)
    for text in map(read_text, case["accept"]):
        assert is_masked_in(grammar, text), text
        assert passes_check(case, text), text
    for text in map(read_text, case.get("may_accept", ())):
        assert passes_check(case, text), text
    for text in map(read_text, case["reject"]):
        if is_masked_in(grammar, text):
            assert support_report(spec).checked(name), text
            assert not passes_check(case, text), text


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in {"E1.f", "E13"}], ids=lambda case: case["id"])
def test_case_of_one_backend_is_taken_by_the_other(case: dict[str, Any]) -> None:
    name = next(name for name in BACKENDS if case["id"] not in ELSEWHERE[name])
    start = time.process_time()
    grammar = make_backend(name).compile(make_spec(case))
    assert all(is_masked_in(grammar, text) for text in case["accept"])
    assert not any(is_masked_in(grammar, text) for text in case["reject"])
    assert time.process_time() - start < 2


CHECKED_ONLY = {"C6.a", "C17.c", "C17.f"}
"""Cases that no mask can decide: arrays of any length, and numbers that are no multiple."""
ALSO_CHECKED = {"C34"}
"""Cases with such a keyword whose documents break another one."""


@pytest.mark.parametrize(
    "case", [case for case in CASES if "schema" in case and case.get("refuse") is not True], ids=lambda case: case["id"]
)
def test_case_is_masked_by_some_backend(case: dict[str, Any]) -> None:
    if case.get("beyond_schema") or "options" in case:
        return
    spec = make_spec(case)
    report = support_report(spec)
    fewest = min(BACKENDS, key=lambda name: len(report.checked(name)))
    assert bool(report.checked(fewest)) is (case["id"] in CHECKED_ONLY | ALSO_CHECKED)
    grammar = make_backend("llguidance").compile(spec)
    let_through = [text for text in map(read_text, case["reject"]) if is_masked_in(grammar, text)]
    assert bool(let_through) is (case["id"] in CHECKED_ONLY)


@pytest.mark.parametrize("case", [case for case in CASES if "same_grammar_as" in case], ids=lambda case: case["id"])
def test_case_is_the_same_grammar(case: dict[str, Any]) -> None:
    twin = next(other for other in CASES if other["id"] == case["same_grammar_as"])
    assert make_spec(case) == make_spec(twin)
