"""Endings of answers, for all requests of an engine: searched for, guessed from known ones, and kept from the starts of grammars.

What a request gets never depends on the requests before it: all that is kept is found from the start of a grammar alone, always
within the same bounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from .byte_lru import ByteLRU
from .closing import MAX_STATES, MAX_STATES_OFTEN, WayOut, closing_tokens, endings_behind, find_way_out, is_ending
from .matcher import Matcher
from .vocabulary import Vocabulary

WAYS_BYTES = 4 * 2**20
LONGEST_WAY_OUT = 4096
"""Ids of an ending at most, where no limit is near."""
STATES_FROM_START = 1000
"""States that a search from a start looks at: long answers take some for every value."""
MOST_ROUNDS = 4
"""Times that the way from a start is made shorter, where it does not fit."""
_ENTRY_BYTES, _PLACE_BYTES = 400, 600


@dataclass(frozen=True, slots=True)
class _Kept:
    start: Hashable
    way: WayOut | None


class Endings:
    """Gives endings; for one thread.

    Args:
        vocabulary: The tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._max_states = MAX_STATES_OFTEN if vocabulary.missing_bytes else MAX_STATES
        self._kept: ByteLRU[tuple[int, bool], _Kept] = ByteLRU(WAYS_BYTES)

    def from_start(self, key: int, matcher: Matcher, *, is_short: bool = False) -> WayOut | None:
        """Give the way out of a whole grammar; None if none is found.

        Args:
            key: Names the grammar. What is kept is tried before it is given, so that two with one key do no harm.
            matcher: At the start of the grammar; does not change.
            is_short: Whether the way that was found first is to be made shorter, which takes some hundred milliseconds.
        """
        kept = self._kept.get((key, is_short))
        if kept is None or kept.start != matcher.state or (kept.way and not is_ending(matcher, kept.way.token_ids)):
            way = self._shorten(matcher, self.from_start(key, matcher)) if is_short else self._search_from_start(matcher)
            kept = _Kept(matcher.state, way)
            num_bytes = 0 if way is None else 8 * len(way.token_ids) + len(way.text) + _PLACE_BYTES * len(way.places)
            self._kept.put((key, is_short), kept, _ENTRY_BYTES + num_bytes)
        return kept.way

    def find(
        self, matcher: Matcher, limit: int = LONGEST_WAY_OUT, way_out: WayOut | None = None, *, max_states: int | None = None
    ) -> list[int] | None:
        """Give ids, `limit` at most, that lead from the matcher's state to a whole value; None if none were found.

        Args:
            matcher: Where the value stands; does not change.
            limit: Most ids.
            way_out: A way from the start of the same grammar.
            max_states: Bound of the search; None takes the greatest.
        """
        most = self._max_states if max_states is None else min(max_states, self._max_states)
        return closing_tokens(matcher, self._vocabulary, limit, max_states=most, is_quick=True, way_out=way_out)

    def behind(self, ending: list[int], token_id: int) -> Iterator[list[int]]:
        """Give guesses for the ending behind a token, out of one from in front of it, the likeliest first."""
        return endings_behind(self._vocabulary, ending, token_id)

    def _search_from_start(self, matcher: Matcher) -> WayOut | None:
        return find_way_out(matcher, self._vocabulary, LONGEST_WAY_OUT, max_states=STATES_FROM_START)

    def _shorten(self, matcher: Matcher, way: WayOut | None) -> WayOut | None:
        for _ in range(MOST_ROUNDS):
            if way is None or not way.token_ids:
                break
            shorter = find_way_out(matcher, self._vocabulary, len(way.token_ids) - 1, max_states=self._max_states)
            if shorter is None:
                break
            way = shorter
        return way
