"""The way out: tokens that finish a value from where it stands, found by a bounded search.

Text that the grammar forces is taken as it comes, closing characters come before commas, commas before digits and openings, and
letters of free text have one stand-in. What is found is spelled anew, in as long tokens as the grammar takes. The shortest way is
not promised: to prove it takes a search of all texts.
"""

from __future__ import annotations

import heapq
import math
import time
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from ..errors import GrammarDeadEndError
from .bitmask import clear_bits_inplace, get_bit, new_bitmask
from .matcher import Matcher
from .token_index import TokenIndex
from .vocabulary import Vocabulary

MAX_STATES = 400
"""States that one search looks at, 20 to 200 microseconds each."""
MAX_STATES_OFTEN = 100
"""The same where every token is looked at, since the vocabulary has gaps."""
MOST_IMPROVING_STATES = 60
MOST_JOINS = 16
"""Ways to a state with a known rest that may be too long before a search gives up: that rest is what is too long."""
MOST_SUFFIXES = 12
"""Tokens that may be left out at the head of a known ending."""
LONGEST_WAY, MOST_STATES, MOST_ROUNDABOUT_STATES = 2000, 2000, 600
"""Bounds of the search for any value at all."""
_FEW = 48
"""With so few legal ids each is a choice that matters (names, digits, constants); with more the text is free."""


@dataclass(frozen=True, slots=True)
class WayOut:
    """A way from the start of a grammar to a whole value; what a search that meets it need not search again.

    Attributes:
        token_ids: The way, in few ids.
        text: What they spell.
        places: By the state of the answer, where in the text that state is; see `Matcher.state`.
    """

    token_ids: tuple[int, ...]
    text: bytes
    places: Mapping[Hashable, int]

    def rest_from(self, matcher: Matcher) -> bytes | None:
        """Give the text from the state of a matcher on; None where the way does not lead through it."""
        place = self.places.get(matcher.state)
        return None if place is None else self.text[place:]


class WaySearch:
    """A search for a way from the start of a grammar, which can be done in pieces.

    Args:
        matcher: At the start of the grammar; not kept.
        vocabulary: The tokens.
        limit: Most ids of the way.
        max_states: States that are looked at.

    Attributes:
        start: The state of the matcher.
        way: What was found; None while nothing is, and where nothing was found at last.
    """

    def __init__(self, matcher: Matcher, vocabulary: Vocabulary, limit: int, *, max_states: int) -> None:
        self.start = matcher.state
        self.way: WayOut | None = None
        self._search = _Search(matcher.fork(), vocabulary, limit)
        self._walk = self._search.walk(max_states)
        self._token_bytes = vocabulary.token_bytes

    def go_on(self, seconds: float = math.inf) -> bool:
        """Search for about so long; gives whether the search is over, and must not be called after that."""
        ends_at = time.perf_counter() + seconds
        for found in self._walk:
            if found is not None:
                data = b"".join(self._token_bytes[token_id] for token_id in found)
                self.way = WayOut(tuple(found), data, self._search.places() if len(data) == self._search.text_len else {})
                return True
            if time.perf_counter() >= ends_at:
                return False
        return True


def closing_tokens(
    matcher: Matcher,
    vocabulary: Vocabulary,
    limit: int,
    *,
    max_states: int = MAX_STATES,
    is_quick: bool = False,
    way_out: WayOut | None = None,
) -> list[int] | None:
    """Find few ids that lead from the state of `matcher` to a whole value; the matcher is left as it was.

    Args:
        matcher: Where the value stands.
        vocabulary: The tokens.
        limit: Longest way that is of use, in ids; the stop id is not part of it.
        max_states: Bound of the search.
        is_quick: Take the first way that is found and look for no shorter one.
        way_out: A way from the start, whose rest is taken where the search meets it.

    Returns:
        The ids, none if the value is whole already; None if no way was found within the bounds, though there may be one.
    """
    if matcher.is_completed():
        return []
    search = _Search(matcher, vocabulary, limit, way_out)
    try:
        return search.run(max_states, num_improving=0 if is_quick else MOST_IMPROVING_STATES)
    finally:
        search.go_to(())


