"""Token bitmasks: int32 `(rows, ceil(vocab_size / 32))`, bit 1 = allowed, rows start at 0 (default deny).

Knows nothing of grammars. Bit `i % 32` of word `i // 32` speaks of token id `i`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from .kernels import pick_kernel
from .kernels.torch_kernel import apply_torch

BITS_PER_WORD = 32
_MOST_VIEWS = 256
MOST_ROWS_FIRST = 1024
"""Rows of a pool's tables before a step needed more: what a setting allows may never come."""


def bitmask_width(vocab_size: int) -> int:
    """Give the number of int32 words that `vocab_size` columns need."""
    return (vocab_size + BITS_PER_WORD - 1) // BITS_PER_WORD


def new_bitmask(num_rows: int, vocab_size: int, *, pin_memory: bool = False) -> torch.Tensor:
    """Make a table that denies everything: int32 `(num_rows, ceil(vocab_size / 32))` on the CPU."""
    return torch.zeros((num_rows, bitmask_width(vocab_size)), dtype=torch.int32, pin_memory=pin_memory)


def set_bits_inplace(row: npt.NDArray[np.int32], token_ids: tuple[int, ...]) -> None:
    """Allow `token_ids` in one row, int32 `(words,)`."""
    words = row.view(np.uint32)
    for token_id in token_ids:
        words[token_id // BITS_PER_WORD] |= np.uint32(1 << (token_id % BITS_PER_WORD))


def clear_bits_inplace(row: npt.NDArray[np.int32], token_ids: tuple[int, ...]) -> None:
    """Deny `token_ids` in one row, int32 `(words,)`; ids beyond the row are denied already."""
    words = row.view(np.uint32)
    for token_id in token_ids:
        if token_id // BITS_PER_WORD < len(words):
            words[token_id // BITS_PER_WORD] &= np.uint32(0xFFFFFFFF ^ (1 << (token_id % BITS_PER_WORD)))


def get_bit(row: npt.NDArray[np.int32], token_id: int) -> bool:
    """Whether `token_id` is allowed in one row, int32 `(words,)`."""
    word = token_id // BITS_PER_WORD
    return word < len(row) and bool((int(row[word]) >> (token_id % BITS_PER_WORD)) & 1)


def apply_token_bitmask_inplace(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """Set the logits of denied tokens to -inf; rows that are not listed keep their bits.

    Args:
        logits: float `(num_rows, vocab_size)` on any device; changed in place.
        bitmask: int32 `(len(rows), words)` on the same device. Columns past `words * 32` are denied.
        rows: int64 `(len(rows),)` on the same device; `rows[i]` is the logits row that mask row `i` speaks of.
    """
    if logits.dtype in (torch.float32, torch.bfloat16, torch.float16) and logits.stride(1) == 1:
        pick_kernel(logits.device.type)(logits, bitmask, rows)
    else:
        apply_torch(logits, bitmask, rows)


class BitmaskPool:
    """The table of an engine, allocated once and handed out step by step; it grows where a step needs more rows.

    Two tables take turns, so that one can still be on its way to a device while the next step is filled.

    Args:
        num_rows: Rows that a step needs, as a rule: one for each sequence and each draft.
        vocab_size: Columns of the logits.
        pin_memory: Whether the table will be copied to a device.
    """

    def __init__(self, num_rows: int, vocab_size: int, *, pin_memory: bool = False) -> None:
        self.vocab_size = vocab_size
        self._pin_memory = pin_memory
        num_rows = min(num_rows, MOST_ROWS_FIRST)
        self._tables = [new_bitmask(num_rows, vocab_size, pin_memory=pin_memory) for _ in range(2)]
        # By turn and number of rows, as tensor and as array: to slice a tensor costs half a millisecond where PyTorch's code was
        # driven out of the caches, as behind a forward pass on the CPU.
        self._views: dict[tuple[int, int], tuple[torch.Tensor, npt.NDArray[np.int32]]] = {}
        self._turn = 0

    def take(self, num_rows: int) -> torch.Tensor:
        """Give a table that denies everything: int32 `(num_rows, words)` on the CPU, good until `take` was called twice more."""
        self._turn ^= 1
        if num_rows > len(self._tables[self._turn]):
            self._tables[self._turn] = new_bitmask(2 * num_rows, self.vocab_size, pin_memory=self._pin_memory)
            self._views.clear()
        view = self._views.get((self._turn, num_rows))
        if view is None:
            if len(self._views) >= _MOST_VIEWS:
                self._views.clear()
            table = self._tables[self._turn][:num_rows]
            view = self._views[self._turn, num_rows] = (table, table.numpy())
        view[1].fill(0)
        return view[0]
