"""Prompt lookup: what followed the last few tokens when they stood here before, in the prompt or in the output.

https://arxiv.org/abs/2304.04487 shows that verbatim copies of this kind are frequent where an answer quotes its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_INDEXED = 32_768
"""Tokens of a prompt that are looked up, at most, the last ones: each takes some hundred bytes."""


class NgramIndex:
    """Tokens of one sequence, with the last place of every short run of them; runs are noted when one is first looked up.

    Args:
        max_n: Longest run that is looked up; longer ones come first.
        min_n: Shortest.
        max_indexed: Tokens that are noted at once, at most.
    """

    def __init__(self, *, max_n: int = 3, min_n: int = 1, max_indexed: int = MAX_INDEXED) -> None:
        self._max_n = max_n
        self._min_n = min_n
        self._max_indexed = max_indexed
        self._token_ids: list[int] = []
        self._num_indexed = 0
        self._next_index: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._token_ids)

    def token_ids(self, start: int, stop: int | None) -> list[int]:
        """Give the tokens from index `start` to the one in front of `stop`; None is the end."""
        return self._token_ids[start:stop]

    def extend(self, token_ids: Iterable[int]) -> None:
        """Add tokens at the end."""
        self._token_ids += token_ids

    def propose(self, tail: Sequence[int], limit: int) -> list[int]:
        """Give up to `limit` tokens that followed the longest known run at the end, when it stood there last; empty if none did.

        Args:
            tail: Tokens that are thought to come after those in the index; not remembered.
            limit: At least 0.
        """
        start, _ = self.find(tail)
        return [] if start is None else self._token_ids[start : start + limit]

    def find(self, tail: Sequence[int]) -> tuple[int | None, int]:
        """Give the index of what followed the longest known run at the end, and the length of that run; None and 0 if none is.

        Costs as much as tokens were added since the last time.
        """
        self._note_new()
        context = [*self._token_ids[-self._max_n :], *tail][-self._max_n :]
        for n in range(min(self._max_n, len(context)), self._min_n - 1, -1):
            start = self._next_index.get(tuple(context[-n:]))
            if start is not None:
                return start, n
        return None, 0

    def _note_new(self) -> None:
        tokens = self._token_ids
        for index in range(max(self._num_indexed, len(tokens) - self._max_indexed), len(tokens)):
            # What ends in front of this token has a continuation; what ends with the last one has none yet.
            for n in range(self._min_n, min(self._max_n, index) + 1):
                self._next_index[tuple(tokens[index - n : index])] = index
        self._num_indexed = len(tokens)
