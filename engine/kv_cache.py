"""Keys and values of all running sequences, in blocks.

`KVCache` is what the scheduler needs of a cache; `PagedKVCache` holds a sequence in blocks of a few tokens, listed in its
`BlockTable`. Full blocks are named by a digest of their ids and of everything before them, so that a later sequence with the
same beginning shares them. They are never written again, hence sharing needs no copies; and they hold keys and values only,
so requests with different grammars share them safely. How the tensors are read is `attention.py`'s matter.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from .block_pool import ROOT_DIGEST, BlockPool, block_digest
from .errors import InvalidRequestError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BlockTable:
    """A sequence's blocks in order; kept by the cache alone.

    Attributes:
        block_ids: Blocks of the sequence's positions, `block_size` each.
        digests: Digests of the first full blocks, as far as they were needed.
        num_published: Blocks at the head whose contents the pool knows.
    """

    block_ids: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    num_published: int = 0


class CachedSequence(Protocol):
    """What the cache and the model runner need of a sequence."""

    blocks: BlockTable
    num_cached_tokens: int

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        ...

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        """Give the ids at positions `start` to `stop - 1`, prompt and generated alike."""
        ...


class KVCache(Protocol):
    """What the scheduler needs of a cache."""

    def can_allocate(self, sequence: CachedSequence, *, num_spared: int = 0) -> bool:
        """Whether a waiting sequence could be held now, and `num_spared` blocks stay free; does not change state."""
        ...

    def allocate(self, sequence: CachedSequence) -> None:
        """Begin to hold a sequence; sets `num_cached_tokens` to what the cache knows of it already."""
        ...

    def reserve(self, sequence: CachedSequence, num_tokens: int, *, num_spared: int = 0) -> bool:
        """Make room for the next `num_tokens` positions and spare `num_spared` blocks; False, and nothing done, if not."""
        ...

    def publish(self, sequence: CachedSequence) -> None:
        """Let later sequences share the full blocks; their tokens are final."""
        ...

    def truncate(self, sequence: CachedSequence, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` positions, none of which was published."""
        ...

    def free(self, sequence: CachedSequence, *, is_sound: bool = True) -> None:
        """Let a sequence go; `is_sound` False also wipes what it computed. Freeing it twice does nothing more."""
        ...

    def check_idle(self) -> None:
        """Say so loudly, and mend it, if blocks are held although no sequence runs."""
        ...


@dataclass(slots=True)
class LayerPages:
    """Keys and values of one layer, each `(num_blocks + 1, block_size, num_kv_heads, head_dim)`; made at the first use."""

    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None


