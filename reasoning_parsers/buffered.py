"""What the text parsers of all formats share: the options, and a buffer that is worked on until nothing changes.

A format derives from `BufferedParser` and says in `_step` what happens to the buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self, get_args

from .base import PromptState, ReasoningDelta, ReasoningSplit
from .errors import InvalidOptionError
from .family import ReasoningFamily

_PORTION_LEN = 4096
_new_delta = tuple.__new__


@dataclass(frozen=True, slots=True)
class ParserOptions:
    """What a parser knows of the request.

    Attributes:
        prompt_state: What the prompt says.
        thinking_enabled: The request's switch; None if it was not given.
        tools_offered: Whether the family's implicit ends, and messages to tools, count.
        structured: Whether the answer is under a constraint, so that nothing but it is content: a preamble to the user goes
            with the reasoning. Only channels have such a thing.

    Raises:
        InvalidOptionError: `prompt_state` is none of the three.
    """

    prompt_state: PromptState = "unknown"
    thinking_enabled: bool | None = None
    tools_offered: bool = False
    structured: bool = False

    def __post_init__(self) -> None:
        if self.prompt_state not in get_args(PromptState):
            raise InvalidOptionError("prompt_state", f"{self.prompt_state!r} is none of {', '.join(get_args(PromptState))}")


class BufferedParser(ABC):
    """Base of the text parsers. See `ReasoningParser` for the calls and `ParserOptions` for the keywords.

    Attributes:
        family: The row.

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
        structured: bool = False,
    ) -> None:
        self.family = family
        self._options = ParserOptions(prompt_state, thinking_enabled, tools_offered, structured)
        self._buffer = ""  # what is not decided yet
        self._held: list[str] = []  # text that a later marker or the end of the text settles
        self._reasoning: list[str] = []  # of the delta that is being made
        self._content: list[str] = []
        self._finished = False
        # While nothing is open but a marker that may begin: the characters that markers begin with, and what the text is.
        self._heads: frozenset[str] | None = None
        self._is_reasoning = False
        self._start(self._options)

    def fresh(self) -> Self:
        """Return a parser with the same settings that has seen nothing."""
        options = self._options
        return type(self)(
            self.family,
            prompt_state=options.prompt_state,
            thinking_enabled=options.thinking_enabled,
            tools_offered=options.tools_offered,
            structured=options.structured,
        )

    @property
    @abstractmethod
    def reasoning_ended(self) -> bool:
        """Whether all text from here on is content; once finished, whether the answer was reached at all."""

    def split(self, text: str) -> ReasoningSplit:
        """Split a whole text: feed and finish on a fresh parser with the same settings. Does not change this one."""
        fresh = self.fresh()
        first, last = fresh.feed(text), fresh.finish()
        reasoning, content = first.reasoning + last.reasoning, first.content + last.content
        return ReasoningSplit(reasoning or None, content or None, final_reached=fresh.reasoning_ended)

    @abstractmethod
    def _start(self, options: ParserOptions) -> None:
        """Set the format's own state: nothing was seen yet."""

    def feed(self, text: str) -> ReasoningDelta:
        """Take the next piece of the output.

        Raises:
            InvalidOptionError: The parser is finished.
        """
        if self._heads is not None and self._heads.isdisjoint(text):
            # Nearly every piece: nothing is held back, and the piece has no character that a marker begins with.
            return _new_delta(ReasoningDelta, (text, "") if self._is_reasoning else ("", text))
        if self._finished:
            raise InvalidOptionError("text", "the parser is finished; one parser serves one message")
        if len(text) <= _PORTION_LEN:
            self._work(text)
        else:
            # In portions: taking a marker out of the buffer copies the rest of it.
            for start in range(0, len(text), _PORTION_LEN):
                self._work(text[start : start + _PORTION_LEN])
        self._heads = None if self._buffer else self._find_heads()
        return self._take_delta()

    def finish(self) -> ReasoningDelta:
        """Say that the output is over and return what was held back. Further calls return an empty delta."""
        if not self._finished:
            self._finished = True
            self._heads = None
            self._flush()
        return self._take_delta()

    @abstractmethod
    def _step(self) -> bool:
        """Work on the buffer; True if something changed, so that the rest of the buffer wants another look."""

    @abstractmethod
    def _find_heads(self) -> frozenset[str] | None:
        """With an empty buffer: the characters that markers begin with, and `_is_reasoning`; None if more is open."""

    @abstractmethod
    def _flush(self) -> None:
        """Decide what the rest of the buffer is, and what is held."""

    def _work(self, text: str) -> None:
        self._buffer += text
        while self._step():
            pass

    def _take_delta(self) -> ReasoningDelta:
        reasoning = "".join(self._reasoning) if self._reasoning else ""
        content = "".join(self._content) if self._content else ""
        self._reasoning.clear()
        self._content.clear()
        return _new_delta(ReasoningDelta, (reasoning, content))
