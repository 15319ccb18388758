"""Projections, and the products that they are made of: weights laid out for the machine, and how they are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch.nn.functional import linear

from .huge_pages import Span


class Product(Protocol):
    """A weight, multiplied with inputs.

    Attributes:
        holds_weight: Whether it multiplies with the very tensor that it was given; else that may be dropped.
    """

    holds_weight: bool

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Give `x @ weight.T + bias`, for `x` of shape `(rows, in_features)`, in its dtype."""
        ...

    def memory(self) -> Span:
        """Say where the weight lies."""
        ...


MakeProduct = Callable[[torch.Tensor, torch.Tensor | None], Product]
"""Chooses for a weight `(out_features, in_features)` and a bias."""


class Linear:
    """`x @ weight.T + bias`, of several projections of one input at once.

    Modules go on sharing the fused weight as views where the product multiplies with it, so that nothing is held twice.

    Args:
        modules: `torch.nn.Linear`, whose outputs come one after the other.
        make_product: How this machine multiplies best.

    Attributes:
        product: What it chose.
    """

    def __init__(self, modules: Sequence[torch.nn.Linear], make_product: MakeProduct) -> None:
        weights = [module.weight.detach() for module in modules]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        all_biases: list[torch.Tensor | None] = [module.bias for module in modules]
        biases = [bias.detach() for bias in all_biases if bias is not None]
        self.product = make_product(weight, torch.cat(biases) if biases else None)
        self._modules = list(modules)
        if self.product.holds_weight and len(weights) > 1:
            for module, part in zip(modules, weight.split([len(weight) for weight in weights]), strict=True):
                module.weight.data = part

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply `(rows, in_features)`."""
        return self.product(x)

    def memory(self) -> Span:
        """Say where the weights lie."""
        return self.product.memory()

    def release_modules(self) -> None:
        """Drop the modules' own weights where a copy replaces them; the modules cannot be called after that."""
        if not self.product.holds_weight:
            for module in self._modules:
                module.weight = torch.nn.Parameter(torch.empty(0, dtype=module.weight.dtype), requires_grad=False)
        self._modules.clear()


class TorchProduct:
    """As PyTorch multiplies; on every device and in every dtype."""

    holds_weight = True

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As `Product.__call__`."""
        return linear(x, self._weight, self._bias)

    def memory(self) -> Span:
        """As `Product.memory`."""
        return Span(self._weight.data_ptr(), self._weight.nbytes)


class BlockedProduct:
    """Weights copied into oneDNN's own blocks once, which makes products with few rows about 1.6 times as fast."""

    holds_weight = False

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._blocked = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """As `Product.__call__`."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._blocked, self._bias, "none", [], "")
        return product

    def memory(self) -> Span:
        """As `Product.memory`."""
        return Span(torch.ops.mkldnn.data_ptr(self._blocked), torch.ops.mkldnn._nbytes(self._blocked))


def make_torch_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Product:
    """Choose among what PyTorch has: oneDNN's blocks in bfloat16 on a CPU that computes in it."""
    return (BlockedProduct if is_blocked_faster(weight) else TorchProduct)(weight, bias)


def is_blocked_faster(weight: torch.Tensor) -> bool:
    """Whether oneDNN's blocked layout pays for products with this weight."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