class PagedKVCache:
    """Blocks of `block_size` tokens, shared between sequences with the same beginning.

    Args:
        num_layers: Layers of the model.
        num_blocks: Blocks there are, for all sequences together.
        block_size: Tokens of a block.
        device: Where the model computes.
        prefix_caching: Whether sequences share blocks.
    """

    def __init__(
        self, *, num_layers: int, num_blocks: int, block_size: int, device: torch.device, prefix_caching: bool = True
    ) -> None:
        self.block_size = block_size
        self.layers = [LayerPages() for _ in range(num_layers)]
        self.num_prefix_hit_tokens = 0
        self._device = device
        self._prefix_caching = prefix_caching
        self._pool = BlockPool(num_blocks)

    @property
    def num_blocks(self) -> int:
        """Blocks there are."""
        return self._pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no sequence holds, whether or not they still contain a known prefix."""
        return self._pool.num_free

    @property
    def scratch_block(self) -> int:
        """A block that holds no sequence: rows that only pad a batch write there."""
        return self.num_blocks

    @property
    def capacity(self) -> int:
        """Tokens that all sequences together can have."""
        return self.num_blocks * self.block_size

    def can_allocate(self, sequence: CachedSequence, *, num_spared: int = 0) -> bool:
        """Whether all its tokens, and the one after them, fit beside what is held now."""
        known = self._find_prefix(sequence)
        num_revived = sum(self._pool.is_free(block_id) for block_id in known)
        num_new = self._num_blocks_for(sequence.num_tokens + 1) - len(known)
        return num_new + num_revived + num_spared <= self._pool.num_free

    def allocate(self, sequence: CachedSequence) -> None:
        """Take over the known blocks of its beginning; the rest is reserved step by step."""
        known = self._find_prefix(sequence)
        self._pool.share(known)
        sequence.blocks.block_ids = known
        sequence.blocks.num_published = len(known)
        sequence.num_cached_tokens = len(known) * self.block_size
        self.num_prefix_hit_tokens += sequence.num_cached_tokens

    def reserve(self, sequence: CachedSequence, num_tokens: int, *, num_spared: int = 0) -> bool:
        """Take the blocks that the next `num_tokens` positions need."""
        num_missing = self._num_blocks_for(sequence.num_cached_tokens + num_tokens) - len(sequence.blocks.block_ids)
        if num_missing > 0 and num_missing + num_spared > self._pool.num_free:
            return False
        if num_missing > 0:
            sequence.blocks.block_ids += self._pool.take(num_missing)
        return True

    def publish(self, sequence: CachedSequence) -> None:
        """Name the blocks that became full since the last call."""
        num_full = sequence.num_cached_tokens // self.block_size
        table = sequence.blocks
        if not self._prefix_caching or num_full <= table.num_published:
            return
        self._extend_digests(sequence, num_full)
        for index in range(table.num_published, num_full):
            self._pool.publish(table.block_ids[index], table.digests[index])
        table.num_published = num_full

    def truncate(self, sequence: CachedSequence, num_tokens: int) -> None:
        """Give back the blocks behind position `num_tokens`."""
        table = sequence.blocks
        num_kept = self._num_blocks_for(num_tokens)
        assert table.num_published <= num_tokens // self.block_size, "published blocks are final"
        sequence.num_cached_tokens = min(sequence.num_cached_tokens, num_tokens)
        self._pool.release(table.block_ids[num_kept:])
        del table.block_ids[num_kept:]
        del table.digests[num_tokens // self.block_size :]

    def free(self, sequence: CachedSequence, *, is_sound: bool = True) -> None:
        """Give all blocks back. What an unsound sequence computed (NaN, half a step) is wiped and shared with nobody."""
        block_ids = sequence.blocks.block_ids
        freed = self._pool.release(block_ids)
        if not is_sound:
            for block_id in block_ids:
                self._pool.forget(block_id)
            self._wipe(freed)
        sequence.blocks = BlockTable(digests=sequence.blocks.digests)
        sequence.num_cached_tokens = 0

    def check_idle(self) -> None:
        """Take leaked blocks back; a leak is a bug, but not one that requests should die of."""
        num_leaked = self.num_blocks - self.num_free_blocks
        if num_leaked:
            logger.error("%d blocks of the KV cache are held although nothing runs; please report this", num_leaked)
            self._pool.reset()

    def pages(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> LayerPages:
        """Give a layer's tensors; they are made on first use, for keys and values like these, `(tokens, heads, head_dim)`.

        Raises:
            InvalidRequestError: There is no memory for them.
        """
        pages = self.layers[layer]
        if pages.keys is None:
            room = (self.num_blocks + 1, self.block_size)
            try:
                pages.keys, pages.values = (_zeros((*room, *like.shape[1:]), like.dtype, self._device) for like in (keys, values))
            except (MemoryError, torch.OutOfMemoryError) as error:
                raise InvalidRequestError(
                    f"there is no memory for {self.num_blocks} blocks of {self.block_size} tokens: {error}",
                    param="kv_cache_bytes",
                    hint="set kv_cache_bytes, max_num_seqs or max_model_len lower",
                ) from error
        return pages

    def _find_prefix(self, sequence: CachedSequence) -> list[int]:
        # One token at least is computed anew: its logits are wanted.
        num_full = (sequence.num_tokens - 1) // self.block_size if self._prefix_caching else 0
        known: list[int] = []
        for index in range(num_full):
            self._extend_digests(sequence, index + 1)
            block_id = self._pool.find(sequence.blocks.digests[index])
            if block_id is None:
                break
            known.append(block_id)
        return known

    def _extend_digests(self, sequence: CachedSequence, num_blocks: int) -> None:
        digests = sequence.blocks.digests
        for index in range(len(digests), num_blocks):
            token_ids = sequence.token_ids_between(index * self.block_size, (index + 1) * self.block_size)
            digests.append(block_digest(digests[-1] if digests else ROOT_DIGEST, token_ids))

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _wipe(self, block_ids: list[int]) -> None:
        # What is masked away is multiplied by zero, and zero times NaN is NaN.
        for pages in self.layers:
            if pages.keys is not None and pages.values is not None:
                pages.keys[block_ids] = 0
                pages.values[block_ids] = 0


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on the CPU the system backs a page with memory when it is first written, so that a large cache costs nothing."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, dtype=np.uint8)).view(dtype).view(shape)
