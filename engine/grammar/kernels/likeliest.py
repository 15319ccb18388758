"""The likeliest allowed token of each row, read off the logits as the model gave them: neither widened, nor masked, nor copied.

`likeliest.cpp`, compiled once with the machine's own compiler. Where there is none, and on other devices, logits are masked and
compared by whoever asks.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("likeliest.cpp")
NOTHING = -1
"""Instead of a token id: masks and bans leave none whose logit is above -inf."""
NO_NUMBER = -2
"""Instead of a token id: a logit of the row, allowed or not, is NaN."""
_INFINITY = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80, torch.float16: 0x7C00}


class LikeliestKernel:
    """Finds the largest logit that a bitmask allows, the first of equal ones.

    Args:
        library: `likeliest.cpp`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._find = {4: library["likeliest_32"], 2: library["likeliest_16"]}
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        for function in self._find.values():
            function.argtypes = [
                *(pointer, number, number, pointer, number, pointer, number, pointer, pointer, pointer),
                *(ctypes.c_int32, pointer, ctypes.c_int),
            ]
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
            rows: Logits rows to look at, different ones.
            bitmask: int32 `(num_masks, words)` on the CPU; columns past `words * 32` are denied. None where no row has a mask.
            mask_rows: The mask of each row, or -1 for none.
            banned: Ids that each row may not have besides; ids beyond the columns are ignored.
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
        ends = list(itertools.accumulate(map(len, inside)))
        found = _numbers([0] * len(rows))
        self._find[logits.element_size()](
            logits.data_ptr(),
            logits.stride(0),
            num_columns,
            _numbers(rows),
            len(rows),
            None if bitmask is None else bitmask.data_ptr(),
            words,
            _numbers(mask_rows),
            _numbers(list(itertools.chain.from_iterable(inside))),
            _numbers(ends),
            _INFINITY[logits.dtype],
            found,
            torch.get_num_threads(),
        )
        return list(found)


@cache
def make_likeliest_kernel() -> LikeliestKernel | None:
    """Compile the kernel, or take what was compiled before; None where there is no compiler."""
    from ...fast_path.native import load_library

    library = load_library(SOURCE)
    return None if library is None else LikeliestKernel(library)


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*values)
