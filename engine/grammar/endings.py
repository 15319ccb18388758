"""Endings of answers, for all requests of an engine: searched for, guessed from known ones, and kept from the starts of grammars.

What a request gets never depends on the requests before it: all that is kept is found from the start of a grammar alone, always
within the same bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from .byte_lru import ByteLRU
from .closing import MAX_STATES, MAX_STATES_OFTEN, WayOut, WaySearch, closing_tokens, endings_behind, is_ending
from .matcher import Matcher
from .vocabulary import Vocabulary

logger = logging.getLogger(__name__)

WAYS_BYTES = 4 * 2**20
LONGEST_WAY_OUT = 4096
"""Ids of an ending at most, where no limit is near."""
STATES_FROM_START = 1000
"""States that a search from a start looks at: long answers take some for every value."""
MOST_BEGUN = 64
"""Searches that are begun and not over, at most; others are made when their way is asked for."""
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
        self._begun: dict[int, WaySearch] = {}

    def begin(self, key: int, matcher: Matcher) -> None:
        """Begin to search for the way out of a grammar, which `work` goes on with; arguments as of `from_start`."""
        if key not in self._begun and self._kept.get((key, False)) is None and len(self._begun) < MOST_BEGUN:
            self._begun[key] = self._new_search(matcher, LONGEST_WAY_OUT, STATES_FROM_START)

    def work(self, seconds: float) -> None:
        """Go on for about so long with the search that was begun first."""
        if not self._begun:
            return
        key, search = next(iter(self._begun.items()))
        try:
            is_over = search.go_on(seconds)
        except Exception:  # a backend's; whoever needs the way meets it again, and it ends that request only
            logger.exception("the search for a way out of a grammar failed")
            del self._begun[key]
            return
        if is_over:
            del self._begun[key]
            self._keep(key, search.start, search.way)

    def from_start(self, key: int, matcher: Matcher, *, is_short: bool = False) -> WayOut | None:
        """Give the way out of a whole grammar; None if none is found.

        Args:
            key: Names the grammar. What is kept is tried before it is given, so that two with one key do no harm.
            matcher: At the start of the grammar; does not change.
            is_short: Whether the way that was found first is to be made shorter, which takes some hundred milliseconds.
        """
        kept = self._kept.get((key, is_short))
        if kept is None or kept.start != matcher.state or (kept.way and not is_ending(matcher, kept.way.token_ids)):
            way = self._shorten(matcher, self.from_start(key, matcher)) if is_short else self._search_from_start(key, matcher)
            kept = self._keep(key, matcher.state, way, is_short=is_short)
        return kept.way

    def _keep(self, key: int, start: Hashable, way: WayOut | None, *, is_short: bool = False) -> _Kept:
        num_bytes = 0 if way is None else 8 * len(way.token_ids) + len(way.text) + _PLACE_BYTES * len(way.places)
        kept = _Kept(start, way)
        self._kept.put((key, is_short), kept, _ENTRY_BYTES + num_bytes)
        return kept

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

    def _search_from_start(self, key: int, matcher: Matcher) -> WayOut | None:
        begun = self._begun.pop(key, None)
        if begun is not None and begun.start == matcher.state:
            begun.go_on()
            if begun.way is None or is_ending(matcher, begun.way.token_ids):
                return begun.way
        search = self._new_search(matcher, LONGEST_WAY_OUT, STATES_FROM_START)
        search.go_on()
        return search.way

    def _shorten(self, matcher: Matcher, way: WayOut | None) -> WayOut | None:
        for _ in range(MOST_ROUNDS):
            if way is None or not way.token_ids:
                break
            search = self._new_search(matcher, len(way.token_ids) - 1, self._max_states)
            search.go_on()
            if search.way is None:
                break
            way = search.way
        return way

    def _new_search(self, matcher: Matcher, limit: int, max_states: int) -> WaySearch:
        return WaySearch(matcher, self._vocabulary, limit, max_states=max_states)
