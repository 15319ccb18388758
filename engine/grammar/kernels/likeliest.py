"""The likeliest allowed token of each row, read off the logits as the model gave them: neither widened, nor masked, nor copied.

`likeliest.cpp`, compiled once with the machine's own compiler. Where there is none, and on other devices, logits are masked and
compared by whoever asks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from .row_table import POINTER, ROW_TABLE_TYPES, numbers, row_table

SOURCE = Path(__file__).with_name("likeliest.cpp")
_INFINITY = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80, torch.float16: 0x7C00}


class LikeliestKernel:
    """Finds the largest logit that a bitmask allows, the first of equal ones.

    Args:
        library: `likeliest.cpp`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._find = {4: library["likeliest_32"], 2: library["likeliest_16"]}
        for function in self._find.values():
            function.argtypes = [*ROW_TABLE_TYPES, ctypes.c_int32, POINTER, ctypes.c_int]
            function.restype = None

    @staticmethod
    def takes(logits: torch.Tensor) -> bool:
        """Whether the kernel can read these logits."""
        return logits.device.type == "cpu" and logits.dtype in _INFINITY and logits.stride(1) == 1 and logits.shape[1] > 0

    def __call__(
        self,
        logits: torch.Tensor,
        rows: Sequence[int],
        bitmask: torch.Tensor | None,
        mask_rows: Sequence[int],
        banned: Sequence[Sequence[int]],
    ) -> list[int]:
        """Give a token id for each of `rows`, or `NOTHING`, or `NO_NUMBER`.

        Args:
            logits: float `(num_rows, vocab_size)` that `takes` takes; the same afterwards.
            rows: See `row_table`, as for what follows.
            bitmask: Masks.
            mask_rows: The mask of each row.
            banned: Ids that each row may not have besides.
        """
        found = numbers([0] * len(rows))
        self._find[logits.element_size()](
            *row_table(logits, rows, bitmask, mask_rows, banned), _INFINITY[logits.dtype], found, torch.get_num_threads()
        )
        return list(found)


@cache
def make_likeliest_kernel() -> LikeliestKernel | None:
    """Compile the kernel, or take what was compiled before; None where there is no compiler."""
    from ...fast_path.native import load_library

    library = load_library(SOURCE)
    return None if library is None else LikeliestKernel(library)
