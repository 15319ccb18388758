"""Put an output type in, get a validated object out, from a model that thinks first.

Start with `Client` (`client.py`) or `AsyncClient`. Importing this package loads neither torch nor litellm.
"""

from .async_client import AsyncClient, AsyncResponseStream
from .attempt import FailedAttempt, Problem
from .client import Client, ResponseStream
from .errors import (
    AnswerTruncatedError,
    GenerationError,
    InvalidAnswerError,
    InvalidRequestError,
    InvalidSchemaError,
    MiddlewareError,
    MissingExtraError,
    NoFinalAnswerError,
    ReasoningTruncatedError,
    UnknownModelError,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from .events import ContentDelta, Event, FinalResult, PartialObject, ReasoningDelta, RetryStarted
from .result import Result, TokenLogprob, Usage
from .settings import GenerateOptions, GenerationSettings
from .text_types import Choice, Grammar, Regex, StructuralTag

__all__ = [
    "AnswerTruncatedError",
    "AsyncClient",
    "AsyncResponseStream",
    "Choice",
    "Client",
    "ContentDelta",
    "Event",
    "FailedAttempt",
    "FinalResult",
    "GenerateOptions",
    "GenerationError",
    "GenerationSettings",
    "Grammar",
    "InvalidAnswerError",
    "InvalidRequestError",
    "InvalidSchemaError",
    "MiddlewareError",
    "MissingExtraError",
    "NoFinalAnswerError",
    "PartialObject",
    "Problem",
    "ReasoningDelta",
    "ReasoningTruncatedError",
    "Regex",
    "ResponseStream",
    "Result",
    "RetryStarted",
    "StructuralTag",
    "TokenLogprob",
    "UnknownModelError",
    "UnsupportedSchemaError",
    "UpstreamBusyError",
    "UpstreamError",
    "UpstreamTimeoutError",
    "UpstreamUnavailableError",
    "Usage",
]
