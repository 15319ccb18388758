"""A least-recently-used mapping with a cap in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteLRU(Generic[Key, Value]):
    """Values and what they cost; the ones used longest ago go first. Not safe for several threads.

    Args:
        max_bytes: Cap of the costs together; a value that costs more than that is not taken at all.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def get(self, key: Key) -> Value | None:
        """Give a value and make it the one used last; None if it is not there."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def discard(self, key: Key) -> None:
        """Forget a value, if it is there."""
        if key in self._values:
            self.num_bytes -= self._values.pop(key)[1]

    def put(self, key: Key, value: Value, num_bytes: int) -> None:
        """Take a value, in the place of one of the same key; older ones leave until all fit."""
        self.discard(key)
        if num_bytes > self.max_bytes:
            return
        self._values[key] = (value, num_bytes)
        self.num_bytes += num_bytes
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._values.popitem(last=False)[1][1]
