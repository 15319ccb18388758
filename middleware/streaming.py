"""Objects as they form: reads JSON text piece by piece and gives snapshots of what is complete.

A snapshot holds completed values only: a string after its closing quote, a number after the sign that ends it. Nothing is
validated, so no half-written field can fail a check. Cost: each character is looked at once, and snapshots are thinned out
in long answers so that building them stays linear in the text.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import from_json

# Characters parsed per character received, over the whole answer: one of a few kB gives every snapshot.
_PARSED_PER_CHARACTER = 200
_ALWAYS_PARSED = 50_000
# The parser underneath goes no deeper.
_MAX_DEPTH = 190
_STRING_REST = re.compile(r'[^"\\]*')
_SCALAR = re.compile(r"[^\s,\]}\[{\":]+")
_CLOSER = {"{": "}", "[": "]"}


class PartialParser:
    """Feed the text of one JSON object or array; see `feed`."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._num_received = 0
        # The part that has not been scanned: it begins at `_text_start`, `_position` counts from there.
        self._text = ""
        self._text_start = 0
        self._position = 0
        self._open: list[str] = []
        self._in_string = False
        self._in_key = False
        self._expects_key = False
        self._safe_end = 0
        self._safe_open = ""
        self._snapshot_end = 0
        self._num_parsed = 0
        self._is_broken = False

    def feed(self, text: str) -> Any:
        """Take new text; return a snapshot if values were completed since the last one, else None."""
        self._pieces.append(text)
        self._num_received += len(text)
        if not self._is_broken:
            self._text = self._text[self._position :] + text
            self._text_start += self._position
            self._position = 0
            self._scan()
        affordable = self._num_parsed + self._safe_end <= _ALWAYS_PARSED + _PARSED_PER_CHARACTER * self._num_received
        return self.snapshot() if self.has_news and affordable else None

    @property
    def has_news(self) -> bool:
        """Whether values were completed since the last snapshot."""
        return self._safe_end > self._snapshot_end

    def snapshot(self) -> Any:
        """Return the completed values so far, None if there are none. Makes a new object at each call."""
        if not self._safe_end:
            return None
        self._snapshot_end = self._safe_end
        self._num_parsed += self._safe_end
        self._pieces = ["".join(self._pieces)]
        try:
            return from_json(self._pieces[0][: self._safe_end] + self._safe_open, allow_inf_nan=False)
        except ValueError:
            self._is_broken = True
            return None

    def _scan(self) -> None:
        while self._position < len(self._text) and not self._is_broken:
            before = self._position
            if self._in_string:
                self._scan_string()
            else:
                self._scan_token()
            if self._position == before:
                break

    def _scan_string(self) -> None:
        rest = _STRING_REST.match(self._text, self._position)
        assert rest is not None
        end = rest.end()
        if self._text.startswith("\\", end):
            # An escape whose second character has not arrived is read again with the next piece.
            self._position = end + 2 if end + 1 < len(self._text) else end
        elif end < len(self._text):
            self._position = end + 1
            self._in_string = False
            if not self._in_key:
                self._mark_safe()
        else:
            self._position = end

    def _scan_token(self) -> None:
        sign = self._text[self._position]
        if sign in "{[":
            self._open.append(sign)
            self._is_broken = len(self._open) > _MAX_DEPTH
            self._expects_key = sign == "{"
            self._position += 1
            self._mark_safe()
        elif sign in "}]":
            self._close(sign)
        elif sign == '"':
            self._in_string, self._in_key = True, self._expects_key
            self._position += 1
        elif sign in ",:":
            self._expects_key = sign == "," and self._open[-1:] == ["{"]
            self._position += 1
        elif sign.isspace():
            self._position += 1
        else:
            self._scan_scalar()

    def _close(self, sign: str) -> None:
        if not self._open or _CLOSER[self._open.pop()] != sign:
            self._is_broken = True
            return
        self._position += 1
        self._expects_key = False
        self._mark_safe()
        # What follows the whole value is not part of it.
        self._is_broken = not self._open

    def _scan_scalar(self) -> None:
        scalar = _SCALAR.match(self._text, self._position)
        if scalar is None or not self._open:
            self._is_broken = True
        elif scalar.end() < len(self._text):
            self._position = scalar.end()
            self._mark_safe()

    def _mark_safe(self) -> None:
        self._safe_end = self._text_start + self._position
        self._safe_open = "".join(_CLOSER[sign] for sign in reversed(self._open))
