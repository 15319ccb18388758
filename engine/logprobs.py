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
    ids = _likeliest(logprobs, num_top)
    top = tuple(TokenLogprob(int(i), float(v)) for i, v in zip(ids.tolist(), logprobs[ids].tolist(), strict=True))
    return TokenLogprobs(TokenLogprob(token_id, float(logprobs[token_id])), top)


def _likeliest(logprobs: torch.Tensor, count: int) -> torch.Tensor:
    """Ids int64 `(count,)`, or all there are: the likeliest first, equal ones by id."""
    count = min(count, len(logprobs))
    if not count:
        return torch.empty(0, dtype=torch.long, device=logprobs.device)
    ids = torch.arange(len(logprobs), device=logprobs.device)
    if logprobs.device.type == "cpu":
        # Sorting a whole vocabulary costs milliseconds here; `topk` finds the least value, equal ones in no order.
        likely = (logprobs >= logprobs.topk(count).values[-1]).nonzero()[:, 0]
        ids = likely if len(likely) >= count else ids  # a NaN is no less than itself
    return ids[logprobs[ids].sort(descending=True, stable=True).indices[:count]]
