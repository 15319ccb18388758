"""The compiled kernels against plain PyTorch, and the fast path against transformers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from engine import EngineConfig, LLMEngine, SamplingParams, model_runner
from engine.errors import NoSuchWayError
from engine.fast_path import cuda, forward, native
from engine.fast_path.all_layers import AllLayers
from engine.fast_path.cuda import GraphForward, VarlenOps
from engine.fast_path.layout import Layout
from engine.fast_path.linear import Linear, is_blocked_faster, make_torch_product
from engine.fast_path.native import NativeOps, load_library
from engine.fast_path.products import TILE_WAYS, TILES_SOURCE, FewRowsProduct, TileProduct, make_native_product
from engine.fast_path.torch_ops import TorchOps
from tests.engine.cuda_stand_ins import GraphOnCpu, capture_on_cpu, varlen_on_cpu
from tests.engine.flat_batches import LENGTHS, new_batch, new_layer, new_layout
from tests.engine.random_models import save_random_model

TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (1.6e-2, 2e-2)}
"""Relative and absolute."""
DTYPES = [torch.float32, torch.bfloat16]
needs_compiler = pytest.mark.skipif(load_library() is None, reason="no C++ compiler here")


def assert_near(got: torch.Tensor, wanted: torch.Tensor) -> None:
    rtol, atol = TOLERANCE[wanted.dtype]
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol)


def native_ops(layout: Layout) -> NativeOps:
    library = load_library()
    assert library is not None
    return NativeOps(layout, library)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 15, 16, 31, 33, 64, 576])
@pytest.mark.parametrize("rows", [1, 5, 130])
def test_norm_and_gate_equal_torch(dtype: torch.dtype, size: int, rows: int) -> None:
    torch.manual_seed(size)
    layout = new_layout(dtype, heads=2, kv_heads=1, dim=8)
    x, delta, gate_up = (3 * torch.randn(rows, width).to(dtype) for width in (size, size, 2 * size))
    weight = torch.rand(size).to(dtype)
    results = []
    for ops in (TorchOps(layout), native_ops(layout)):
        line = x.clone()
        results.append((ops.add_norm(line, delta, weight), line, ops.add_norm(line, None, weight), ops.gate(gate_up)))
    for wanted, got in zip(*results, strict=True):
        assert_near(got, wanted)


@needs_compiler
def test_gate_of_extreme_values_is_finite() -> None:
    gate_up = torch.tensor([[-1e30, -100.0, -88.0, 0.0, 88.0, 100.0, 1e30] * 5 + [1.0] * 35])
    layout = new_layout(torch.float32, heads=2, kv_heads=1, dim=8)
    torch.testing.assert_close(native_ops(layout).gate(gate_up), TorchOps(layout).gate(gate_up))


@needs_compiler
def test_no_number_stays_no_number() -> None:
    layout = new_layout(torch.bfloat16, heads=2, kv_heads=1, dim=8)
    x = torch.full((1, 40), float("nan"), dtype=torch.bfloat16)
    assert native_ops(layout).add_norm(x, x.clone(), torch.ones(40)).isnan().all()
    assert native_ops(layout).gate(torch.cat([x, x], dim=1)).isnan().all()


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [(4, 2, 8), (9, 3, 64), (7, 1, 64), (2, 2, 128), (7, 1, 128), (6, 1, 24)], ids=str)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("variant", ["plain", "norms", "window"])
def test_attention_equals_torch(dtype: torch.dtype, heads: tuple[int, int, int], lengths: str, variant: str) -> None:
    num_heads, num_kv_heads, dim = heads
    layout = new_layout(dtype, heads=num_heads, kv_heads=num_kv_heads, dim=dim)
    norm = torch.rand(dim).to(dtype) if variant == "norms" else None
    layer = new_layer(norm=norm, window=10 if variant == "window" else None)
    torch.manual_seed(2)
    qkv = torch.randn(sum(query_len for query_len, _ in LENGTHS[lengths]), (num_heads + 2 * num_kv_heads) * dim).to(dtype)
    results = []
    for ops in (TorchOps(layout), native_ops(layout)):
        batch, cache = new_batch(LENGTHS[lengths], layout)
        ops.begin(batch)
        pages = cache.layers[0]
        assert pages.keys is not None
        assert pages.values is not None
        results.append((ops.attend(qkv.clone(), layer, pages), pages.keys, pages.values))
    for wanted, got in zip(*results, strict=True):
        assert_near(got, wanted)


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [(9, 3, 64), (7, 1, 64), (7, 1, 128)], ids=str)
@pytest.mark.parametrize("window", [None, 10], ids=["all", "window"])
def test_attention_of_a_head_does_not_depend_on_what_is_computed_with_it(
    dtype: torch.dtype, heads: tuple[int, int, int], window: int | None
) -> None:
    """With many cores and few tokens each head is computed by itself, else those of a key head together."""
    num_heads, num_kv_heads, dim = heads
    layout = new_layout(dtype, heads=num_heads, kv_heads=num_kv_heads, dim=dim)
    torch.manual_seed(2)
    lengths = [(1, 5), (1, 33), (2, 16), (1, 17), (1, 67)]
    qkv = torch.randn(6, (num_heads + 2 * num_kv_heads) * dim).to(dtype)
    results = []
    for num_threads in (1, 64):
        ops = native_ops(layout)
        batch, cache = new_batch(lengths, layout, block_size=7)
        ops.begin(batch)
        ops._threads = num_threads
        results.append(ops.attend(qkv.clone(), new_layer(norm=None, window=window), cache.layers[0]))
    assert torch.equal(*results)


@pytest.mark.parametrize("is_native", [pytest.param(True, marks=needs_compiler), False], ids=["kernels", "torch"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 8, 40])
def test_fused_projections_equal_single_ones(dtype: torch.dtype, rows: int, is_native: bool) -> None:
    torch.manual_seed(0)
    modules = [torch.nn.Linear(64, size, dtype=dtype) for size in (16, 8, 8)]
    x = torch.randn(rows, 64).to(dtype)
    wanted = torch.cat([linear(x, module.weight, module.bias) for module in modules], dim=1)
    kernels = load_library()
    fused = Linear(modules, make_native_product(kernels) if is_native and kernels is not None else make_torch_product)
    assert_near(fused(x), wanted)
    if dtype == torch.float32 or not (is_native or is_blocked_faster(modules[0].weight)):
        # The modules share the fused weights.
        assert_near(torch.cat([module(x) for module in modules], dim=1), wanted)
    fused.release_modules()
    assert_near(fused(x), wanted)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 3, *range(4, 15)])
@pytest.mark.parametrize(("size", "outputs"), [(1, 1), (15, 3), (16, 7), (33, 16), (576, 65)])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no-bias"])
def test_product_of_few_rows_equals_torch(rows: int, size: int, outputs: int, has_bias: bool) -> None:
    library = load_library()
    assert library is not None
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, size), torch.randn(outputs, size)
    bias = torch.randn(outputs) if has_bias else None
    product = FewRowsProduct(library, weight, bias)
    torch.testing.assert_close(product(x), linear(x, weight, bias), rtol=1e-4, atol=1e-4)
    wide = torch.randn(rows, 2 * size)
    torch.testing.assert_close(product(wide[:, ::2]), linear(wide[:, ::2], weight, bias), rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("way", TILE_WAYS)
@pytest.mark.parametrize("rows", [1, 2, 11, 12, 13, 15, 16, 17, 31, 32, 33, 48, 49, 64, 75, 130])
@pytest.mark.parametrize(("size", "outputs"), [(32, 1), (64, 15), (32, 16), (96, 17), (576, 33), (1536, 600), (32, 31)])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no-bias"])
def test_product_of_tiles_equals_exact_sums(way: str, rows: int, size: int, outputs: int, has_bias: bool) -> None:
    """Beside sums in float64, rounded once: off by one rounding of bfloat16 at most, and exact on small whole numbers."""
    library = load_library(TILES_SOURCE)
    assert library is not None
    if not library[f"may_use_{way}"]():
        pytest.skip(f"this processor has no {way}")
    torch.manual_seed(rows + size)
    x, weight = torch.randn(rows, size).bfloat16(), torch.randn(outputs, size).bfloat16()
    bias = torch.randn(outputs).bfloat16() if has_bias else None
    wanted = linear(x.double(), weight.double(), None if bias is None else bias.double())
    got = TileProduct(library, way, weight, bias)(x)
    torch.testing.assert_close(got.double(), wanted, rtol=2**-8, atol=1e-3)
    x, weight = torch.randint(-1, 2, (rows, size)).bfloat16(), torch.randint(-1, 2, (outputs, size)).bfloat16()
    assert torch.equal(TileProduct(library, way, weight, None)(x), linear(x.double(), weight.double()).bfloat16())


@needs_compiler
def test_products_take_nothing_that_they_would_get_wrong() -> None:
    kernels = load_library()
    assert kernels is not None
    make_product = make_native_product(kernels)
    x = torch.randn(5, 24).bfloat16()
    for weight in (torch.randn(16, 24).bfloat16(), torch.randn(16, 48).bfloat16()[:, ::2]):
        product = make_product(weight, None)
        assert not isinstance(product, TileProduct)
        assert_near(product(x), linear(x, weight))
    weight = torch.randn(16, 64)[:, ::2]
    wide = torch.randn(5, 32)
    assert_near(make_product(weight, None)(wide), linear(wide, weight))
    assert_near(
        make_product(weight.bfloat16().T.contiguous().T, None)(wide.bfloat16()), linear(wide.bfloat16(), weight.bfloat16())
    )


def test_without_a_compiler_torch_gives_the_same_tokens(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [[1, 2, 3], [5] * 30, [9]]
    outputs = []
    for is_there in (True, False):
        if not is_there:
            monkeypatch.setattr(forward, "load_library", lambda: None)
        engine = LLMEngine(EngineConfig(model=str(tiny_model)))
        assert is_there or engine._runner.way == "on the fast path, TorchOps"
        outputs.append([output.token_ids for output in engine.generate(prompts, SamplingParams(max_tokens=30))])
        engine.close()
    assert outputs[0] == outputs[1]


@needs_compiler
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
def test_all_layers_in_one_call_give_the_same_numbers(
    tmp_path: Path, pocket_tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Bit for bit beside one call per operation, with prompts that join, biases, norms and windows."""
    options = {"hidden_size": 64, "num_key_value_heads": 2, "head_dim": 16} | (
        {"sliding_window": 12} if kind == "mistral" else {}
    )
    save_random_model(tmp_path, pocket_tokenizer, kind, **options)
    prompts = [[1, 2, 3], [5] * 30, [9], [7, 8], [4] * 17]
    params = [SamplingParams(max_tokens=number, logprobs=3, logprobs_mode="raw") for number in (30, 5, 12, 20, 8)]
    results = []
    for is_one_call in (True, False):
        if not is_one_call:
            monkeypatch.setattr(AllLayers, "takes", staticmethod(lambda layout: False))
        engine = LLMEngine(
            EngineConfig(model=str(tmp_path), dtype="bfloat16", max_model_len=128, max_num_batched_tokens=32, max_draft_tokens=0)
        )
        if is_one_call and "one call" not in engine._runner.way:
            pytest.skip("this processor multiplies otherwise")
        for index, (prompt, own) in enumerate(zip(prompts, params, strict=True)):
            engine.add_request(str(index), prompt, own)
        steps = []
        while engine.has_unfinished():
            steps.append([(output.request_id, output.new_token_ids, output.new_logprobs) for output in engine.step()])
        results.append(steps)
        engine.close()
    assert sum(len(logprobs) for step in results[0] for _, _, logprobs in step) > 60
    assert results[0] == results[1]


