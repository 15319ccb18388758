"""Stop strings against a search in the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.stop import StopStringFilter


def run(pieces: list[str], stops: list[str], *, keep: bool = False) -> tuple[str, str | None]:
    stop_filter = StopStringFilter(stops, keep=keep)
    text = "".join(stop_filter.feed(piece) for piece in pieces) + stop_filter.flush()
    return text, stop_filter.matched


def reference(text: str, stops: list[str], *, keep: bool) -> tuple[str, str | None]:
    """One character at a time, whole history: stop as soon as the text so far ends in a stop string."""
    for end in range(1, len(text) + 1):
        matched = [stop for stop in stops if text[:end].endswith(stop)]
        if matched:
            longest = max(matched, key=len)
            return text[: end if keep else end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text("ab\n", max_size=4), max_size=8),
    st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_any_cut_of_a_text_stops_where_the_whole_text_does(pieces: list[str], stops: list[str], keep: bool) -> None:
    assert run(pieces, stops, keep=keep) == reference("".join(pieces), stops, keep=keep)


@given(
    st.lists(st.text("abc", max_size=3), max_size=10), st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=3)
)
def test_what_was_given_out_is_never_taken_back_and_holds_little_back(pieces: list[str], stops: list[str]) -> None:
    stop_filter = StopStringFilter(stops)
    given_out, whole = "", ""
    for piece in pieces:
        whole += piece
        given_out += stop_filter.feed(piece)
        wanted = reference(whole, stops, keep=False)
        assert wanted[0].startswith(given_out)
        if wanted[1] is None:
            assert len(whole) - len(given_out) < max(map(len, stops))


@pytest.mark.parametrize(("keep", "text"), [(False, "one "), (True, "one END")], ids=["cut", "kept"])
def test_stop_string_split_over_pieces_never_leaks(keep: bool, text: str) -> None:
    stop_filter = StopStringFilter(["END"], keep=keep)
    assert [stop_filter.feed(piece) for piece in ("one E", "N", "D two", " three")] == ["one ", "", text[4:], ""]
    assert stop_filter.matched == "END"
