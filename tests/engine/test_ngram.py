"""Prompt lookup against a search from the back of the whole history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.speculative import NgramIndex

TOKENS = st.lists(st.integers(0, 3), max_size=25)


def reference(tokens: list[int], tail: list[int], limit: int, max_n: int, min_n: int) -> list[int]:
    context = tokens + tail
    for n in range(max_n, min_n - 1, -1):
        if n > len(context):
            continue
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == context[-n:]:
                return tokens[end : end + limit]
    return []


@given(TOKENS, TOKENS, st.lists(st.integers(0, 3), max_size=4), st.integers(0, 6), st.integers(1, 3), st.integers(1, 3))
def test_lookup_finds_what_a_search_finds(
    first: list[int], second: list[int], tail: list[int], limit: int, max_n: int, min_n: int
) -> None:
    min_n = min(min_n, max_n)
    index = NgramIndex(max_n=max_n, min_n=min_n)
    index.extend(first)
    index.extend(second)
    assert len(index) == len(first + second)
    assert index.propose(tail, limit) == reference(first + second, tail, limit, max_n, min_n)


def test_only_the_end_of_a_long_prompt_is_noted() -> None:
    index = NgramIndex(max_indexed=5)
    index.extend([9, *range(100, 120)])
    assert index.propose([9], 3) == []
    assert index.propose([113], 3) == []
    assert index.propose([114], 3) == [115, 116, 117]
    index.extend([9, 8, 9])
    assert index.find([]) == (22, 1)
    assert index.propose([], 3) == [8, 9]
