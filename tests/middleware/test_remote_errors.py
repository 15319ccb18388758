"""Every foreign error that is translated, with what it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from middleware import (
    InvalidRequestError,
    InvalidSchemaError,
    MiddlewareError,
    UnknownModelError,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from middleware.upstreams.litellm_loader import load_litellm
from middleware.upstreams.local_errors import translate_engine_error
from middleware.upstreams.remote_errors import refuses_schema, translate_error


class Foreign(Exception):
    """Stands for an error of a library that is not imported here."""

    def __init__(self, message: str = "foreign words", **attributes: Any) -> None:
        super().__init__(message)
        self.__dict__.update(attributes)


def foreign(name: str, base: type[Exception] = Foreign, **attributes: Any) -> Exception:
    error: Exception = type(name, (base,), {})("foreign words")
    error.__dict__.update(attributes)
    return error


REMOTE: list[tuple[str, int | None, type[MiddlewareError], bool]] = [
    # name, status, becomes, retryable
    ("Timeout", 408, UpstreamTimeoutError, True),
    ("APITimeoutError", None, UpstreamTimeoutError, True),
    ("ReadTimeoutTimeoutException", 504, UpstreamTimeoutError, True),
    ("RateLimitError", 429, UpstreamBusyError, True),
    ("AuthenticationError", 401, UpstreamError, False),
    ("PermissionDeniedError", 403, UpstreamError, False),
    ("NotFoundError", 404, UnknownModelError, False),
    ("LiteLLMUnknownProvider", 400, UnknownModelError, False),
    ("ContextWindowExceededError", 400, InvalidRequestError, False),
    ("BadRequestError", 400, UpstreamError, False),
    ("UnsupportedParamsError", 400, UpstreamError, False),
    ("UnprocessableEntityError", 422, UpstreamError, False),
    ("ContentPolicyViolationError", 400, UpstreamError, False),
    ("InternalServerError", 500, UpstreamError, True),
    ("BadGatewayError", 502, UpstreamUnavailableError, True),
    ("ServiceUnavailableError", 503, UpstreamUnavailableError, True),
    ("APIConnectionError", None, UpstreamUnavailableError, True),
    ("TransportError", None, UpstreamUnavailableError, True),
    ("KeyError", None, UpstreamError, False),
]


@pytest.mark.parametrize(("name", "status", "kind", "retryable"), REMOTE, ids=[row[0] for row in REMOTE])
def test_remote_error_is_translated(name: str, status: int | None, kind: type[MiddlewareError], retryable: bool) -> None:
    translated = translate_error(foreign(name, status_code=status))
    assert type(translated) is kind
    assert translated.retryable is retryable
    assert "foreign words" in translated.message
    if isinstance(translated, UpstreamError):
        assert translated.status == (429 if kind is UpstreamBusyError else status)


def test_own_errors_pass_through() -> None:
    error = UpstreamError("ours")
    assert translate_error(error) is error


def test_wrapper_of_broken_streams_is_taken_off() -> None:
    inner = foreign("RateLimitError", status_code=429)
    assert (
        type(translate_error(foreign("MidStreamFallbackError", status_code=503, original_exception=inner))) is UpstreamBusyError
    )


def test_retry_after_is_kept() -> None:
    response = type("Response", (), {"headers": {"retry-after": "7"}})()
    translated = translate_error(foreign("RateLimitError", status_code=429, response=response))
    assert isinstance(translated, UpstreamError)
    assert translated.retry_after_s == 7


def test_long_messages_are_cut_and_prefixes_taken_off() -> None:
    message = translate_error(Foreign("litellm.BadRequestError: litellm.X: " + "x" * 9000)).message
    assert message.startswith("xxx")
    assert len(message) < 600


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("InternalServerError", "InternalServerError: OpenAIException - Missing credentials. Please pass an `api_key`"),
        ("APIConnectionError", "Missing Gemini API key. Set the GEMINI_API_KEY"),
    ],
)
def test_missing_key_is_not_worth_another_try(name: str, text: str) -> None:
    translated = translate_error(foreign(name, status_code=500, message=text))
    assert type(translated) is UpstreamError
    assert (translated.message, translated.hint, translated.retryable) == (
        text,
        "check api_key, or the provider's variable in the environment",
        False,
    )


def test_traceback_in_a_message_is_cut_off() -> None:
    text = "no key\nTraceback (most recent call last):\n  File ..."
    assert translate_error(foreign("APIConnectionError", message=text)).message == "no key"


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("BadRequestError", 400, True),
        ("UnprocessableEntityError", 422, True),
        ("UnsupportedParamsError", 400, True),
        ("ContextWindowExceededError", 400, False),
        ("ContentPolicyViolationError", 400, False),
        ("AuthenticationError", 401, False),
        ("RateLimitError", 429, False),
        ("InternalServerError", 500, False),
        ("Timeout", None, False),
    ],
)
def test_only_refusals_of_the_request_lead_to_a_weaker_schema(name: str, status: int | None, expected: bool) -> None:
    assert refuses_schema(foreign(name, status_code=status)) is expected


LOCAL: list[tuple[str, type[MiddlewareError], bool]] = [
    ("UnknownModelError", UnknownModelError, False),
    ("ModelLoadError", UpstreamUnavailableError, False),
    ("NoSuchWayError", UpstreamUnavailableError, False),
    ("InvalidRequestError", InvalidRequestError, False),
    ("InvalidGrammarError", InvalidSchemaError, False),
    ("UnsupportedGrammarError", UnsupportedSchemaError, False),
    ("GrammarCompileError", UnsupportedSchemaError, False),
    ("GrammarLimitError", UnsupportedSchemaError, False),
    ("GrammarDeadEndError", UnsupportedSchemaError, False),
    ("UnknownBackendError", InvalidRequestError, False),
    ("BackendLoadError", UpstreamUnavailableError, False),
    ("EngineBusyError", UpstreamBusyError, True),
    ("EngineClosedError", UpstreamUnavailableError, False),
    ("EngineStepError", UpstreamError, False),
    ("UnknownFamilyError", InvalidRequestError, False),
    ("UnknownPromptStateError", InvalidRequestError, False),
    ("RuntimeError", UpstreamError, False),
]


@pytest.mark.parametrize(("name", "kind", "retryable"), LOCAL, ids=[row[0] for row in LOCAL])
def test_engine_error_is_translated(name: str, kind: type[MiddlewareError], retryable: bool) -> None:
    error = foreign(name, hint="do this", param="top_k", pointer="#/a", retryable=retryable)
    translated = translate_engine_error(error)
    assert type(translated) is kind
    assert (translated.retryable, translated.hint, translated.message) == (retryable, "do this", "foreign words")
    if isinstance(translated, InvalidSchemaError | UnsupportedSchemaError):
        assert translated.pointer == "#/a"
    elif kind is InvalidRequestError and name == "InvalidRequestError":
        assert isinstance(translated, InvalidRequestError)
        assert translated.param == "top_k"


def all_engine_errors() -> Iterator[str]:
    errors = pytest.importorskip("engine.errors")
    for name, item in vars(errors).items():
        if isinstance(item, type) and issubclass(item, Exception):
            yield name


def test_list_of_engine_errors_is_complete() -> None:
    assert set(all_engine_errors()) - {"EngineError", "GrammarError"} == {row[0] for row in LOCAL[:-3]}


def test_list_of_litellm_errors_is_complete() -> None:
    litellm = load_litellm()
    known = {row[0] for row in REMOTE}
    # Raised by parts of litellm that are not used here: its proxy, its budgets, its guardrails, images and vector stores.
    unused = {
        "APIError", "APIResponseValidationError", "BlockedPiiEntityError", "BudgetExceededError",
        "CallerCredentialAuthenticationError", "CallerCredentialRateLimitError", "EndpointNotSupportedByModelError",
        "GuardrailRaisedException", "ImageFetchError", "InvalidRequestError", "JSONSchemaValidationError",
        "MalformedRequestFieldError", "MidStreamFallbackError", "MockException", "ModelNotMappedError",
        "ModifyResponseException", "OpenAIError", "PaymentRequiredError", "RejectedRequestError",
        "SensitiveDataRouteException", "UnsupportedEndpointError", "VectorStoreSearchError",
    }  # fmt: skip
    found = {
        name
        for name, item in vars(litellm.exceptions).items()
        if isinstance(item, type) and issubclass(item, Exception) and item.__module__ == litellm.exceptions.__name__
    }
    assert found - known - unused == set()
