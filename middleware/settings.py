"""The options of one call: their names, defaults and limits.

Knows nothing about what an upstream does with them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

from .errors import InvalidRequestError

MAX_LOGPROBS = 20
MAX_STOP_TEXTS = 16
MAX_BIAS = 100
OnUnknown = Literal["first_token", "open", "constrain", "error"]


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate` and `stream`; see `GenerationSettings` for what they mean."""

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | None
    logprobs: int | None
    thinking: bool | None
    max_reasoning_tokens: int | None
    reserve: int | None
    on_unknown: OnUnknown
    max_attempts: int
    timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """Options of one call. None means: what the upstream does by itself.

    Attributes:
        max_tokens: Most tokens written per attempt, thinking included.
        temperature: 0 or more.
        top_p: Above 0, up to 1.
        top_k: 0 or more; 0 means no limit.
        min_p: 0 to 1; tokens that are less than this share as likely as the likeliest are left out.
        seed: Seed of the sampler.
        stop: A text, or up to 16, that end a free answer; not with an output type, which says itself where the answer ends.
        presence_penalty: -2 to 2; makes tokens that were written less likely.
        frequency_penalty: -2 to 2; the same once per occurrence.
        repetition_penalty: Above 0; 1 is none.
        logit_bias: By token id, -100 to 100.
        logprobs: Give the log-probability of each token of the answer and of this many likeliest ones (0 to 20) in
            `Result.logprobs`; they are the model's own, before penalties and masks.
        thinking: Switch the thinking on or off.
        max_reasoning_tokens: Thinking budget; upstreams that have none say so in `Result.notes`.
        reserve: Tokens of `max_tokens` that are kept for the answer: thinking that reaches them is closed. Upstreams that cannot
            do that say so in `Result.notes`.
        on_unknown: What to do when the prompt does not say whether the model will think.
        max_attempts: Tries until an answer must be valid, 1 = no re-ask.
        timeout_s: Seconds for the whole call, all attempts together; None = the client's.
        extra: Options of the provider, passed on as they are.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None
    logprobs: int | None = None
    thinking: bool | None = None
    max_reasoning_tokens: int | None = None
    reserve: int | None = None
    on_unknown: OnUnknown = "first_token"
    max_attempts: int = 3
    timeout_s: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_range("max_tokens", self.max_tokens, 1, math.inf, whole=True)
        _check_range("temperature", self.temperature, 0, math.inf)
        _check_range("top_p", self.top_p, math.nextafter(0, 1), 1)
        _check_range("top_k", self.top_k, 0, math.inf, whole=True)
        _check_range("min_p", self.min_p, 0, 1)
        _check_range("presence_penalty", self.presence_penalty, -2, 2)
        _check_range("frequency_penalty", self.frequency_penalty, -2, 2)
        _check_range("repetition_penalty", self.repetition_penalty, math.nextafter(0, 1), math.inf)
        _check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS, whole=True)
        _check_stop(self.stop)
        _check_bias(self.logit_bias)
        _check_range("seed", self.seed, -math.inf, math.inf, whole=True)
        _check_range("max_reasoning_tokens", self.max_reasoning_tokens, 0, math.inf, whole=True)
        _check_range("reserve", self.reserve, 0, math.inf, whole=True)
        _check_range("max_attempts", self.max_attempts, 1, 100, whole=True)
        _check_range("timeout_s", self.timeout_s, math.nextafter(0, 1), _MAX_TIMEOUT_S)
        if self.on_unknown not in ("first_token", "open", "constrain", "error"):
            raise InvalidRequestError(f"on_unknown cannot be {self.on_unknown!r}", param="on_unknown")

    @property
    def stop_texts(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> GenerationSettings:
        """Sort keyword arguments into our own and the provider's.

        Raises:
            InvalidRequestError: A value is out of range, or a name is nearly one of ours.
        """
        own = {name: value for name, value in options.items() if name in _NAMES}
        extra = {name: value for name, value in options.items() if name not in _NAMES}
        for name in extra:
            _check_not_misspelt(name)
        return cls(**own, extra=extra)


# What the timers of the standard library take.
_MAX_TIMEOUT_S = 1e6
_NAMES = frozenset(item.name for item in fields(GenerationSettings)) - {"extra"}


def _check_not_misspelt(name: str) -> None:
    near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.85)
    if near:
        raise InvalidRequestError(f"there is no option {name!r}", param=name, hint=f"did you mean {near[0]!r}?")


def _check_range(param: str, value: float | None, low: float, high: float, *, whole: bool = False) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise InvalidRequestError(f"{param} must be a {'whole ' if whole else ''}number, got {value!r}", param=param)
    if not low <= value <= high:
        raise InvalidRequestError(f"{param}={value!r} is out of range", param=param, hint=_range_words(low, high))


def _range_words(low: float, high: float) -> str:
    # nextafter(0, 1) is how a range says that 0 itself is not in it.
    above = "above 0" if low == math.nextafter(0, 1) else f"at least {low:g}"
    return above if high == math.inf else f"{above}, at most {high:g}"


def _check_stop(stop: object) -> None:
    texts = [stop] if isinstance(stop, str) else stop
    if stop is None:
        return
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) and text for text in texts):
        raise InvalidRequestError(f"stop must be a text or texts, none empty, got {stop!r}", param="stop")
    if len(texts) > MAX_STOP_TEXTS:
        raise InvalidRequestError(f"stop takes {MAX_STOP_TEXTS} texts, got {len(texts)}", param="stop")


def _check_bias(bias: object) -> None:
    if bias is None:
        return
    if not isinstance(bias, Mapping):
        raise InvalidRequestError(f"logit_bias must map token ids to numbers, got {bias!r}", param="logit_bias")
    for token_id, value in bias.items():
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise InvalidRequestError(f"logit_bias: {token_id!r} is no token id", param="logit_bias")
        _check_range("logit_bias", value, -MAX_BIAS, MAX_BIAS)
