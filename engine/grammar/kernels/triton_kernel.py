"""The bitmask as a Triton kernel: one program a row and block of columns. Tested in Triton's interpreter, never yet on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_BLOCK = 4096


@triton.jit  # type: ignore[untyped-decorator]
def _apply(
    logits_ptr: Any,
    bitmask_ptr: Any,
    rows_ptr: Any,
    vocab_size: Any,
    num_words: Any,
    logits_stride: Any,
    bitmask_stride: Any,
    BLOCK: tl.constexpr,
) -> None:
    index = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + index)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    words = columns // 32
    # Columns past the bitmask read a word without bits.
    word = tl.load(bitmask_ptr + index * bitmask_stride + words, mask=words < num_words, other=0)
    is_denied = ((word >> (columns % 32)) & 1) == 0
    tl.store(logits_ptr + row * logits_stride + columns, float("-inf"), mask=is_denied & (columns < vocab_size))


def apply_triton(logits: torch.Tensor, bitmask: torch.Tensor, rows: torch.Tensor) -> None:
    """See `ApplyKernel`."""
    if not len(rows):
        return
    vocab_size = logits.shape[1]
    grid = (len(rows), triton.cdiv(vocab_size, _BLOCK))
    # Triton launches on the current device, whatever its arguments are on.
    with torch.cuda.device_of(logits):
        _apply[grid](logits, bitmask, rows, vocab_size, bitmask.shape[1], logits.stride(0), bitmask.stride(0), BLOCK=_BLOCK)
