"""The flat forward pass: no modules, four matrix products a layer, and what stands between them in few calls."""

from __future__ import annotations

import torch
from torch.nn.functional import embedding

from ..attention import Chunk, pack
from ..errors import ModelLoadError
from ..kv_cache import PagedKVCache
from ..model_loader import LoadedModel
from .layout import Layout, read_layout, why_not
from .native import DTYPES, NativeOps, load_library
from .torch_ops import Ops, TorchOps


class FastForward:
    """Serves `transformers_forward.Forward` for models in Llama's layout.

    Args:
        loaded: The model; its projections become views of fused weights.
        kv_cache: The pages.

    Raises:
        ModelLoadError: The model is laid out otherwise.
    """

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        reason = why_not(loaded)
        if reason is not None:
            raise ModelLoadError(reason)
        self._loaded = loaded
        self._kv_cache = kv_cache
        self._layout = read_layout(loaded)
        self._ops = choose_ops(self._layout)
        like = torch.empty(0, self._layout.num_kv_heads, self._layout.head_dim, dtype=loaded.model.dtype)
        self._pages = [kv_cache.pages(index, like, like) for index in range(len(self._layout.layers))]
        self.name = f"on the fast path, {type(self._ops).__name__}"

    def __call__(self, chunks: list[Chunk]) -> torch.Tensor:
        """As `Forward.__call__`."""
        layout, ops = self._layout, self._ops
        batch = pack(chunks, self._kv_cache, self._loaded.device)
        ops.begin(batch)
        x = embedding(batch.input_ids, layout.embedding)
        delta: torch.Tensor | None = None
        for layer, pages in zip(layout.layers, self._pages, strict=True):
            qkv = layer.qkv(ops.add_norm(x, delta, layer.input_norm))
            attended = ops.attend(qkv, layer, pages)
            delta = layer.output(attended)
            gate_up = layer.gate_up(ops.add_norm(x, delta, layer.mlp_norm))
            delta = layer.down(ops.gate(gate_up))
        if len(batch.logit_rows) < len(x):
            x = x[batch.logit_rows]
            delta = None if delta is None else delta[batch.logit_rows]
        return layout.head(ops.add_norm(x, delta, layout.norm))

    def settle(self) -> None:
        """Drop weights of the modules that the fast path holds in another layout; the model cannot be called after that."""
        for layer in self._layout.layers:
            for linear in (layer.qkv, layer.output, layer.gate_up, layer.down):
                linear.release_modules()


def choose_ops(layout: Layout) -> Ops:
    """Take the compiled kernels on the CPU where there are any."""
    if layout.embedding.device.type == "cpu" and layout.embedding.dtype in DTYPES:
        library = load_library()
        if library is not None:
            return NativeOps(layout, library)
    return TorchOps(layout)
