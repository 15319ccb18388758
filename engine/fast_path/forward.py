"""The flat forward pass: no modules, four matrix products a layer, and what stands between them in few calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch.nn.functional import embedding

from ..attention import Chunk, pack
from ..errors import NoSuchWayError
from ..kv_cache import PagedKVCache
from ..model_loader import LoadedModel
from .all_layers import AllLayers
from .huge_pages import prefer_huge_pages
from .layout import Layout, read_layout, read_windows, why_not
from .linear import Linear, MakeProduct, make_torch_product
from .native import DTYPES, NativeOps, load_library
from .products import make_native_product
from .torch_ops import Ops, TorchOps


class FlatForward:
    """Serves `transformers_forward.Forward` for models in Llama's layout, on every device.

    Args:
        loaded: The model; its projections become views of fused weights.
        kv_cache: The pages.
        make_ops: What stands between the matrix products.
        make_product: How they are multiplied.

    Raises:
        NoSuchWayError: The model is laid out otherwise.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        kv_cache: PagedKVCache,
        make_ops: Callable[[Layout], Ops] = TorchOps,
        make_product: MakeProduct = make_torch_product,
    ) -> None:
        reason = why_not(loaded)
        if reason is not None:
            raise NoSuchWayError(reason)
        self._loaded = loaded
        self._kv_cache = kv_cache
        self._layout = read_layout(loaded, make_product)
        self.ops = make_ops(self._layout)
        like = torch.empty(0, self._layout.num_kv_heads, self._layout.head_dim, dtype=loaded.model.dtype)
        self._pages = [kv_cache.pages(index, like, like) for index in range(len(self._layout.layers))]
        self.name = f"on the fast path, {type(self.ops).__name__}"

    def __call__(self, chunks: list[Chunk]) -> torch.Tensor:
        """As `Forward.__call__`."""
        batch = pack(chunks, self._kv_cache, self._loaded.device)
        self.ops.begin(batch)
        return self.compute(batch.input_ids, batch.logit_rows if len(batch.logit_rows) < len(batch.input_ids) else None)

    def compute(self, input_ids: torch.Tensor, logit_rows: torch.Tensor | None) -> torch.Tensor:
        """Run all layers for packed tokens that `ops` has been told of.

        Args:
            input_ids: int64 `(T,)`.
            logit_rows: int64, the tokens whose logits are wanted; None is all.
        """
        layout = self._layout
        x = embedding(input_ids, layout.embedding)
        delta = self._run_layers(x)
        if logit_rows is not None:
            x = x[logit_rows]
            delta = None if delta is None else delta[logit_rows]
        return layout.head(self.ops.add_norm(x, delta, layout.norm))

    def _run_layers(self, x: torch.Tensor) -> torch.Tensor | None:
        """Run all layers on `x`, in place; gives what is to be added to it yet."""
        ops = self.ops
        delta: torch.Tensor | None = None
        for layer, pages in zip(self._layout.layers, self._pages, strict=True):
            attended = ops.attend(layer.qkv(ops.add_norm(x, delta, layer.input_norm)), layer, pages)
            delta = layer.output(attended)
            gated = ops.gate(layer.gate_up(ops.add_norm(x, delta, layer.mlp_norm)))
            delta = layer.down(gated)
        return delta

    def settle(self) -> None:
        """Take the model's own windows, and drop weights of the modules that the fast path holds in another layout.

        The model cannot be called after that.
        """
        windows = read_windows(self._loaded)
        layers = self._layout.layers
        layers[:] = [replace(layer, window=window) for layer, window in zip(layers, windows, strict=True)]
        linears = [*self._linears()]
        for linear in linears:
            linear.release_modules()
        if self._loaded.device.type == "cpu":
            prefer_huge_pages(linear.memory() for linear in linears)

    def _linears(self) -> Iterator[Linear]:
        for layer in self._layout.layers:
            yield from (layer.qkv, layer.output, layer.gate_up, layer.down)
        yield self._layout.head


class NativeForward(FlatForward):
    """`FlatForward` with kernels compiled for this CPU.

    Raises:
        NoSuchWayError: As `FlatForward`; or there is no compiler, or device or dtype are others.
    """

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        if loaded.device.type != "cpu" or loaded.model.dtype not in DTYPES:
            raise NoSuchWayError("compiled kernels take float32 and bfloat16 on the CPU")
        library = load_library()
        if library is None:
            raise NoSuchWayError("no compiled kernels")
        super().__init__(loaded, kv_cache, lambda layout: NativeOps(layout, library), make_native_product(library))
        self._library = library
        self._all_layers = self._plan()
        if self._all_layers is not None:
            self.name += ", all layers in one call"

    def settle(self) -> None:
        """As `FlatForward.settle`."""
        super().settle()
        # The plan of the check has its windows in it.
        self._all_layers = self._plan()

    def _plan(self) -> AllLayers | None:
        if not AllLayers.takes(self._layout):
            return None
        assert isinstance(self.ops, NativeOps)
        return AllLayers(self._library, self._layout, self.ops, self._pages, block_size=self._kv_cache.block_size)

    def _run_layers(self, x: torch.Tensor) -> torch.Tensor | None:
        delta = None if self._all_layers is None else self._all_layers.run(x)
        return super()._run_layers(x) if delta is None else delta
