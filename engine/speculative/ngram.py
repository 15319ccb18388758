"""Prompt lookup: what followed the last few tokens when they stood here before, in the prompt or in the output.

https://arxiv.org/abs/2304.04487 shows that verbatim copies of this kind are frequent where an answer quotes its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class NgramIndex:
    """Tokens of one sequence, with the last place of every short run of them.

    Args:
        max_n: Longest run that is looked up; longer ones come first.
        min_n: Shortest.
    """

    def __init__(self, *, max_n: int = 3, min_n: int = 1) -> None:
        self._max_n = max_n
        self._min_n = min_n
        self._token_ids: list[int] = []
        self._next_index: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._token_ids)

    def token_ids(self, stop: int | None = None) -> list[int]:
        """Give the tokens, up to the one at `stop`."""
        return self._token_ids[:stop]

    def extend(self, token_ids: Iterable[int]) -> None:
        """Add tokens at the end; cost is linear in their number."""
        tokens = self._token_ids
        for token_id in token_ids:
            # What ends in front of this token has a continuation from now on; what ends with it has none yet.
            for n in range(self._min_n, min(self._max_n, len(tokens)) + 1):
                self._next_index[tuple(tokens[-n:])] = len(tokens)
            tokens.append(token_id)

    def propose(self, tail: Sequence[int], limit: int) -> list[int]:
        """Give up to `limit` tokens that followed the longest known run at the end, when it stood there last; empty if none did.

        Args:
            tail: Tokens that are thought to come after those in the index; not remembered.
            limit: At least 0.
        """
        context = [*self._token_ids[-self._max_n :], *tail][-self._max_n :]
        for n in range(min(self._max_n, len(context)), self._min_n - 1, -1):
            start = self._next_index.get(tuple(context[-n:]))
            if start is not None:
                return self._token_ids[start : start + limit]
        return []
