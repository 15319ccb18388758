"""The result of one call: the object, the thinking beside it, what it cost and how far it was guaranteed.

Knows nothing about upstreams; `generation.py` fills it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T_co = TypeVar("T_co", covariant=True)

Enforcement = Literal["masked", "upstream", "validated"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
IMPOSSIBLE = -9999.0
"""In place of a log-probability of minus infinity, which JSON does not have."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, all attempts together.

    Attributes:
        prompt_tokens: Tokens read.
        completion_tokens: Tokens written, thinking included.
        reasoning_tokens: Of these, tokens of thinking; None if the upstream does not count them apart.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        """Tokens read and written."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        counts = [count for count in (self.reasoning_tokens, other.reasoning_tokens) if count is not None]
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(counts) if counts else None,
        )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token of the answer and how likely it was.

    Attributes:
        token: Its text; a token that ends inside a character has U+FFFD there.
        logprob: Natural logarithm of its probability, -9999 for one that was impossible.
        data: Its bytes; None if the upstream does not give them.
        top: The likeliest tokens at its place, likeliest first, with nothing in their own `top`.
    """

    token: str
    logprob: float
    data: bytes | None = None
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[T_co]):
    """A validated answer.

    Attributes:
        output: The object, or the text where no output type was asked for.
        reasoning: The thinking, None if there was none or the upstream hides it.
        content: The raw text of the answer, as the model wrote it.
        usage: Tokens of all attempts.
        finish_reason: OpenAI's four words; `length` is possible for free text only.
        enforcement: `masked` (the engine could write nothing else), `upstream` (the schema was sent and the answer keeps to it),
            `validated` (checked here after it was written).
        strategy: How the schema was asked for: `mask`, `native`, `json_object`, `prompted` or `text`.
        attempts: Tries used, 1 if the first answer was good.
        checked_after: JSON pointers of schema keywords that no mask enforced; they were checked on the finished answer.
        notes: What a careful reader should know, in sentences.
        logprobs: One per token of the answer, where `logprobs` was asked for.
        duration_s: Seconds from the call to the result.
    """

    output: T_co
    reasoning: str | None
    content: str
    usage: Usage
    finish_reason: FinishReason
    enforcement: Enforcement
    strategy: str
    attempts: int = 1
    checked_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    duration_s: float = 0.0
