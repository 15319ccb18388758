"""The end marker that a model writes after its thinking was ended for it.

A model whose thinking a budget cut short may go on with it in its answer, and then end it as it has learned to. That marker ends
nothing any more and is no answer: it is left out of the text, once. What stands before it was handed out already and stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from .stop import StopStringFilter


class SpareMarkerFilter:
    """Passes text on without the first marker in it, piece by piece; any cut of the text gives the same result.

    Args:
        markers: Spellings of the end marker.
    """

    def __init__(self, markers: Sequence[str]) -> None:
        self._search = StopStringFilter(markers)
        self._is_found = False

    def feed(self, piece: str) -> str:
        """Take the next piece and give the text that is certain."""
        if self._is_found:
            return piece
        before = self._search.feed(piece)
        self._is_found = self._search.matched is not None
        return before + self._search.rest

    def flush(self) -> str:
        """Say that the text is over and give what was held back."""
        return self._search.flush()
