"""Choose the next token of every row."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Protocol

import torch

from .sampling_params import SamplingParams

NUM_CANDIDATES = 1024
"""Tokens that a filter looks at first: sorting a whole vocabulary costs tens of milliseconds, and few distributions need it."""


class Draws(Protocol):
    """Whose row it is: a sequence, or anything with settings and a random stream of its own."""

    @property
    def params(self) -> SamplingParams:
        """The settings."""
        ...

    @property
    def generator(self) -> torch.Generator:
        """The stream, on the CPU."""
        ...


def sample(logits: torch.Tensor, sequences: SequenceOf[Draws]) -> list[int]:
    """Choose one token id per row; does not change `logits`.

    Each sampled row draws one uniform number from its own generator and reads its token off the cumulative distribution, so that
    its tokens do not depend on the batch it is in.

    Args:
        logits: float32 `(len(sequences), vocab_size)`; -inf is never chosen. Every row has a finite entry.
        sequences: Whose rows these are; their generators advance.
    """
    choices: list[int] = logits.argmax(dim=-1).tolist()
    drawn = [row for row, sequence in enumerate(sequences) if sequence.params.temperature > 0]
    filtered = [row for row in drawn if _is_filtered(sequences[row].params)]
    whole = [row for row in drawn if not _is_filtered(sequences[row].params)]
    for rows, choose in ((whole, _sample_whole), (filtered, _sample_filtered)):
        if rows:
            chosen = choose(logits[rows], [sequences[row] for row in rows])
            for row, token_id in zip(rows, chosen, strict=True):
                choices[row] = token_id
    return choices


def _is_filtered(params: SamplingParams) -> bool:
    return bool(params.top_k) or params.top_p < 1 or params.min_p > 0


def _sample_whole(logits: torch.Tensor, sequences: list[Draws]) -> list[int]:
    """Sample rows without a filter: no need to sort, which costs milliseconds on a large vocabulary."""
    scale = _column(logits, [sequence.params.temperature for sequence in sequences])
    weights = ((logits - logits.max(dim=-1, keepdim=True).values).double() / scale).exp()
    return _draw(weights, sequences).tolist()


def _sample_filtered(logits: torch.Tensor, sequences: list[Draws]) -> list[int]:
    token_ids, weights = _filter(logits, sequences, min(NUM_CANDIDATES, logits.shape[1]))
    # Where even the last candidate stays, more of them might: those rows are looked at whole.
    is_open = weights[:, -1] > 0
    if weights.shape[1] < logits.shape[1] and is_open.any():
        all_ids, all_weights = _filter(logits, sequences, logits.shape[1])
        padding = (0, logits.shape[1] - weights.shape[1])
        token_ids = torch.where(is_open[:, None], all_ids, torch.nn.functional.pad(token_ids, padding))
        weights = torch.where(is_open[:, None], all_weights, torch.nn.functional.pad(weights, padding))
    indices = _draw(weights, sequences)
    return token_ids.gather(-1, indices[:, None])[:, 0].tolist()


def _filter(logits: torch.Tensor, sequences: list[Draws], num_candidates: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The likeliest tokens, likeliest first, and their weights, 0 where filtered out; both `(rows, num_candidates)`."""
    if num_candidates == logits.shape[1]:
        values, token_ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    else:
        values, token_ids = torch.topk(logits, num_candidates, dim=-1)
    rank = torch.arange(num_candidates, device=logits.device)
    is_dropped = rank >= _column(logits, [sequence.params.top_k or logits.shape[1] for sequence in sequences])
    scale = _column(logits, [sequence.params.temperature for sequence in sequences])
    # The largest is taken off first: divided by a tiny temperature it would be infinite.
    weights = ((values - values[:, :1]).double() / scale).exp().masked_fill(is_dropped, 0.0)
    # Probabilities are those of the tokens that top_k leaves.
    all_weights = ((logits - values[:, :1]).double() / scale).exp().sum(dim=-1, keepdim=True)
    has_top_k = torch.tensor([bool(sequence.params.top_k) for sequence in sequences], device=logits.device)[:, None]
    probabilities = weights / torch.where(has_top_k, weights.sum(dim=-1, keepdim=True), all_weights)
    # A token stays when those before it have not reached top_p yet; the first always does.
    top_p = _column(logits, [sequence.params.top_p if sequence.params.top_p < 1 else 2.0 for sequence in sequences])
    is_dropped |= probabilities.cumsum(dim=-1) - probabilities >= top_p
    is_dropped |= probabilities < _column(logits, [sequence.params.min_p for sequence in sequences]) * probabilities[:, :1]
    is_dropped[:, 0] = False
    return token_ids, probabilities.masked_fill(is_dropped, 0.0)


def _draw(weights: torch.Tensor, sequences: list[Draws]) -> torch.Tensor:
    """Indices int64 `(rows,)` of entries with a weight above 0."""
    cumulative = weights.cumsum(dim=-1)
    uniform = torch.stack([torch.rand((), generator=sequence.generator, dtype=torch.float64) for sequence in sequences])
    wanted = uniform.to(weights.device)[:, None] * cumulative[:, -1:]
    indices = torch.searchsorted(cumulative, wanted, right=True)[:, 0]
    # Rounding can put the draw on the sum itself; the last entry that can be drawn takes it.
    last = weights.shape[1] - 1 - (weights > 0).flip(-1).to(torch.uint8).argmax(dim=-1)
    return torch.minimum(indices, last)


def _column(like: torch.Tensor, values: list[float] | list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]
