"""How one request samples and where it stops."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from .errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling settings of one request.

    Attributes:
        max_tokens: Generated tokens at most, thinking included.
        temperature: 0 is greedy; larger is flatter. Finite, not negative.
        top_p: Keep the likeliest tokens that together reach this probability, in (0, 1].
        top_k: Keep this many tokens; 0 keeps all.
        seed: Seed of this request's own random stream, which does not depend on the batch; None draws one.
        stop_token_ids: Further ids that end the answer, beside the model's own.
        max_reasoning_tokens: Thinking is closed after this many tokens; None is no limit.
    """

    max_tokens: int = 1024
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    max_reasoning_tokens: int | None = None

    def __post_init__(self) -> None:
        checks = {
            "max_tokens": (_is_int(self.max_tokens) and self.max_tokens >= 1, "a whole number of at least 1"),
            "temperature": (_is_number(self.temperature) and self.temperature >= 0, "a finite number, not negative"),
            "top_p": (_is_number(self.top_p) and 0 < self.top_p <= 1, "in (0, 1]"),
            "top_k": (_is_int(self.top_k) and self.top_k >= 0, "a whole number, 0 for no limit"),
            "seed": (self.seed is None or (_is_int(self.seed) and 0 <= self.seed < 2**63), "a whole number from 0 to 2**63 - 1"),
            "stop_token_ids": (all(_is_int(i) and i >= 0 for i in self.stop_token_ids), "token ids"),
            "max_reasoning_tokens": (
                self.max_reasoning_tokens is None or (_is_int(self.max_reasoning_tokens) and self.max_reasoning_tokens >= 0),
                "a whole number of at least 0, or None",
            ),
        }
        for name, (is_right, wanted) in checks.items():
            if not is_right:
                raise InvalidRequestError(f"{name} must be {wanted}, not {getattr(self, name)!r}", param=name)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
