"""How one request samples and where it stops."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, get_args

from .errors import InvalidRequestError

LogprobsMode = Literal["raw", "processed"]
MAX_N = 64
MAX_LOGPROBS = 100
MAX_STOP_STRINGS = 16
MAX_COUNT = 2**63 - 1
"""Of tokens and of seeds, which are whole numbers of 64 bits."""
MAX_REPETITION_PENALTY = 1000.0
MAX_LOGIT_BIAS = 1e30
"""Logits are float32, whose largest is 3e38; sums must stay below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings of one request.

    Attributes:
        max_tokens: Generated tokens at most, thinking included.
        temperature: 0 is greedy; larger is flatter. Finite, not negative.
        top_p: Keep the likeliest tokens that together reach this probability, in (0, 1].
        top_k: Keep this many tokens; 0 keeps all.
        seed: Seed of this request's own random stream, which does not depend on the batch; None draws one.
        stop_token_ids: Further ids that end the output, beside the model's own. Without a grammar they end the thinking too (they
            are turn markers mostly, behind which nothing comes); with one, neither thinking nor an unfinished value.
        max_reasoning_tokens: Thinking is closed after this many tokens; None is no limit.
        reserve: Tokens of `max_tokens` that are kept for the answer: thinking that reaches them is closed.
        transition: Text that is written into the thinking before it is closed for want of tokens.
        n: Answers to one prompt, up to `MAX_N`. With a seed, answer i is that of the seed plus i.
        min_p: Keep tokens that are at least this share as likely as the likeliest, in [0, 1]; 0 keeps all.
        repetition_penalty: Divides positive and multiplies negative logits of tokens of prompt and output; 0.001 to 1,000.
        presence_penalty: Taken off the logits of tokens that the output has, -2 to 2.
        frequency_penalty: The same once per occurrence, -2 to 2.
        logit_bias: Added to the logits of these ids; -1e30 to 1e30.
        bad_words: Texts whose usual tokens may not be completed, with or without a space before them. Another spelling in tokens
            may still get through.
        min_tokens: Stop ids are held back for so many tokens.
        ignore_eos: Stop ids are held back until `max_tokens`.
        stop: Texts that end the answer; thinking is not searched. Not with a grammar, which says itself where the answer ends.
        include_stop_in_output: Whether the stop text stays in the answer.
        logprobs: Give the log-probability of each token and of this many likeliest ones; None gives none.
        logprobs_mode: `raw`: of the model's own logits, as they were before penalties, masks and temperature. `processed`: of
            what the token was drawn from, top-k, top-p and min-p aside.

    A grammar wins over `logit_bias`, `bad_words`, `min_tokens` and `ignore_eos`: where they leave nothing that it allows, they do
    not count, and a finished value ends the answer.
    """

    max_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    max_reasoning_tokens: int | None = None
    reserve: int = 0
    transition: str = ""
    n: int = 1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    include_stop_in_output: bool = False
    logprobs: int | None = None
    logprobs_mode: LogprobsMode = "raw"

    def one_each(self) -> list[SamplingParams]:
        """Give the settings of each of the `n` answers: answer i of a seeded request has the seed plus i."""
        seeds = [self.seed if self.seed is None else (self.seed + i) % 2**63 for i in range(self.n)]
        return [replace(self, n=1, seed=seed) for seed in seeds]

    def __post_init__(self) -> None:
        for name, is_right, wanted in chain(self._length_checks(), self._choice_checks(), self._logit_checks()):
            if not is_right:
                raise InvalidRequestError(f"{name} must be {wanted}, not {getattr(self, name)!r}", param=name)
        if self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens {self.min_tokens} is more than max_tokens {self.max_tokens}", param="min_tokens"
            )

    def _length_checks(self) -> Iterator[tuple[str, bool, str]]:
        yield "max_tokens", _is_int(self.max_tokens) and self.max_tokens >= 1, "a whole number of at least 1"
        yield "min_tokens", _is_int(self.min_tokens) and self.min_tokens >= 0, "a whole number of at least 0"
        budget = self.max_reasoning_tokens
        yield "max_reasoning_tokens", budget is None or (_is_int(budget) and budget >= 0), "a whole number of at least 0, or None"
        yield "reserve", _is_int(self.reserve) and self.reserve >= 0, "a whole number of at least 0"
        for name in ("max_tokens", "min_tokens", "max_reasoning_tokens", "reserve"):
            yield name, (getattr(self, name) or 0) <= MAX_COUNT, "at most 2**63 - 1"
        yield "transition", self.transition == "" or _are_texts((self.transition,)), "a text"
        yield "stop_token_ids", _are_ids(self.stop_token_ids), "token ids"
        yield "ignore_eos", isinstance(self.ignore_eos, bool), "a bool"
        yield "stop", _are_texts(self.stop) and len(self.stop) <= MAX_STOP_STRINGS, f"up to {MAX_STOP_STRINGS} texts, none empty"
        yield "include_stop_in_output", isinstance(self.include_stop_in_output, bool), "a bool"

    def _choice_checks(self) -> Iterator[tuple[str, bool, str]]:
        yield "temperature", _is_number(self.temperature) and self.temperature >= 0, "a finite number, not negative"
        yield "top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "in (0, 1]"
        yield "min_p", _is_number(self.min_p) and 0 <= self.min_p <= 1, "in [0, 1]"
        yield "top_k", _is_int(self.top_k) and 0 <= self.top_k <= MAX_COUNT, "a whole number, 0 for no limit, at most 2**63 - 1"
        is_seed = self.seed is None or (_is_int(self.seed) and 0 <= self.seed <= MAX_COUNT)
        yield "seed", is_seed, "a whole number from 0 to 2**63 - 1"
        yield "n", _is_int(self.n) and 1 <= self.n <= MAX_N, f"a whole number from 1 to {MAX_N}"

    def _logit_checks(self) -> Iterator[tuple[str, bool, str]]:
        penalty = self.repetition_penalty
        is_penalty = _is_number(penalty) and 1 / MAX_REPETITION_PENALTY <= penalty <= MAX_REPETITION_PENALTY
        yield "repetition_penalty", is_penalty, f"a number from {1 / MAX_REPETITION_PENALTY:g} to {MAX_REPETITION_PENALTY:,.0f}"
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            yield name, _is_number(value) and -2 <= value <= 2, "from -2 to 2"
        bias: object = self.logit_bias
        is_bias = isinstance(bias, Mapping) and _are_ids(tuple(bias)) and all(map(_is_number, bias.values()))
        yield "logit_bias", is_bias, "finite numbers by token id"
        is_bounded = all(abs(value) <= MAX_LOGIT_BIAS for value in self.logit_bias.values())
        yield "logit_bias", is_bounded, f"numbers from {-MAX_LOGIT_BIAS:g} to {MAX_LOGIT_BIAS:g}"
        yield "bad_words", _are_texts(self.bad_words), "texts, none empty"
        most = f"a whole number from 0 to {MAX_LOGPROBS}, or None"
        yield "logprobs", self.logprobs is None or (_is_int(self.logprobs) and 0 <= self.logprobs <= MAX_LOGPROBS), most
        yield "logprobs_mode", self.logprobs_mode in get_args(LogprobsMode), "raw or processed"


def _are_texts(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(text, str) and text and is_encodable(text) for text in value)


def is_encodable(text: str) -> bool:
    """Whether a text has bytes, and so tokens: half a surrogate pair has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _are_ids(value: object) -> bool:
    return isinstance(value, (tuple, list, set, frozenset)) and all(_is_int(token_id) and token_id >= 0 for token_id in value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
