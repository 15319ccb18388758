"""Which kernel a device gets. Kernels are imported when they are made, since each needs something of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch

from ...errors import InvalidRequestError
from .base import ApplyKernel

logger = logging.getLogger(__name__)


def _make_native() -> ApplyKernel | None:
    from .native_kernel import make_native_kernel

    return make_native_kernel()


def _make_numpy() -> ApplyKernel:
    from .numpy_kernel import apply_numpy

    return apply_numpy


def _make_torch() -> ApplyKernel:
    from .torch_kernel import apply_torch

    return apply_torch


def _make_compiled() -> ApplyKernel:
    from .torch_kernel import make_compiled_kernel

    return make_compiled_kernel()


def _make_xgrammar() -> ApplyKernel:
    from .xgrammar_kernel import apply_xgrammar

    return apply_xgrammar


def _make_triton() -> ApplyKernel | None:
    if find_spec("triton") is None:
        return None
    from .triton_kernel import apply_triton

    return apply_triton


KERNELS: dict[str, Callable[[], ApplyKernel | None]] = {
    "native": _make_native,
    "numpy": _make_numpy,
    "torch": _make_torch,
    "torch_compile": _make_compiled,
    "triton": _make_triton,
    "xgrammar": _make_xgrammar,
}
_BY_DEVICE = {"cpu": ("native", "numpy"), "cuda": ("triton", "torch")}


@cache
def make_kernel(name: str) -> ApplyKernel | None:
    """Make a kernel by name; None where the machine lacks what it needs.

    Raises:
        InvalidRequestError: No such kernel.
    """
    if name not in KERNELS:
        raise InvalidRequestError(f"there is no kernel {name!r}", param="kernel", hint=f"there are {', '.join(KERNELS)}")
    return KERNELS[name]()


@cache
def pick_kernel(device_type: str) -> ApplyKernel:
    """Give the best kernel that works on a device: on the CPU our own, on CUDA Triton's, elsewhere PyTorch's operations."""
    made = (make_kernel(name) for name in _BY_DEVICE.get(device_type, ()))
    return next((kernel for kernel in made if kernel is not None and _works(kernel, device_type)), None) or _make_torch()


def _works(kernel: ApplyKernel, device_type: str) -> bool:
    """Whether a kernel runs here: Triton, for one, needs a C compiler when it is first called."""
    logits = torch.zeros(1, 40)
    try:
        on_device = logits.to(device_type)
        kernel(on_device, torch.tensor([[5, 0]], dtype=torch.int32, device=device_type), torch.tensor([0], device=device_type))
    except Exception:  # whatever compilers and drivers raise; another kernel does the same work
        logger.warning("the bitmask kernel %s does not run here; another is taken", kernel, exc_info=True)
        return False
    return on_device[0].isfinite().nonzero().flatten().tolist() == [0, 2]
