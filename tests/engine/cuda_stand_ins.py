"""What the CUDA path calls, on the CPU: flash attention over blocks as documented, and graphs that compute anew."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.errors import NoSuchWayError
from engine.fast_path.cuda import GraphForward, VarlenOps
from engine.kv_cache import PagedKVCache
from engine.model_loader import LoadedModel


def varlen_on_cpu(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query_starts: torch.Tensor,
    key_starts: torch.Tensor,
    max_query_len: int,
    max_kv_len: int,
    *,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
) -> torch.Tensor:
    """Do what `torch.nn.attention.varlen.varlen_attn` documents, one sequence and one query at a time; refuse what it refuses."""
    check_arguments(query, keys, values, query_starts, key_starts, seqused_k, block_table)
    assert enable_gqa or query.shape[1] == keys.shape[2]
    output = torch.empty_like(query)
    for row, kv_len in enumerate(seqused_k.tolist()):
        first, last = query_starts[row : row + 2].tolist()
        assert last - first <= max_query_len
        assert kv_len <= max_kv_len
        own_keys, own_values = (pages[block_table[row].long()].flatten(0, 1)[:kv_len] for pages in (keys, values))
        for index in range(first, last):
            position = kv_len - (last - index)
            start = 0 if window_size[0] < 0 else max(0, position - window_size[0])
            stop = kv_len if window_size[1] < 0 else min(kv_len, position + window_size[1] + 1)
            output[index] = scaled_dot_product_attention(
                query[index][:, None],
                own_keys[start:stop].transpose(0, 1),
                own_values[start:stop].transpose(0, 1),
                enable_gqa=enable_gqa,
            )[:, 0]
    return output


def check_arguments(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    query_starts: torch.Tensor,
    key_starts: torch.Tensor,
    kv_lens: torch.Tensor,
    tables: torch.Tensor,
) -> None:
    """Refuse what the kernel itself refuses, or reads wrongly."""
    num_rows = len(kv_lens)
    for numbers, shape in ((query_starts, (num_rows + 1,)), (key_starts, (num_rows + 1,)), (kv_lens, (num_rows,))):
        assert numbers.dtype == torch.int32
        assert numbers.shape == shape
        assert numbers.is_contiguous()
    assert tables.dtype == torch.int32
    assert len(tables) == num_rows
    assert query.dtype == keys.dtype == values.dtype
    assert {tensor.device for tensor in (keys, values, query_starts, key_starts, kv_lens, tables)} == {query.device}


class GraphOnCpu(GraphForward):
    """CUDA graphs with a stand-in for the kernel; `capture` has to be replaced too."""

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        if loaded.device.type != "cpu":
            raise NoSuchWayError("stand-ins are for the CPU")
        self._set_up(loaded, kv_cache, lambda layout: VarlenOps(layout, attention=varlen_on_cpu))


def capture_on_cpu(compute: Callable[[], torch.Tensor], device: torch.device) -> tuple[Callable[[], None], torch.Tensor]:
    """Compute at every replay, into the same tensor; as a graph does, never with other tensors than those of the capture."""
    result = compute()

    def replay() -> None:
        result.copy_(compute())

    return replay, result
