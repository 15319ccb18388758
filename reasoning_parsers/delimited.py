"""The delimited format on text: start marker, reasoning, end marker, content.

Knows text only. The rules:

- A start marker, in any of its spellings, counts at the head of the message only, white space before it aside; a label right
  after it belongs to it. The end marker that completes first is the boundary; from then on every marker is data.
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

from enum import Enum, auto

from .buffered import BufferedParser, ParserOptions
from .marker_search import MarkerSearch


class _Phase(Enum):
    HEAD = auto()  # nothing but white space and part of a start marker so far
    LABEL = auto()  # right after the start marker: part of the label so far
    HELD = auto()  # reasoning or content: a later marker or the end of the text settles it
    REASONING = auto()
    CONTENT = auto()


class DelimitedParser(BufferedParser):
    """Splits one message of a family with delimiters. See `ReasoningParser` for the calls, `BufferedParser` for the arguments."""

    def _start(self, options: ParserOptions) -> None:
        family = self.family
        prompt_state, thinking_enabled = options.prompt_state, options.thinking_enabled
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
        self._after_label = self._if_opened

        implicit_ends = family.implicit_ends if options.tools_offered else ()
        is_preamble = self._if_unopened is _Phase.HELD and prompt_state == "unknown"
        suffix = family.marker_suffix_pattern
        self._starts = MarkerSearch(family.starts, suffix)
        self._ends = MarkerSearch((*family.ends, *implicit_ends), suffix)
        # A tool call after a preamble leaves it open whether anything was thought: only real markers settle that.
        self._held_markers = MarkerSearch((*family.ends, *family.starts), suffix) if is_preamble else self._ends

    @property
    def reasoning_ended(self) -> bool:
        """Whether all text from here on is content; once finished, whether the answer was reached at all."""
        return self._phase is _Phase.CONTENT

    def _find_heads(self) -> frozenset[str] | None:
        self._is_reasoning = self._phase is _Phase.REASONING
        if self._is_reasoning:
            return self._ends.heads
        return frozenset() if self._phase is _Phase.CONTENT else None

    def _flush(self) -> None:
        if self._phase is _Phase.HEAD:
            # What the buffer holds is part of a start marker, and no other marker is inside one.
            self._leave_head(self._if_unopened)
        elif self._phase is _Phase.LABEL:
            self._phase = self._after_label
        if self._phase is _Phase.REASONING:
            self._reasoning.append(self._buffer)
        else:
            self._phase = _Phase.CONTENT
            self._release(self._content)
            self._content.append(self._buffer)
        self._buffer = ""

    def _step(self) -> bool:
        if self._phase is _Phase.HEAD:
            return self._step_head()
        if self._phase is _Phase.LABEL:
            return self._step_label()
        if self._phase is _Phase.HELD:
            return self._step_held()
        if self._phase is _Phase.REASONING:
            if self._take_until(self._ends, self._reasoning) is None:
                return False
            self._phase = _Phase.CONTENT
            return True
        self._content.append(self._buffer)
        self._buffer = ""
        return False

    def _step_head(self) -> bool:
        # The buffer never begins with white space here but for what has just come, so this stays linear.
        text = self._buffer.lstrip()
        self._held.append(self._buffer[: len(self._buffer) - len(text)])
        self._buffer = text
        if self._if_unopened is _Phase.REASONING:
            self._release(self._reasoning)  # reasoning in either case
        start = self._starts.match(text)
        if start is not None:
            self._buffer = text[start.stop :]
            self._leave_head(self._if_opened)
            self._open_label()
        elif self._starts.may_become_marker(text):
            return False
        else:
            self._leave_head(self._if_unopened)
            if self._options.prompt_state == "open":
                self._open_label()
        return True

    def _leave_head(self, phase: _Phase) -> None:
        self._phase = phase
        if phase is not _Phase.HELD:
            self._release(self._reasoning if phase is _Phase.REASONING else self._content)

    def _open_label(self) -> None:
        if self.family.start_label:
            self._after_label, self._phase = self._phase, _Phase.LABEL

    def _step_label(self) -> bool:
        label = self.family.start_label
        if len(self._buffer) < len(label) and label.startswith(self._buffer):
            return False
        self._buffer = self._buffer.removeprefix(label)
        self._phase = self._after_label
        return True

    def _step_held(self) -> bool:
        marker = self._take_until(self._held_markers, self._held)
        if marker is None:
            return False
        self._release(self._reasoning)
        if marker in self.family.starts:
            self._phase = _Phase.REASONING
            self._open_label()
        else:
            self._phase = _Phase.CONTENT
        return True

    def _take_until(self, markers: MarkerSearch, out: list[str]) -> str | None:
        """Move the buffer to `out` up to the marker that completes first; without one, all but a tail that may become one.

        The marker is taken out of the buffer, unless it is an implicit end: that one is content.
        """
        found = markers.find(self._buffer)
        if found is None:
            cut = len(self._buffer) - markers.tail_len(self._buffer)
            out.append(self._buffer[:cut])
            self._buffer = self._buffer[cut:]
            return None
        out.append(self._buffer[: found.start])
        is_content = found.marker in self.family.implicit_ends
        self._buffer = self._buffer[found.start if is_content else found.stop :]
        return found.marker

    def _release(self, out: list[str]) -> None:
        out.extend(self._held)
        self._held.clear()
