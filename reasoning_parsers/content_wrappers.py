"""Takes a wrapper off the content, as `<response>` and `</response>`: a parser around a parser.

The opening text counts at the head of the content only, the closing one only if the opening one was there and nothing but white
space follows to the end of the output; in between they are data. White space before the opening text and around the wrapped
content goes with the wrapper; `<0x0A>`, a line break as some tokenizers spell it, is white space here.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from .base import ReasoningDelta, ReasoningSplit
from .buffered import BufferedParser
from .marker_search import MarkerSearch

_LINE_BREAK = "<0x0A>"
_LINE_BREAKS = MarkerSearch((_LINE_BREAK,))
_SPACES = re.compile(rf"(?:\s|{_LINE_BREAK})*")
_TOKENS = re.compile(rf"(?P<space>\s+|{_LINE_BREAK})|[^\s<]+|<")


class UnwrappingParser:
    """Splits one message and takes the wrapper off its content. See `ReasoningParser` for the calls.

    Args:
        parser: The parser of the format, fresh.
    """

    def __init__(self, parser: BufferedParser) -> None:
        self._parser = parser
        self._wrapper = _Wrapper(parser.family.content_wrappers)

    @property
    def reasoning_ended(self) -> bool:
        """Whether all text from here on is content; once finished, whether the answer was reached at all."""
        return self._parser.reasoning_ended

    def feed(self, text: str) -> ReasoningDelta:
        """Take the next piece of the output.

        Raises:
            InvalidOptionError: The parser is finished.
        """
        delta = self._parser.feed(text)
        return ReasoningDelta(delta.reasoning, self._wrapper.feed(delta.content)) if delta.content else delta

    def finish(self) -> ReasoningDelta:
        """Say that the output is over and return what was held back. Further calls return an empty delta."""
        delta = self._parser.finish()
        return ReasoningDelta(delta.reasoning, self._wrapper.feed(delta.content) + self._wrapper.finish())

    def split(self, text: str) -> ReasoningSplit:
        """Split a whole text: feed and finish on a fresh parser with the same settings. Does not change this one."""
        fresh = UnwrappingParser(self._parser.fresh())
        first, last = fresh.feed(text), fresh.finish()
        reasoning, content = first.reasoning + last.reasoning, first.content + last.content
        return ReasoningSplit(reasoning or None, content or None, final_reached=fresh.reasoning_ended)


class _Phase(Enum):
    HEAD = auto()  # nothing but white space and part of an opening text so far
    OPENED = auto()  # nothing but white space since the opening text
    INSIDE = auto()
    CLOSED = auto()  # nothing but white space since a closing text
    PLAIN = auto()  # there is no wrapper


class _Wrapper:
    """Feed content, get it without the wrapper."""

    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        self._closers = dict(pairs)
        self._openers = MarkerSearch(self._closers)
        self._ends = self._openers  # in a wrapper: its closing text
        self._phase = _Phase.HEAD
        self._buffer = ""
        self._pending: list[str] = []  # white space, and a closing text, that may turn out to be the wrapper's
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        self._buffer += text
        while self._step():
            pass
        return self._take()

    def finish(self) -> str:
        if self._buffer or self._phase not in (_Phase.OPENED, _Phase.CLOSED):
            self._release()
        self._out.append(self._buffer)
        self._buffer = ""
        return self._take()

    def _step(self) -> bool:
        if self._phase is _Phase.PLAIN:
            self._out.append(self._buffer)
            self._buffer = ""
            return False
        if self._phase is _Phase.INSIDE:
            return self._step_inside()
        spaces = _SPACES.match(self._buffer)
        if spaces is not None and spaces[0]:
            self._pending.append(spaces[0])
            self._buffer = self._buffer[spaces.end() :]
        if _LINE_BREAK.startswith(self._buffer):
            return False
        return self._step_head() if self._phase is _Phase.HEAD else self._step_after_marker()

    def _step_head(self) -> bool:
        opener = self._openers.match(self._buffer)
        if opener is not None:
            self._phase = _Phase.OPENED
            self._ends = MarkerSearch((self._closers[opener.marker],))
            self._buffer = self._buffer[opener.stop :]
            self._pending.clear()
        elif self._openers.may_become_marker(self._buffer):
            return False
        else:
            self._phase = _Phase.PLAIN
            self._release()
        return True

    def _step_after_marker(self) -> bool:
        if self._phase is _Phase.OPENED:
            self._pending.clear()
        else:
            self._release()  # what looked like the closing text was data
        self._phase = _Phase.INSIDE
        return True

    def _step_inside(self) -> bool:
        found = self._ends.find(self._buffer)
        if found is None:
            tail = max(self._ends.tail_len(self._buffer), _LINE_BREAKS.tail_len(self._buffer))
            self._take_text(self._buffer[: len(self._buffer) - tail])
            self._buffer = self._buffer[len(self._buffer) - tail :]
            return False
        self._take_text(self._buffer[: found.start])
        self._pending.append(found.marker)
        self._buffer = self._buffer[found.stop :]
        self._phase = _Phase.CLOSED
        return True

    def _take_text(self, text: str) -> None:
        """Give out text, but for the white space at its end."""
        for token in _TOKENS.finditer(text):
            self._pending.append(token[0])
            if token["space"] is None:
                self._release()

    def _release(self) -> None:
        self._out += self._pending
        self._pending.clear()

    def _take(self) -> str:
        text = "".join(self._out)
        self._out.clear()
        return text