def is_ending(matcher: Matcher, token_ids: Sequence[int]) -> bool:
    """Whether ids lead to a whole value; the matcher is left as it was."""
    if not matcher.accept_tokens(token_ids):
        return False
    is_whole = matcher.is_completed()
    matcher.rollback(len(token_ids))
    return is_whole


def endings_behind(vocabulary: Vocabulary, ending: list[int], token_id: int) -> Iterator[list[int]]:
    """Guess the ending behind a token, out of one from in front of it; the grammar has not seen the guesses.

    Text in a string leaves the ending as it is. A token that spells its head, cut otherwise, leaves the rest of the text. And
    where a value was chosen other than the ending's, what comes after the value is the same.
    """
    yield ending
    token_bytes = vocabulary.token_bytes
    data = token_bytes[token_id]
    text = b""
    for index, own in enumerate(ending):
        text += token_bytes[own]
        if len(text) < len(data):
            continue
        if data and text.startswith(data) and token_bytes[own]:
            rest = vocabulary.index.spell(text[len(data) :])
            if rest is not None:
                yield rest + ending[index + 1 :]
        break
    for start in range(1, min(len(ending), MOST_SUFFIXES) + 1):
        yield ending[start:]


def may_go_on(matcher: Matcher, *, vocabulary: Vocabulary, stop_token_ids: tuple[int, ...]) -> bool:
    """Whether the grammar takes anything but the end; does not change state.

    Args:
        matcher: Where the value stands.
        vocabulary: The tokens.
        stop_token_ids: What ends the answer.
    """
    row = new_bitmask(1, vocabulary.vocab_size)
    matcher.fill_bitmask(row, 0)
    clear_bits_inplace(row.numpy()[0], stop_token_ids)
    return bool(row.any())


def check_way_out(matcher: Matcher, vocabulary: Vocabulary) -> None:
    """Refuse a grammar of which the vocabulary can write no value; costs nothing where a token stands for every byte.

    Args:
        matcher: At the start of the grammar; it is left as it was.
        vocabulary: The tokens.

    Raises:
        GrammarLimitError: The backend gave up.
        GrammarDeadEndError: No value was found that tokens spell.
    """
    if not vocabulary.missing_bytes or matcher.is_completed():
        return
    search = _Search(matcher, vocabulary, LONGEST_WAY)
    try:
        is_found = search.finds_any()
    finally:
        search.go_to(())
    if matcher.error is not None:
        raise matcher.error
    if not is_found:
        missing = bytes(sorted(byte for byte in vocabulary.missing_bytes if byte < 0x7F)).decode()
        hint = f"its tokenizer has no token that is just one of {missing!r}" if missing else "it lacks bytes of some characters"
        raise GrammarDeadEndError("no value of this constraint was found that the tokens of this model spell", hint=hint)


@dataclass(order=True, slots=True)
class _Node:
    cost: float
    order: int
    path: tuple[int, ...] = field(compare=False)


