"""The channel format on text: messages with headers that say what each is. See `channels.py` for what a row says of them.

Knows text only. The rules:

- A header is an opener, what the message is, and the header's end; a frame may stand before the opener and belongs to it. What
  looks like a header and is none is text: it has no end within `MAX_HEADER_LEN` characters, or a closer stands in it. The text of
  the header decides: the answer, else a message to someone else, else a preamble to the user, else thinking.
- Where a header is due, one that a closer breaks off is a message of nobody (gpt-oss writes `<|channel|>??<|end|>` now and then):
  it goes with the reasoning as it stands, and the next message begins. Not where openers are plain text.
- The answer ends the reasoning. From there on everything is content and every marker is data, but for the closers that the
  output ends with; a second answer is data too.
- A preamble is content as well, but it is not the answer; under a constraint (`structured`) it goes with the reasoning.
- A message to a tool is content from its header on, as it stands, where tools were offered; else it goes with the reasoning, as
  it stands. Reading the call is no business of this package.
- Text without a header is content where no message is open: at the head of the output, and after a message that was closed. At
  the head, *thinking expected but not begun* is as in `delimited.py`: text before the first header goes with the reasoning.
- Where the prompt opened the thinking, the output may all the same begin with a header.
- A message that is never closed is what its header says, but with *thinking switched off* thinking is content then, as in
  `delimited.py`.
- A closer that only an answer has, where thinking was expected and had not begun, proves that the text before it was the answer.
- Messages of one kind are joined by a line break. White space between messages is part of the frame.

An output that ends in another message than the answer has not reached it (`ReasoningSplit.final_reached`). Text is held back as
in `delimited.py`; besides, a header until it ends, and closers of the answer with white space until more text follows. Cost is
linear in the text, whatever the pieces.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from .buffered import BufferedParser, ParserOptions
from .channels import Channels
from .errors import MarkerError
from .marker_search import MarkerSearch

MAX_HEADER_LEN = 512
"""Characters that a header can have, its markers included."""


class _Phase(Enum):
    HEAD = auto()  # nothing but white space and part of a marker so far
    BETWEEN = auto()  # a message was closed: nothing but white space and part of a marker since
    HEADER = auto()
    HELD = auto()  # reasoning or content: a later marker or the end of the text settles it
    REASONING = auto()
    PREAMBLE = auto()
    ANSWER = auto()
    CALL = auto()


class ChannelParser(BufferedParser):
    """Splits one message of a family with channels. See `ReasoningParser` for the calls, `BufferedParser` for the arguments.

    Raises:
        MarkerError: The family has no channels.
    """

    def _start(self, options: ParserOptions) -> None:
        if self.family.channels is None:
            raise MarkerError(f"family {self.family.name!r} has no channels", family=self.family.name, field="channels")
        channels = self.family.channels
        thinking_enabled = options.thinking_enabled
        is_expected = thinking_enabled or (thinking_enabled is None and self.family.template_opens)
        if options.prompt_state == "open":
            self._if_unlabelled = _Phase.HELD if thinking_enabled is False else _Phase.REASONING
        else:
            self._if_unlabelled = _Phase.HELD if is_expected else _Phase.ANSWER
        is_over = options.prompt_state == "ended" and thinking_enabled is not False
        self._phase = _Phase.ANSWER if is_over else _Phase.HEAD
        self._origin = self._phase  # where the header began
        self._reasoning_text = _Text(self._reasoning)
        self._content_text = _Text(self._content)
        self._tail: list[str] = []  # closers and white space that the answer may end with

        # What begins a header inside a message; where a header is due also plain text does.
        inner = (*channels.frames, *(() if channels.plain_openers else channels.openers))
        due = (*inner, *channels.openers, channels.header_end, channels.recipient)
        self._inner = MarkerSearch(inner)
        self._due = MarkerSearch(dict.fromkeys(text for text in due if text))
        self._closers = MarkerSearch(channels.closers)
        self._marks = MarkerSearch((*channels.closers, *inner))
        self._header = _HeaderReader(channels)

    @property
    def reasoning_ended(self) -> bool:
        """Whether all text from here on is content; once finished, whether the answer was reached at all."""
        return self._phase is _Phase.ANSWER or self._phase is _Phase.CALL

    def _find_heads(self) -> frozenset[str] | None:
        self._is_reasoning = self._phase is _Phase.REASONING
        match self._phase:
            case _Phase.REASONING | _Phase.PREAMBLE:
                heads = self._marks.heads
            case _Phase.ANSWER if not self._tail:
                heads = self._closers.heads
            case _Phase.CALL:
                heads = frozenset()
            case _:
                return None
        # A line break may be due before the text of a new message.
        return heads if (self._reasoning_text if self._is_reasoning else self._content_text).is_open else None

    def _step(self) -> bool:
        match self._phase:
            case _Phase.HEAD | _Phase.BETWEEN:
                return self._step_due()
            case _Phase.HEADER:
                return self._step_header()
            case _Phase.ANSWER:
                return self._step_tail() if self._tail else self._step_answer()
            case _Phase.CALL:
                self._content_text.add(self._take(len(self._buffer)))
                return False
            case _:
                return self._step_message()

    def _step_due(self) -> bool:
        """At the head and between messages: a header, a closer, or text that has no header."""
        self._held.append(self._take(len(self._buffer) - len(self._buffer.lstrip())))
        closer = self._closers.match(self._buffer)
        if closer is not None:
            self._take(closer.stop)
            self._held.clear()
            self._phase = _Phase.BETWEEN
        elif self._due.match(self._buffer) is not None:
            self._origin, self._phase = self._phase, _Phase.HEADER
        elif self._closers.may_become_marker(self._buffer) or self._due.may_become_marker(self._buffer):
            return False
        else:
            self._begin_unlabelled(self._phase)
        return True

    def _step_header(self) -> bool:
        header = self._header.read(self._buffer)
        if header is None:
            return False
        raw = self._take(header.stop)
        if header.kind is None:
            is_due = self._origin is _Phase.HEAD or self._origin is _Phase.BETWEEN
            if header.is_closed and is_due and self._inner.match(raw) is not None:
                self._held.clear()
                self._begin_message(_Phase.REASONING, raw)
            else:
                self._begin_unlabelled(self._origin)
            self._add(raw)
            return True
        if self._origin is _Phase.HELD:
            self._release(self._reasoning_text)
        self._held.clear()
        self._begin_message(header.kind, raw)
        return True

    def _begin_message(self, kind: _Phase, raw: str) -> None:
        if kind is _Phase.ANSWER or (kind is _Phase.PREAMBLE and not self._options.structured):
            self._phase = kind
            self._content_text.begin()
        elif kind is _Phase.CALL and self._options.tools_offered:
            self._phase = kind
            self._content_text.begin()
            self._content_text.add(raw)
        else:
            self._phase = _Phase.HELD if self._options.thinking_enabled is False else _Phase.REASONING
            self._reasoning_text.begin()
            if kind is _Phase.CALL:
                self._add(raw)

    def _begin_unlabelled(self, origin: _Phase) -> None:
        """Go on with text that has no header: in the message where it stands, if there is one."""
        if origin is _Phase.BETWEEN or (origin is _Phase.HEAD and self._if_unlabelled is _Phase.ANSWER):
            self._release_answer()
        elif origin is _Phase.HEAD:
            self._phase = self._if_unlabelled
            if self._phase is _Phase.REASONING:
                self._release(self._reasoning_text)
        else:
            self._phase = origin

    def _step_message(self) -> bool:
        """Inside thinking, a preamble, or text that is not settled yet."""
        found = self._marks.find(self._buffer)
        if found is None:
            self._add(self._take(len(self._buffer) - self._marks.tail_len(self._buffer)))
            return False
        self._add(self._take(found.start))
        if self._inner.match(self._buffer) is not None:
            self._origin, self._phase = self._phase, _Phase.HEADER
            return True
        closer = self._take(len(found.marker))
        if self._phase is _Phase.HELD and closer in self._header.channels.content_closers:
            self._release_answer()
            self._tail.append(closer)
            return True
        self._release(self._reasoning_text)
        self._phase = _Phase.BETWEEN
        return True

    def _step_answer(self) -> bool:
        closer = self._closers.find(self._buffer)
        if closer is None:
            self._content_text.add(self._take(len(self._buffer) - self._closers.tail_len(self._buffer)))
            return False
        self._content_text.add(self._take(closer.start))
        self._tail.append(self._take(len(closer.marker)))
        return True

    def _step_tail(self) -> bool:
        """After a closer in the answer: it was data if anything but white space and closers follows."""
        self._tail.append(self._take(len(self._buffer) - len(self._buffer.lstrip())))
        closer = self._closers.match(self._buffer)
        if closer is not None:
            self._tail.append(self._take(closer.stop))
        elif self._closers.may_become_marker(self._buffer):
            return False
        else:
            self._content_text.add("".join(self._tail))
            self._tail.clear()
        return True

    def _flush(self) -> None:
        phase = self._origin if self._phase is _Phase.HEADER else self._phase
        if phase is _Phase.BETWEEN or (phase is _Phase.HEAD and self._inner.match(self._buffer) is not None):
            self._held.clear()
            phase = _Phase.REASONING  # a header that was cut off: whatever it was, there is no answer
        elif phase is _Phase.HEAD and self._if_unlabelled is _Phase.REASONING:
            self._release(self._reasoning_text)
            phase = _Phase.REASONING
        elif phase is _Phase.HEAD or phase is _Phase.HELD:
            self._release_answer()
            phase = _Phase.ANSWER
        self._phase = phase
        if self._buffer:
            self._add("".join(self._tail) + self._buffer)
        self._tail.clear()
        self._buffer = ""

    def _add(self, text: str) -> None:
        """Give out text of the message that is open."""
        if self._phase is _Phase.HELD:
            self._held.append(text)
        elif self._phase is _Phase.REASONING:
            self._reasoning_text.add(text)
        else:
            self._content_text.add(text)

    def _take(self, length: int) -> str:
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    def _release_answer(self) -> None:
        """Go on with the answer, which what is held was the beginning of."""
        self._phase = _Phase.ANSWER
        self._content_text.begin()
        self._release(self._content_text)

    def _release(self, text: _Text) -> None:
        for held in self._held:
            text.add(held)
        self._held.clear()


class _Text:
    """Text of one kind: messages joined by a line break.

    Attributes:
        is_open: Whether the message has text, so that no line break is due.
    """

    __slots__ = ("_has_text", "_out", "is_open")

    def __init__(self, out: list[str]) -> None:
        self._out = out
        self._has_text = False
        self.is_open = False

    def begin(self) -> None:
        """Begin a message."""
        self.is_open = False

    def add(self, text: str) -> None:
        """Add text to the message."""
        if text:
            if self._has_text and not self.is_open:
                self._out.append("\n")
            self._has_text = self.is_open = True
            self._out.append(text)


class _Header(NamedTuple):
    """A header, or what looked like one.

    Attributes:
        stop: Where it ends; if it is none, where the marker ends that looked like its beginning.
        kind: The phase of the message, None if it is no header.
        is_closed: Whether it is none since a closer stands in it.
    """

    stop: int
    kind: _Phase | None
    is_closed: bool = False


class _HeaderReader:
    """Reads headers at the beginning of a text."""

    def __init__(self, channels: Channels) -> None:
        self.channels = channels
        self._openers = MarkerSearch(channels.openers)
        self._closers = MarkerSearch(channels.closers)
        marks = (*channels.frames, *channels.openers, channels.header_end, channels.recipient)
        self._first = MarkerSearch(dict.fromkeys(text for text in marks if text))
        self._split = re.compile("|".join(map(re.escape, channels.openers)))

    def read(self, text: str) -> _Header | None:
        """Return the header that a text begins with, None while more text is needed to tell."""
        window = text[:MAX_HEADER_LEN]
        end, stop = self._find_end(window)
        is_closed = self._closers.find(window[:stop]) is not None
        if is_closed or self._is_misspelt(window[:end]) or (stop is None and len(window) == MAX_HEADER_LEN):
            first = self._first.match(text)
            # Openers that are text may be seen to be none before the closer comes.
            return _Header(first.stop if first is not None else 1, None, is_closed and not self.channels.plain_openers)
        return None if stop is None else _Header(stop, self._classify(window[:end]))

    def _find_end(self, window: str) -> tuple[int | None, int | None]:
        """Where the header's text ends, and where the header does; None where it does not."""
        if self.channels.header_end:
            end = window.find(self.channels.header_end)
            return (end, end + len(self.channels.header_end)) if end >= 0 else (None, None)
        opener = self._openers.find(window)
        return (opener.stop, opener.stop) if opener is not None else (None, None)

    def _is_misspelt(self, text: str) -> bool:
        named = self._split.split(text, maxsplit=1)[1:]
        return self.channels.plain_openers and any(len(name.split()) > 1 or name != name.strip() for name in named)

    def _classify(self, text: str) -> _Phase:
        channels = self.channels
        if channels.header_end:
            names = [name.strip() for name in self._split.split(text)[1:]]
            is_tool = bool(channels.recipient) and channels.recipient in text
        else:
            names, is_tool = self._split.findall(text), False
        if not names or _is_any(names, channels.content):
            return _Phase.ANSWER
        if not is_tool and _is_any(names, channels.preamble):
            return _Phase.PREAMBLE
        if not is_tool and _is_any(names, channels.reasoning):
            return _Phase.REASONING
        return _Phase.CALL


def _is_any(names: list[str], words: tuple[str, ...]) -> bool:
    """Whether a name begins with one of the words, as a whole word."""
    return any(name.startswith(word) and not re.match(r"[\w.-]", name[len(word) :]) for name in names for word in words)
