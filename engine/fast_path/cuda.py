"""The flat pass on CUDA: flash attention that reads the blocks where they lie, and decode steps replayed as CUDA graphs.

Never run on a GPU by its authors: written against PyTorch's documentation and tested on the CPU with stand-ins for the kernel and
for the graph. What does not work on a machine is seen at load, when logits are compared, and another way is taken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..attention import Chunk, PackedBatch, write
from ..errors import NoSuchWayError
from ..kv_cache import LayerPages, PagedKVCache
from ..model_loader import LoadedModel
from .forward import FlatForward
from .layout import Layer, Layout
from .torch_ops import TorchOps

logger = logging.getLogger(__name__)

MAX_GRAPH_BATCH = 256
HALF_DTYPES = (torch.bfloat16, torch.float16)
_ONE_CAPTURE = threading.Lock()
"""PyTorch lets one capture at a time go on in a process; several engines may have a thread each."""


@dataclass(frozen=True, slots=True)
class VarlenPlan:
    """What flash attention needs to know of `B` sequences.

    Attributes:
        query_starts: int32 `(B + 1,)`, where each sequence's queries begin in the packed row.
        kv_lens: int32 `(B,)`, keys of each sequence.
        tables: int32 `(B, max_blocks)`, their blocks.
        max_query_len: Longest query.
        max_kv_len: Most keys.
    """

    query_starts: torch.Tensor
    kv_lens: torch.Tensor
    tables: torch.Tensor
    max_query_len: int
    max_kv_len: int


class VarlenOps(TorchOps):
    """`TorchOps` with flash attention over blocks; half precision only."""

    def __init__(self, layout: Layout, *, attention: Callable[..., Any] | None = None) -> None:
        super().__init__(layout)
        self._attention = attention if attention is not None else _varlen_attention()
        if layout.embedding.is_cuda:
            self._steps = [torch.compile(step, dynamic=True) for step in self._steps]
        self._plan: VarlenPlan | None = None

    def begin(self, batch: PackedBatch) -> None:
        """Lay out who queries what."""
        width = max(len(ids) for ids in batch.block_ids)
        starts = [0]
        for query_len in batch.query_lens:
            starts.append(starts[-1] + query_len)
        plan = VarlenPlan(
            query_starts=torch.tensor(starts, dtype=torch.int32, device=batch.device),
            kv_lens=torch.tensor(batch.kv_lens, dtype=torch.int32, device=batch.device),
            tables=torch.tensor(
                [ids + [0] * (width - len(ids)) for ids in batch.block_ids], dtype=torch.int32, device=batch.device
            ),
            max_query_len=max(batch.query_lens),
            max_kv_len=max(batch.kv_lens),
        )
        self.begin_with(plan, batch.positions, batch.slot_mapping)

    def begin_with(self, plan: VarlenPlan, positions: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Take a plan that is made already; all tensors stay in use until the pass is over."""
        self._plan = plan
        self._slot_mapping = slot_mapping
        self._look_up(positions)

    def attend(self, qkv: torch.Tensor, layer: Layer, pages: LayerPages) -> torch.Tensor:
        """As `Ops.attend`."""
        plan = self._plan
        assert plan is not None
        assert pages.keys is not None
        query, key, value = self._split(qkv, layer)
        write(pages, key, value, self._slot_mapping)
        # (left, right) of the diagonal, itself not counted; -1 is all. Single queries see all keys there are, and only without a
        # bound does the kernel take the heads of one key together.
        right = -1 if plan.max_query_len == 1 and layer.window is None else 0
        attended: torch.Tensor = self._attention(
            query.contiguous(),
            pages.keys,
            pages.values,
            plan.query_starts,
            # Where keys begin is what the tables say; the kernel checks the shape of these and does not read them.
            plan.query_starts,
            plan.max_query_len,
            plan.max_kv_len,
            window_size=(-1 if layer.window is None else layer.window - 1, right),
            enable_gqa=query.shape[1] != pages.keys.shape[2],
            seqused_k=plan.kv_lens,
            block_table=plan.tables,
        )
        return attended.flatten(1)