@pytest.fixture
def empty_kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@needs_compiler
def test_kernels_are_compiled_once(empty_kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_library.__wrapped__() is not None
    [made] = (empty_kernel_cache / "thinkgate").iterdir()
    assert made.suffix == ".so"

    def fail(command: list[str]) -> None:
        raise AssertionError(command)

    monkeypatch.setattr(native, "_run", fail)
    assert load_library.__wrapped__() is not None


@needs_compiler
def test_kernels_that_do_not_compile_are_done_without(
    empty_kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "FLAGS", ("--no-such-option",))
    assert load_library.__wrapped__() is None
    assert "no-such-option" in caplog.text
    assert list((empty_kernel_cache / "thinkgate").iterdir()) == []


def test_no_compiler_is_no_error(
    empty_kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(empty_kernel_cache))
    with caplog.at_level(logging.INFO, "engine"):
        assert load_library.__wrapped__() is None
    assert "no C++ compiler" in caplog.text


@pytest.mark.parametrize("is_there", [True, False], ids=["kernels", "torch"])
def test_bfloat16_answers_are_valid(tiny_model: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    if not is_there:
        monkeypatch.setattr(forward, "load_library", lambda: None)
    engine = LLMEngine(EngineConfig(model=str(tiny_model), dtype="bfloat16"))
    assert "fast path" in engine._runner.way
    outputs = engine.generate([[1, 2, 3], [5] * 30, [9]], SamplingParams(max_tokens=30))
    assert all(output.error is None and output.token_ids for output in outputs)
    engine.close()


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3"])
def test_cuda_graphs_give_the_same_tokens(
    tmp_path: Path, pocket_tokenizer: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Batches that grow and shrink through all sizes of graphs, some rows only padding; on stand-ins, there is no GPU here."""
    options = {"num_key_value_heads": 2, "head_dim": 8} | ({"sliding_window": 12} if kind == "mistral" else {})
    save_random_model(tmp_path, pocket_tokenizer, kind, **options)
    prompts = [[1, 2, 3], [5] * 30, [9], [7, 8], [4] * 17]
    params = [SamplingParams(max_tokens=number) for number in (30, 5, 12, 20, 8)]
    config = EngineConfig(model=str(tmp_path), max_model_len=128)
    engine = LLMEngine(config)
    wanted = [output.token_ids for output in engine.generate(prompts, params)]
    engine.close()
    monkeypatch.setattr(model_runner, "WAYS", (GraphOnCpu,))
    monkeypatch.setattr(cuda, "capture", capture_on_cpu)
    engine = LLMEngine(config)
    assert "CUDA graphs" in engine._runner.way
    assert isinstance(engine._runner._forward, GraphOnCpu)
    assert engine._runner._forward.captured_sizes == []  # those of the check would go on with its windows
    assert [output.token_ids for output in engine.generate(prompts, params)] == wanted
    assert engine._runner._forward.captured_sizes == [1, 2, 4, 8]
    engine.close()


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("window", [None, 10], ids=["all", "window"])
def test_attention_of_the_cuda_path_equals_torch(lengths: str, window: int | None) -> None:
    layout = new_layout(torch.float32, heads=6, kv_heads=2, dim=8)
    layer = new_layer(norm=None, window=window)
    torch.manual_seed(2)
    qkv = torch.randn(sum(query_len for query_len, _ in LENGTHS[lengths]), 10 * 8)
    results = []
    for ops in (TorchOps(layout), VarlenOps(layout, attention=varlen_on_cpu)):
        batch, cache = new_batch(LENGTHS[lengths], layout)
        ops.begin(batch)
        results.append(ops.attend(qkv.clone(), layer, cache.layers[0]))
    assert_near(results[1], results[0])


def test_capture_that_fails_costs_speed_only(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("no memory for a graph")

    config = EngineConfig(model=str(tiny_model))
    plain = LLMEngine(config)
    monkeypatch.setattr(model_runner, "WAYS", (GraphOnCpu,))
    monkeypatch.setattr(cuda, "capture", fail)
    engine = LLMEngine(config)
    outputs = [one.generate([[1, 2, 3], [9]], SamplingParams(max_tokens=8)) for one in (engine, plain)]
    assert [output.token_ids for output in outputs[0]] == [output.token_ids for output in outputs[1]]
    assert isinstance(engine._runner._forward, GraphOnCpu)
    assert engine._runner._forward.captured_sizes == []
    assert caplog.text.count("no CUDA graph for 2 sequences") == 2  # of the check at load, and of these steps
    engine.close()
    plain.close()


def test_cuda_graphs_are_no_way_on_a_cpu(tiny_engine: LLMEngine) -> None:
    with pytest.raises(NoSuchWayError):
        GraphForward(tiny_engine._loaded, tiny_engine._kv_cache)
