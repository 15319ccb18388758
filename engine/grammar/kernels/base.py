"""What a kernel is."""

from __future__ import annotations

from typing import Protocol

import torch

NEGATIVE_INFINITY = float("-inf")


class ApplyKernel(Protocol):
    """Puts a compact bitmask on logits, in place."""

    def __call__(self, logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
        """Set the logits of denied tokens to -inf; rows that are not listed keep their bits.

        Args:
            logits: float32, bfloat16 or float16 `(num_rows, vocab_size)`, each row contiguous; changed in place.
            bitmask: int32 `(len(rows), words)`, contiguous, on the same device. Columns past `words * 32` are denied.
            rows: int64 `(len(rows),)` on the same device, different; `rows[i]` is the logits row that mask row `i` speaks of.
        """
        ...
