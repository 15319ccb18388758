"""`apply_bitmask.cpp`, compiled once with the machine's own compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from .base import ApplyKernel

SOURCE = Path(__file__).with_name("apply_bitmask.cpp")
# The bits of -inf.
_DENIED = {torch.float32: 0xFF800000, torch.bfloat16: 0xFF80, torch.float16: 0xFC00}
_MIN_ROWS_PER_THREAD = 4


def make_native_kernel() -> ApplyKernel | None:
    """Compile the kernel, or take what was compiled before; None where there is no compiler."""
    from ...fast_path.native import load_library

    library = load_library(SOURCE)
    return None if library is None else _NativeKernel(library)


class _NativeKernel:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._apply = {4: library["apply_32"], 2: library["apply_16"]}
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        for function in self._apply.values():
            function.argtypes = [pointer, number, number, pointer, number, pointer, number, ctypes.c_uint32, ctypes.c_int]
            function.restype = None

    def __call__(self, logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
        """See `ApplyKernel`."""
        num_rows, words = bitmask.shape
        if logits.device.type != "cpu" or logits.dtype not in _DENIED or logits.stride(1) != 1:
            raise ValueError("the native kernel wants float32, bfloat16 or float16 on the CPU, each row contiguous")
        if rows.dtype != torch.int64 or bitmask.dtype != torch.int32 or len(rows) != num_rows:
            raise ValueError("the native kernel wants int32 masks and an int64 row for each")
        if num_rows and not (0 <= int(rows.min()) and int(rows.max()) < len(logits)):
            raise IndexError(f"a row beyond the {len(logits)} of the logits")
        bitmask, rows = bitmask.contiguous(), rows.contiguous()
        self._apply[logits.element_size()](
            logits.data_ptr(),
            logits.stride(0),
            logits.shape[1],
            bitmask.data_ptr(),
            words,
            rows.data_ptr(),
            num_rows,
            _DENIED[logits.dtype],
            min(torch.get_num_threads(), max(1, num_rows // _MIN_ROWS_PER_THREAD)),
        )
