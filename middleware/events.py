"""What a stream yields: typed events, in the order in which they happen.

A stream is `ReasoningDelta`*, then `ContentDelta` and `PartialObject` mixed, then one `FinalResult`. An answer that is not valid
puts a `RetryStarted` in between, after which everything begins again and earlier partial objects are void.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .attempt import Problem
from .result import Result, TokenLogprob

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """New piece of thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """New piece of the raw text of the answer, and log-probabilities where they were asked for.

    A token that ends inside a character brings its log-probability at once, and its text with the next one.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class PartialObject:
    """The answer so far, as plain JSON data.

    `value` is a snapshot: it holds completed values only (no half-written strings or numbers) and is not changed later.
    Nothing about it has been validated.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class RetryStarted:
    """The answer was not valid; attempt number `attempt` begins."""

    attempt: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class FinalResult(Generic[T_co]):
    """The end of the stream."""

    result: Result[T_co]


Event = ReasoningDelta | ContentDelta | PartialObject | RetryStarted | FinalResult[T_co]
