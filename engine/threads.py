"""The number of threads of PyTorch's CPU kernels, a setting of the whole process, changed for as long as it is needed only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(num_threads: int | None) -> Iterator[None]:
    """Set the number of threads inside the block and put it back after it; None leaves it alone."""
    before = torch.get_num_threads()
    if num_threads is None or num_threads == before:
        yield
        return
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
