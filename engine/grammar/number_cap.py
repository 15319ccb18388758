"""Bound the digits of numbers in a JSON text, whatever grammar writes it.

A small automaton over the bytes of the answer: a small model writes digits until the limit otherwise. It denies tokens, so it
works beside any matcher; strings are left alone. Exponents end at 279, so that no number becomes infinite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .bitmask import bitmask_width, clear_bits_inplace

State = tuple[str, int]
"""Where the text stands, and a count of digits (for exponents: their value so far, at least 1 for one digit)."""

START: State = ("outside", 0)
_MAX_EXPONENT = 279
_MAX_CAPS = 64
# A run that breaks the least limit by itself, and exponents of many digits.
_LONG_RUN = re.compile(rb"[0-9]{17}|[eE][+-]?[0-9]{3}")
# What adds a digit to a number that has begun.
_MORE_DIGITS = re.compile(rb"\.?[0-9]|[eE]?[+-]*[0-9]")
_NO_NUMBER = re.compile(rb'[^0-9"]*')


class NumberLimits(NamedTuple):
    """Digits before the point, after it, and the largest exponent."""

    integer: int
    fraction: int
    exponent: int


def limits_for(source: str, max_digits: int) -> NumberLimits:
    """Give the limits that leave every number which the schema itself, given as JSON text, names writable."""
    integer = fraction = max_digits
    exponent = _MAX_EXPONENT
    numbers: set[str] = set()
    json.loads(source, parse_int=numbers.add, parse_float=numbers.add)
    for number in numbers:
        parts = Decimal(number).as_tuple()
        if isinstance(parts.exponent, int):
            # One more, for a range that begins above the largest number of as many digits.
            integer = max(integer, len(parts.digits) + parts.exponent + 1)
            fraction = max(fraction, -parts.exponent)
            exponent = max(exponent, abs(parts.exponent) + len(parts.digits))
    return NumberLimits(integer, fraction, exponent)


class NumberTokens:
    """The tokens of one vocabulary that can make a number too long.

    Args:
        token_bytes: Bytes of every id.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self.token_bytes = token_bytes
        self.starting = [i for i, data in enumerate(token_bytes) if _LONG_RUN.search(data)]
        self.continuing = [i for i, data in enumerate(token_bytes) if _MORE_DIGITS.match(data)]
        self._caps: dict[NumberLimits, NumberCap] = {}

    def cap(self, limits: NumberLimits) -> NumberCap:
        """Give the automaton for `limits`; most schemas name no number and share one, with all that it found out."""
        if limits not in self._caps and len(self._caps) >= _MAX_CAPS:
            self._caps.clear()
        return self._caps.setdefault(limits, NumberCap(self, limits))


class NumberCap:
    """The automaton for one vocabulary and one set of limits; immutable but for a cache of rows, and safe in several threads."""

    def __init__(self, tokens: NumberTokens, limits: NumberLimits) -> None:
        self._tokens = tokens
        self._limits = limits
        # Per state what may stay, or None where nothing is denied, which is nearly everywhere.
        self._rows: dict[State, npt.NDArray[np.int32] | None] = {}

    def advance(self, state: State, data: bytes) -> State | None:
        """Give the state after `data`, or None if a number in it is too long."""
        kind, count = state
        if kind == "string" and b'"' not in data and b"\\" not in data:
            return state
        if kind == "outside" and _NO_NUMBER.fullmatch(data):
            return START
        for byte in data:
            if kind == "string":
                kind = "escape" if byte == 0x5C else "outside" if byte == 0x22 else "string"
            elif kind == "escape":
                kind = "string"
            elif 0x30 <= byte <= 0x39:
                kind, count = self._digit(kind, count, byte - 0x30)
                if kind == "too long":
                    return None
            else:
                kind, count = _after(kind, byte), 0
        return kind, count

    def kept(self, state: State) -> npt.NDArray[np.int32] | None:
        """Give the row that lacks the tokens which would make a number too long, int32 `(words,)`; None if there are none."""
        try:
            return self._rows[state]
        except KeyError:
            return self._rows.setdefault(state, self._find_kept(state))

    def _find_kept(self, state: State) -> npt.NDArray[np.int32] | None:
        candidates = {*self._tokens.starting}
        if state[0] not in ("outside", "string", "escape"):
            candidates.update(self._tokens.continuing)
        token_bytes = self._tokens.token_bytes
        denied = tuple(i for i in candidates if self.advance(state, token_bytes[i]) is None)
        if not denied:
            return None
        row = np.full(bitmask_width(len(token_bytes)), -1, dtype=np.int32)
        clear_bits_inplace(row, denied)
        return row

    def _digit(self, kind: str, count: int, digit: int) -> State:
        if kind in ("point", "fraction"):
            return ("fraction", count + 1) if count < self._limits.fraction else ("too long", 0)
        if kind in ("exponent", "exponent digits"):
            value = count * 10 + digit
            # Leading zeros count too: they could go on for ever.
            return ("exponent digits", max(value, 1)) if value <= self._limits.exponent else ("too long", 0)
        return ("integer", count + 1) if kind != "integer" or count < self._limits.integer else ("too long", 0)


def _after(kind: str, byte: int) -> str:
    """Give the state after a byte that is no digit, outside of strings."""
    if byte == 0x22:
        return "string"
    if byte == 0x2E and kind == "integer":
        return "point"
    if byte in b"eE" and kind in ("integer", "fraction"):
        return "exponent"
    return "exponent" if byte in b"+-" and kind == "exponent" else "outside"
