"""How rows of logits, with their masks and bans, are handed to a compiled kernel that reads them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import torch

POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
ROW_TABLE_TYPES = (POINTER, NUMBER, NUMBER, POINTER, NUMBER, POINTER, NUMBER, POINTER, POINTER, POINTER)
"""Types of the arguments that `row_table` gives."""

NOTHING = -1
"""Instead of a token id: masks and bans leave none whose logit is above -inf."""
NO_NUMBER = -2
"""Instead of a token id: a logit of the row, allowed or not, is NaN."""


def row_table(
    logits: torch.Tensor,
    rows: Sequence[int],
    bitmask: torch.Tensor | None,
    mask_rows: Sequence[int],
    banned: Sequence[Sequence[int]],
) -> tuple[Any, ...]:
    """Give the arguments of a kernel: logits, their stride and columns, rows and their number, masks and their words, bans.

    Args:
        logits: `(num_rows, vocab_size)` on the CPU, columns side by side.
        rows: Logits rows to look at, different ones.
        bitmask: int32 `(num_masks, words)` on the CPU; columns past `words * 32` are denied. None where no row has a mask.
        mask_rows: The mask of each row, or -1 for none.
        banned: Ids that each row may not have besides; ids beyond the columns are ignored.

    Raises:
        IndexError: A row or a mask is not there.
        ValueError: The masks are not as a kernel reads them.
    """
    num_columns = logits.shape[1]
    if rows and not (0 <= min(rows) and max(rows) < len(logits)):
        raise IndexError(f"a row beyond the {len(logits)} of the logits")
    num_masks, words = (0, 0) if bitmask is None else bitmask.shape
    if mask_rows and max(mask_rows) >= num_masks:
        raise IndexError(f"a mask beyond {num_masks}")
    if bitmask is not None and (bitmask.dtype != torch.int32 or not bitmask.is_contiguous()):
        raise ValueError("the kernel wants int32 masks, one row after the other")
    inside = [[token_id for token_id in ids if 0 <= token_id < num_columns] if ids else () for ids in banned]
    return (
        logits.data_ptr(),
        logits.stride(0),
        num_columns,
        numbers(rows),
        len(rows),
        None if bitmask is None else bitmask.data_ptr(),
        words,
        numbers(mask_rows),
        numbers(list(itertools.chain.from_iterable(inside))),
        numbers(list(itertools.accumulate(map(len, inside)))),
    )


def numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Give an array of a kernel's whole numbers."""
    return (ctypes.c_int64 * len(values))(*values)