class _Search:
    def __init__(self, matcher: Matcher, vocabulary: Vocabulary, limit: int, way_out: WayOut | None = None) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._limit = limit
        self._way_out = way_out
        self._num_joins = 0
        self._best_length = limit + 1
        self._rows = _Rows(vocabulary)
        self._path: tuple[int, ...] = ()
        self._text = b""
        self._end: tuple[int, ...] = ()
        # Texts that were reached, with their number of ids: the state depends on the text alone.
        self._reached: dict[bytes, int] = {b"": 0}

    def run(self, max_states: int, *, num_improving: int) -> list[int] | None:
        best, num_states = self._first_way(max_states)
        if best is not None and num_improving:
            self._best_length = len(best)
            shorter = self._shorter_way(min(max_states - num_states, num_improving))
            best = best if shorter is None else list(shorter)
        return best

    def finds_any(self) -> bool:
        """Whether there is a way at all: straight down, or where that gets lost in a text without end, in all directions."""
        return self._first_way(MOST_STATES)[0] is not None or self._shorter_way(MOST_ROUNDABOUT_STATES) is not None

    @property
    def text_len(self) -> int:
        """Bytes of the way that was found."""
        return len(self._text_of(self._end))

    def places(self) -> dict[Hashable, int]:
        """Give where the states of the way that was found are in its text, as far as states can be told."""
        self.go_to(())
        places: dict[Hashable, int] = {}
        place = 0
        for token_id in self._end:
            if self._matcher.state is not None:
                places.setdefault(self._matcher.state, place)
            self.go_to((*self._path, token_id))
            place += len(self._text_of((token_id,)))
        return places

    def _first_way(self, max_states: int) -> tuple[list[int] | None, int]:
        """Give the first way that `walk` finds, and the number of states that it took."""
        num_states = 0
        for num_states, found in enumerate(self.walk(max_states), start=1):
            if found is not None:
                return found, num_states
        return None, num_states

    def walk(self, max_states: int) -> Iterator[list[int] | None]:
        """Go down the cheapest way on, and back up where it ends, a state at a time; ends with a way that was found."""
        stack: list[tuple[int, ...]] = [()]
        for _ in range(max_states):
            if not stack or self._num_joins >= MOST_JOINS:
                return
            path = stack.pop()
            # Noted when it is looked at: a shorter spelling that waits below must not hide the way straight on.
            if self.go_to(path) and (not path or self._is_new(path)):
                rest = self._rest()
                if rest is None:
                    stack += self._ways_from(path)
                else:
                    found = self._spell(path, rest)
                    if found is not None and len(found) <= self._limit:
                        self._end = path
                        yield found
                        return
            yield None

    def _ways_from(self, path: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Give the ways on, the cheapest last."""
        last, text = path[-_TAIL:], self._text_tail(path)
        ways = [
            (cost + _AGAIN * text.count(ids[-1]) if cost > _ONLY_WAY else cost + _AGAIN_SIGN * last.count(ids[-1]), ids)
            for ids, cost in self._ways_on()
        ]
        ways.sort(key=lambda way: way[0], reverse=True)
        return [path + token_ids for _, token_ids in ways if len(path) + len(token_ids) < self._best_length]

    def _text_tail(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Give the last ids, as far as they may be of one text."""
        for num_back, token_id in enumerate(reversed(path[-_TAIL:])):
            if b'"' in self._vocabulary.token_bytes[token_id]:
                return path[len(path) - num_back :]
        return path[-_TAIL:]

    def _rest(self) -> bytes | None:
        """Give the text that is known to end the value from here."""
        if self._matcher.is_completed():
            return b""
        rest = self._way_out.rest_from(self._matcher) if self._way_out is not None else None
        self._num_joins += rest is not None
        return rest

    def _spell(self, path: tuple[int, ...], rest: bytes) -> list[int] | None:
        """Write a way and the text behind it in few ids; None where the grammar does not take them, or there are too many."""
        token_bytes = self._vocabulary.token_bytes
        is_text = all(token_bytes[token_id] for token_id in path)
        found = self._vocabulary.index.spell(self._text + rest) if is_text else None
        if found is not None and len(found) <= self._limit and (rest or len(found) < len(path)):
            self.go_to(())
            if is_ending(self._matcher, found):
                return found
        return None if rest else list(path)

    def _shorter_way(self, max_states: int) -> tuple[int, ...] | None:
        """Look around from the start again, the cheapest text first, for a way with fewer ids."""
        best: tuple[int, ...] | None = None
        self._reached = {b"": 0}
        heap = [_Node(0.0, 0, ())]
        for order in range(1, max_states):
            if not heap:
                break
            node = heapq.heappop(heap)
            if len(node.path) >= self._best_length or not self.go_to(node.path):
                continue
            if self._matcher.is_completed():
                best = node.path
                self._best_length = len(best)
                continue
            for token_ids, cost in self._ways_on():
                path = node.path + token_ids
                if self._is_new(path):
                    heapq.heappush(heap, _Node(node.cost + cost, order, path))
        return best

    def go_to(self, path: tuple[int, ...]) -> bool:
        """Put the matcher where `path` leads, from wherever it is; False if it does not take all of it."""
        common = len(self._path)
        if path[:common] != self._path:
            common = next(i for i, (old, new) in enumerate(zip_longest(self._path, path)) if old != new)
            self._matcher.rollback(len(self._path) - common)
            self._path = path[:common]
            self._text = self._text_of(self._path)
        if self._matcher.accept_tokens(path[common:]):
            self._path = path
            self._text += self._text_of(path[common:])
        return self._path == path

    def _is_new(self, path: tuple[int, ...]) -> bool:
        if len(path) >= self._best_length:
            return False
        text = self._text + self._text_of(path[len(self._path) :])
        if self._reached.get(text, len(path) + 1) <= len(path):
            return False
        self._reached[text] = len(path)
        return True

    def _text_of(self, token_ids: tuple[int, ...]) -> bytes:
        token_bytes = self._vocabulary.token_bytes
        return b"".join(token_bytes[token_id] or b"\xff%d" % token_id for token_id in token_ids)

    def _ways_on(self) -> Iterator[tuple[tuple[int, ...], float]]:
        forced = self._matcher.forced_tokens()
        if forced:
            yield tuple(forced), 0.1 * len(forced)
            return
        row = self._rows.fill(self._matcher)
        if self._matcher.error is not None:
            return
        legal = self._rows.legal_ids(row)
        if len(legal) <= _FEW:
            for token_id in legal:
                yield (token_id,), self._rows.cost_of(token_id)
            return
        for group in self._rows.groups(row):
            yield (group[0],), group[1]


class _Rows:
    """Legal ids of a state, by kinds."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._bitmask = new_bitmask(1, vocabulary.vocab_size)
        self._kinds = _kinds_of(vocabulary)

    def fill(self, matcher: Matcher) -> npt.NDArray[np.int32]:
        matcher.fill_bitmask(self._bitmask, 0)
        row: npt.NDArray[np.int32] = self._bitmask.numpy()[0]
        return row

    def legal_ids(self, row: npt.NDArray[np.int32]) -> list[int]:
        """Give the legal ids if they are few, else more than `_FEW` of them."""
        words = np.flatnonzero(row)[: _FEW + 1]
        bits = np.unpackbits(row[words].view(np.uint8).reshape(len(words), 4), axis=1, bitorder="little")
        rows, columns = (places[: _FEW + 1] for places in np.nonzero(bits))
        legal: list[int] = (words[rows] * 32 + columns).tolist()
        return legal

    def cost_of(self, token_id: int) -> float:
        """Give the cost of an id among few."""
        return self._kinds.cost.get(token_id, 0.6)

    def groups(self, row: npt.NDArray[np.int32]) -> Iterator[tuple[int, float]]:
        """Give legal ids that stand for all, where the text is free."""
        kinds = self._kinds
        is_legal = ((row[kinds.ids >> 5] >> (kinds.ids & 31)) & 1).astype(bool)
        if any(get_bit(row, token_id) for token_id in kinds.letters):
            # Inside of a string brackets and commas close nothing; a quote does.
            is_legal &= kinds.is_of_use_in_text
            if not is_legal[: kinds.num_signs].any():
                yield from ((token_id, _MARK) for token_id in kinds.marks if get_bit(row, token_id))
        legal = np.flatnonzero(is_legal)
        for cost, start, stop in kinds.spans:
            first = int(np.searchsorted(legal, start))
            for index in legal[first : first + _MOST_OF_A_KIND.get(cost, 1)].tolist():
                if index < stop:
                    yield int(kinds.ids[index]), cost


_CLOSE, _GO_ON, _WHOLE, _DIGIT, _RUN, _OPEN, _LETTER = 0.1, 0.3, 0.31, 0.5, 0.45, 0.8, 0.6
_MARK = 0.44
_MARKS = b"+_-./@:"
"""What formats such as addresses have in the middle of a text; of equal ones the last one is tried first."""
_TAIL = 24
"""Ids that were written among so many last ones are tried later: what did not lead out of a text is not likely to."""
_AGAIN, _AGAIN_SIGN = 0.05, 1e-6
_ONLY_WAY = 0.4
"""A longer token with a sign that no token is by itself."""
_SIGNS = (_CLOSE, _GO_ON, _OPEN, _WHOLE)
_MOST_OF_A_KIND = {_CLOSE: 4, _GO_ON: 3, _WHOLE: 3, _DIGIT: 1, _RUN: 2, _OPEN: 3, _LETTER: 1, _ONLY_WAY: 16}
_WHOLE_VALUES = frozenset((b"[]", b"{}", b'""', b"null", b"true", b"false", b"0"))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Ids worth trying, the best first, what each costs, ids of letters that begin no JSON value, and of marks.

    Attributes:
        spans: Per cost where its ids are in `ids`.
        is_of_use_in_text: Per id of `ids` whether it can bring a string nearer to its end.
        num_signs: How many of `ids` are there for their signs, such as quotes.
    """

    ids: npt.NDArray[np.int64]
    spans: tuple[tuple[float, int, int], ...]
    is_of_use_in_text: npt.NDArray[np.bool_]
    cost: dict[int, float]
    letters: tuple[int, ...]
    marks: tuple[int, ...]
    num_signs: int


# Found once for a vocabulary, and forgotten with it.
_KNOWN: weakref.WeakKeyDictionary[TokenIndex, _Kinds] = weakref.WeakKeyDictionary()


def _kinds_of(vocabulary: Vocabulary) -> _Kinds:
    known = _KNOWN.get(vocabulary.index)
    if known is None:
        known = _KNOWN[vocabulary.index] = _find_kinds(vocabulary)
    return known


def _find_kinds(vocabulary: Vocabulary) -> _Kinds:
    found: list[tuple[float, int, int]] = []
    for token_id, data in enumerate(vocabulary.token_bytes):
        cost = _cost_of_text(data)
        if cost is None and not vocabulary.missing_bytes.isdisjoint(data):
            cost = _ONLY_WAY
        if cost is not None:
            found.append((cost, -len(data), token_id))
    found.sort()
    costs = [cost for cost, _, _ in found]
    is_of_use_in_text = [cost not in _SIGNS or _closes_text(vocabulary, token_id) for cost, _, token_id in found]
    return _Kinds(
        np.array([token_id for _, _, token_id in found], dtype=np.int64),
        tuple((cost, bisect_left(costs, cost), bisect_right(costs, cost)) for cost in sorted(set(costs))),
        np.array(is_of_use_in_text, dtype=bool),
        {token_id: cost for cost, _, token_id in found},
        _ids_of(b"zKxQ", vocabulary),
        _ids_of(_MARKS, vocabulary),
        bisect_right(costs, _GO_ON),
    )


def _ids_of(signs: bytes, vocabulary: Vocabulary) -> tuple[int, ...]:
    found = (vocabulary.index.find(bytes([sign])) for sign in signs)
    return tuple(token_id for token_id in found if token_id is not None)


def _closes_text(vocabulary: Vocabulary, token_id: int) -> bool:
    data = vocabulary.token_bytes[token_id]
    return data.startswith(b'"') or (b'"' in data and ord('"') in vocabulary.missing_bytes)


def _cost_of_text(data: bytes) -> float | None:
    if not data or len(data) > 64:
        return None
    if data in _WHOLE_VALUES:
        return _WHOLE
    letters = set(data)
    if letters <= set(b'"}]'):
        return _CLOSE
    if letters <= set(b'"}],:'):
        return _GO_ON
    if letters <= set(b'"}],:{[-'):
        return _OPEN
    if len(data) == 1:
        return _DIGIT if data.isdigit() else _LETTER
    return _RUN if len(letters) == 1 else None
