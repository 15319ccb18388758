"""Attention over the paged cache, for sequences of any lengths packed one after the other.

`PackedBatch` says which tokens of one forward pass belong to whom and where their keys and values lie; it is made once a step
and read by every layer. `attend` is the reference: PyTorch's scaled dot product over gathered blocks. On CUDA
`torch.nn.attention.varlen` reads the blocks where they lie, and on the CPU `fast_path/` has a kernel that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.nn.functional import scaled_dot_product_attention

from .kv_cache import CachedSequence, LayerPages, PagedKVCache


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one sequence computes in a step.

    Attributes:
        sequence: Whose tokens these are; the blocks for them are reserved.
        num_scheduled_tokens: Tokens after the cached ones, drafts not counted.
        draft_token_ids: Guesses behind them, computed in the same pass; `PagedKVCache.truncate` drops those that were wrong.
        num_logits: Positions at the end whose logits are wanted; 0 for a piece of a prompt.
    """

    sequence: CachedSequence
    num_scheduled_tokens: int
    num_logits: int = 1
    draft_token_ids: tuple[int, ...] = ()

    @property
    def num_query_tokens(self) -> int:
        """Tokens that this sequence puts into the forward pass."""
        return self.num_scheduled_tokens + len(self.draft_token_ids)


@dataclass(slots=True)
class PackedBatch:
    """Index tensors of one forward pass over `T` packed tokens of `B` sequences.

    Attributes:
        input_ids: int64 `(T,)`.
        positions: int64 `(T,)`, positions in their sequences.
        slot_mapping: int64 `(T,)`, where keys and values go: block id times block size plus offset.
        logit_rows: int64 `(R,)`, the tokens whose logits are wanted.
        query_lens: Tokens of each sequence in this pass.
        kv_lens: Tokens of each sequence in the cache after this pass.
        block_ids: Blocks of each sequence.
        cache: The pages.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    slot_mapping: torch.Tensor
    logit_rows: torch.Tensor
    query_lens: list[int]
    kv_lens: list[int]
    block_ids: list[list[int]]
    cache: PagedKVCache
    _groups: dict[int, list[_Group]] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.input_ids.device

    def groups(self, *, min_query_len: int = 1) -> list[_Group]:
        """Give the sequences with so many query tokens in groups that one dense call each can serve; made once."""
        if min_query_len not in self._groups:
            self._groups[min_query_len] = _make_groups(self, min_query_len)
        return self._groups[min_query_len]


@dataclass(slots=True)
class _Group:
    """Sequences with equally many query tokens.

    Attributes:
        rows: int64 `(b * query_len,)`, their tokens in the packed batch.
        slots: int64 `(b, kv_len)`, where their keys lie; behind the end of the shorter ones, their own first block.
        positions: int64 `(b, query_len)`.
        is_whole: Whether this is one sequence from its first token on, which needs no mask of ours.
        masks: By window: bool `(b, 1, query_len, kv_len)`, or None where nothing has to be masked.
    """

    rows: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    needs_mask: bool
    is_whole: bool
    masks: dict[int | None, torch.Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor | None:
        if window not in self.masks:
            kv_positions = torch.arange(self.slots.shape[1], device=self.slots.device)
            visible = kv_positions <= self.positions[:, :, None]
            if window is not None:
                visible &= kv_positions > self.positions[:, :, None] - window
            self.masks[window] = visible[:, None] if self.needs_mask or window is not None else None
        return self.masks[window]


def pack(chunks: Sequence[Chunk], cache: PagedKVCache, device: torch.device) -> PackedBatch:
    """Lay the tokens of `chunks` one after the other; does not change the sequences."""
    input_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    size = cache.block_size
    for chunk in chunks:
        sequence, start = chunk.sequence, chunk.sequence.num_cached_tokens
        stop = start + chunk.num_query_tokens
        input_ids += sequence.token_ids_between(start, start + chunk.num_scheduled_tokens)
        input_ids += chunk.draft_token_ids
        positions += range(start, stop)
        blocks = sequence.blocks.block_ids
        slots += [blocks[position // size] * size + position % size for position in range(start, stop)]
        logit_rows += range(len(input_ids) - chunk.num_logits, len(input_ids))
    ids, places, where = torch.tensor([input_ids, positions, slots], dtype=torch.int64).to(device, non_blocking=True)
    return PackedBatch(
        input_ids=ids,
        positions=places,
        slot_mapping=where,
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
        query_lens=[chunk.num_query_tokens for chunk in chunks],
        kv_lens=[chunk.sequence.num_cached_tokens + chunk.num_query_tokens for chunk in chunks],
        block_ids=[chunk.sequence.blocks.block_ids for chunk in chunks],
        cache=cache,
    )


def write(pages: LayerPages, keys: torch.Tensor, values: torch.Tensor, slot_mapping: torch.Tensor) -> None:
    """Put keys and values, `(T, num_kv_heads, head_dim)`, where `slot_mapping` says."""
    assert pages.keys is not None
    assert pages.values is not None
    pages.keys.flatten(0, 1)[slot_mapping] = keys
    pages.values.flatten(0, 1)[slot_mapping] = values


def attend(
    query: torch.Tensor, pages: LayerPages, batch: PackedBatch, *, scale: float | None = None, window: int | None = None
) -> torch.Tensor:
    """Attend from packed queries to everything before them in their own sequences.

    Args:
        query: `(T, num_heads, head_dim)`; `num_heads` is a multiple of the heads in the pages.
        pages: The layer's keys and values, those of this pass included.
        batch: Whose tokens these are.
        scale: Factor of the dot products; None is `head_dim ** -0.5`.
        window: A token sees this many positions, itself included; None is all.

    Returns:
        `(T, num_heads, head_dim)`.
    """
    assert pages.values is not None
    output = torch.empty(*query.shape[:-1], pages.values.shape[-1], dtype=query.dtype, device=query.device)
    for group in batch.groups():
        attend_group(query, pages, group, output, scale=scale, window=window)
    return output


def attend_group(
    query: torch.Tensor, pages: LayerPages, group: _Group, output: torch.Tensor, *, scale: float | None, window: int | None
) -> None:
    """Fill the rows of one group in `output`; arguments as in `attend`."""
    assert pages.keys is not None
    assert pages.values is not None
    keys, values = pages.keys.flatten(0, 1), pages.values.flatten(0, 1)
    is_plain = group.is_whole and window is None
    attended = scaled_dot_product_attention(
        query[group.rows].unflatten(0, group.positions.shape).transpose(1, 2),
        keys[group.slots].transpose(1, 2),
        values[group.slots].transpose(1, 2),
        attn_mask=None if is_plain else group.mask(window),
        is_causal=is_plain,
        scale=scale,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    output[group.rows] = attended.transpose(1, 2).flatten(0, 1)


def _make_groups(batch: PackedBatch, min_query_len: int) -> list[_Group]:
    wanted = [index for index, query_len in enumerate(batch.query_lens) if query_len >= min_query_len]
    single = [index for index in wanted if batch.query_lens[index] == 1]
    others = [[index] for index in wanted if batch.query_lens[index] > 1]
    return [_make_group(batch, indices) for indices in ([single] if single else []) + others]


def _make_group(batch: PackedBatch, indices: list[int]) -> _Group:
    size = batch.cache.block_size
    kv_len = max(batch.kv_lens[index] for index in indices)
    num_blocks = -(-kv_len // size)
    # Padding reads a sequence's own blocks, never another's: masked values count zero times, but zero times NaN is NaN.
    held = [batch.block_ids[index][:num_blocks] for index in indices]
    tables = torch.tensor([ids + ids[:1] * (num_blocks - len(ids)) for ids in held], device=batch.device)
    slots = (tables[:, :, None] * size + torch.arange(size, device=batch.device)).flatten(1)[:, :kv_len]
    starts = [sum(batch.query_lens[:index]) for index in indices]
    query_len = batch.query_lens[indices[0]]
    rows = torch.tensor([start + offset for start in starts for offset in range(query_len)], device=batch.device)
    return _Group(
        rows=rows,
        slots=slots,
        positions=batch.positions[rows].view(len(indices), query_len),
        is_whole=len(indices) == 1 and query_len == kv_len > 1,
        needs_mask=query_len > 1 or any(batch.kv_lens[index] != kv_len for index in indices),
    )
