"""The delimited format on text: start marker, reasoning, end marker, content.

Knows text only. The rules:

- A start marker counts at the head of the message only, white space before it aside. The end marker that completes first is
  the boundary; from then on every marker is data.
- Without an end marker the text is reasoning if the prompt or the output opened the thinking, else content.
- *Thinking switched off* (`thinking_enabled=False`): a block that the output opens all the same is reasoning if it is closed;
  if not, it loses its marker and is content, so that the content is never empty.
- *Thinking expected but not begun*: the prompt says nothing, and either the request switched thinking on or the family's
  template by default writes the start marker itself, so that an unmarked head proves nothing. Then text before the first
  marker, of either kind, goes with the reasoning, and without any marker it is content.

Text is held back only as long as the rules leave it open: the longest tail that can still become a marker; white space at
the head where a start marker may follow; and in the last two situations the text up to the marker that settles it. All
other text is given out at once. Cost is linear in the text, whatever the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import get_args

from .base import PromptState, ReasoningDelta, ReasoningSplit
from .errors import InvalidOptionError
from .family import ReasoningFamily


class _Phase(Enum):
    HEAD = auto()  # nothing but white space and part of a start marker so far
    HELD = auto()  # reasoning or content: a later marker or the end of the text settles it
    REASONING = auto()
    CONTENT = auto()


class DelimitedParser:
    """Splits one message of a family with delimiters. See `ReasoningParser` for the calls.

    Args:
        family: The row.
        prompt_state: What the prompt says.
        thinking_enabled: The request's switch; None if it was not given.
        tools_offered: Whether the family's implicit ends count.

    Raises:
        InvalidOptionError: `prompt_state` is none of the three.
    """

    def __init__(
        self,
        family: ReasoningFamily,
        *,
        prompt_state: PromptState = "unknown",
        thinking_enabled: bool | None = None,
        tools_offered: bool = False,
    ) -> None:
        if prompt_state not in get_args(PromptState):
            raise InvalidOptionError("prompt_state", f"{prompt_state!r} is none of {', '.join(get_args(PromptState))}")
        self._family = family
        self._prompt_state: PromptState = prompt_state
        self._thinking_enabled = thinking_enabled
        self._tools_offered = tools_offered

        expected = thinking_enabled or (thinking_enabled is None and family.template_opens)
        self._if_opened = _Phase.HELD if thinking_enabled is False else _Phase.REASONING
        if prompt_state == "open":
            self._if_unopened = self._if_opened
        elif prompt_state == "unknown" and expected:
            self._if_unopened = _Phase.HELD
        else:
            self._if_unopened = _Phase.CONTENT
        # With thinking switched off the head is looked at all the same: the output may begin with a leaked block.
        is_over = prompt_state == "ended" and thinking_enabled is not False
        self._phase = _Phase.CONTENT if is_over else _Phase.HEAD

        implicit_ends = family.implicit_ends if tools_offered else ()
        is_preamble = self._if_unopened is _Phase.HELD and prompt_state == "unknown"
        # A tool call after a preamble leaves it open whether anything was thought: only real markers settle that.
        self._held_markers = (family.end, family.start) if is_preamble else (family.end, *implicit_ends)
        self._reasoning_markers = (family.end, *implicit_ends)
        self._reasoning_heads = frozenset(marker[0] for marker in self._reasoning_markers)

        self._buffer = ""  # what is not given out yet: shorter than a marker between calls
        self._held: list[str] = []  # white space at the head, then text of the phase HELD
        self._finished = False

    @property
    def reasoning_ended(self) -> bool:
        """Whether all text from here on is content."""
        return self._phase is _Phase.CONTENT

    def feed(self, text: str) -> ReasoningDelta:
        """Take the next piece of the output.

        Raises:
            InvalidOptionError: The parser is finished.
        """
        if self._finished:
            raise InvalidOptionError("text", "the parser is finished; one parser serves one message")
        if not self._buffer:
            # Nearly every piece: nothing is held back, and the piece has no character that a marker begins with.
            if self._phase is _Phase.REASONING and self._reasoning_heads.isdisjoint(text):
                return ReasoningDelta(text)
            if self._phase is _Phase.CONTENT:
                return ReasoningDelta("", text)
        self._buffer += text
        reasoning: list[str] = []
        content: list[str] = []
        while self._step(reasoning, content):
            pass
        return ReasoningDelta("".join(reasoning), "".join(content))

    def finish(self) -> ReasoningDelta:
        """Say that the output is over and return what was held back. Further calls return an empty delta."""
        reasoning: list[str] = []
        content: list[str] = []
        if self._phase is _Phase.HEAD:
            # What the buffer holds is part of a start marker, and no other marker is inside one.
            self._leave_head(self._if_unopened, reasoning, content)
        self._finished = True
        rest, self._buffer = self._buffer, ""
        if self._phase is _Phase.REASONING:
            return ReasoningDelta("".join(reasoning) + rest, "")
        self._phase = _Phase.CONTENT
        self._release(content)
        return ReasoningDelta("".join(reasoning), "".join(content) + rest)

    def split(self, text: str) -> ReasoningSplit:
        """Split a whole text: feed and finish on a fresh parser with the same settings. Does not change this one."""
        fresh = DelimitedParser(
            self._family,
            prompt_state=self._prompt_state,
            thinking_enabled=self._thinking_enabled,
            tools_offered=self._tools_offered,
        )
        first, last = fresh.feed(text), fresh.finish()
        return ReasoningSplit((first.reasoning + last.reasoning) or None, (first.content + last.content) or None)

    def _step(self, reasoning: list[str], content: list[str]) -> bool:
        """Work on the buffer; True if the phase changed, so that the rest of the buffer wants another look."""
        if self._phase is _Phase.HEAD:
            return self._step_head(reasoning, content)
        if self._phase is _Phase.HELD:
            return self._step_held(reasoning)
        if self._phase is _Phase.REASONING:
            return self._step_reasoning(reasoning)
        content.append(self._buffer)
        self._buffer = ""
        return False

    def _step_head(self, reasoning: list[str], content: list[str]) -> bool:
        # The buffer never begins with white space here but for what has just come, so this stays linear.
        text = self._buffer.lstrip()
        self._held.append(self._buffer[: len(self._buffer) - len(text)])
        self._buffer = text
        if self._if_unopened is _Phase.REASONING:
            self._release(reasoning)  # reasoning in either case
        start = self._family.start
        if text.startswith(start):
            self._buffer = text[len(start) :]
            self._leave_head(self._if_opened, reasoning, content)
        elif start.startswith(text):
            return False
        else:
            self._leave_head(self._if_unopened, reasoning, content)
        return True

    def _leave_head(self, phase: _Phase, reasoning: list[str], content: list[str]) -> None:
        self._phase = phase
        if phase is not _Phase.HELD:
            self._release(reasoning if phase is _Phase.REASONING else content)

    def _step_held(self, reasoning: list[str]) -> bool:
        marker = self._take_until(self._held_markers, self._held)
        if marker is None:
            return False
        self._release(reasoning)
        self._phase = _Phase.REASONING if marker == self._family.start else _Phase.CONTENT
        return True

    def _step_reasoning(self, reasoning: list[str]) -> bool:
        if self._take_until(self._reasoning_markers, reasoning) is None:
            return False
        self._phase = _Phase.CONTENT
        return True

    def _take_until(self, markers: tuple[str, ...], out: list[str]) -> str | None:
        """Move the buffer to `out` up to the marker that completes first; without one, all but a tail that may become one.

        The marker is taken out of the buffer, unless it is an implicit end: that one is content.
        """
        found = _find_first(self._buffer, markers)
        if found is None:
            cut = len(self._buffer) - _tail_len(self._buffer, markers)
            out.append(self._buffer[:cut])
            self._buffer = self._buffer[cut:]
            return None
        index, marker = found
        out.append(self._buffer[:index])
        is_content = marker not in (self._family.start, self._family.end)
        self._buffer = self._buffer[index if is_content else index + len(marker) :]
        return marker

    def _release(self, out: list[str]) -> None:
        out.extend(self._held)
        self._held.clear()


def _find_first(text: str, markers: Iterable[str]) -> tuple[int, str] | None:
    """Find the marker that completes first, the longest of those that complete together.

    By completion and not by beginning: whether a marker is complete depends on the text before it only, so the answer
    cannot change with the next piece. The gate decides alike.
    """
    found = [(index + len(marker), index, marker) for marker in markers if (index := text.find(marker)) >= 0]
    if not found:
        return None
    _, index, marker = min(found)
    return index, marker


def _tail_len(text: str, markers: Iterable[str]) -> int:
    """Return the length of the longest tail of `text` that is the beginning of a marker, 0 if there is none."""
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest
