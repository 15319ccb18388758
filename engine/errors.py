"""Errors of the engine.

EngineError
├── ModelLoadError            a model cannot be loaded or is of a kind the engine would get wrong
│   ├── UnknownModelError     no such model name or folder
│   └── NoSuchWayError        one way to run a model does not take it; another may
├── InvalidRequestError       a parameter of a request is wrong (`param`)
├── GrammarError              something about the constraint (`pointer`, or `line` and `column`)
│   ├── InvalidGrammarError       the constraint itself is not valid
│   ├── UnsupportedGrammarError   valid, but the backend cannot enforce it
│   ├── UnknownBackendError       no grammar backend of that name
│   ├── BackendLoadError          a grammar backend of another package is broken
│   ├── GrammarCompileError       admission passed, compiling did not
│   ├── GrammarDeadEndError       the grammar leaves no way on in the middle of a value
│   └── GrammarLimitError         the constraint proved too complex while the answer was made
├── EngineBusyError           the queue is full; retry later
├── EngineClosedError         the engine was closed
└── EngineStepError           one request failed while running (`request_id`)
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all engine errors.

    Attributes:
        hint: What the caller can do about it, or None.
        retryable: Whether the same call may succeed later without a change.
    """

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.retryable = retryable


class ModelLoadError(EngineError):
    """A model cannot be loaded, or the engine would compute it wrongly."""


class UnknownModelError(ModelLoadError):
    """No model of that name, folder or hub id."""


class NoSuchWayError(ModelLoadError):
    """One of the ways to run a model does not take it; handled where a way is chosen."""


class InvalidRequestError(EngineError):
    """A parameter of a request is wrong.

    Attributes:
        param: Name of the parameter.
    """

    def __init__(self, message: str, *, param: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class GrammarError(EngineError):
    """Something about a request's constraint.

    Attributes:
        pointer: The place in the schema as a JSON pointer in URI fragment form (`#/properties/a`), or None.
        line: The line in the text of a grammar, from 1, or None.
        column: The column in that line in characters, from 1, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        pointer: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.pointer = pointer
        self.line = line
        self.column = column


class InvalidGrammarError(GrammarError):
    """The constraint is not valid: no JSON, no valid JSON schema, or a schema that no value satisfies."""


class UnsupportedGrammarError(GrammarError):
    """The constraint is valid, but the backend cannot compile it."""


class UnknownBackendError(GrammarError):
    """No grammar backend of that name is installed."""


class BackendLoadError(GrammarError):
    """A grammar backend that another package brings cannot be used; the message names both."""


class GrammarCompileError(GrammarError):
    """The backend failed, or ran out of time, while compiling a constraint that had passed admission."""


class GrammarDeadEndError(GrammarError):
    """In the middle of a value the grammar allows nothing that would lead to its end; it concerns this request only."""


class GrammarLimitError(GrammarError):
    """A limit of the backend was hit while the answer was made; it concerns this request only."""


class EngineBusyError(EngineError):
    """The engine's queue is full."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, retryable=True)


class EngineClosedError(EngineError):
    """The engine was closed before or while the request ran."""


class EngineStepError(EngineError):
    """One request failed while running; the other requests go on.

    Attributes:
        request_id: The request that failed.
    """

    def __init__(self, message: str, *, request_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.request_id = request_id
