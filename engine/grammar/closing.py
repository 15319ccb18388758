"""The way out: tokens that finish a value from where it stands, found by a bounded search.

Text that the grammar forces is taken as it comes, closing characters come before commas, commas before digits and openings, and
letters of free text have one stand-in. The way that is found first is improved on as far as the bound allows. The shortest way is
not promised: to prove it takes a search of all texts.
"""

from __future__ import annotations

import heapq
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

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
MOST_SUFFIXES = 12
"""Tokens that may be left out at the head of a known ending."""
LONGEST_WAY, MOST_STATES, MOST_ROUNDABOUT_STATES = 2000, 2000, 600
"""Bounds of the search for any value at all."""
_FEW = 48
"""With so few legal ids each is a choice that matters (names, digits, constants); with more the text is free."""


def closing_tokens(
    matcher: Matcher, vocabulary: Vocabulary, limit: int, *, max_states: int = MAX_STATES, is_quick: bool = False
) -> list[int] | None:
    """Find few ids that lead from the state of `matcher` to a whole value; the matcher is left as it was.

    Args:
        matcher: Where the value stands.
        vocabulary: The tokens.
        limit: Longest way that is of use, in ids; the stop id is not part of it.
        max_states: Bound of the search.
        is_quick: Take the first way that is found and look for no shorter one.

    Returns:
        The ids, none if the value is whole already; None if no way was found within the bounds, though there may be one.
    """
    if matcher.is_completed():
        return []
    search = _Search(matcher, vocabulary, limit)
    try:
        return search.run(max_states, num_improving=0 if is_quick else MOST_IMPROVING_STATES)
    finally:
        search.go_to(())


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
    def __init__(self, matcher: Matcher, vocabulary: Vocabulary, limit: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._best_length = limit + 1
        self._rows = _Rows(vocabulary)
        self._path: tuple[int, ...] = ()
        self._text = b""
        # Texts that were reached, with their number of ids: the state depends on the text alone.
        self._reached: dict[bytes, int] = {b"": 0}

    def run(self, max_states: int, *, num_improving: int) -> list[int] | None:
        best, num_states = self._first_way(max_states)
        if best is not None:
            best = self._shorter_way(min(max_states - num_states, num_improving)) or best
        return None if best is None else list(best)

    def finds_any(self) -> bool:
        """Whether there is a way at all: straight down, or where that gets lost in a text without end, in all directions."""
        return self._first_way(MOST_STATES)[0] is not None or self._shorter_way(MOST_ROUNDABOUT_STATES) is not None

    def _first_way(self, max_states: int) -> tuple[tuple[int, ...] | None, int]:
        """Go down the cheapest way on, and back up where it ends."""
        stack: list[tuple[int, ...]] = [()]
        for num_states in range(max_states):
            if not stack:
                return None, num_states
            path = stack.pop()
            if not self.go_to(path):
                continue
            if self._matcher.is_completed():
                self._best_length = len(path)
                return path, num_states
            ways = sorted(self._ways_on(), key=lambda way: way[1], reverse=True)
            stack.extend(longer for token_ids, _ in ways if self._is_new(longer := path + token_ids))
        return None, max_states

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
        common = 0
        while common < min(len(path), len(self._path)) and path[common] == self._path[common]:
            common += 1
        self._matcher.rollback(len(self._path) - common)
        self._path = path[:common]
        if self._matcher.accept_tokens(path[common:]):
            self._path = path
        self._text = self._text_of(self._path)
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
        legal = np.flatnonzero(is_legal)
        for cost, start, stop in kinds.spans:
            first = int(np.searchsorted(legal, start))
            for index in legal[first : first + _MOST_OF_A_KIND.get(cost, 1)].tolist():
                if index < stop:
                    yield int(kinds.ids[index]), cost


_CLOSE, _GO_ON, _WHOLE, _DIGIT, _RUN, _OPEN, _LETTER = 0.1, 0.3, 0.31, 0.5, 0.45, 0.8, 0.6
_ONLY_WAY = 0.4
"""A longer token with a sign that no token is by itself."""
_SIGNS = (_CLOSE, _GO_ON, _OPEN, _WHOLE)
_MOST_OF_A_KIND = {_CLOSE: 4, _GO_ON: 3, _WHOLE: 3, _DIGIT: 1, _RUN: 2, _OPEN: 3, _LETTER: 1, _ONLY_WAY: 16}
_WHOLE_VALUES = frozenset((b"[]", b"{}", b'""', b"null", b"true", b"false", b"0"))


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Ids worth trying, the best first, what each costs, and ids of letters that begin no JSON value.

    Attributes:
        spans: Per cost where its ids are in `ids`.
        is_of_use_in_text: Per id of `ids` whether it can bring a string nearer to its end.
    """

    ids: npt.NDArray[np.int64]
    spans: tuple[tuple[float, int, int], ...]
    is_of_use_in_text: npt.NDArray[np.bool_]
    cost: dict[int, float]
    letters: tuple[int, ...]


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
    letters = (vocabulary.index.find(letter) for letter in (b"z", b"K", b"x", b"Q"))
    costs = [cost for cost, _, _ in found]
    is_of_use_in_text = [cost not in _SIGNS or _closes_text(vocabulary, token_id) for cost, _, token_id in found]
    return _Kinds(
        np.array([token_id for _, _, token_id in found], dtype=np.int64),
        tuple((cost, bisect_left(costs, cost), bisect_right(costs, cost)) for cost in sorted(set(costs))),
        np.array(is_of_use_in_text, dtype=bool),
        {token_id: cost for cost, _, token_id in found},
        tuple(token_id for token_id in letters if token_id is not None),
    )


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
