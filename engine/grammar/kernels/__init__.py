"""Kernels that put a token bitmask on logits, and the choice of one by device.

All do the same, tested against one NumPy oracle: in row `rows[i]` of the logits, every token whose bit is 0 in row `i` of the
bitmask becomes -inf, and so do the columns past the bitmask; other rows and other tokens keep their bits. Nothing here has run on
a GPU yet: the Triton kernel was tested in the interpreter only.
"""

from __future__ import annotations

from .base import ApplyKernel
from .factory import KERNELS, make_kernel, pick_kernel

__all__ = ["KERNELS", "ApplyKernel", "make_kernel", "pick_kernel"]
