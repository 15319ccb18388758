from __future__ import annotations

import pytest

from middleware import (
    GenerationError,
    InvalidRequestError,
    InvalidSchemaError,
    MiddlewareError,
    MissingExtraError,
    NoFinalAnswerError,
    UnknownModelError,
    UnsupportedSchemaError,
    UpstreamError,
    UpstreamUnavailableError,
)
from middleware.proxy.errors import ApiError, from_middleware_error

SCHEMA_PARAM = "response_format.json_schema.schema"


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        pytest.param(UnknownModelError("m"), 404, "model_not_found", "model", id="unknown-model"),
        pytest.param(InvalidSchemaError("m", pointer="#/a"), 400, "schema_invalid", SCHEMA_PARAM, id="invalid-schema"),
        pytest.param(
            UnsupportedSchemaError("m", pointer="#/a"), 400, "schema_not_supported", SCHEMA_PARAM, id="unsupported-schema"
        ),
        pytest.param(InvalidRequestError("m", param="top_k"), 400, "invalid_value", "top_k", id="invalid-request"),
        pytest.param(NoFinalAnswerError("m"), 502, "no_final_answer", None, id="no-answer"),
        pytest.param(GenerationError("m"), 502, "generation_failed", None, id="generation"),
        pytest.param(UpstreamUnavailableError("m"), 502, "upstream_unavailable", None, id="unavailable"),
        pytest.param(MissingExtraError("m"), 500, "missing_extra", None, id="missing-extra"),
        pytest.param(UpstreamError("m", status=429), 429, "upstream_error", None, id="rate-limit"),
        pytest.param(UpstreamError("m", status=503), 502, "upstream_error", None, id="upstream-down"),
        pytest.param(UpstreamError("m"), 502, "upstream_error", None, id="upstream-without-status"),
        pytest.param(MiddlewareError("m"), 500, "internal_error", None, id="anything-else"),
    ],
)
def test_from_middleware_error_gives_status_code_and_param(
    error: MiddlewareError, status: int, code: str, param: str | None
) -> None:
    error.hint = "try this"
    mapped = from_middleware_error(error)
    assert (mapped.status, mapped.code, mapped.param, mapped.message) == (status, code, param, "m")
    assert mapped.details["hint"] == "try this"
    if isinstance(error, (InvalidSchemaError, UnsupportedSchemaError)):
        assert mapped.details["pointer"] == "#/a"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_api_error_has_the_type_that_openai_gives_its_status(status: int, kind: str) -> None:
    assert ApiError(status, "m", code="c").body() == {"error": {"message": "m", "type": kind, "param": None, "code": "c"}}


def test_api_error_says_whether_to_retry() -> None:
    assert ApiError(503, "m", code="c", retryable=True, retry_after_s=2).headers() == {
        "x-should-retry": "true",
        "retry-after": "2",
    }
