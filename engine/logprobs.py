"""Log-probabilities of chosen tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch


class TokenLogprob(NamedTuple):
    """A token and the natural logarithm of its probability; -inf for a token that was impossible."""

    token_id: int
    logprob: float


class TokenLogprobs(NamedTuple):
    """What is known of one position.

    Attributes:
        chosen: The token that was taken.
        top: The likeliest tokens, likeliest first, ties by id. The chosen one is among them only if it is that likely.
    """

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


def token_logprobs(logits: torch.Tensor, token_id: int, num_top: int) -> TokenLogprobs:
    """Read one row.

    Args:
        logits: float `(vocab_size,)`; does not change.
        token_id: The token that was taken.
        num_top: How many of the likeliest to give.
    """
    logprobs = torch.log_softmax(logits.float(), dim=-1)
    values, ids = torch.sort(logprobs, descending=True, stable=True) if num_top else (logprobs[:0], logprobs[:0])
    top = tuple(TokenLogprob(int(i), float(v)) for i, v in zip(ids[:num_top].tolist(), values[:num_top].tolist(), strict=True))
    return TokenLogprobs(TokenLogprob(token_id, float(logprobs[token_id])), top)
