"""Every error that this package raises.

    MiddlewareError
    |-- InvalidRequestError            the call itself is wrong; names the parameter
    |   |-- UnknownModelError          no such model name, folder or provider
    |   |-- InvalidSchemaError         not a JSON schema, or a type that has none
    |   `-- UnsupportedSchemaError     a schema that this upstream cannot take
    |-- GenerationError                the model answered, but there is no object in it
    |   |-- ReasoningTruncatedError    the token limit came inside the thinking
    |   |-- AnswerTruncatedError       the token limit came inside the answer
    |   |-- NoFinalAnswerError         the model stopped without an answer
    |   `-- InvalidAnswerError         no attempt gave a valid answer
    `-- UpstreamError                  the model could not be asked, or broke off
        |-- UpstreamTimeoutError       the deadline passed
        |-- UpstreamUnavailableError   cannot be reached or loaded
        |-- UpstreamBusyError          too many requests
        `-- MissingExtraError          an optional dependency is not installed

Foreign errors are translated into these in `upstreams/` only.
"""

from __future__ import annotations

from typing import Any, Literal

from .attempt import FailedAttempt, Problem
from .result import FinishReason, Usage

Phase = Literal["reasoning", "answer"]


class MiddlewareError(Exception):
    """Base of all errors of this package.

    Attributes:
        hint: What to do about it, None if nothing is known.
        retryable: True if the same call may work later.
        reasoning: Thinking that was received before, None if there was none.
        raw_content: Text of the answer that was received before.
    """

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.retryable = retryable
        self.reasoning: str | None = None
        self.raw_content = ""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidRequestError(MiddlewareError):
    """The call is wrong; `param` names the argument."""

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class UnknownModelError(InvalidRequestError):
    """No upstream knows this model name."""

    def __init__(self, message: str, *, param: str | None = "model", hint: str | None = None) -> None:
        super().__init__(message, param=param, hint=hint)


class _PlacedError(InvalidRequestError):
    """Something is wrong at a place of a schema or a grammar.

    Attributes:
        pointer: The place in a schema.
        line: The place in an expression or a grammar, from 1; None for a schema.
        column: The same.
    """

    def __init__(
        self,
        message: str,
        *,
        pointer: str = "#",
        line: int | None = None,
        column: int | None = None,
        param: str | None = "output_type",
        hint: str | None = None,
    ) -> None:
        super().__init__(message, param=param, hint=hint)
        self.pointer = pointer
        self.line = line
        self.column = column


class InvalidSchemaError(_PlacedError):
    """The output type has no JSON schema, or the schema is not one."""


class UnsupportedSchemaError(_PlacedError):
    """A valid schema or grammar that this upstream cannot take."""


class GenerationError(MiddlewareError):
    """The model wrote something, but there is no answer to return; everything it wrote is here.

    Attributes:
        reasoning: The thinking so far, None if there was none.
        raw_content: The text of the answer so far, "" if there was none.
        usage: Tokens of all attempts.
        finish_reason: Why the model stopped.
        phase: Where it stopped.
        partial: The completed fields of the unfinished object, None if there are none.
    """

    def __init__(
        self,
        message: str,
        *,
        reasoning: str | None = None,
        raw_content: str = "",
        usage: Usage | None = None,
        finish_reason: FinishReason = "stop",
        phase: Phase = "answer",
        partial: Any = None,
        hint: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.reasoning = reasoning
        self.raw_content = raw_content
        self.usage = usage or Usage()
        self.finish_reason = finish_reason
        self.phase = phase
        self.partial = partial


class ReasoningTruncatedError(GenerationError):
    """The token limit came while the model was still thinking."""


class AnswerTruncatedError(GenerationError):
    """The token limit came inside the answer."""


class NoFinalAnswerError(GenerationError):
    """The model stopped by itself without giving an answer."""


class InvalidAnswerError(GenerationError):
    """No attempt gave a valid answer.

    Attributes:
        attempts: All attempts, oldest first.
        problems: What was wrong with the last one.
    """

    def __init__(self, message: str, *, attempts: tuple[FailedAttempt, ...] = (), **details: Any) -> None:
        super().__init__(message, **details)
        self.attempts = attempts

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the last attempt."""
        return self.attempts[-1].problems if self.attempts else ()


class UpstreamError(MiddlewareError):
    """The model could not be asked, or broke off.

    Attributes:
        status: HTTP status of the upstream, None if there was none.
        retry_after_s: Seconds that the upstream asks to wait, None if it did not say.
    """

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.status = status
        self.retry_after_s: float | None = None


class UpstreamTimeoutError(UpstreamError):
    """The deadline passed before the answer was complete."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = True, hint: str | None = None) -> None:
        super().__init__(message, status=status, retryable=retryable, hint=hint)


class UpstreamUnavailableError(UpstreamError):
    """The upstream cannot be reached, or the model cannot be loaded."""


class UpstreamBusyError(UpstreamError):
    """The upstream has too many requests."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = True, hint: str | None = None) -> None:
        super().__init__(message, status=status, retryable=retryable, hint=hint)


class MissingExtraError(UpstreamError):
    """An optional dependency is not installed; the hint is the command that installs it."""
