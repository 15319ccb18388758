"""Where in a JSON text an answer stands: which key, inside a string or before a value, and what of the value is written.

It follows bytes and judges nothing: the grammar does. Of a text that is no JSON it knows nothing useful, which costs drafts only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Spot = Literal["value", "string", "literal", "key", "between"]
"""Before a value, in a string value, in a number or word, in a key, anywhere else."""

MAX_DEPTH = 64
_SPACE = frozenset(b" \t\r\n")
_QUOTE, _BACKSLASH = b'"\\'


class Value(NamedTuple):
    """A string, number or word that was written to its end.

    Attributes:
        key: Bytes of the name that it stands under; that of the list, for an item.
        text: Its bytes, without quotes; escapes as they stand.
    """

    key: bytes
    text: bytes


@dataclass(slots=True)
class JsonPlace:
    """A place in a JSON text.

    Attributes:
        spot: What comes next.
        key: Bytes of the last name that was written.
        text: Bytes of the key or value that is being written.
    """

    spot: Spot = "value"
    key: bytes = b""
    text: bytes = b""
    _open: bytes = field(default=b"", repr=False)
    _is_escaped: bool = field(default=False, repr=False)

    def copy(self) -> JsonPlace:
        """Give an independent place in the same state."""
        return JsonPlace(self.spot, self.key, self.text, self._open, self._is_escaped)

    @property
    def is_in_list(self) -> bool:
        """Whether the innermost value that is open is a list."""
        return self._open.endswith(b"[")

    def feed(self, data: bytes) -> list[Value]:
        """Go on over `data`; gives the values that end in it."""
        ended: list[Value] = []
        start = 0
        while start < len(data):
            if self.spot in ("string", "key"):
                start = self._read_string(data, start, ended)
            elif self.spot == "literal":
                start = self._read_literal(data, start, ended)
            else:
                self._read_mark(data[start])
                start += 1
        return ended

    def _read_string(self, data: bytes, start: int, ended: list[Value]) -> int:
        """Read on in a string; gives where to go on."""
        stop = start
        while stop < len(data):
            byte = data[stop]
            if self._is_escaped:
                self._is_escaped = False
            elif byte == _BACKSLASH:
                self._is_escaped = True
            elif byte == _QUOTE:
                self.text += data[start:stop]
                if self.spot == "key":
                    self.key = self.text
                else:
                    ended.append(Value(self.key, self.text))
                self.spot, self.text = "between", b""
                return stop + 1
            stop += 1
        self.text += data[start:]
        return stop

    def _read_literal(self, data: bytes, start: int, ended: list[Value]) -> int:
        stop = start
        while stop < len(data) and data[stop] not in b",]} \t\r\n":
            stop += 1
        self.text += data[start:stop]
        if stop < len(data):
            ended.append(Value(self.key, self.text))
            self.spot, self.text = "between", b""
        return stop

    def _read_mark(self, byte: int) -> None:
        if byte in _SPACE:
            return
        if byte == _QUOTE:
            is_name = self.spot == "between" and self._open.endswith(b"{")
            self.spot = "key" if is_name else "string"
        elif byte in b"{[":
            self._open = (self._open + bytes([byte]))[-MAX_DEPTH:]
            self.spot = "between" if byte in b"{" else "value"
        elif byte in b"}]":
            self._open = self._open[:-1]
            self.spot = "between"
        elif byte in b":":
            self.spot = "value"
        elif byte in b",":
            self.spot = "value" if self.is_in_list else "between"
        else:
            self.spot, self.text = "literal", bytes([byte])
