"""Blocks of the KV cache: which are free, which are shared, and which hold a prefix that is known.

Knows numbers and digests only, no tensors and no sequences; `kv_cache.py` keeps those.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

ROOT_DIGEST = b"\0" * 16


def block_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Give the name of a full block: it stands for these ids and for all ids before them, through `parent`."""
    return hashlib.blake2b(parent + array("q", token_ids).tobytes(), digest_size=16).digest()


class BlockPool:
    """Counts the holders of every block and remembers what free blocks still contain.

    A block that nobody holds keeps its contents, and its digest, until it is taken for something else. Blocks without a digest
    are taken first, of them those that were held already; then those that were let go longest ago. What is kept here grows with
    the blocks that were ever held, not with those that there are.

    Args:
        num_blocks: Blocks there are; their ids are 0 to `num_blocks - 1`.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        # Of the blocks that were ever held, which are those from 0 on.
        self._num_holders: list[int] = []
        self._digests: list[bytes | None] = []
        self._by_digest: dict[bytes, int] = {}
        # Those of them that nobody holds any more, in the order in which they are taken.
        self._free: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return self.num_blocks - len(self._num_holders) + len(self._free)

    def is_free(self, block_id: int) -> bool:
        """Whether nobody holds this block."""
        return block_id in self._free or block_id >= len(self._num_holders)

    def find(self, digest: bytes) -> int | None:
        """Give a block with these contents, held or free, or None; does not change state."""
        return self._by_digest.get(digest)

    def take(self, num_blocks: int) -> list[int]:
        """Hold blocks for new contents; ask `num_free` first."""
        taken = []
        for _ in range(num_blocks):
            block_id = self._next()
            self.forget(block_id)
            self._num_holders[block_id] = 1
            taken.append(block_id)
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """Hold blocks as they are, beside whoever holds them already."""
        for block_id in block_ids:
            self._free.pop(block_id, None)
            self._num_holders[block_id] += 1

    def release(self, block_ids: Sequence[int]) -> list[int]:
        """Let blocks go, in the order of a sequence; give those that nobody holds any more.

        The tail goes first, so that the head of a prefix, which more sequences share, stays known longest.
        """
        freed = []
        for block_id in reversed(block_ids):
            assert self._num_holders[block_id] > 0, f"block {block_id} is let go once too often"
            self._num_holders[block_id] -= 1
            if self._num_holders[block_id] == 0:
                self._free[block_id] = None
                if self._digests[block_id] is None:
                    self._free.move_to_end(block_id, last=False)
                freed.append(block_id)
        return freed

    def publish(self, block_id: int, digest: bytes) -> None:
        """Say what a held, full block contains; it must not be written any more. The first block with a digest keeps it."""
        if digest not in self._by_digest:
            self._by_digest[digest] = block_id
            self._digests[block_id] = digest

    def forget(self, block_id: int) -> None:
        """Drop what is known of a block's contents."""
        digest = self._digests[block_id]
        if digest is not None:
            self._digests[block_id] = None
            del self._by_digest[digest]

    def _next(self) -> int:
        """Give the free block that is taken next, out of those that are free."""
        first = next(iter(self._free), None)
        is_untouched_left = len(self._num_holders) < self.num_blocks
        if first is None or (is_untouched_left and self._digests[first] is not None):
            assert is_untouched_left, "ask `num_free` first"
            self._num_holders.append(0)
            self._digests.append(None)
            return len(self._num_holders) - 1
        del self._free[first]
        return first

    def reset(self) -> None:
        """Take every block back and forget everything."""
        self.__init__(self.num_blocks)  # type: ignore[misc]
