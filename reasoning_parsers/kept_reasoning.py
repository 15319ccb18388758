"""The style in which the thinking stays in the content, markers and all: a parser around a parser.

Nothing is reasoning. Where the chat template wrote the start marker, so that the output lacks it, it is put back in front. The
parser inside tells whether there is thinking at all, and when it is over.
"""

from __future__ import annotations

from .base import ReasoningDelta, ReasoningSplit
from .buffered import BufferedParser


class KeptReasoningParser:
    """Gives one message out as content. See `ReasoningParser` for the calls.

    Args:
        parser: The parser of the format, fresh.
    """

    def __init__(self, parser: BufferedParser) -> None:
        self._parser = parser
        self._head: str | None = ""  # all text so far, while it is open whether it is thinking; then None

    @property
    def reasoning_ended(self) -> bool:
        """Whether the thinking is over; once finished, whether the answer was reached at all."""
        return self._parser.reasoning_ended

    def feed(self, text: str) -> ReasoningDelta:
        """Take the next piece of the output.

        Raises:
            InvalidOptionError: The parser is finished.
        """
        delta = self._parser.feed(text)
        if self._head is None:
            return ReasoningDelta("", text)
        self._head += text
        if not delta and not self._parser.reasoning_ended:
            return ReasoningDelta()
        return self._give_head(delta)

    def finish(self) -> ReasoningDelta:
        """Say that the output is over and return what was held back. Further calls return an empty delta."""
        delta = self._parser.finish()
        return ReasoningDelta() if self._head is None else self._give_head(delta)

    def split(self, text: str) -> ReasoningSplit:
        """Split a whole text: feed and finish on a fresh parser with the same settings. Does not change this one."""
        fresh = KeptReasoningParser(self._parser.fresh())
        content = fresh.feed(text).content + fresh.finish().content
        return ReasoningSplit(None, content or None, final_reached=fresh.reasoning_ended)

    def _give_head(self, delta: ReasoningDelta) -> ReasoningDelta:
        family, text = self._parser.family, self._head or ""
        self._head = None
        # Characters that are in neither were a marker.
        is_thinking = bool(delta.reasoning) or len(delta.content) < len(text)
        start = family.start if is_thinking and not text.lstrip().startswith(family.starts) else ""
        return ReasoningDelta("", start + text)
