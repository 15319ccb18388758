"""Numbers for values, handed out as they are met: states of an automaton that is built while it runs."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT", bound=Hashable)


class Interned(Generic[ValueT]):
    """Numbers values from `first` on. May be shared by threads: a race wastes a number, and each stands for one value.

    Args:
        first: The first number.
    """

    __slots__ = ("_numbers", "_unused", "_values")

    def __init__(self, first: int = 0) -> None:
        self._unused = itertools.count(first)
        self._values: dict[int, ValueT] = {}
        self._numbers: dict[ValueT, int] = {}

    def number_of(self, value: ValueT) -> int:
        """Return the number of a value, a new one if it has none."""
        number = self._numbers.get(value)
        if number is None:
            number = next(self._unused)
            self._values[number] = value
            number = self._numbers.setdefault(value, number)
        return number

    def value_of(self, number: int) -> ValueT:
        """Return the value that has this number."""
        return self._values[number]
