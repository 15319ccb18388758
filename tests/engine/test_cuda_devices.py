"""Every tensor of a step on CUDA is where it has to be, and flash attention takes what it is given: on a fake device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import LlamaConfig, LlamaForCausalLM

from engine import SamplingParams
from engine.attention import Chunk
from engine.fast_path import cuda
from engine.fast_path.cuda import GraphForward, VarlenOps
from engine.fast_path.forward import FlatForward
from engine.fast_path.torch_ops import TorchOps
from engine.grammar import bitmask as bitmask_module
from engine.grammar.kernels.torch_kernel import apply_torch
from engine.kv_cache import PagedKVCache
from engine.logit_rules import LogitRules
from engine.logprobs import token_logprobs
from engine.mask import StepMasks
from engine.model_loader import LoadedModel
from engine.sampler import RowDraw, sample
from tests.engine.cuda_stand_ins import check_arguments
from tests.engine.fake_cuda import CUDA, fake_cuda
from tests.engine.flat_batches import LENGTHS, Row, new_batch, new_layer, new_layout


def checked_attention(*args: Any, **options: Any) -> Any:
    """PyTorch's own, which knows its arguments, but looks at devices on a real one only."""
    query, keys, values, query_starts, key_starts, *_ = args
    assert query.is_cuda
    check_arguments(query, keys, values, query_starts, key_starts, options["seqused_k"], options["block_table"])
    return varlen_attn(*args, **options)


@pytest.fixture(autouse=True)
def check_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_varlen_attention", lambda: checked_attention)


@pytest.mark.parametrize("make", [VarlenOps, TorchOps])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("window", [None, 10], ids=["all", "window"])
def test_attention_takes_what_it_is_given(make: Callable[[Any], TorchOps], lengths: str, window: int | None) -> None:
    with fake_cuda():
        layout = new_layout(torch.bfloat16, heads=6, kv_heads=2, dim=16, device=CUDA)
        layer = new_layer(norm=torch.ones(16, dtype=torch.bfloat16, device=CUDA), window=window)
        qkv = torch.randn(sum(query_len for query_len, _ in LENGTHS[lengths]), 10 * 16, device=CUDA, dtype=torch.bfloat16)
        ops = make(layout)
        batch, cache = new_batch(LENGTHS[lengths], layout, device=CUDA, block_size=256)
        ops.begin(batch)
        attended = ops.attend(qkv, layer, cache.layers[0])
    assert attended.shape == (len(qkv), 6 * 16)
    assert (attended.device, attended.dtype) == (CUDA, torch.bfloat16)


def new_model() -> LoadedModel:
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
    )
    model = LlamaForCausalLM(config).eval()
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            moved = torch.empty(weight.shape, dtype=torch.bfloat16, device=CUDA)
            module.register_parameter(name, torch.nn.Parameter(moved, requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            module.register_buffer(name, torch.empty(buffer.shape, dtype=buffer.dtype, device=CUDA))
    tokenizer: Any = None
    return LoadedModel(model, tokenizer, CUDA, 64, 512, (1,), "past_key_values")


@pytest.mark.parametrize("way", [GraphForward, FlatForward])
def test_steps_of_all_kinds_run(way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(compute: Callable[[], torch.Tensor], device: torch.device) -> tuple[Callable[[], None], torch.Tensor]:
        assert device == CUDA
        return lambda: None, compute()

    monkeypatch.setattr(cuda, "capture", capture)
    with fake_cuda(), torch.no_grad():
        cache = PagedKVCache(num_layers=2, num_blocks=8, block_size=256, device=CUDA)
        forward = way(new_model(), cache)
        rows = [Row(query_len, kv_len) for query_len, kv_len in ((1, 300), (1, 9), (40, 40), (1, 1))]
        for row in rows:
            cached, row.num_cached_tokens = row.num_cached_tokens, 0
            assert cache.reserve(row, row.num_tokens)
            row.num_cached_tokens = cached
        decode = [Chunk(row, 1) for row in (rows[0], rows[1], rows[3])]
        mixed = [*decode[:2], Chunk(rows[2], 40)]
        for chunks, num_rows in ((decode, 3), (mixed, 3)):
            logits = forward(chunks)
            assert logits.shape == (num_rows, 64)
            assert logits.device == CUDA
        cache.free(rows[0], is_sound=False)
    if way is GraphForward:
        assert forward.captured_sizes == [4]


PARAMS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.7),
    "filtered": SamplingParams(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1),
}


@pytest.mark.parametrize("name", PARAMS)
def test_choosing_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitmask_module, "pick_kernel", lambda _: apply_torch)
    rules = SamplingParams(
        repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.5, logit_bias={3: 1.0}, bad_words=("a",), min_tokens=3
    )
    with fake_cuda():
        logits = torch.zeros(3, 2000, device=CUDA)
        LogitRules(rules, [1, 2, 3], stop_token_ids=(5,), bad_word_ids=[(7,), (8, 9)]).apply(logits[0], [4, 8], (2,))
        bitmask = torch.zeros(2, 63, dtype=torch.int32)
        masks = StepMasks(bitmask, [0, 2], [(1, 7), (2, 9)], [0, 1, 2])
        masks.apply(logits)
        token_ids = sample(logits, [RowDraw(PARAMS[name], 1, index) for index in range(3)])
        assert len(token_ids) == 3
        token_logprobs(logits[0], 4, 3)
