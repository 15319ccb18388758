"""What masks cost on a sample: the texts, and whose cost is whose."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine import GrammarSpec
from engine.grammar import Matcher
from engine.grammar.mask_trial import NUM_ROWS, sample_texts, token_costs

from .grammar_backends import SMALL, make_backend, new_matcher

SPECS = {
    "object": GrammarSpec.from_json_schema({
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a", "b"],
    }),
    "any": GrammarSpec.json_object(),
    "choice": GrammarSpec.choice(["yes", "no"]),
    "regex": GrammarSpec.regex("[a-z]{3,9}"),
}  # fmt: skip


class Slow:
    """A matcher whose rows take longer, or that refuses a token from some place on."""

    def __init__(self, matcher: Matcher, *, seconds: float = 0.0, most: int = 10**9) -> None:
        self._matcher, self._seconds, self._most, self._count = matcher, seconds, most, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)

    def fill_bitmask(self, bitmask: Any, row: int) -> None:
        time.sleep(self._seconds)
        self._matcher.fill_bitmask(bitmask, row)

    def accept_tokens(self, token_ids: list[int]) -> bool:
        self._count += 1
        return self._count <= self._most and self._matcher.accept_tokens(token_ids)

    def reset(self) -> None:
        self._count = 0
        self._matcher.reset()


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
@pytest.mark.parametrize("name", SPECS)
def test_sample_texts_are_what_the_grammar_allows_and_the_same_each_time(name: str, backend: str) -> None:
    matcher = new_matcher(make_backend(backend), SPECS[name])
    texts = sample_texts(matcher, SMALL)
    assert 0 < sum(map(len, texts)) <= NUM_ROWS
    assert not any(SMALL.token_bytes[token_id] == b"" for text in texts for token_id in text)
    for number, text in enumerate(texts):
        assert matcher.accept_tokens(text)
        assert number == len(texts) - 1 or matcher.is_completed()
        matcher.reset()
    assert sample_texts(matcher, SMALL) == texts


@pytest.mark.parametrize("is_first_slow", [True, False], ids=["first", "second"])
def test_costs_are_told_in_the_order_of_the_matchers(is_first_slow: bool) -> None:
    matchers = [new_matcher(make_backend(name), SPECS["choice"]) for name in ("xgrammar", "llguidance")]
    slow: Any = Slow(matchers[not is_first_slow], seconds=0.002)
    first, second = (slow, matchers[1]) if is_first_slow else (matchers[0], slow)
    costs = token_costs(first, second, SMALL)
    assert costs is not None
    assert costs[not is_first_slow] >= 0.002 > costs[is_first_slow]
    # Both are at the start again.
    assert all(matcher.accept_tokens([*b"yes"]) for matcher in matchers)


def test_what_one_refuses_is_not_compared() -> None:
    own, other = (new_matcher(make_backend(name), SPECS["object"]) for name in ("llguidance", "xgrammar"))
    deaf: Any = Slow(other, most=0)
    assert token_costs(own, deaf, SMALL) is None
    short: Any = Slow(other, most=3)
    assert token_costs(own, short, SMALL) is not None


def test_dear_rows_are_measured_for_a_bounded_time() -> None:
    own, other = (new_matcher(make_backend(name), SPECS["object"]) for name in ("llguidance", "xgrammar"))
    slow: Any = Slow(other, seconds=0.05)
    started = time.perf_counter()
    costs = token_costs(own, slow, SMALL)
    assert costs is not None
    assert costs[1] >= 0.05
    # Without a bound all rows of all rounds would take ten seconds.
    assert time.perf_counter() - started < 5
