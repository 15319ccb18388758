"""Keys and values of all running sequences.

`KVCache` is what the engine needs of a cache: say whether a sequence fits, hold it, and give transformers a view for one forward
pass. `DenseKVCache` is the simple one: a slot per sequence, one tensor per layer, grown as answers grow. A paged cache
implements the same verbs over blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

INITIAL_LENGTH = 256


class CachedSequence(Protocol):
    """What the cache and the model runner need of a sequence."""

    slot: int | None
    num_cached_tokens: int

    def pending_token_ids(self) -> list[int]:
        """Give the ids whose keys and values are not in the cache yet."""
        ...


class KVCache(Protocol):
    """What the scheduler and the model runner need of a cache."""

    def can_allocate(self, sequence: CachedSequence) -> bool:
        """Whether a waiting sequence could be held now; does not change state."""
        ...

    def allocate(self, sequence: CachedSequence) -> None:
        """Hold a sequence; ask `can_allocate` first."""
        ...

    def free(self, sequence: CachedSequence) -> None:
        """Let a sequence go; its memory is used again."""
        ...

    def view(self, sequences: Sequence[CachedSequence], query_length: int) -> Cache:
        """Give transformers' cache object for one forward pass of `query_length` new tokens per sequence."""
        ...


@dataclass(slots=True)
class _Batch:
    """Rows of the current forward pass: `slots` int64 `(rows,)`, `positions` int64 `(rows, query_length)`."""

    slots: torch.Tensor
    positions: torch.Tensor
    kv_length: int
    start: int
    # Set when the slots are the first `contiguous` ones in order: a view serves, no gather.
    contiguous: int | None


class _SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, `(slots, heads, length, head_dim)`, grown by doubling."""

    is_sliding = False

    def __init__(self, owner: DenseKVCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._owner = owner

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._room(key_states, None)
        self.values = self._room(value_states, None)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
        elif self.keys.shape[2] < self._owner.length:
            self.keys = self._room(key_states, self.keys)
            self.values = self._room(value_states, self.values)
        assert self.keys is not None
        assert self.values is not None
        return self._write(self.keys, key_states), self._write(self.values, value_states)

    def _room(self, states: torch.Tensor, old: torch.Tensor | None) -> torch.Tensor:
        shape = (self._owner.num_slots, states.shape[1], self._owner.length, states.shape[3])
        room = torch.zeros(shape, dtype=states.dtype, device=states.device)
        if old is not None:
            room[:, :, : old.shape[2]] = old
        return room

    def _write(self, store: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        batch = self._owner.batch
        # Two index tensors with a slice between them put the indexed dimensions first: (rows, query, heads, head_dim).
        store[batch.slots[:, None], :, batch.positions] = states.transpose(1, 2)
        if batch.contiguous is not None:
            return store[: batch.contiguous, :, : batch.kv_length]
        return store[batch.slots, :, : batch.kv_length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._owner.batch.start + query_length, 0

    def get_seq_length(self) -> int:
        return self._owner.batch.start

    def get_max_length(self) -> int:
        return self._owner.max_length


class DenseKVCache:
    """One slot of at most `max_length` tokens per running sequence.

    Args:
        num_layers: Layers of the model.
        num_slots: Sequences that can be held.
        max_length: Tokens a sequence can have.
        device: Where the model computes.
    """

    def __init__(self, *, num_layers: int, num_slots: int, max_length: int, device: torch.device) -> None:
        self.num_slots = num_slots
        self.max_length = max_length
        self.length = min(INITIAL_LENGTH, max_length)
        self._device = device
        self._free = list(range(num_slots))
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        self.batch = _Batch(empty, empty, 0, 0, None)
        self._cache = Cache(layers=[_SlotLayer(self) for _ in range(num_layers)])

    @property
    def num_free_slots(self) -> int:
        """Slots that hold no sequence."""
        return len(self._free)

    def can_allocate(self, sequence: CachedSequence) -> bool:
        """Whether a slot is free."""
        return bool(self._free)

    def allocate(self, sequence: CachedSequence) -> None:
        """Take the lowest free slot, which keeps batches contiguous."""
        slot = min(self._free)
        self._free.remove(slot)
        sequence.slot = slot
        sequence.num_cached_tokens = 0

    def free(self, sequence: CachedSequence) -> None:
        """Give the slot back; freeing a sequence that has none does nothing."""
        if sequence.slot is not None:
            self._free.append(sequence.slot)
            sequence.slot = None

    def view(self, sequences: Sequence[CachedSequence], query_length: int) -> Cache:
        """Point the cache at these sequences; the view is valid until the next call."""
        slots = [sequence.slot for sequence in sequences]
        starts = [sequence.num_cached_tokens for sequence in sequences]
        kv_length = max(starts) + query_length
        while self.length < kv_length:
            self.length = min(2 * self.length, self.max_length)
        slot_tensor = torch.tensor(slots, dtype=torch.int64, device=self._device)
        start_tensor = torch.tensor(starts, dtype=torch.int64, device=self._device)
        positions = start_tensor[:, None] + torch.arange(query_length, device=self._device)
        contiguous = len(slots) if slots == list(range(len(slots))) else None
        self.batch = _Batch(slot_tensor, positions, kv_length, max(starts), contiguous)
        return self._cache
