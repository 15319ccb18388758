"""How llguidance's rows get into the engine's table: whatever the width, on one core and on several."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.grammar import Matcher, fill_bitmasks, new_bitmask
from engine.grammar.backends import lanes, llguidance_matcher
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.llguidance_matcher import LLGuidanceMatcher
from engine.grammar.vocabulary import Vocabulary
from tests.engine.grammar_backends import (
    PADDED,
    SECOND_STOP,
    SMALL,
    STOP,
    allowed,
    allowed_by_trying,
    new_matcher,
    random_walk,
    schema_spec,
)

STOPS = (STOP, SECOND_STOP)
FULL = Vocabulary(
    (*SMALL.token_bytes, *(b"w%d" % i for i in range(288 - SMALL.vocab_size))), 288, STOPS, special_tokens=SMALL.special_tokens
)
"""Whole words of a row and no id to spare."""
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 12}, "b": {"type": "number"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("vocabulary", "end"), [(SMALL, SMALL.vocab_size), (PADDED, 319), (FULL, 288)], ids=["open word", "padding", "full"]
)
@pytest.mark.parametrize("width", [288, 320, 352])
def test_row_of_any_width_is_what_trying_says_and_its_end_is_nobodys_token(vocabulary: Vocabulary, end: int, width: int) -> None:
    backend = LLGuidanceBackend(vocabulary, num_threads=1)
    assert backend.end_token_id == end
    matcher = new_matcher(backend, schema_spec(SCHEMA))
    rng = random.Random(width)
    while not matcher.is_terminated():
        assert allowed(matcher, width) == [i for i in allowed_by_trying(matcher, vocabulary.vocab_size) if i < width]
        assert matcher.validate_tokens([end]) == 0
        random_walk(matcher, rng, 1)
    assert allowed(matcher, width) == [STOP, SECOND_STOP]


def crowd(monkeypatch: pytest.MonkeyPatch, size: int, *, num_threads: int) -> list[Matcher]:
    monkeypatch.setattr(lanes, "WORTH_TRYING_S", 0.0)
    backend = LLGuidanceBackend(SMALL, num_threads=num_threads)
    compiled = backend.compile(schema_spec(SCHEMA))
    return [compiled.new_matcher(STOPS) for _ in range(size)]


def automata(matchers: list[Matcher]) -> list[int]:
    return [matcher.automaton for matcher in matchers if isinstance(matcher, LLGuidanceMatcher)]


def test_crowd_of_one_grammar_is_spread_over_automata(monkeypatch: pytest.MonkeyPatch) -> None:
    used = automata(crowd(monkeypatch, 24, num_threads=2))
    assert len(set(used)) == 2
    assert sorted(used.count(automaton) for automaton in set(used)) == [12, 12]
    assert len(set(automata(crowd(monkeypatch, 3, num_threads=2)))) == 1
    assert len(set(automata(crowd(monkeypatch, 24, num_threads=1)))) == 1


def test_sequences_that_are_gone_are_no_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LLGuidanceBackend(SMALL, num_threads=2)
    compiled = backend.compile(schema_spec(SCHEMA))
    used = {automaton for _ in range(24) for automaton in automata([compiled.new_matcher(STOPS)])}
    assert len(used) == 1


def test_grammar_that_was_slow_to_build_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llguidance_matcher, "_QUICK_BUILD_S", 0.0)
    assert len(set(automata(crowd(monkeypatch, 24, num_threads=2)))) == 1


@pytest.mark.parametrize("width", [SMALL.vocab_size, 320], ids=["direct", "copied"])
def test_rows_on_several_cores_equal_rows_one_by_one(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    matchers = crowd(monkeypatch, 20, num_threads=2)
    rng = random.Random(width)
    for matcher in matchers:
        random_walk(matcher, rng, rng.randrange(40))
    assert any(matcher.is_terminated() for matcher in matchers)
    assert not all(matcher.is_terminated() for matcher in matchers)
    calls = []
    on_all_cores = LLGuidanceBackend._fill_on_all_cores

    def note(backend: LLGuidanceBackend, *arguments: Any) -> None:
        calls.append(1)
        on_all_cores(backend, *arguments)

    monkeypatch.setattr(LLGuidanceBackend, "_fill_on_all_cores", note)
    fill_bitmasks(matchers, new_bitmask(20, width), list(range(20)))
    assert not calls  # nobody knows yet what a row takes
    found, expected = new_bitmask(25, width), new_bitmask(25, width)
    rows = rng.sample(range(25), 20)
    for table in (found, expected):
        table.fill_(-1)
    fill_bitmasks(matchers, found, rows)
    for matcher, row in zip(matchers, rows, strict=True):
        matcher.fill_bitmask(expected, row)
    assert found.equal(expected)
    assert calls == [1]


@pytest.mark.parametrize(("left", "taken"), [("a", "c"), ("c", "a"), ("b", "c")])
@pytest.mark.parametrize("num_kept", [0, 1, 2], ids=["all left", "brace kept", "quote kept"])
@pytest.mark.parametrize("is_forked", [False, True], ids=["same", "fork"])
def test_row_behind_a_rollback_is_not_that_of_the_way_that_was_left(
    left: str, taken: str, num_kept: int, is_forked: bool
) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abc"}, "required": ["c"]}
    backend = LLGuidanceBackend(SMALL, num_threads=1)
    matcher = new_matcher(backend, schema_spec(schema))
    old, new = (f'{{"{name}":"'.encode() for name in (left, taken))
    assert matcher.accept_tokens([*old])
    allowed(matcher)
    matcher.rollback(len(old) - num_kept)
    matcher = matcher.fork() if is_forked else matcher
    assert matcher.accept_tokens([*new[num_kept:]])
    assert allowed(matcher) == allowed_by_trying(matcher)
