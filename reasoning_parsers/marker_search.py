"""Finding markers in a text that grows: the first that completes, and the tail that may still become one.

By completion and not by beginning: whether a marker is complete depends on the text before it only, so the answer cannot change
with the next piece. The gate decides alike. Of markers that complete together the longest is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_SUFFIX_LEN = 64
"""Characters that the suffix of a marker can have; what is longer is no marker."""


class Found(NamedTuple):
    """A marker in a text.

    Attributes:
        start: Where it begins.
        stop: Where it ends.
        marker: The marker as it was given to `MarkerSearch`, without a suffix.
    """

    start: int
    stop: int
    marker: str


class MarkerSearch:
    """Searches for a fixed set of markers.

    Args:
        markers: The markers, if any; none is empty.
        suffix_pattern: Regular expression of a suffix that may stand before the last character of each; "" for none.

    Attributes:
        heads: The characters that markers begin with. A text that has none of them, and no tail before it, holds no marker.
    """

    __slots__ = ("_any", "_beginnings", "_markers", "_max_len", "_suffixed", "heads")

    def __init__(self, markers: Iterable[str], suffix_pattern: str = "") -> None:
        self._markers = tuple(markers)
        self._suffixed = tuple(_Suffixed(marker, suffix_pattern) for marker in self._markers) if suffix_pattern else ()
        self._any = re.compile("|".join(map(re.escape, self._markers)))
        self._beginnings = frozenset(marker[:length] for marker in self._markers for length in range(1, len(marker)))
        self._max_len = max(map(len, self._markers), default=0)
        self.heads = frozenset(marker[0] for marker in self._markers)

    def find(self, text: str) -> Found | None:
        """Return the marker that completes first, the longest of those that complete together; None if none is complete."""
        if not self._suffixed and self._any.search(text) is None:
            return None  # nearly every text
        found = [(start + len(marker), start, marker) for marker in self._markers if (start := text.find(marker)) >= 0]
        if self._suffixed:
            found += [match for marker in self._suffixed if (match := marker.find(text)) is not None]
        if not found:
            return None
        stop, start, marker = min(found)
        return Found(start, stop, marker)

    def match(self, text: str) -> Found | None:
        """Return the longest marker that stands at the beginning of a text, None if there is none."""
        found = [Found(0, len(marker), marker) for marker in self._markers if text.startswith(marker)]
        found += [Found(0, match[0], match[2]) for marker in self._suffixed if (match := marker.find(text)) and match[1] == 0]
        return max(found, key=lambda marker: marker.stop, default=None)

    def may_become_marker(self, text: str) -> bool:
        """Whether a text is the beginning of a marker, or nothing yet."""
        if any(marker.startswith(text) for marker in self._markers):
            return True
        return any(marker.is_beginning(text) for marker in self._suffixed)

    def tail_len(self, text: str) -> int:
        """Return the length of the longest tail of a text that is the beginning of a marker, 0 if there is none."""
        longest = max([marker.tail_len(text) for marker in self._suffixed]) if self._suffixed else 0
        first = max(0, len(text) - self._max_len + 1)
        for head in self.heads:
            start = text.find(head, first)
            while start >= 0:
                if text[start:] in self._beginnings:
                    longest = max(longest, len(text) - start)
                    break
                start = text.find(head, start + 1)
        return longest


class _Suffixed:
    """One marker with a suffix, in which there is no white space and neither the first nor the last character of the marker."""

    __slots__ = ("_marker", "_outside", "_pattern", "_stem")

    def __init__(self, marker: str, suffix_pattern: str) -> None:
        self._marker, self._stem = marker, marker[:-1]
        stem, first, last = map(re.escape, (self._stem, marker[0], marker[-1]))
        self._outside = re.compile(rf"[\s{first}{last}]")
        self._pattern = re.compile(rf"{stem}(?=[^\s{first}{last}]{{1,{MAX_SUFFIX_LEN}}}{last})(?:{suffix_pattern}){last}")

    def find(self, text: str) -> tuple[int, int, str] | None:
        match = self._pattern.search(text)
        return None if match is None else (match.end(), match.start(), self._marker)

    def is_beginning(self, text: str) -> bool:
        rest = text.removeprefix(self._stem)
        return len(rest) < len(text) and len(rest) <= MAX_SUFFIX_LEN and self._outside.search(rest) is None

    def tail_len(self, text: str) -> int:
        index = text.rfind(self._stem)
        return len(text) - index if index >= 0 and self.is_beginning(text[index:]) else 0
