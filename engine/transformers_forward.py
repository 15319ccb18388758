"""The forward pass through transformers' own modules, over our pages.

Two ways, tried in this order when a model is loaded (`model_runner.py`):

- `PackedForward`: all sequences in one row without padding. Our function serves transformers' attention interface, so this takes
  every model that asks that interface and needs nothing of it that we do not have.
- `PaddedForward`: the model attends by itself over gathered keys; sequences of one length share a pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from .attention import Chunk, PackedBatch, attend, pack, write
from .kv_cache import PagedKVCache
from .model_loader import LoadedModel

ATTENTION_NAME = "thinkgate_paged"


class Forward(Protocol):
    """One way to compute a step."""

    name: str

    def __call__(self, chunks: list[Chunk]) -> torch.Tensor:
        """Compute all scheduled tokens and write their keys and values.

        Returns:
            `(rows, vocab_size)` in the model's dtype: the wanted logits of each chunk, in order.
        """
        ...

    def settle(self) -> None:
        """Called once, when this way was chosen and the model has its own windows again: what only others need may be dropped."""
        ...


class PackedForward:
    """All chunks in one row, attention through our function."""

    name = "packed"

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        self._loaded = loaded
        self._kv_cache = kv_cache
        self._layers = [_PagedLayer() for _ in kv_cache.layers]
        self._view = Cache(layers=list(self._layers))
        AttentionInterface.register(ATTENTION_NAME, _attend_for_module)

    def __call__(self, chunks: list[Chunk]) -> torch.Tensor:
        """Run the model once."""
        batch = pack(chunks, self._kv_cache, self._loaded.device)
        for index, layer in enumerate(self._layers):
            layer.point_at(batch, index, gather=None)
        with _our_attention(self._loaded.model):
            output = self._loaded.model(
                input_ids=batch.input_ids[None],
                position_ids=batch.positions[None],
                use_cache=True,
                logits_to_keep=batch.logit_rows,
                paged_batch=batch,
                **{self._loaded.cache_argument: self._view},
            )
        logits: torch.Tensor = output.logits[0]
        return logits

    def settle(self) -> None:
        """Nothing is held twice."""


class PaddedForward:
    """Chunks with several tokens one by one, all with one token together; the model's own attention."""

    name = "padded"

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        self._loaded = loaded
        self._kv_cache = kv_cache
        self._layers = [_PagedLayer() for _ in kv_cache.layers]
        self._view = Cache(layers=list(self._layers))

    def __call__(self, chunks: list[Chunk]) -> torch.Tensor:
        """Run the model once for each length."""
        single = [index for index, chunk in enumerate(chunks) if chunk.num_query_tokens == 1]
        others = [[index] for index, chunk in enumerate(chunks) if chunk.num_query_tokens > 1]
        rows: list[torch.Tensor] = [torch.empty(0)] * len(chunks)
        for indices in ([single] if single else []) + others:
            logits = self._run([chunks[index] for index in indices])
            for index, row in zip(indices, logits, strict=True):
                rows[index] = row[len(row) - chunks[index].num_logits :]
        return torch.cat(rows)

    def settle(self) -> None:
        """Nothing is held twice."""

    def _run(self, chunks: list[Chunk]) -> torch.Tensor:
        batch = pack(chunks, self._kv_cache, self._loaded.device)
        [group] = batch.groups()
        for index, layer in enumerate(self._layers):
            layer.point_at(batch, index, gather=group.slots)
        output = self._loaded.model(
            input_ids=batch.input_ids.view(len(chunks), -1),
            position_ids=group.positions,
            attention_mask=group.mask(None),
            use_cache=True,
            logits_to_keep=max(1, *(chunk.num_logits for chunk in chunks)),
            **{self._loaded.cache_argument: self._view},
        )
        logits: torch.Tensor = output.logits
        return logits


class _PagedLayer(CacheLayerMixin):
    """What transformers takes for one layer's cache: writes to the pages, and gives gathered keys where they are wanted."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def point_at(self, batch: PackedBatch, index: int, *, gather: torch.Tensor | None) -> None:
        self._batch = batch
        self._index = index
        self._gather = gather

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        new_keys, new_values = key_states.transpose(1, 2).flatten(0, 1), value_states.transpose(1, 2).flatten(0, 1)
        pages = self._batch.cache.pages(self._index, new_keys, new_values)
        write(pages, new_keys, new_values, self._batch.slot_mapping)
        if self._gather is None:
            return key_states, value_states
        assert pages.keys is not None
        assert pages.values is not None
        keys, values = pages.keys.flatten(0, 1)[self._gather], pages.values.flatten(0, 1)[self._gather]
        return keys.transpose(1, 2), values.transpose(1, 2)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return max(self._batch.kv_lens), 0

    def get_seq_length(self) -> int:
        return max(self._batch.kv_lens) - max(self._batch.query_lens)

    def get_max_length(self) -> int:
        return self._batch.cache.capacity


@contextlib.contextmanager
def _our_attention(model: Any) -> Iterator[None]:
    # Only while we call it: whoever else calls this module (`generate`, an adapter) gets its own attention.
    config = model.config.get_text_config()
    configured = config._attn_implementation
    config._attn_implementation = ATTENTION_NAME
    try:
        yield
    finally:
        config._attn_implementation = configured


def _attend_for_module(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_batch: PackedBatch,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Serve transformers' attention interface: query `(1, num_heads, T, head_dim)`, result `(1, T, num_heads, head_dim)`."""
    if attention_mask is not None or softcap is not None or s_aux is not None or position_bias is not None:
        raise NotImplementedError("this attention has masks, caps, sinks or biases of its own")
    pages = paged_batch.cache.layers[module.layer_idx]
    output = attend(query[0].transpose(0, 1), pages, paged_batch, scale=scaling, window=sliding_window)
    return output[None], None
