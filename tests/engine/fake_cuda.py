"""A CUDA device that computes nothing, on a machine without one: PyTorch's fake tensors, which know shapes, types and devices.

A tensor on the wrong device, a wrong type, or an argument that an operator does not take is an error as it would be on a GPU.
What is read back is zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten


@contextlib.contextmanager
def fake_cuda() -> Iterator[None]:
    """Let tensors be made on `CUDA`, and compiled functions be called as they are."""
    with FakeTensorMode(), _ByDispatcher(), patch.object(torch, "compile", lambda function, **_: function):
        yield


class _ByDispatcher(TorchFunctionMode):
    """Takes what Python's binding does by itself to the operators, since it would look for a real device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        match name:
            case "__getitem__":
                return _read(*args)
            case "__setitem__":
                return _write(*args)
            case "__invert__":
                return aten.bitwise_not.default(*args)
            case "contiguous":
                return aten.clone.default(args[0], memory_format=torch.contiguous_format)
            case "copy_":
                return aten.copy_.default(*args[:2])
            case "tolist" | "item" | "__bool__" | "__float__" | "__int__" if not isinstance(args[0], FakeTensor):
                return func(*args, **kwargs or {})
            case "tolist":
                return _zeros(list(args[0].shape))
            case "item" | "__int__" | "__float__" | "__bool__":
                return {"__float__": 0.0, "__bool__": False}.get(name, 0)
        return func(*args, **kwargs or {})


def _zeros(shape: list[int]) -> Any:
    return [_zeros(shape[1:]) for _ in range(shape[0])] if shape else 0


def _read(x: torch.Tensor, index: Any) -> torch.Tensor:
    dim = 0
    indices: list[torch.Tensor | None] = []
    items = index if isinstance(index, tuple) else (index,)
    if any(item is ... for item in items):
        place = next(at for at, item in enumerate(items) if item is ...)
        num_left_out = x.dim() - sum(item is not None and item is not ... for item in items)
        items = (*items[:place], *[slice(None)] * num_left_out, *items[place + 1 :])
    for item in items:
        if isinstance(item, int):
            x = aten.select.int(x, dim, item)
            continue
        if item is None:
            x = aten.unsqueeze.default(x, dim)
        elif isinstance(item, slice):
            x = aten.slice.Tensor(x, dim, item.start, item.stop, item.step or 1)
        indices.append(None if item is None or isinstance(item, slice) else torch.as_tensor(item))
        dim += 1
    return aten.index.Tensor(x, indices) if any(item is not None for item in indices) else x


def _write(x: torch.Tensor, index: Any, value: Any) -> None:
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(item, (torch.Tensor, list)) for item in items):
        indices = [None if isinstance(item, slice) else torch.as_tensor(item) for item in items]
        aten.index_put_.default(x, indices, value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=x.dtype))
    elif isinstance(value, torch.Tensor):
        aten.copy_.default(_read(x, index), value)
    else:
        aten.fill_.Scalar(_read(x, index), value)
