"""`draw.cpp`: tokens of sampled rows, one draw each, on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from .native import load_library

SOURCE = Path(__file__).with_name("draw.cpp")


class DrawKernel:
    """Draws as `sampler.py` does with PyTorch's operations, in one or two passes over a row, without copies of it.

    Args:
        library: `draw.cpp`.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._draw = library["draw_rows"]
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._draw.argtypes = [pointer, number, number, pointer, number, *[pointer] * 6, ctypes.c_int]
        self._draw.restype = None

    @staticmethod
    def takes(logits: torch.Tensor) -> bool:
        """Whether the kernel can read these logits."""
        return logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.stride(1) == 1 and logits.shape[1] > 0

    def __call__(
        self,
        logits: torch.Tensor,
        rows: Sequence[int],
        *,
        temperatures: Sequence[float],
        top_k: Sequence[int],
        top_p: Sequence[float],
        min_p: Sequence[float],
        uniforms: Sequence[float],
    ) -> list[int]:
        """Give a token id for each of `rows`; does not change `logits`.

        Args:
            logits: float32 `(num_rows, vocab_size)` that `takes` takes; -inf is never chosen.
            rows: Logits rows, each with a finite entry.
            temperatures: Above 0.
            top_k: 0 is none.
            top_p: 1 is none.
            min_p: 0 is none.
            uniforms: From 0 to below 1.
        """
        if rows and not (0 <= min(rows) and max(rows) < len(logits)):
            raise IndexError(f"a row beyond the {len(logits)} of the logits")
        count = len(rows)
        number, real = ctypes.c_int64 * count, ctypes.c_double * count
        token_ids = number()
        self._draw(
            logits.data_ptr(),
            logits.stride(0),
            logits.shape[1],
            number(*rows),
            count,
            real(*temperatures),
            number(*top_k),
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
