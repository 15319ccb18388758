"""The steps between the matrix products, in plain PyTorch: the reference for every kernel, and what runs where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch.nn.functional import silu

from ..attention import PackedBatch, attend, write
from ..kv_cache import LayerPages
from .layout import Layer, Layout


class Ops(Protocol):
    """What a forward pass does besides multiplying matrices. `T` is the number of packed tokens."""

    def begin(self, batch: PackedBatch) -> None:
        """Prepare what all layers of one pass share."""
        ...

    def add_norm(self, x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
        """Add `delta` to `x`, both `(T, hidden_size)`, in place, and give its RMS norm."""
        ...

    def attend(self, qkv: torch.Tensor, layer: Layer, pages: LayerPages) -> torch.Tensor:
        """Norm and rotate queries and keys, write keys and values, and attend; may change `qkv`.

        Args:
            qkv: `(T, (num_heads + 2 * num_kv_heads) * head_dim)`.
            layer: For its norms and its window.
            pages: Where keys and values go.

        Returns:
            `(T, num_heads * head_dim)`.
        """
        ...

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Give `silu(gate) * up` of `(T, 2 * size)`."""
        ...


class TorchOps:
    """Works on every device and in every dtype."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._batch: PackedBatch | None = None
        # Elementwise steps that a subclass may compile.
        self._steps: list[Callable[..., torch.Tensor]] = [rms_norm, rotate, gate]

    def begin(self, batch: PackedBatch) -> None:
        """Look the rotations of these positions up."""
        self._batch = batch
        self._look_up(batch.positions)

    def add_norm(self, x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
        """As `Ops.add_norm`."""
        if delta is not None:
            x += delta
        return self._steps[0](x, weight, self._layout.eps)

    def attend(self, qkv: torch.Tensor, layer: Layer, pages: LayerPages) -> torch.Tensor:
        """As `Ops.attend`."""
        assert self._batch is not None
        query, key, value = self._split(qkv, layer)
        write(pages, key, value, self._batch.slot_mapping)
        return attend(query, pages, self._batch, window=layer.window).flatten(1)

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As `Ops.gate`."""
        return self._steps[2](gate_up)

    def _look_up(self, positions: torch.Tensor) -> None:
        dtype = self._layout.embedding.dtype
        self._cos = self._layout.cos[positions][:, None].to(dtype)
        self._sin = self._layout.sin[positions][:, None].to(dtype)

    def _split(self, qkv: torch.Tensor, layer: Layer) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        layout = self._layout
        heads = qkv.unflatten(-1, (-1, layout.head_dim))
        query, key, value = heads.split([layout.num_heads, layout.num_kv_heads, layout.num_kv_heads], dim=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            norm = self._steps[0]
            query, key = norm(query, layer.query_norm, layout.eps), norm(key, layer.key_norm, layout.eps)
        rotated = self._steps[1]
        return rotated(query, self._cos, self._sin), rotated(key, self._cos, self._sin), value


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the halves of `(T, heads, head_dim)` against each other; `cos` and `sin` are `(T, 1, head_dim / 2)`."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def gate(gate_up: torch.Tensor) -> torch.Tensor:
    """Give `silu(gate) * up` of `(T, 2 * size)`."""
    gates, ups = gate_up.chunk(2, dim=-1)
    return silu(gates) * ups


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Give the RMS norm over the last dimension, computed in float32 and rounded where transformers rounds."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
