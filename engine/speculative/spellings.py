"""How the model spells text that is sure to come, where that is not how its tokenizer would.

A grammar forces text, not tokens, and a model that is kept from the white space it would write takes other tokens than the
tokenizer: `":` and `"` instead of `":"`. Which ones is seen when a forced text was written, and is kept piece by piece, between
the places where both spellings meet, so that what was learned at one key holds for the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_PIECES = 4096
"""Pieces that are kept; the ones that were learned longest ago go first."""

Piece = tuple[int, ...]


class Spellings:
    """Pieces of token ids, each with the ids that the model wrote for the same text when it last had to.

    Args:
        token_bytes: Bytes of every id.
        shared: Of all requests: it learns what is learned here, and is asked where nothing is known here.
    """

    def __init__(self, token_bytes: Sequence[bytes], shared: Spellings | None = None) -> None:
        self._token_bytes = token_bytes
        self._shared = shared
        self._written: dict[Piece, Piece] = {}
        # Lengths of the pieces that begin with an id, the longest first.
        self._lengths: dict[int, list[int]] = {}

    def of_request(self) -> Spellings:
        """Give those of one request, which knows best what it wrote itself, and shares it."""
        return Spellings(self._token_bytes, self)

    def spell(self, token_ids: Sequence[int]) -> list[int]:
        """Give ids for the text of `token_ids` as the model is known to write it; the same ids where nothing is known."""
        spelled: list[int] = []
        start = 0
        while start < len(token_ids):
            length, written = self._longest(token_ids, start)
            spelled += written
            start += length
        return spelled

    def learn(self, token_ids: Sequence[int], written: Sequence[int]) -> bool:
        """Take the ids that the model wrote for the text of `token_ids`, or for its beginning.

        Returns:
            Whether all of the text was written: nothing more is to be learned of it.
        """
        if not all(self._token_bytes[token_id] for token_id in (*token_ids, *written)):
            return True  # an id that is no text is spelled in one way
        stops = {end: index for index, end in enumerate(self._ends(token_ids), start=1)}
        written_ends = self._ends(written)
        start = written_start = 0
        for written_stop, end in enumerate(written_ends, start=1):
            stop = stops.get(end)
            if stop is None:
                continue
            piece, its = tuple(token_ids[start:stop]), tuple(written[written_start:written_stop])
            if self._text(piece) != self._text(its):
                return True  # something else came instead, as near the token limit
            self._keep(piece, its)
            start, written_start = stop, written_stop
        return bool(written_ends) and written_ends[-1] >= max(stops)

    def _longest(self, token_ids: Sequence[int], start: int) -> tuple[int, Sequence[int]]:
        """Give the length of the longest known piece that begins here, and what is written for it."""
        for length in self._lengths.get(token_ids[start], ()):
            written = self._written.get(tuple(token_ids[start : start + length]))
            if written is not None:
                return length, written
        if self._shared is not None:
            return self._shared._longest(token_ids, start)
        return 1, token_ids[start : start + 1]

    def _keep(self, piece: Piece, written: Piece) -> None:
        if self._shared is not None:
            self._shared._keep(piece, written)
        # What is written as it stands is kept too: it hides what others wrote.
        if piece == written and self._shared is None:
            self._drop(piece)
            return
        if self._written.pop(piece, None) is None:
            lengths = self._lengths.setdefault(piece[0], [])
            lengths.append(len(piece))
            lengths.sort(reverse=True)
        self._written[piece] = written
        if len(self._written) > MAX_PIECES:
            self._drop(next(iter(self._written)))

    def _drop(self, piece: Piece) -> None:
        if self._written.pop(piece, None) is not None:
            lengths = self._lengths[piece[0]]
            lengths.remove(len(piece))
            if not lengths:
                del self._lengths[piece[0]]

    def _ends(self, token_ids: Sequence[int]) -> list[int]:
        return list(itertools.accumulate(len(self._token_bytes[token_id]) for token_id in token_ids))

    def _text(self, token_ids: Sequence[int]) -> bytes:
        return b"".join(self._token_bytes[token_id] for token_id in token_ids)


@dataclass(slots=True)
class _Guessed:
    """Text that was guessed as drafts.

    Attributes:
        first: Index of its first token among the drafts, then among the tokens that come next.
        num_drafts: Drafts that stand for it.
        token_ids: As the tokenizer writes it.
        written: As the model does, so far.
    """

    first: int
    num_drafts: int
    token_ids: Sequence[int]
    written: list[int] = field(default_factory=list)


class GuessedTexts:
    """Learns from one request's drafts: where a guessed text is written in other tokens, what was written spells it.

    Args:
        spellings: Of the request.
    """

    def __init__(self, spellings: Spellings) -> None:
        self._spellings = spellings
        self._guessed: list[_Guessed] = []
        # A token of it was refused, and the rest is not written yet.
        self._refused: _Guessed | None = None

    def begin(self) -> None:
        """Forget the texts of the last drafts."""
        self._guessed.clear()

    def add(self, first: int, num_drafts: int, token_ids: Sequence[int]) -> None:
        """Take a text, as the tokenizer writes it, for which drafts stand from index `first` on."""
        self._guessed.append(_Guessed(first, num_drafts, token_ids))

    def note_refused(self, index: int) -> None:
        """Take which draft did not hold."""
        if self._refused is None:
            for guessed in self._guessed:
                if guessed.first <= index < guessed.first + guessed.num_drafts:
                    self._refused = guessed

    def note_written(self, token_ids: Sequence[int]) -> None:
        """Take tokens that were written."""
        refused = self._refused
        if refused is None:
            return
        refused.written += token_ids[refused.first :]
        refused.first = max(0, refused.first - len(token_ids))
        if refused.written and self._spellings.learn(refused.token_ids, refused.written):
            self._refused = None
