"""Errors of litellm, openai and httpx, translated into ours. Nowhere else are they known.

By class name and status, not by class: litellm's classes derive from openai's, and neither is imported here.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import (
    InvalidRequestError,
    MiddlewareError,
    UnknownModelError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)

_MAX_MESSAGE_LEN = 500
# Refusals of the request as such; only these can mean that the server does not take a schema.
_REFUSED_STATUS = frozenset({400, 415, 422, 501})
_NEVER_ABOUT_SCHEMA = frozenset({"ContextWindowExceededError", "ContentPolicyViolationError", "LiteLLMUnknownProvider"})
_NOT_REACHED = frozenset({"APIConnectionError", "TransportError", "ConnectionError"})
_TOO_LATE = frozenset({"Timeout", "APITimeoutError", "TimeoutException", "TimeoutError"})
_MAX_CAUSES = 8
# Without a key some of litellm's providers say 500 though nothing was sent. Status alone would call that worth another try.
_NO_KEY = re.compile(r"\bmissing (\w+ )?(credentials|api key)\b", re.IGNORECASE)
_TRACEBACK = "\nTraceback (most recent call last):"


def translate_error(error: Exception) -> MiddlewareError:
    """Return our error for a foreign one. Our own pass through."""
    if isinstance(error, MiddlewareError):
        return error
    error = _unwrap(error)
    names = _class_names(error)
    text, status = _message(error), get_status(error)
    if names & {"LiteLLMUnknownProvider", "NotFoundError"}:
        return UnknownModelError(text, hint="check the model name and base_url")
    if "ContextWindowExceededError" in names:
        return InvalidRequestError(text, param="messages", hint="shorten the messages or lower max_tokens")
    translated = _translate_upstream(names, text, status)
    translated.retry_after_s = _retry_after_s(error)
    return translated


def _translate_upstream(names: set[str], text: str, status: int | None) -> UpstreamError:
    if names & _TOO_LATE or status in (408, 504):
        return UpstreamTimeoutError(text, status=status, hint="raise timeout_s")
    if "RateLimitError" in names or status == 429:
        return UpstreamBusyError(text, status=429)
    if status in (401, 403) or _NO_KEY.search(text):
        return UpstreamError(text, status=status, hint="check api_key, or the provider's variable in the environment")
    if status in (502, 503) or names & _NOT_REACHED:
        return UpstreamUnavailableError(text, status=status, retryable=True, hint="check base_url and the server")
    return UpstreamError(text, status=status, retryable=status is not None and status >= 500)


def refuses_schema(error: Exception) -> bool:
    """Whether a server's refusal may be about the schema, so that asking without one is worth a try."""
    error = _unwrap(error)
    if _class_names(error) & _NEVER_ABOUT_SCHEMA:
        return False
    return get_status(error) in _REFUSED_STATUS


def get_status(error: Exception) -> int | None:
    """HTTP status that an error carries, None if there was none."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _unwrap(error: Exception) -> Exception:
    """Take out what litellm wraps when a stream breaks off: the wrapper says 503 whatever happened."""
    original = getattr(error, "original_exception", None)
    return original if isinstance(original, Exception) else error


def _class_names(error: Exception) -> set[str]:
    """Names of an error's classes; a server that was not reached counts though litellm says 500 of it."""
    names = {kind.__name__ for kind in type(error).__mro__}
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        cause = cause and (cause.__cause__ or cause.__context__)
        names |= {kind.__name__ for kind in type(cause).__mro__} & (_NOT_REACHED | _TOO_LATE)
    return names


def _message(error: Exception) -> str:
    text = str(getattr(error, "message", None) or error) or type(error).__name__
    text = re.sub(r"^(litellm\.\w+: )+", "", text).partition(_TRACEBACK)[0]
    body = getattr(error, "body", None) or getattr(error.__context__, "body", None)
    if body and re.search(r"Error code: \d+$", text):
        text += f" - {body}"  # openai finds the message in bodies of one shape only
    return text if len(text) <= _MAX_MESSAGE_LEN else text[:_MAX_MESSAGE_LEN] + "..."


def _retry_after_s(error: Exception) -> float | None:
    response: Any = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except (ValueError, TypeError):
        return None
