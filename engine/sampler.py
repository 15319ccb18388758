"""Choose the next token of every row."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

import torch

from .fast_path.draw import DrawKernel, make_draw_kernel
from .random_stream import uniform
from .sampling_params import SamplingParams

NUM_CANDIDATES = 1024
"""Tokens that a filter looks at first: sorting a whole vocabulary costs tens of milliseconds, and few distributions need it."""


class RowDraw(NamedTuple):
    """How the token of one row is drawn.

    Attributes:
        params: The request's settings.
        seed: Seed of its random stream.
        position: Index of the token among the generated ones.
    """

    params: SamplingParams
    seed: int
    position: int


def sample(logits: torch.Tensor, draws: SequenceOf[RowDraw]) -> list[int]:
    """Choose one token id per row; does not change `logits`.

    Each sampled row has one uniform number of its own (`random_stream`) and reads its token off the cumulative distribution, so
    that its tokens do not depend on the batch it is in, nor on drafts.

    Args:
        logits: float `(len(draws), vocab_size)`; -inf is never chosen. Every row has a finite entry.
        draws: One per row.
    """
    drawn = [row for row, draw in enumerate(draws) if draw.params.temperature > 0]
    # `max` gives the first of equal ones, as `argmax` does, in a third of the time.
    choices: list[int] = logits.max(dim=-1).indices.tolist() if len(drawn) < len(draws) else [0] * len(draws)
    if drawn:
        own = [draws[row] for row in drawn]
        kernel = make_draw_kernel()
        is_native = kernel is not None and kernel.takes(logits)
        found = draw_rows(kernel, own, logits, drawn) if kernel and is_native else _draw_by_torch(logits, drawn, own)
        for row, token_id in zip(drawn, found, strict=True):
            choices[row] = token_id
    return choices


def draw_rows(
    kernel: DrawKernel,
    draws: SequenceOf[RowDraw],
    logits: torch.Tensor,
    rows: SequenceOf[int],
    bitmask: torch.Tensor | None = None,
    mask_rows: SequenceOf[int] = (),
    banned: SequenceOf[SequenceOf[int]] = (),
) -> list[int]:
    """Draw a token for each of `rows`, or find that there is none; see `DrawKernel.__call__`.

    Args:
        kernel: It takes these logits.
        draws: One for each row, of a temperature above 0.
        logits: float `(num_rows, vocab_size)`.
        rows: Logits rows.
        bitmask: Masks.
        mask_rows: The mask of each row, or -1; none have one if it is empty.
        banned: Ids that each row may not have besides; none if it is empty.
    """
    return kernel(
        logits,
        rows,
        bitmask,
        mask_rows or [-1] * len(rows),
        banned or [()] * len(rows),
        temperatures=[draw.params.temperature for draw in draws],
        top_k=[draw.params.top_k for draw in draws],
        top_p=[draw.params.top_p for draw in draws],
        min_p=[draw.params.min_p for draw in draws],
        uniforms=[uniform(draw.seed, draw.position) for draw in draws],
    )


def _draw_by_torch(logits: torch.Tensor, rows: list[int], draws: list[RowDraw]) -> list[int]:
    choices = [0] * len(rows)
    filtered = [index for index, draw in enumerate(draws) if _is_filtered(draw.params)]
    whole = [index for index, draw in enumerate(draws) if not _is_filtered(draw.params)]
    for indices, choose in ((whole, _sample_whole), (filtered, _sample_filtered)):
        if indices:
            chosen = choose(logits[[rows[index] for index in indices]], [draws[index] for index in indices])
            for index, token_id in zip(indices, chosen, strict=True):
                choices[index] = token_id
    return choices


def _is_filtered(params: SamplingParams) -> bool:
    return bool(params.top_k) or params.top_p < 1 or params.min_p > 0


def _sample_whole(logits: torch.Tensor, draws: list[RowDraw]) -> list[int]:
    """Sample rows without a filter: no need to sort, which costs milliseconds on a large vocabulary."""
    scale = _column(logits, [draw.params.temperature for draw in draws])
    weights = ((logits - logits.max(dim=-1, keepdim=True).values).double() / scale).exp()
    return _draw(weights, draws).tolist()


def _sample_filtered(logits: torch.Tensor, draws: list[RowDraw]) -> list[int]:
    token_ids, weights, is_open = _filter(logits, draws, min(NUM_CANDIDATES, logits.shape[1]))
    # Where what stays may go on behind the candidates, rows are looked at whole.
    if weights.shape[1] < logits.shape[1] and is_open.any():
        all_ids, all_weights, _ = _filter(logits, draws, logits.shape[1])
        padding = (0, logits.shape[1] - weights.shape[1])
        token_ids = torch.where(is_open[:, None], all_ids, torch.nn.functional.pad(token_ids, padding))
        weights = torch.where(is_open[:, None], all_weights, torch.nn.functional.pad(weights, padding))
    indices = _draw(weights, draws)
    return token_ids.gather(-1, indices[:, None])[:, 0].tolist()


def _filter(logits: torch.Tensor, draws: list[RowDraw], num_candidates: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The likeliest tokens, likeliest first, equal ones by id, and their weights, 0 where filtered out.

    Both `(rows, num_candidates)`; and for each row whether more tokens might stay, or a lower id instead of an equal one.
    """
    if num_candidates == logits.shape[1]:
        values, token_ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    else:
        # `topk` leaves the order of equal ones open.
        token_ids = torch.topk(logits, num_candidates, dim=-1).indices.sort(dim=-1).values
        values, order = logits.gather(-1, token_ids).sort(dim=-1, descending=True, stable=True)
        token_ids = token_ids.gather(-1, order)
    rank = torch.arange(num_candidates, device=logits.device)
    is_dropped = rank >= _column(logits, [draw.params.top_k or logits.shape[1] for draw in draws])
    scale = _column(logits, [draw.params.temperature for draw in draws])
    # The largest is taken off first: divided by a tiny temperature it would be infinite.
    weights = ((values - values[:, :1]).double() / scale).exp().masked_fill(is_dropped, 0.0)
    # Probabilities are those of the tokens that top_k leaves.
    all_weights = ((logits - values[:, :1]).double() / scale).exp().sum(dim=-1, keepdim=True)
    has_top_k = torch.tensor([bool(draw.params.top_k) for draw in draws], device=logits.device)[:, None]
    probabilities = weights / torch.where(has_top_k, weights.sum(dim=-1, keepdim=True), all_weights)
    # A token stays when those before it have not reached top_p yet; the first always does.
    top_p = _column(logits, [draw.params.top_p if draw.params.top_p < 1 else 2.0 for draw in draws])
    is_dropped |= probabilities.cumsum(dim=-1) - probabilities >= top_p
    is_dropped |= probabilities < _column(logits, [draw.params.min_p for draw in draws]) * probabilities[:, :1]
    is_dropped[:, 0] = False
    probabilities = probabilities.masked_fill(is_dropped, 0.0)
    is_open = ((probabilities > 0) & (values == values[:, -1:])).any(dim=-1)
    # What `top_k` leaves is more than these, and all of it counts for `top_p`.
    is_open |= _column(logits, [draw.params.top_k for draw in draws])[:, 0] > num_candidates
    return token_ids, probabilities, is_open


def _draw(weights: torch.Tensor, draws: list[RowDraw]) -> torch.Tensor:
    """Indices int64 `(rows,)` of entries with a weight above 0."""
    cumulative = weights.cumsum(dim=-1)
    wanted = _column(weights, [uniform(draw.seed, draw.position) for draw in draws]) * cumulative[:, -1:]
    indices = torch.searchsorted(cumulative, wanted, right=True)[:, 0]
    # Rounding can put the draw on the sum itself; the last entry that can be drawn takes it.
    last = weights.shape[1] - 1 - (weights > 0).flip(-1).to(torch.uint8).argmax(dim=-1)
    return torch.minimum(indices, last)


def _column(like: torch.Tensor, values: list[float] | list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]
