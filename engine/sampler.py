"""Choose the next token of every row."""

from __future__ import annotations

import torch

from .sequence import Sequence


def sample(logits: torch.Tensor, sequences: list[Sequence]) -> list[int]:
    """Choose one token id per row; does not change `logits`.

    Each sampled row draws one uniform number from its own generator, so that its tokens do not depend on the batch it is in.

    Args:
        logits: float32 `(len(sequences), vocab_size)`; -inf is never chosen. Every row has a finite entry.
        sequences: Whose rows these are; their generators advance.
    """
    choices = logits.argmax(dim=-1).tolist()
    for row, sequence in enumerate(sequences):
        if sequence.params.temperature > 0:
            choices[row] = _sample_row(logits[row], sequence)
    return choices


def _sample_row(logits: torch.Tensor, sequence: Sequence) -> int:
    params = sequence.params
    values, token_ids = torch.sort(logits, descending=True, stable=True)
    if params.top_k:
        values, token_ids = values[: params.top_k], token_ids[: params.top_k]
    # The largest is taken off first: divided by a tiny temperature it would be infinite.
    probabilities = torch.softmax((values - values[0]).double() / params.temperature, dim=-1)
    cumulative = probabilities.cumsum(dim=-1)
    if params.top_p < 1:
        # A token stays when those before it have not reached top_p yet; the first always stays.
        kept = int(((cumulative - probabilities) < params.top_p).sum())
        cumulative = cumulative[: max(1, kept)]
    drawn = torch.rand((), generator=sequence.generator, dtype=torch.float64) * cumulative[-1].cpu()
    index = int((cumulative <= drawn.to(cumulative.device)).sum())
    # Rounding can put the draw on the sum itself; the last token that can be drawn takes it.
    last = int((probabilities[: len(cumulative)] > 0).sum()) - 1
    return int(token_ids[min(index, last)])
