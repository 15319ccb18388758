"""The automaton that bounds digits, against reading a text byte by byte and against trying every token."""

from __future__ import annotations

import random

import pytest

from engine.grammar.bitmask import get_bit
from engine.grammar.number_cap import START, NumberCap, NumberLimits, NumberTokens, State

PIECES = (
    b"1", b"12", b"7" * 17, b"7" * 30, b".", b".5", b".5e", b"e", b"E9", b"e99", b"e+300", b"-", b"--3", b"+1", b"e-", b"end",
    b'"', b'"}', b'a"1', b"\\", b'\\"', b"a\\", b"x", b"x12345", b'",1', b",", b",1", b":-12", b"}", b"00", b"", b" 1234567 ",
)  # fmt: skip
TIGHT = NumberLimits(3, 2, 27)
LIMITS = [NumberLimits(20, 20, 279), TIGHT]


def slowly(cap: NumberCap, state: State, data: bytes) -> State | None:
    """Byte by byte, so that nothing can be skipped: even where the whole of it is inside of a string."""
    for byte in data:
        after = cap.advance(state, bytes([byte]))
        if after is None:
            return None
        state = after
    return state


def states(cap: NumberCap, seed: int) -> set[State]:
    rng = random.Random(seed)
    found = {START}
    for _ in range(200):
        state = START
        for _ in range(rng.randrange(1, 9)):
            state = cap.advance(state, rng.choice(PIECES)) or START
            found.add(state)
    return found


@pytest.mark.parametrize("limits", LIMITS, ids=["usual", "tight"])
def test_text_at_once_is_text_byte_by_byte(limits: NumberLimits) -> None:
    cap = NumberCap(NumberTokens(PIECES), limits)
    for state in states(cap, 1):
        for data in PIECES:
            assert cap.advance(state, data) == slowly(cap, state, data), (state, data)


@pytest.mark.parametrize("limits", LIMITS, ids=["usual", "tight"])
def test_row_lacks_what_trying_every_token_refuses(limits: NumberLimits) -> None:
    # A run within one token counts only from the length that no limit is below.
    tokens = [data for data in PIECES if limits is not TIGHT or (b"12345" not in data and data != b":-12")]
    cap = NumberCap(NumberTokens(tokens), limits)
    assert len({kind for kind, _ in states(cap, 2)}) == 8
    for state in states(cap, 2):
        kept = cap.kept(state)
        denied = {i for i in range(len(tokens)) if kept is not None and not get_bit(kept, i)}
        assert denied == {i for i, data in enumerate(tokens) if slowly(cap, state, data) is None}, state
        assert kept is None or denied


def test_schemas_with_the_same_limits_share_what_was_found_out() -> None:
    tokens = NumberTokens(PIECES)
    assert tokens.cap(LIMITS[0]) is tokens.cap(NumberLimits(20, 20, 279))
    assert tokens.cap(LIMITS[0]) is not tokens.cap(TIGHT)
    kept = tokens.cap(LIMITS[0]).kept(("integer", 20))
    assert kept is not None
    assert tokens.cap(LIMITS[0]).kept(("integer", 20)) is kept


def test_number_of_remembered_automata_is_bounded() -> None:
    tokens = NumberTokens(PIECES)
    first = tokens.cap(TIGHT)
    for digits in range(200):
        tokens.cap(NumberLimits(digits, 1, 1))
    assert tokens.cap(TIGHT) is not first
