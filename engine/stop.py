"""Stop strings: cut a text at the first of them, piece by piece, and never show part of one."""

from __future__ import annotations

from collections.abc import Sequence


class StopStringFilter:
    """Passes text on up to the first stop string.

    Text is held back only while it may still be the beginning of a stop string. Of several that complete at one place the longest
    counts; of several in the text, the one that completes first. Any cut of the text into pieces gives the same result.

    Args:
        stop_strings: Not empty, none of them empty.
        keep: Whether the stop string itself is passed on.
    """

    def __init__(self, stop_strings: Sequence[str], *, keep: bool = False) -> None:
        self._stop_strings = tuple(stop_strings)
        self._keep = keep
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text."""
        self.rest = ""
        """What came behind it in the piece that completed it."""

    def feed(self, piece: str) -> str:
        """Take the next piece and give the text that is certain; after a match nothing more comes."""
        if self.matched is not None:
            return ""
        text = self._held + piece
        found = [(at + len(stop), at, stop) for stop in self._stop_strings if (at := text.find(stop)) >= 0]
        if found:
            # The first to complete; of those that complete together the longest, which begins first.
            end, start, self.matched = min(found)
            self._held = ""
            self.rest = text[end:]
            return text[: end if self._keep else start]
        self._held = text[len(text) - self._tail_len(text) :]
        return text[: len(text) - len(self._held)]

    def flush(self) -> str:
        """Say that the text is over and give what was held back."""
        held, self._held = self._held, ""
        return held

    def _tail_len(self, text: str) -> int:
        """Length of the longest tail that begins a stop string."""
        longest = max(map(len, self._stop_strings)) - 1
        return next(
            (
                length
                for length in range(min(longest, len(text)), 0, -1)
                if any(stop.startswith(text[-length:]) for stop in self._stop_strings)
            ),
            0,
        )
