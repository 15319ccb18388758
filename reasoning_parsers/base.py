"""The interface of text parsers: text in, reasoning and content out, for a stream or for a whole text.

A format is a class (`delimited.py`, `channel_parser.py`), a family is a row (`families.py`); `factory.py` puts them together. For
token ids there is `ReasoningGate` (`gate.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

PromptState = Literal["ended", "open", "unknown"]
"""What the rendered prompt says of the thinking: over, under way, or nothing."""


class ReasoningDelta(NamedTuple):
    """What one piece of text added. Both can be set: the piece may hold the end marker. Markers are in neither.

    True if it has any text. A tuple, since one is made for every piece.
    """

    reasoning: str = ""
    content: str = ""

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content)


@dataclass(frozen=True, slots=True)
class ReasoningSplit:
    """A whole text, split.

    Attributes:
        reasoning: The thinking, exact, white space included; None if there is none.
        content: The same for the answer.
        final_reached: Whether the answer was reached. False where the output ends inside the thinking, or in a channel that is
            not the final one: then there is no answer, also if there is content (a preamble). Not compared.
    """

    reasoning: str | None
    content: str | None
    final_reached: bool = field(default=True, compare=False)


class ReasoningParser(Protocol):
    """Splits one message. One parser serves one message; it must not be shared."""

    @property
    def reasoning_ended(self) -> bool:
        """Whether all text from here on is content; once finished, whether the answer was reached at all."""
        ...

    def feed(self, text: str) -> ReasoningDelta:
        """Take the next piece of the output. Any cut of a text gives the same split."""
        ...

    def finish(self) -> ReasoningDelta:
        """Say that the output is over and return what was held back. Further calls return an empty delta."""
        ...

    def split(self, text: str) -> ReasoningSplit:
        """Split a whole text: feed and finish on a fresh parser with the same settings. Does not change this one."""
        ...
