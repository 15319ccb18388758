"""Finds one sequence of token ids in a stream of them (Knuth, Morris, Pratt).

The matcher has no state: the caller keeps one number, how many ids of the sequence the stream ends with. That makes going
back as easy as going on, also for sequences that overlap themselves.
"""

from __future__ import annotations

from collections.abc import Sequence


class SequenceMatcher:
    """Advances a match of one sequence.

    Args:
        sequence: The ids to find; not empty.
    """

    __slots__ = ("_borders", "sequence")

    def __init__(self, sequence: Sequence[int]) -> None:
        self.sequence = tuple(sequence)
        self._borders = _border_lengths(self.sequence)

    def advance(self, matched: int, token_id: int) -> int:
        """Return how many ids of the sequence the stream ends with after one more id. Does not change state.

        Args:
            matched: The number before it, below `len(sequence)`.
            token_id: The next id of the stream.
        """
        while matched and self.sequence[matched] != token_id:
            matched = self._borders[matched]
        return matched + 1 if self.sequence[matched] == token_id else 0

    def rests(self, matched: int) -> list[tuple[int, ...]]:
        """Return what may follow so that the sequence is complete, the shortest first.

        Args:
            matched: As in `advance`.
        """
        result = [self.sequence[matched:]]
        while matched:
            matched = self._borders[matched]
            result.append(self.sequence[matched:])
        return result


def _border_lengths(sequence: tuple[int, ...]) -> tuple[int, ...]:
    """For each length, the longest shorter beginning that is also an end of the beginning of that length."""
    borders = [0, 0]
    border = 0
    for token_id in sequence[1:]:
        while border and sequence[border] != token_id:
            border = borders[border]
        border += sequence[border] == token_id
        borders.append(border)
    return tuple(borders)
