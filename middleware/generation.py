"""One call without any I/O: requests out, upstream items in, events out.

`Generation` decides what is asked, what the caller sees, whether an answer is good, and whether to ask again. Both clients drive
it with the same few lines and differ in nothing but how they wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from .answer_text import answer_start, extract_answer
from .attempt import FailedAttempt, Problem
from .errors import (
    AnswerTruncatedError,
    GenerationError,
    InvalidAnswerError,
    InvalidRequestError,
    MiddlewareError,
    NoFinalAnswerError,
    ReasoningTruncatedError,
    UpstreamError,
    UpstreamTimeoutError,
)
from .events import ContentDelta, Event, FinalResult, PartialObject, ReasoningDelta, RetryStarted
from .output_types import OutputType
from .reask import build_reask
from .result import Result, TokenLogprob, Usage
from .settings import GenerationSettings
from .streaming import PartialParser
from .upstreams.base import ChatRequest, CutOff, UpstreamDelta, UpstreamEnd, UpstreamItem, UpstreamTraits
from .wire_schema import flatten_root, is_object_schema, wrap_root

T = TypeVar("T")


class Generation(Generic[T]):
    """The state of one call.

    Use: once the upstream is loaded, `start`; then, while `next_request()` gives a request, ask it and pass every item to
    `receive`, yielding the events.
    """

    def __init__(
        self,
        output: OutputType[T],
        messages: Sequence[Mapping[str, Any]],
        settings: GenerationSettings,
        traits: UpstreamTraits,
        *,
        timeout_s: float = 600.0,
    ) -> None:
        if settings.stop and (output.schema is not None or output.text_type is not None):
            raise InvalidRequestError(
                "stop strings would cut an answer that is bound to a type", param="stop", hint="the type says where it ends"
            )
        self._output = output
        self._messages = messages
        self._settings = settings
        self._traits = traits
        self._timeout_s = settings.timeout_s or timeout_s
        self.start()
        self._is_wrapped = bool(traits.wraps_root and output.schema is not None and not is_object_schema(output.schema))
        self._schema = self._request_schema()
        self._failed: list[FailedAttempt] = []
        self._usage = Usage()
        self._request: ChatRequest | None = None
        self._attempt = _AttemptText(self._schema is not None, traits.extracts_answer)
        self._is_done = False

    def _request_schema(self) -> dict[str, Any] | None:
        if self._output.schema is None or not self._traits.wraps_root:
            return self._output.schema
        return wrap_root(self._output.schema) if self._is_wrapped else flatten_root(self._output.schema)

    @property
    def _is_bound(self) -> bool:
        """Whether an answer can be wrong."""
        return self._schema is not None or self._output.text_type is not None

    @property
    def _takes_blank(self) -> bool:
        """Whether an answer of nothing but white space is one: where it was asked for, or nothing was and nothing was thought."""
        if self._output.text_type is not None:
            return not isinstance(self._output.validate(self._attempt.content), tuple)
        return self._schema is None and not self._attempt.reasoning

    def start(self) -> None:
        """Start the clock: called when the upstream is ready, so that loading a model or a library takes nothing of the time."""
        self._started_s = time.monotonic()
        self._deadline_s = self._started_s + self._timeout_s

    def next_request(self) -> ChatRequest | None:
        """Return what to ask next, None when the call is over. Begins a new attempt.

        Raises:
            UpstreamTimeoutError: The deadline has passed.
        """
        if self._is_done:
            return None
        if self._request is not None and not self._attempt.is_ended:
            raise self.annotate(UpstreamError("the upstream ended without saying why", retryable=True))
        settings = replace(self._settings, timeout_s=self.remaining_s())
        messages = build_reask(self._messages, self._failed[-1]) if self._failed else self._messages
        self._request = ChatRequest(messages, self._schema, settings, self._output.text_type)
        self._attempt = _AttemptText(self._schema is not None, self._traits.extracts_answer)
        return self._request

    def remaining_s(self) -> float:
        """Seconds left.

        Raises:
            UpstreamTimeoutError: None are left.
        """
        left = self._deadline_s - time.monotonic()
        if left <= 0:
            raise self.annotate(UpstreamTimeoutError("the call ran out of time", hint="raise timeout_s"))
        return left

    def receive(self, item: UpstreamItem) -> Iterator[Event[T]]:
        """Take one item from the upstream, yield what the caller sees of it.

        Raises:
            GenerationError: The answer is over and no good, and will not be asked for again.
            UpstreamTimeoutError: The deadline has passed, and the answer is not over.
        """
        if isinstance(item, UpstreamDelta):
            yield from self._attempt.receive(item, is_wrapped=self._is_wrapped)
            # A server that never falls silent is stopped here; the timeouts of HTTP clients are for silence only.
            self.remaining_s()
        else:
            self._usage += item.usage
            yield from self._attempt.end(is_wrapped=self._is_wrapped)
            yield from self._judge(item)

    @property
    def failed_request(self) -> ChatRequest | None:
        """The request whose answer broke the schema, until the next one begins; None if there is none."""
        return self._request if self._attempt.broke_schema else None

    def annotate(self, error: MiddlewareError) -> MiddlewareError:
        """Put what was received so far into an error of the upstream's, and give it. Changes the error.

        A further attempt that is refused (its prompt is longer) leaves the caller with what was wrong with those before.
        """
        is_fresh = not self._attempt.reasoning and not self._attempt.content
        if isinstance(error, InvalidRequestError) and self._failed and is_fresh:
            last = self._failed[-1]
            return InvalidAnswerError(
                _describe(self._failed),
                hint=f"the next attempt could not be made: {error}",
                reasoning=last.reasoning,
                raw_content=last.raw_content,
                usage=self._usage,
                finish_reason=last.finish_reason,
                attempts=tuple(self._failed),
            )
        error.reasoning = self._attempt.reasoning or None
        error.raw_content = self._attempt.content
        return error

    def _judge(self, end: UpstreamEnd) -> Iterator[Event[T]]:
        self._raise_if_cut(end)
        if self._is_filed_as_thinking(end):
            end = replace(end, notes=(*end.notes, "the upstream filed the answer as thinking; it was taken as the answer"))
            yield from self._attempt.refile(is_wrapped=self._is_wrapped)
        content = self._attempt.content
        # Content without an answer is a preamble to the user, in a channel that is not the final one.
        if end.is_reasoning_open or (not content.strip() and not self._takes_blank):
            yield from self._retry(end, (Problem("#", "no answer was given after the thinking", "missing"),))
            return
        text = extract_answer(content) if self._schema is not None and self._traits.extracts_answer else content
        if self._output.text_type is not None and self._traits.extracts_answer:
            # A server's model writes a line break around its answer; a mask would not.
            text = content.strip()
        answer = self._output.validate(text, is_wrapped=self._is_wrapped)
        if isinstance(answer, tuple):
            self._attempt.broke_schema = any(problem.kind in ("json", "schema") for problem in answer)
            yield from self._retry(end, answer)
            return
        self._is_done = True
        was_bare = text == content.strip()
        yield FinalResult(self._result(end, answer.value, was_bare=was_bare))

    def _is_filed_as_thinking(self, end: UpstreamEnd) -> bool:
        """Whether a server that bound its model from the first token on called the whole answer thinking (vllm#16182)."""
        reasoning, content = self._attempt.reasoning, self._attempt.content
        may_be = self._schema is not None and self._traits.extracts_answer and end.finish_reason == "stop"
        if not may_be or end.is_reasoning_open is not None or content.strip() or not reasoning.strip():
            return False
        return not isinstance(self._output.validate(reasoning.strip(), is_wrapped=self._is_wrapped), tuple)

    def _raise_if_cut(self, end: UpstreamEnd) -> None:
        content = self._attempt.content
        if end.finish_reason == "length":
            cut = end.cut or _told_cut(end, content)
            if cut.is_in_reasoning:
                raise self._error(ReasoningTruncatedError, end, cut.message, cut.hint)
            if self._is_bound or not content.strip():
                raise self._error(AnswerTruncatedError, end, cut.message, cut.hint)
        if end.refusal is not None:
            raise self._error(NoFinalAnswerError, end, f"the model refused: {end.refusal}")
        if end.finish_reason == "content_filter" and self._is_bound:
            raise self._error(NoFinalAnswerError, end, "the provider's content filter stopped the answer")

    def _retry(self, end: UpstreamEnd, problems: tuple[Problem, ...]) -> Iterator[Event[T]]:
        attempt = self._attempt
        self._failed.append(FailedAttempt(attempt.reasoning or None, attempt.content, problems, end.finish_reason, end.usage))
        if len(self._failed) < self._settings.max_attempts:
            yield RetryStarted(len(self._failed) + 1, problems)
            return
        if problems[0].kind == "missing":
            is_nothing = not attempt.reasoning and not attempt.content and not end.usage.completion_tokens
            hint = _NOTHING_HINT if is_nothing else None
            raise self._error(NoFinalAnswerError, end, "the model stopped without giving an answer", hint)
        raise self._error(InvalidAnswerError, end, _describe(self._failed), attempts=tuple(self._failed))

    def _error(
        self, kind: type[GenerationError], end: UpstreamEnd, message: str, hint: str | None = None, **details: Any
    ) -> GenerationError:
        attempt = self._attempt
        is_open = kind is ReasoningTruncatedError or (kind is not AnswerTruncatedError and not attempt.content.strip())
        return kind(
            message,
            hint=hint,
            reasoning=attempt.reasoning or None,
            raw_content=attempt.content,
            usage=self._usage,
            finish_reason=end.finish_reason,
            phase="reasoning" if is_open else "answer",
            partial=attempt.partial(is_wrapped=self._is_wrapped),
            **details,
        )

    def _result(self, end: UpstreamEnd, answer: T, *, was_bare: bool) -> Result[T]:
        enforcement = end.enforcement
        notes = list(end.notes)
        if enforcement == "upstream" and (self._failed or not was_bare):
            enforcement = "validated"
            notes.append("the upstream was sent the schema and did not keep to it")
        if self._settings.thinking and not self._attempt.reasoning:
            notes.append("thinking was asked for, but the upstream gave none")
        return Result(
            output=answer,
            reasoning=self._attempt.reasoning or None,
            content=self._attempt.content,
            usage=self._usage,
            finish_reason=end.finish_reason,
            enforcement=enforcement,
            strategy=end.strategy,
            attempts=len(self._failed) + 1,
            checked_after=end.checked_after,
            notes=tuple(notes),
            logprobs=tuple(self._attempt.logprobs),
            duration_s=time.monotonic() - self._started_s,
        )


# Characters before the answer after which no partial objects are looked for.
_MAX_PREFACE_LEN = 4000
_THINKING_HINT = "raise max_tokens, or set max_reasoning_tokens below it so that tokens are left for the answer"
_NOTHING_HINT = "nothing at all was received: is it the address of an OpenAI-compatible server, and the right model?"
_ANSWER_HINT = "raise max_tokens, or set a smaller max_reasoning_tokens"


def _told_cut(end: UpstreamEnd, content: str) -> CutOff:
    """Tell what was cut off where the upstream does not say; an answer without text has not begun."""
    if end.is_reasoning_open or not content.strip():
        return CutOff(True, "the token limit came inside the thinking", _THINKING_HINT)
    return CutOff(False, "the token limit came inside the answer", _ANSWER_HINT)


def _describe(failed: Sequence[FailedAttempt]) -> str:
    problems = "; ".join(str(problem) for problem in failed[-1].problems[:3])
    return f"no valid answer in {len(failed)} attempt{'s' if len(failed) > 1 else ''}: {problems}"


class _AttemptText:
    """Text of one attempt: what was thought, what was answered, which part of it is complete."""

    def __init__(self, has_schema: bool, extracts_answer: bool) -> None:
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self._pending = ""
        self._parser = PartialParser() if has_schema else None
        self._has_begun = not extracts_answer
        self.logprobs: list[TokenLogprob] = []
        self.is_ended = False
        self.broke_schema = False

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def content(self) -> str:
        return "".join(self._content)

    def receive(self, delta: UpstreamDelta, *, is_wrapped: bool) -> Iterator[Event[Any]]:
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
            yield ReasoningDelta(delta.reasoning)
        if delta.content or delta.logprobs:
            self._content.append(delta.content)
            self.logprobs += delta.logprobs
            yield ContentDelta(delta.content, delta.logprobs)
            yield from self._partial_event(self._feed(delta.content), is_wrapped)

    def refile(self, *, is_wrapped: bool) -> Iterator[Event[Any]]:
        text, self._reasoning, self._content = self.reasoning, [], []
        yield from self.receive(UpstreamDelta(content=text), is_wrapped=is_wrapped)

    def end(self, *, is_wrapped: bool) -> Iterator[Event[Any]]:
        self.is_ended = True
        if self._parser is not None and self._parser.has_news:
            yield from self._partial_event(self._parser.snapshot(), is_wrapped)

    def partial(self, *, is_wrapped: bool) -> Any:
        value = self._parser.snapshot() if self._parser is not None else None
        return value.get("value") if is_wrapped and isinstance(value, dict) else value

    def _partial_event(self, value: Any, is_wrapped: bool) -> Iterator[Event[Any]]:
        if is_wrapped and isinstance(value, dict):
            value = value.get("value")
        if value is not None:
            yield PartialObject(value)

    def _feed(self, text: str) -> Any:
        if self._parser is None:
            return None
        if not self._has_begun:
            # Fences and sentences are only looked for at the head: the text waits until the answer begins.
            if len(self._pending) > _MAX_PREFACE_LEN:
                return None
            self._pending += text
            start = answer_start(self._pending) if len(self._pending) <= _MAX_PREFACE_LEN else None
            if start is None:
                return None
            text, self._pending, self._has_begun = self._pending[start:], "", True
        return self._parser.feed(text)