class GraphForward:
    """Replays decode steps, one graph per power of two of sequences, captured when it is first needed; the rest runs eagerly.

    Rows that pad a batch up to the graph's size write to the cache's scratch block, which nobody reads.

    Args:
        loaded: The model, on CUDA, in half precision.
        kv_cache: The pages.

    Raises:
        NoSuchWayError: The device or the dtype is another.
    """

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        if loaded.device.type != "cuda" or loaded.model.dtype not in HALF_DTYPES:
            raise NoSuchWayError("CUDA graphs take half precision on CUDA")
        self._set_up(loaded, kv_cache, VarlenOps)

    def _set_up(self, loaded: LoadedModel, kv_cache: PagedKVCache, make_ops: Callable[[Layout], VarlenOps]) -> None:
        self._eager = FlatForward(loaded, kv_cache, make_ops)
        self._kv_cache = kv_cache
        self._device = loaded.device
        self._max_model_len = loaded.max_model_len
        # None where capturing failed.
        self._graphs: dict[int, _Graph | None] = {}
        self.name = "on the fast path, decode steps as CUDA graphs"

    def __call__(self, chunks: list[Chunk]) -> torch.Tensor:
        """As `Forward.__call__`."""
        is_decode = all(chunk.num_scheduled_tokens == chunk.num_query_tokens == chunk.num_logits == 1 for chunk in chunks)
        if not is_decode or len(chunks) > MAX_GRAPH_BATCH:
            return self._eager(chunks)
        size = 1 << (len(chunks) - 1).bit_length()
        if size not in self._graphs:
            self._graphs[size] = self._capture(size)
        graph = self._graphs[size]
        return self._eager(chunks) if graph is None else graph.run(chunks)

    @property
    def captured_sizes(self) -> list[int]:
        """Sequences of the graphs that there are."""
        return sorted(size for size, graph in self._graphs.items() if graph is not None)

    def settle(self) -> None:
        """As `Forward.settle`."""
        self._eager.settle()
        # Those of the check have its windows in them.
        self._graphs.clear()

    def _capture(self, size: int) -> _Graph | None:
        try:
            return _Graph(self._eager, size, self._kv_cache, self._max_model_len, self._device)
        except RuntimeError:  # out of memory, or an operation that no graph takes; without a graph the step is only slower
            logger.exception("no CUDA graph for %d sequences; their steps run one kernel at a time", size)
            return None


class _Graph:
    """One captured decode step of `size` sequences, with the tensors that it reads."""

    def __init__(self, eager: FlatForward, size: int, cache: PagedKVCache, max_model_len: int, device: torch.device) -> None:
        self._cache = cache
        self._size = size
        width = -(-max_model_len // cache.block_size)
        # Rows: ids, positions, slots.
        self._numbers = torch.zeros(3, size, dtype=torch.int64, device=device)
        self._plan = VarlenPlan(
            query_starts=torch.arange(size + 1, dtype=torch.int32, device=device),
            kv_lens=torch.ones(size, dtype=torch.int32, device=device),
            tables=torch.full((size, width), cache.scratch_block, dtype=torch.int32, device=device),
            max_query_len=1,
            max_kv_len=max_model_len,
        )
        self._numbers[2] = cache.scratch_block * cache.block_size
        self._replay, self._logits = capture(lambda: self._compute(eager), device)

    def run(self, chunks: list[Chunk]) -> torch.Tensor:
        """Fill in what the sequences are and replay; the result is overwritten by the next call."""
        size, block_size, scratch = self._size, self._cache.block_size, self._cache.scratch_block
        numbers = torch.zeros(3, size, dtype=torch.int64)
        numbers[2] = scratch * block_size
        tables = torch.full((size, self._plan.tables.shape[1]), scratch, dtype=torch.int32)
        kv_lens = torch.ones(size, dtype=torch.int32)
        for row, chunk in enumerate(chunks):
            sequence, position = chunk.sequence, chunk.sequence.num_cached_tokens
            block_ids = sequence.blocks.block_ids
            [token_id] = sequence.token_ids_between(position, position + 1)
            slot = block_ids[position // block_size] * block_size + position % block_size
            numbers[:, row] = torch.tensor([token_id, position, slot])
            tables[row, : len(block_ids)] = torch.tensor(block_ids, dtype=torch.int32)
            kv_lens[row] = position + 1
        self._numbers.copy_(numbers)
        self._plan.tables.copy_(tables)
        self._plan.kv_lens.copy_(kv_lens)
        self._replay()
        return self._logits[: len(chunks)]

    def _compute(self, eager: FlatForward) -> torch.Tensor:
        ids, positions, slots = self._numbers
        ops = eager.ops
        assert isinstance(ops, VarlenOps)
        ops.begin_with(self._plan, positions, slots)
        return eager.compute(ids, None)


def capture(compute: Callable[[], torch.Tensor], device: torch.device) -> tuple[Callable[[], None], torch.Tensor]:
    """Capture `compute` on `device`; give what replays it, and the tensor that then holds its result."""
    # The current stream is put back here, since a capture that fails leaves its own behind. That one is made anew: PyTorch's
    # default belongs to the device on which it was first needed.
    with _ONE_CAPTURE, torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Lazy initialisation and compilation must be over before the capture.
            for _ in range(2):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile: those of other engines.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = compute()

    def replay() -> None:
        with torch.cuda.device(device):
            graph.replay()

    return replay, result


def _varlen_attention() -> Callable[..., Any]:
    try:
        from torch.nn.attention.varlen import varlen_attn  # PyTorch before 2.10 has none
    except ImportError as error:
        raise NoSuchWayError("this PyTorch has no attention over blocks") from error
    return varlen_attn
