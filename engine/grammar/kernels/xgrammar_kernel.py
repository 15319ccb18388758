"""xgrammar's own kernels, which want a bitmask row for every logits row and leave columns past the bitmask alone."""

from __future__ import annotations

import torch
import xgrammar

from .base import NEGATIVE_INFINITY

_BITS = 32


def apply_xgrammar(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """See `ApplyKernel`."""
    width = min(logits.shape[1], bitmask.shape[1] * _BITS)
    if not len(rows):
        return
    if logits.device.type == "cpu":
        for index, row in enumerate(rows.tolist()):
            xgrammar.apply_token_bitmask_inplace(logits[row], bitmask[index], vocab_size=width, backend="cpu")
    else:
        chosen = logits.index_select(0, rows)
        xgrammar.apply_token_bitmask_inplace(chosen, bitmask, vocab_size=width)
        logits.index_copy_(0, rows, chosen)
    if width < logits.shape[1]:
        logits[rows, width:] = NEGATIVE_INFINITY
