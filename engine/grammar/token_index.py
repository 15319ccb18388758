"""Find tokens by their bytes: exact ones, longer ones, and a spelling of a text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class TokenIndex:
    """Tokens of one vocabulary sorted by their bytes; ids that are no text are not in it.

    Args:
        token_bytes: Bytes of every id; empty where an id is no text.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        # Of several ids with one text the lowest counts.
        self._ids: dict[bytes, int] = {}
        for token_id, data in enumerate(token_bytes):
            if data:
                self._ids.setdefault(data, token_id)
        self._sorted = sorted(self._ids)
        self._sorted_ids = np.array([self._ids[data] for data in self._sorted], dtype=np.int64)
        self._longest = max(map(len, self._sorted), default=0)
        # By the first two bytes how long a token that begins so may be: a few of spaces are much longer than all others.
        self._longest_by_head: dict[bytes, int] = {}
        for data in self._sorted:
            self._longest_by_head[data[:2]] = max(len(data), self._longest_by_head.get(data[:2], 1))

    def find(self, data: bytes) -> int | None:
        """Give the id of the token that is exactly `data`, or None."""
        return self._ids.get(data)

    def longer_than(self, data: bytes) -> npt.NDArray[np.int64]:
        """Give the ids of tokens that begin with `data` and go on, int64 `(count,)`: a view, not to be changed."""
        first = bisect_right(self._sorted, data)
        last = bisect_left(self._sorted, _after_all_with_prefix(data)) if data else len(self._sorted)
        return self._sorted_ids[first:last]

    def spell(self, data: bytes) -> list[int] | None:
        """Write `data` in as long tokens as possible from the left; None if the vocabulary cannot write it."""
        token_ids = self._spell_greedily(data)
        return token_ids if token_ids is not None else self._spell_thoroughly(data)

    def _spell_greedily(self, data: bytes) -> list[int] | None:
        token_ids: list[int] = []
        start = 0
        while start < len(data):
            longest = self._longest_by_head.get(data[start : start + 2], 1)
            for end in range(min(len(data), start + longest), start, -1):
                token_id = self._ids.get(data[start:end])
                if token_id is not None:
                    token_ids.append(token_id)
                    start = end
                    break
            else:
                return None
        return token_ids

    def _spell_thoroughly(self, data: bytes) -> list[int] | None:
        """Fewest tokens, by the last token of every prefix; a vocabulary without all single bytes can need it."""
        last_starts: list[int | None] = [0]
        counts: list[int] = [0]
        for end in range(1, len(data) + 1):
            best: int | None = None
            for start in range(max(0, end - self._longest), end):
                is_reachable = start == 0 or last_starts[start] is not None
                if is_reachable and data[start:end] in self._ids and (best is None or counts[start] < counts[best]):
                    best = start
            last_starts.append(best)
            counts.append(0 if best is None else counts[best] + 1)
        token_ids: list[int] = []
        end = len(data)
        while end:
            start_of_last = last_starts[end]
            if start_of_last is None:
                return None
            token_ids.append(self._ids[data[start_of_last:end]])
            end = start_of_last
        return token_ids[::-1]


def _after_all_with_prefix(prefix: bytes) -> bytes:
    """Give the least text that sorts after everything that begins with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\xff" * (len(prefix) + 64)
