"""The bitmask as PyTorch's operations, as they are or compiled by `torch.compile`: on any device, and slow on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from .base import NEGATIVE_INFINITY, ApplyKernel

_BITS = 32


def apply_torch(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """See `ApplyKernel`."""
    if len(rows):
        logits.index_copy_(0, rows, _masked(logits.index_select(0, rows), bitmask))


def make_compiled_kernel(*, backend: str = "inductor") -> ApplyKernel:
    """Compile the operations; the first call for a shape takes seconds.

    Args:
        backend: Of `torch.compile`.
    """
    masked: Any = torch.compile(_masked, dynamic=True, backend=backend)

    def apply(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
        if len(rows):
            logits.index_copy_(0, rows, masked(logits.index_select(0, rows), bitmask))

    return apply


def _masked(chosen: torch.Tensor, bitmask: torch.Tensor) -> torch.Tensor:
    vocab_size = chosen.shape[1]
    shifts = torch.arange(_BITS, dtype=torch.int32, device=bitmask.device)
    allowed = ((bitmask.unsqueeze(-1) >> shifts) & 1).bool().reshape(bitmask.shape[0], -1)[:, :vocab_size]
    missing = vocab_size - allowed.shape[1]
    if missing > 0:
        allowed = torch.nn.functional.pad(allowed, (0, missing), value=False)
    return chosen.masked_fill(~allowed, NEGATIVE_INFINITY)
