"""Which tokens fit into a JSON string of which only the length is bounded.

Such a string lets a token through where one without bounds does, as long as the characters in front of its closing quote are not
too many, nor too few where it closes the string. So one row of a string is enough: every other one is that row without the tokens
that do not fit, and which ones those are depends on the vocabulary only. Libraries walk all longer tokens to find that out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .bitmask import BITS_PER_WORD, bitmask_width

_MOST_ROWS = 256
_MOST_CHARS = 2**16 - 1
_QUOTE, _BACKSLASH = 0x22, 0x5C
# Of a character that takes two escapes.
_FIRST_HALF = re.compile(rb"\\u[dD][89abAB]")
_ESCAPE_LENGTH, _UNICODE_ESCAPE_LENGTH = 2, 6

Row = npt.NDArray[np.int32]


class StringFit:
    """The tokens of one vocabulary by the characters that they add to a string; used by one thread at a time.

    They are read where a character is whole. Of a character that a token leaves open the beginning counts, as it will be one.

    Args:
        token_bytes: Bytes of every id.

    Attributes:
        num_words: Words of a row.
        longest: Most characters of a token; with so much room all fit.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self.num_words = bitmask_width(len(token_bytes))
        self._num_chars, self._closes = _read(token_bytes)
        self.longest = int(self._num_chars.max(initial=0))
        self._rows: dict[tuple[int, int], Row] = {}

    def row(self, need: int, room: int) -> Row:
        """Give the row of the tokens that fit, int32 `(words,)`, not to be changed; tokens that are no text of strings are in it.

        Args:
            need: Characters that the string still must have.
            room: Characters that it may have.
        """
        found = self._rows.get((need, room))
        if found is None:
            if len(self._rows) >= _MOST_ROWS:
                self._rows.clear()
            found = self._rows[need, room] = self._find(need, room)
        return found

    def _find(self, need: int, room: int) -> Row:
        need, room = min(need, _MOST_CHARS), min(room, _MOST_CHARS)
        fits = np.zeros(self.num_words * BITS_PER_WORD, dtype=np.bool_)
        fits[: len(self._num_chars)] = (self._num_chars <= room) & ((self._num_chars >= need) | ~self._closes)
        return np.packbits(fits, bitorder="little").view(np.int32)


def _read(token_bytes: Sequence[bytes]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.bool_]]:
    """Give the characters of every token in front of its closing quote, and whether it has one."""
    data = np.frombuffer(b"".join(token_bytes), dtype=np.uint8)
    ends = np.cumsum([len(each) for each in token_bytes], dtype=np.int64)
    heads = np.concatenate(([0], np.cumsum((data & 0xC0) != 0x80)))
    num_chars = heads[ends] - heads[np.concatenate(([0], ends[:-1]))]
    closes = np.zeros(len(token_bytes), dtype=np.bool_)
    for token_id, each in enumerate(token_bytes):
        if b'"' in each or b"\\" in each:
            num_chars[token_id], closes[token_id] = _read_escaped(each)
    # Narrow, since a row reads all of them.
    return np.minimum(num_chars, _MOST_CHARS).astype(np.uint16), closes


def _read_escaped(data: bytes) -> tuple[int, bool]:
    num_chars = index = 0
    is_half = False
    while index < len(data):
        byte = data[index]
        if byte == _QUOTE:
            return num_chars, True
        if byte == _BACKSLASH:
            num_chars += not is_half
            is_half = not is_half and _FIRST_HALF.match(data, index) is not None
            index += _UNICODE_ESCAPE_LENGTH if data[index + 1 : index + 2] == b"u" else _ESCAPE_LENGTH
        else:
            index += 1
            num_chars += byte & 0xC0 != 0x80
    return num_chars, False
