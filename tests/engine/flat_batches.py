"""Layers and packed batches without a model, for what stands between the matrix products of the fast path."""

from __future__ import annotations

from typing import Any

import torch

from engine.attention import Chunk, PackedBatch, pack
from engine.fast_path.layout import Layer, Layout
from engine.kv_cache import BlockTable, PagedKVCache

CPU = torch.device("cpu")
NUM_POSITIONS = 1024
LENGTHS = {
    "one": [(1, 1)],
    "one-long": [(1, 150)],
    "mixed": [(1, 5), (1, 33), (1, 16), (1, 17), (1, 64)],
    "drafts": [(3, 9), (1, 40), (8, 8), (2, 35)],
    "prompts-beside": [(20, 20), (1, 9), (30, 41), (16, 22)],
}
"""Batches: tokens of this pass and of the cache, for each sequence."""


class Row:
    def __init__(self, query_len: int, kv_len: int) -> None:
        self.num_cached_tokens = kv_len - query_len
        self.num_tokens = kv_len
        self.blocks = BlockTable()

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        return list(range(start, stop))


def new_layout(dtype: torch.dtype, *, heads: int, kv_heads: int, dim: int, device: torch.device = CPU) -> Layout:
    angles = torch.outer(torch.arange(NUM_POSITIONS), 1 / 100 ** (torch.arange(dim // 2) / dim)).to(device)
    none: Any = None
    embedding = torch.zeros(1, dtype=dtype, device=device)
    return Layout(embedding, [], none, none, angles.cos(), angles.sin(), 1e-5, heads, kv_heads, dim)


def new_layer(*, norm: torch.Tensor | None, window: int | None) -> Layer:
    none: Any = None
    return Layer(none, none, norm, norm, none, none, none, none, window)


def new_batch(
    lengths: list[tuple[int, int]], layout: Layout, *, device: torch.device = CPU, block_size: int = 4
) -> tuple[PackedBatch, PagedKVCache]:
    """Blocks in an order of their own, filled with noise."""
    cache = PagedKVCache(num_layers=1, num_blocks=80, block_size=block_size, device=device)
    cache._pool.take(7)
    rows = [Row(*pair) for pair in lengths]
    for row in rows:
        cached, row.num_cached_tokens = row.num_cached_tokens, 0
        assert cache.reserve(row, row.num_tokens)
        row.num_cached_tokens = cached
        row.blocks.block_ids.reverse()
    like = torch.empty(0, layout.num_kv_heads, layout.head_dim, dtype=layout.embedding.dtype)
    pages = cache.pages(0, like, like)
    assert pages.keys is not None
    assert pages.values is not None
    torch.manual_seed(1)
    pages.keys.normal_()
    pages.values.normal_()
    return pack([Chunk(row, query_len) for row, (query_len, _) in zip(rows, lengths, strict=True)], cache, device), cache
