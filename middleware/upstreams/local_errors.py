"""Errors of the engine and of the parsers beneath it, translated into ours."""

from __future__ import annotations

from typing import Any

from ..errors import (
    InvalidRequestError,
    InvalidSchemaError,
    MiddlewareError,
    UnknownModelError,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamUnavailableError,
)


def translate_engine_error(error: Exception) -> MiddlewareError:
    """Return our error for one of the engine's. By class name, so that the engine need not be imported."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error) or type(error).__name__
    hint: str | None = getattr(error, "hint", None)
    place: dict[str, Any] = {
        "pointer": getattr(error, "pointer", None) or "#",
        "line": getattr(error, "line", None),
        "column": getattr(error, "column", None),
    }
    if "UnknownModelError" in names:
        return UnknownModelError(text, hint=hint)
    if "InvalidRequestError" in names:
        param: str | None = getattr(error, "param", None)
        return InvalidRequestError(text, param="messages" if param == "prompt" else param, hint=hint)
    if "InvalidGrammarError" in names:
        return InvalidSchemaError(text, hint=hint, **place)
    if names & {"UnsupportedGrammarError", "GrammarCompileError", "GrammarLimitError", "GrammarDeadEndError"}:
        return UnsupportedSchemaError(text, hint=hint, **place)
    if "UnknownBackendError" in names:
        return InvalidRequestError(text, param="backend", hint=hint)
    if "UnknownPromptStateError" in names:
        return InvalidRequestError(text, param="on_unknown", hint=hint)
    if "UnknownFamilyError" in names:
        return InvalidRequestError(text, param="family", hint=hint)
    return _translate_failure(names, text, hint, retryable=bool(getattr(error, "retryable", False)))


def _translate_failure(names: set[str], text: str, hint: str | None, *, retryable: bool) -> UpstreamError:
    if "EngineBusyError" in names:
        return UpstreamBusyError(text, hint=hint)
    if names & {"ModelLoadError", "NoSuchWayError", "BackendLoadError", "EngineClosedError"}:
        return UpstreamUnavailableError(text, hint=hint, retryable=retryable)
    return UpstreamError(text, hint=hint, retryable=retryable)
