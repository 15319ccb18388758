"""Every kernel against one NumPy oracle; masks as bytes; the table that an engine allocates once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import GrammarSpec, InvalidRequestError, LLMEngine, SamplingParams, mask
from engine.grammar.bitmask import BitmaskPool, bitmask_width
from engine.grammar.bitmask_transport import from_bytes, to_bytes
from engine.grammar.kernels import KERNELS, ApplyKernel, factory, make_kernel, pick_kernel
from engine.grammar.kernels.native_kernel import SOURCE
from engine.grammar.kernels.torch_kernel import make_compiled_kernel
from tests.engine.bitmask_oracle import WIDTHS, check_kernel

ON_CPU = ("native", "numpy", "torch", "xgrammar")


@pytest.mark.parametrize("name", ON_CPU)
def test_kernel_does_what_numpy_does(name: str) -> None:
    kernel = make_kernel(name)
    if kernel is None:
        pytest.skip("no C++ compiler here")
    assert check_kernel(kernel) == 126


@pytest.mark.slow
def test_compiled_operations_do_what_numpy_does() -> None:
    """Through torch.compile's front end; `test_inductor_does_what_numpy_does` takes its back end, too."""
    assert check_kernel(make_compiled_kernel(backend="eager"), widths=(33,)) == 24


@pytest.mark.slow
def test_inductor_does_what_numpy_does() -> None:
    kernel = make_kernel("torch_compile")
    assert kernel is not None
    assert check_kernel(kernel, widths=(33, 1000)) == 48


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(
    ("widths", "dtypes", "count"),
    [
        pytest.param((33, 4097), "torch.float32,", 16, id="quick"),
        pytest.param(WIDTHS, "torch.float32, torch.bfloat16, torch.float16", 126, id="all", marks=pytest.mark.slow),
    ],
)
def test_triton_kernel_does_what_numpy_does_in_the_interpreter(widths: tuple[int, ...], dtypes: str, count: int) -> None:
    """In a process of its own: the interpreter is switched on before triton is imported."""
    code = (
        "import torch\n"
        "from engine.grammar.kernels import make_kernel\n"
        "from tests.engine.bitmask_oracle import WIDTHS, check_kernel\n"
        f"print(check_kernel(make_kernel('triton'), widths={widths}, dtypes=({dtypes})))\n"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == str(count)


@pytest.fixture
def fresh_choice() -> Iterator[None]:
    pick_kernel.cache_clear()
    yield
    pick_kernel.cache_clear()


@pytest.mark.usefixtures("fresh_choice")
def test_device_gets_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pick_kernel("cpu") in (make_kernel("native"), make_kernel("numpy"))
    assert pick_kernel("meta") is make_kernel("torch")
    monkeypatch.setattr(factory, "_works", lambda *_: True)
    assert pick_kernel("cuda") is (make_kernel("triton") or make_kernel("torch"))


def fails(*_: object) -> None:
    raise RuntimeError("Failed to find C compiler")


def does_nothing(*_: object) -> None:
    pass


@pytest.mark.usefixtures("fresh_choice")
@pytest.mark.parametrize("broken", [fails, does_nothing])
def test_kernel_that_does_not_work_is_passed_over(monkeypatch: pytest.MonkeyPatch, broken: ApplyKernel) -> None:
    monkeypatch.setattr(factory, "make_kernel", {"native": broken, "numpy": make_kernel("numpy")}.__getitem__)
    assert pick_kernel("cpu") is make_kernel("numpy")


def test_without_a_compiler_numpy_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "native", lambda: None)
    make_kernel.cache_clear()
    pick_kernel.cache_clear()
    try:
        assert pick_kernel("cpu") is make_kernel("numpy")
    finally:
        make_kernel.cache_clear()
        pick_kernel.cache_clear()


def test_unknown_kernel_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make_kernel("cuda")
    assert caught.value.param == "kernel"


def test_source_ships_with_the_package() -> None:
    assert SOURCE.is_file()


@pytest.mark.parametrize("fault", ["row", "dtype", "device"])
def test_native_kernel_refuses_what_would_write_elsewhere(fault: str) -> None:
    kernel = make_kernel("native")
    if kernel is None:
        pytest.skip("no C++ compiler here")
    logits = torch.zeros(2, 40, dtype=torch.float64 if fault == "dtype" else torch.float32)
    logits = logits.t() if fault == "device" else logits
    with pytest.raises((IndexError, ValueError)):
        kernel(logits, torch.zeros(1, 2, dtype=torch.int32), torch.tensor([2 if fault == "row" else 0]))


@pytest.mark.parametrize("vocab_size", [1, 32, 33, 32_001])
@pytest.mark.parametrize("num_rows", [0, 1, 5])
def test_table_as_bytes_and_back(vocab_size: int, num_rows: int) -> None:
    rng = np.random.default_rng(vocab_size)
    table = rng.integers(-(2**31), 2**31, size=(num_rows, bitmask_width(vocab_size)), dtype=np.int32)
    found, size = from_bytes(to_bytes(table, vocab_size))
    assert size == vocab_size
    assert np.array_equal(found, table)


def test_damaged_bytes_are_refused() -> None:
    data = to_bytes(np.arange(6, dtype=np.int32).reshape(2, 3), 70)
    for damaged in (b"", data[:10], data[:-1], data + b"x", b"x" + data[1:], data[:5] + b"\x09" + data[6:], data[:-1] + b"\xff"):
        with pytest.raises(InvalidRequestError):
            from_bytes(damaged)
    rng = np.random.default_rng(1)
    for _ in range(300):
        with pytest.raises(InvalidRequestError):
            from_bytes(rng.bytes(int(rng.integers(0, 80))))


def test_table_of_another_width_is_not_written() -> None:
    tables: tuple[Any, ...] = (np.zeros((2, 3), dtype=np.int32), np.zeros((2, 2)), np.zeros(2, dtype=np.int32))
    for table in tables:
        with pytest.raises(InvalidRequestError):
            to_bytes(table, 40)


def test_pool_hands_out_denying_tables_and_keeps_the_last_one() -> None:
    pool = BitmaskPool(2, 40)
    first = pool.take(2)
    first.fill_(-1)
    second = pool.take(1)
    assert not second.any()
    assert (first == -1).all()
    second.fill_(7)
    third = pool.take(2)
    assert not third.any()
    assert third.data_ptr() == first.data_ptr()
    assert pool.take(9).shape == (9, 2)
    assert not pool.take(20).any()


def test_engine_fills_one_table_again_and_again(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a table was allocated in a step")

    monkeypatch.setattr(mask, "new_bitmask", refuse)
    prompt = tiny_engine.tokenizer.encode("x", add_special_tokens=False)
    params = SamplingParams(max_tokens=12, temperature=0)
    outputs = tiny_engine.generate([prompt] * 3, params, grammars=GrammarSpec.regex("[a-f]{3}"))
    assert [output.error for output in outputs] == [None] * 3
    assert all(re.fullmatch("[a-f]{3}", output.content) for output in outputs)
