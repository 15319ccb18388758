"""The seam between this package and the models: one request in, deltas and one end out.

Whatever a server calls its fields and errors is translated behind this seam. To write an upstream, implement `Upstream`;
`middleware/testing.py` has one that plays a script.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..result import Enforcement, FinishReason, TokenLogprob, Usage
from ..settings import GenerationSettings
from ..text_types import TextType

JsonSchema = dict[str, Any]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UpstreamTraits:
    """What the core must know about an upstream before it asks.

    Attributes:
        wraps_root: Top-level schemas must be objects; others are sent as `{"value": ...}`.
        extracts_answer: The answer may stand in a code fence or behind a sentence, since nothing forced its first character.
    """

    wraps_root: bool = False
    extracts_answer: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One attempt.

    Attributes:
        messages: The conversation, `role` and `content` and what else the upstream takes.
        schema: JSON schema of the answer, property order as given; None = text.
        settings: Options of the call; `timeout_s` is the time left.
        text_type: What a text is bound to; None = free text, or JSON.
    """

    messages: Sequence[Message]
    schema: JsonSchema | None = None
    settings: GenerationSettings = field(default_factory=GenerationSettings)
    text_type: TextType | None = None


@dataclass(frozen=True, slots=True)
class UpstreamDelta:
    """New text, already split into thinking and answer.

    Attributes:
        reasoning: Thinking.
        content: Answer.
        logprobs: Of tokens of the answer; their text may come with a later delta.
    """

    reasoning: str = ""
    content: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class CutOff:
    """What the token limit cut off.

    Attributes:
        is_in_reasoning: Whether the model was still thinking.
        message: What happened.
        hint: What to do about it.
    """

    is_in_reasoning: bool
    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEnd:
    """The last item of every stream.

    Attributes:
        finish_reason: Why the model stopped.
        usage: Tokens of this attempt.
        enforcement: How far the schema bound the answer while it was written.
        strategy: How the schema was asked for.
        checked_after: JSON pointers of keywords outside the mask.
        notes: Sentences for `Result.notes`.
        is_reasoning_open: True if the output ended inside the thinking, or in a channel that is not the answer's; None if the
            upstream cannot tell.
        refusal: The model's refusal, None if it did not refuse.
        cut: What the token limit cut off, where the upstream knows it; None: told from the text.
    """

    finish_reason: FinishReason = "stop"
    usage: Usage = field(default_factory=Usage)
    enforcement: Enforcement = "validated"
    strategy: str = "text"
    checked_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_reasoning_open: bool | None = None
    refusal: str | None = None
    cut: CutOff | None = None


UpstreamItem = UpstreamDelta | UpstreamEnd


class Upstream(Protocol):
    """A model that can be asked."""

    @property
    def traits(self) -> UpstreamTraits:
        """What the core must know before it asks."""
        ...

    def stream(self, request: ChatRequest) -> Generator[UpstreamItem, None, None]:
        """Ask, and yield deltas and one end. Closing the generator cancels the request.

        Raises:
            MiddlewareError: Nothing else; foreign errors are translated.
        """
        ...

    def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        """Do as `stream` does, without blocking the event loop."""
        ...

    def report_invalid(self, request: ChatRequest) -> None:
        """Learn that the answer to `request` did not keep to the schema. Changes what later requests are sent."""
        ...

    def load(self) -> None:
        """Get ready now what would otherwise be made ready at the first request. May take long."""
        ...

    def check_health(self) -> None:
        """Say whether requests can be answered, as far as that is known without one; quick.

        Raises:
            UpstreamUnavailableError: None can, and none will.
        """
        ...

    def close(self) -> None:
        """Free what the upstream holds. May be called twice."""
        ...
