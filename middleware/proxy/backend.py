"""Ask a model for one completion, through the same `AsyncClient` that Python callers use.

Owns what the proxy adds to the client: which pieces of an answer may leave before the answer is checked, and how a truncated
generation is reported. It knows neither HTTP nor JSON envelopes.

What may leave early: thinking always; the answer only where nothing can be wrong with it, that is for free text and for
local models, whose mask lets only valid text through. The answer of a model that we do not run is held back until it has
been validated: a client of the proxy never reads prose where it asked for an object.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..async_client import AsyncClient
from ..errors import (
    AnswerTruncatedError,
    GenerationError,
    InvalidAnswerError,
    InvalidSchemaError,
    Phase,
    ReasoningTruncatedError,
    UnsupportedSchemaError,
    UpstreamError,
)
from ..events import ContentDelta, Event, FinalResult, ReasoningDelta, RetryStarted
from ..result import Enforcement, FinishReason, Result, TokenLogprob, Usage
from .merge import merge
from .wire import CompletionCall

LOCAL_PREFIX = "local/"
_SEED_RANGE = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a generation ended.

    Attributes:
        phase: Where the token limit cut it off; None if it did not.
        enforcement: How the schema was enforced; None for a generation that was cut off.
    """

    content: str | None
    reasoning: str | None
    usage: Usage
    finish_reason: FinishReason
    phase: Phase | None = None
    enforcement: Enforcement | None = None
    strategy: str | None = None
    attempts: int = 1
    checked_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()

    def report(self) -> dict[str, Any]:
        """Give what a client cannot read off the OpenAI fields; empty facts are left out."""
        report = {
            "truncated_in": self.phase,
            "enforcement": self.enforcement,
            "strategy": self.strategy,
            "attempts": self.attempts,
            "checked_after": list(self.checked_after),
            "notes": list(self.notes),
        }
        return {name: value for name, value in report.items() if value}


Piece: TypeAlias = ReasoningDelta | ContentDelta | Outcome


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of the proxy: the name that clients use, the model string behind it, and its client."""

    id: str
    model: str
    client: AsyncClient

    @property
    def is_local(self) -> bool:
        """Whether our own engine runs it."""
        return self.model.startswith(LOCAL_PREFIX)

    def why_unhealthy(self) -> str | None:
        """Say why this model answers nothing any more; None if it does, as far as is known."""
        try:
            self.client.check_health()
        except UpstreamError as error:
            return str(error)
        return None

    async def complete_all(self, call: CompletionCall, *, timeout_s: float) -> AsyncGenerator[tuple[int, Piece], None]:
        """Yield the pieces of all `n` completions as they come, each with the number of its completion.

        Raises:
            MiddlewareError: As `complete`; the first one ends all of them.
        """
        async with aclosing(merge([self.complete(call, index=index, timeout_s=timeout_s) for index in range(call.n)])) as pieces:
            async for numbered in pieces:
                yield numbered

    def count_usage(self, outcomes: Sequence[Outcome]) -> Usage:
        """Give the tokens of all completions; our engine reads their prompt once."""
        usage = sum((outcome.usage for outcome in outcomes), start=Usage())
        return replace(usage, prompt_tokens=outcomes[0].usage.prompt_tokens) if self.is_local else usage

    async def complete(self, call: CompletionCall, *, timeout_s: float, index: int = 0) -> AsyncGenerator[Piece, None]:
        """Yield the pieces of one completion; the last is the `Outcome`.

        Args:
            call: The request.
            timeout_s: Seconds for all of it.
            index: Number of the completion; each has a seed of its own.

        Raises:
            MiddlewareError: Everything but a truncated generation, which is an `Outcome`.
        """
        may_leave_early = call.is_streamed and (call.output_type is None or self.is_local)
        has_left = False
        try:
            async with aclosing(self._events(call, timeout_s, index)) as events:
                async for event in events:
                    match event:
                        case ReasoningDelta():
                            yield event
                        case ContentDelta() if may_leave_early:
                            has_left = True
                            yield event
                        case RetryStarted(problems=problems) if has_left:
                            reason = "; ".join(map(str, problems))
                            raise InvalidAnswerError(f"the answer that was streamed is not valid: {reason}")
                        case FinalResult(result=result):
                            outcome = _finished(result, call)
                            if not has_left and outcome.content:
                                yield ContentDelta(outcome.content, outcome.logprobs)
                            yield outcome
        except (InvalidSchemaError, UnsupportedSchemaError) as error:
            error.param = call.output_param
            raise
        except (ReasoningTruncatedError, AnswerTruncatedError) as error:
            if not has_left and error.raw_content:
                yield ContentDelta(error.raw_content)
            yield _truncated(error)

    async def _events(self, call: CompletionCall, timeout_s: float, index: int) -> AsyncGenerator[Event[Any], None]:
        options: dict[str, Any] = {**call.settings, "timeout_s": timeout_s}
        if "seed" in options:
            options["seed"] = (options["seed"] + index + _SEED_RANGE) % (2 * _SEED_RANGE) - _SEED_RANGE
        if self.is_local or call.reasoning_effort in (None, "none"):
            options["thinking"] = call.thinking
        else:
            options["reasoning_effort"] = call.reasoning_effort
        async with self.client.stream(call.output_type, call.messages, **options) as events:
            async for event in events:
                yield event


def _finished(result: Result[Any], call: CompletionCall) -> Outcome:
    return Outcome(
        content=_content(result, call),
        reasoning=result.reasoning,
        usage=result.usage,
        finish_reason=result.finish_reason,
        phase="answer" if result.finish_reason == "length" else None,
        enforcement=result.enforcement,
        strategy=result.strategy,
        attempts=result.attempts,
        checked_after=result.checked_after,
        notes=result.notes,
        logprobs=result.logprobs,
    )


def _content(result: Result[Any], call: CompletionCall) -> str:
    if call.text_type is not None:
        # White space around it is no part of the text that was asked for.
        return str(result.output)
    return result.content if call.schema is None else _answer_text(result)


def _answer_text(result: Result[Any]) -> str:
    """Give the JSON text of the answer: as the model wrote it, or rewritten where a fence or a wrapper stood around it."""
    try:
        is_bare = json.loads(result.content) == result.output
    except ValueError:
        is_bare = False
    return result.content if is_bare else json.dumps(result.output, ensure_ascii=False, separators=(",", ":"))


def _truncated(error: GenerationError) -> Outcome:
    return Outcome(
        content=error.raw_content or None,
        reasoning=error.reasoning,
        usage=error.usage,
        finish_reason="length",
        phase=error.phase,
        notes=(str(error),),
    )
