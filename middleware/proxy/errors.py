"""Errors as a client of the proxy sees them: always OpenAI's envelope, with a string code of our own.

Owns the mapping from `MiddlewareError` to status, type and code. Foreign errors never reach this module: `upstreams/` maps
them first.

Source of the envelope: https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

from typing import Any

from ..errors import (
    GenerationError,
    InvalidAnswerError,
    InvalidRequestError,
    InvalidSchemaError,
    MiddlewareError,
    MissingExtraError,
    NoFinalAnswerError,
    UnknownModelError,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)

SCHEMA_PARAM = "response_format.json_schema.schema"


class ApiError(Exception):
    """A reply that is an error.

    Attributes:
        status: HTTP status.
        param: Request field at fault, or None.
        code: Machine-readable reason, stable across versions.
        details: Further machine-readable facts, sent as `error.details`.
        retry_after_s: When set, sent as `retry-after`.
        retryable: Whether the same request may succeed later; sent as `x-should-retry`, which OpenAI's clients obey.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        details: dict[str, Any] | None = None,
        retry_after_s: int | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.details = details or {}
        self.retry_after_s = retry_after_s
        self.retryable = retryable

    @property
    def type(self) -> str:
        """OpenAI's word for the class of the error."""
        if self.status == 401:
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> dict[str, Any]:
        """Give the JSON body."""
        error: dict[str, Any] = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        if self.details:
            error["details"] = self.details
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Give the headers that go with the body."""
        headers = {"x-should-retry": "true" if self.retryable else "false"}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def invalid_parameter(param: str | None, message: str) -> ApiError:
    """Give a 400 that names the field at fault."""
    return ApiError(400, message, param=param, code="invalid_value" if param else "invalid_request")


def overloaded(message: str) -> ApiError:
    """Give the 503 of a server that has no room for another request."""
    return ApiError(503, message, code="overloaded", retry_after_s=1, retryable=True)


def from_middleware_error(error: MiddlewareError) -> ApiError:
    """Translate an error of the Python API.

    Truncated generations are not errors over HTTP: the caller turns them into a reply with `finish_reason: "length"`.
    """
    mapped = _request_error(error) or _generation_error(error) or _upstream_error(error)
    if mapped is None:
        mapped = ApiError(500, error.message, code="internal_error", retryable=error.retryable)
    if error.hint:
        mapped.details.setdefault("hint", error.hint)
    if isinstance(error, UpstreamError):
        mapped.details |= _written(error)
    return mapped


def _request_error(error: MiddlewareError) -> ApiError | None:
    match error:
        case UnknownModelError():
            return ApiError(404, error.message, param="model", code="model_not_found")
        case UnsupportedSchemaError():
            return ApiError(400, error.message, param=_schema_param(error), code="schema_not_supported", details=_place(error))
        case InvalidSchemaError():
            return ApiError(400, error.message, param=_schema_param(error), code="schema_invalid", details=_place(error))
        case InvalidRequestError():
            return ApiError(400, error.message, param=error.param, code="invalid_value")
        case _:
            return None


def _schema_param(error: InvalidRequestError) -> str | None:
    return SCHEMA_PARAM if error.param == "output_type" else error.param


def _place(error: InvalidSchemaError | UnsupportedSchemaError) -> dict[str, Any]:
    place = {"pointer": error.pointer} if error.line is None else {"line": error.line, "column": error.column}
    return place | _written(error)


def _written(error: MiddlewareError) -> dict[str, Any]:
    """What the model had written before the error, where it had."""
    if not error.reasoning and not error.raw_content:
        return {}
    return {"reasoning_content": error.reasoning, "raw_content": error.raw_content}


def _generation_error(error: MiddlewareError) -> ApiError | None:
    if not isinstance(error, GenerationError):
        return None
    details: dict[str, Any] = {"phase": error.phase, "reasoning_content": error.reasoning, "raw_content": error.raw_content}
    code = "generation_failed"
    if isinstance(error, InvalidAnswerError):
        code = "validation_failed"
        details |= {"attempts": len(error.attempts), "problems": [str(problem) for problem in error.problems]}
    elif isinstance(error, NoFinalAnswerError):
        code = "no_final_answer"
    return ApiError(502, error.message, code=code, details=details)


def _upstream_error(error: MiddlewareError) -> ApiError | None:
    match error:
        case UpstreamTimeoutError():
            return ApiError(504, error.message, code="upstream_timeout", retryable=error.retryable)
        case UpstreamBusyError():
            return overloaded(error.message)
        case UpstreamUnavailableError():
            return ApiError(502, error.message, code="upstream_unavailable", retryable=error.retryable)
        case MissingExtraError():
            return ApiError(500, error.message, code="missing_extra")
        case UpstreamError():
            # The upstream's word on the request itself is passed on; its word on our own key is not the client's fault.
            status = error.status if error.status in {400, 413, 422, 429} else 502
            return ApiError(status, error.message, code="upstream_error", retryable=error.retryable)
        case _:
            return None
