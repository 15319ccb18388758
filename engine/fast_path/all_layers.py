"""All layers of a step in one call: `run_layers_bfloat16` of `kernels.cpp`.

A step of few tokens makes some two hundred calls from Python between products of 40 us each. The kernels and their order are
those of `FlatForward`, so the numbers are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from ..kv_cache import LayerPages
from .layout import Layer, Layout
from .linear import Linear
from .native import NativeOps
from .products import TileProduct

_POINTER, _NUMBER, _REAL, _COUNT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int


class _Weight(ctypes.Structure):
    _fields_ = (("weight", _POINTER), ("bias", _POINTER), ("size", _NUMBER), ("outputs", _NUMBER))


class _LayerPlan(ctypes.Structure):
    _fields_ = (
        *((name, _Weight) for name in ("qkv", "output", "gate_up", "down")),
        *((name, _POINTER) for name in ("input_norm", "query_norm", "key_norm", "mlp_norm", "keys", "values")),
        ("window", _NUMBER),
    )


class _StepPlan(ctypes.Structure):
    _fields_ = (
        ("multiply", _POINTER),
        *((name, _POINTER) for name in ("cos", "sin", "positions", "slots", "tables", "rows", "sequences", "lengths")),
        *((name, _NUMBER) for name in ("num_rows", "num_queries", "hidden_size", "heads", "kv_heads", "dim")),
        *((name, _NUMBER) for name in ("block_size", "max_blocks")),
        ("eps", _REAL),
        ("scale", _REAL),
        ("threads", _COUNT),
    )


class AllLayers:
    """Runs the layers of a model whose products are all `TileProduct`.

    Args:
        kernels: `kernels.cpp`.
        layout: The model.
        ops: Says how each batch is laid out.
        pages: Of each layer; they stay where they are.
        block_size: Tokens of a block of them.
    """

    def __init__(
        self, kernels: ctypes.CDLL, layout: Layout, ops: NativeOps, pages: Sequence[LayerPages], *, block_size: int
    ) -> None:
        self._run = kernels.run_layers_bfloat16
        self._run.argtypes, self._run.restype = [_POINTER, _NUMBER, *[_POINTER] * 4], None
        self._ops = ops
        layers = [_plan_layer(layer, own, ops) for layer, own in zip(layout.layers, pages, strict=True)]
        self._layers = (_LayerPlan * len(layers))(*layers)
        hidden_size = layout.embedding.shape[1]
        self._step = _StepPlan(
            multiply=_tiles(layout.layers[0].qkv).function,
            cos=layout.cos.data_ptr(),
            sin=layout.sin.data_ptr(),
            hidden_size=hidden_size,
            heads=layout.num_heads,
            kv_heads=layout.num_kv_heads,
            dim=layout.head_dim,
            block_size=block_size,
            eps=layout.eps,
            scale=layout.head_dim**-0.5,
        )
        heads_size = layout.num_heads * layout.head_dim
        self._scratch_size = hidden_size + max(
            max(layer.qkv.outputs + heads_size, layer.gate_up.outputs + layer.down.size) for layer in layers
        )

    @staticmethod
    def takes(layout: Layout) -> bool:
        """Whether all products of the layers are of the kind that the call knows."""
        linears = [linear for layer in layout.layers for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        return bool(linears) and all(isinstance(linear.product, TileProduct) for linear in linears)

    def run(self, x: torch.Tensor) -> torch.Tensor | None:
        """Run all layers for a batch that `ops` has been told of.

        Args:
            x: bfloat16 `(T, hidden_size)`, changed in place.

        Returns:
            What is to be added to `x` before the last norm; None where the batch has long sequences, and nothing was done.
        """
        batch = self._ops.short_queries()
        if batch is None:
            return None
        step = self._step
        step.num_rows = len(x)
        for name, value in batch._asdict().items():
            setattr(step, name, value)
        delta = torch.empty_like(x)
        scratch = torch.empty(len(x) * self._scratch_size, dtype=x.dtype)
        places = x.data_ptr(), delta.data_ptr(), scratch.data_ptr()
        self._run(ctypes.addressof(self._layers), len(self._layers), ctypes.addressof(step), *places)
        return delta


def _plan_layer(layer: Layer, pages: LayerPages, ops: NativeOps) -> _LayerPlan:
    assert pages.keys is not None
    assert pages.values is not None
    return _LayerPlan(
        qkv=_plan_weight(layer.qkv),
        output=_plan_weight(layer.output),
        gate_up=_plan_weight(layer.gate_up),
        down=_plan_weight(layer.down),
        input_norm=ops.wide_weight(layer.input_norm),
        query_norm=ops.wide_weight(layer.query_norm),
        key_norm=ops.wide_weight(layer.key_norm),
        mlp_norm=ops.wide_weight(layer.mlp_norm),
        keys=pages.keys.data_ptr(),
        values=pages.values.data_ptr(),
        window=layer.window or 0,
    )


def _plan_weight(linear: Linear) -> _Weight:
    product = _tiles(linear)
    weight, bias = product.places
    return _Weight(weight=weight, bias=bias, size=product.size, outputs=product.outputs)


def _tiles(linear: Linear) -> TileProduct:
    assert isinstance(linear.product, TileProduct)
    return linear.product
