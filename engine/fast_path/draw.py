"""`draw.cpp`: tokens of sampled rows, one draw each, on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from ..grammar.kernels.row_table import POINTER, ROW_TABLE_TYPES, numbers, row_table
from .native import load_library

SOURCE = Path(__file__).with_name("draw.cpp")


class DrawKernel:
    """Draws as `sampler.py` does with PyTorch's operations, in one or two passes over a row, masks and bans in it.

    Args:
        library: `draw.cpp`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._draw = {torch.float32: library["draw_float32"], torch.bfloat16: library["draw_bfloat16"]}
        for function in self._draw.values():
            function.argtypes = [*ROW_TABLE_TYPES, *[POINTER] * 6, ctypes.c_int]
            function.restype = None

    def takes(self, logits: torch.Tensor) -> bool:
        """Whether the kernel can read these logits."""
        return logits.device.type == "cpu" and logits.dtype in self._draw and logits.stride(1) == 1 and logits.shape[1] > 0

    def __call__(
        self,
        logits: torch.Tensor,
        rows: Sequence[int],
        bitmask: torch.Tensor | None,
        mask_rows: Sequence[int],
        banned: Sequence[Sequence[int]],
        *,
        temperatures: Sequence[float],
        top_k: Sequence[int],
        top_p: Sequence[float],
        min_p: Sequence[float],
        uniforms: Sequence[float],
    ) -> list[int]:
        """Give a token id for each of `rows`, or `NOTHING`, or `NO_NUMBER`; does not change `logits`.

        Args:
            logits: float `(num_rows, vocab_size)` that `takes` takes; -inf is never chosen.
            rows: See `row_table`, as for what follows.
            bitmask: Masks.
            mask_rows: The mask of each row.
            banned: Ids that each row may not have besides.
            temperatures: Of each row, above 0.
            top_k: 0 is none.
            top_p: 1 is none.
            min_p: 0 is none.
            uniforms: From 0 to below 1.
        """
        real = ctypes.c_double * len(rows)
        token_ids = numbers([0] * len(rows))
        self._draw[logits.dtype](
            *row_table(logits, rows, bitmask, mask_rows, banned),
            real(*temperatures),
            numbers([min(count, logits.shape[1]) for count in top_k]),
            real(*top_p),
            real(*min_p),
            real(*uniforms),
            token_ids,
            torch.get_num_threads(),
        )
        return list(token_ids)


@cache
def make_draw_kernel() -> DrawKernel | None:
    """Compile the kernel, or take what was compiled before; None where there is no compiler."""
    library = load_library(SOURCE)
    return None if library is None else DrawKernel(library)
