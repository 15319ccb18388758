"""`kernels.cpp`, compiled once with the machine's own compiler, behind the same verbs as `torch_ops.py`.

There is nothing to install: where no C++ compiler is found, or it fails, PyTorch's operations are used, and the log says so.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

from ..attention import PackedBatch, attend_group
from ..kv_cache import LayerPages
from .layout import Layer, Layout

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-std=c++17", "-Wno-psabi", "-shared", "-fPIC")
COMPILE_TIMEOUT_S = 120
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
MAX_QUERY_LEN = 16
"""Sequences with more query tokens than this are prompts, for which PyTorch's blocked attention is better; drafts stay below."""


class ShortQueries(NamedTuple):
    """Addresses of what `NativeOps.begin` lays out, and its sizes; see `StepPlan` in `kernels.cpp`."""

    positions: int
    slots: int
    tables: int
    rows: int
    sequences: int
    lengths: int
    num_queries: int
    max_blocks: int
    threads: int


class NativeOps:
    """The steps between the matrix products for float32 and bfloat16 on the CPU.

    Args:
        layout: The model.
        library: From `load_library`.
    """

    def __init__(self, layout: Layout, library: ctypes.CDLL) -> None:
        dtype = DTYPES[layout.embedding.dtype]
        self._layout = layout
        self._add_norm = library[f"add_norm_{dtype}"]
        self._gate = library[f"gate_{dtype}"]
        self._rotate_and_write = library[f"rotate_and_write_{dtype}"]
        self._attend = library[f"attend_{dtype}"]
        self._set_types()
        # Norm weights in float32, by the address of the originals, which the layout keeps alive.
        self._wide: dict[int, torch.Tensor] = {}
        self._scale = layout.head_dim**-0.5
        self._threads = torch.get_num_threads()

    def begin(self, batch: PackedBatch) -> None:
        """Lay out who queries what; the tensors live until the next call."""
        self._batch = batch
        self._threads = torch.get_num_threads()
        rows: list[int] = []
        sequences: list[int] = []
        lengths: list[int] = []
        row = 0
        for index, (query_len, kv_len) in enumerate(zip(batch.query_lens, batch.kv_lens, strict=True)):
            if query_len <= MAX_QUERY_LEN:
                rows += range(row, row + query_len)
                sequences += [index] * query_len
                lengths += range(kv_len - query_len + 1, kv_len + 1)
            row += query_len
        width = max(len(ids) for ids in batch.block_ids)
        self._tables = torch.tensor([ids + [0] * (width - len(ids)) for ids in batch.block_ids], dtype=torch.int32)
        self._queries = torch.tensor([rows, sequences, lengths], dtype=torch.int32)
        self._query_places = [line.data_ptr() for line in self._queries]
        self._long = batch.groups(min_query_len=MAX_QUERY_LEN + 1)

    def short_queries(self) -> ShortQueries | None:
        """Say where the batch is laid out, if it has short sequences only; the addresses hold until the next `begin`."""
        if self._long:
            return None
        rows, sequences, lengths = self._query_places
        return ShortQueries(
            positions=self._batch.positions.data_ptr(),
            slots=self._batch.slot_mapping.data_ptr(),
            tables=self._tables.data_ptr(),
            rows=rows,
            sequences=sequences,
            lengths=lengths,
            num_queries=self._queries.shape[1],
            max_blocks=self._tables.shape[1],
            threads=self._threads,
        )

    def add_norm(self, x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
        """As `Ops.add_norm`."""
        out = torch.empty_like(x)
        rows, size = x.shape
        self._add_norm(
            x.data_ptr(),
            None if delta is None else delta.data_ptr(),
            self.wide_weight(weight),
            out.data_ptr(),
            rows,
            size,
            self._layout.eps,
            self._threads,
        )
        return out

    def attend(self, qkv: torch.Tensor, layer: Layer, pages: LayerPages) -> torch.Tensor:
        """As `Ops.attend`; `qkv` is changed."""
        layout, batch = self._layout, self._batch
        assert pages.keys is not None
        assert pages.values is not None
        self._rotate_and_write(
            qkv.data_ptr(),
            layout.cos.data_ptr(),
            layout.sin.data_ptr(),
            batch.positions.data_ptr(),
            batch.slot_mapping.data_ptr(),
            pages.keys.data_ptr(),
            pages.values.data_ptr(),
            self.wide_weight(layer.query_norm),
            self.wide_weight(layer.key_norm),
            layout.eps,
            len(qkv),
            layout.num_heads,
            layout.num_kv_heads,
            layout.head_dim,
            self._threads,
        )
        out = torch.empty(len(qkv), layout.num_heads * layout.head_dim, dtype=qkv.dtype)
        if self._queries.shape[1]:
            self._attend_short(qkv, layer, pages, out)
        for group in self._long:
            query = qkv.unflatten(-1, (-1, layout.head_dim))[:, : layout.num_heads]
            attend_group(query, pages, group, out.view(len(out), -1, layout.head_dim), scale=None, window=layer.window)
        return out

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As `Ops.gate`."""
        rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, size, dtype=gate_up.dtype)
        self._gate(gate_up.data_ptr(), out.data_ptr(), rows, size, self._threads)
        return out

    def _attend_short(self, qkv: torch.Tensor, layer: Layer, pages: LayerPages, out: torch.Tensor) -> None:
        assert pages.keys is not None
        assert pages.values is not None
        layout = self._layout
        self._attend(
            qkv.data_ptr(),
            pages.keys.data_ptr(),
            pages.values.data_ptr(),
            self._tables.data_ptr(),
            *self._query_places,
            self._queries.shape[1],
            layer.window or 0,
            qkv.shape[1],
            layout.num_heads,
            layout.num_kv_heads,
            layout.head_dim,
            pages.keys.shape[1],
            self._tables.shape[1],
            self._scale,
            out.data_ptr(),
            self._threads,
        )

    def wide_weight(self, weight: torch.Tensor | None) -> int | None:
        """Give the address of a norm's weight in float32."""
        if weight is None:
            return None
        wide = self._wide.get(weight.data_ptr())
        if wide is None:
            wide = self._wide[weight.data_ptr()] = weight.float()
        return wide.data_ptr()

    def _set_types(self) -> None:
        pointer, number, real, count = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
        self._add_norm.argtypes = [pointer] * 4 + [number] * 2 + [real, count]
        self._gate.argtypes = [pointer] * 2 + [number] * 2 + [count]
        self._rotate_and_write.argtypes = [pointer] * 9 + [real] + [number] * 4 + [count]
        self._attend.argtypes = [pointer] * 7 + [number] * 8 + [real, pointer, count]
        for function in (self._add_norm, self._gate, self._rotate_and_write, self._attend):
            function.restype = None


@lru_cache(maxsize=8)
def load_library(source: Path = SOURCE) -> ctypes.CDLL | None:
    """Compile a source, or take what was compiled before; None, with a line in the log, where that does not work."""
    compiler = next((found for name in ("c++", "g++", "clang++") if (found := shutil.which(name))), None)
    if compiler is None:
        logger.info("no C++ compiler here: PyTorch's operations are used between the matrix products")
        return None
    try:
        return ctypes.CDLL(str(_build(compiler, source)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: no home folder
        logger.warning("the CPU kernels could not be compiled, PyTorch's operations are used instead: %s", _reason(error))
        return None


def _build(compiler: str, source: Path) -> Path:
    name = hashlib.sha256("\n".join([compiler, *FLAGS, source.read_text(encoding="utf-8"), _cpu()]).encode()).hexdigest()[:24]
    target = _cache_folder() / f"{source.stem}-{name}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "kernels.so"
            command = [compiler, *FLAGS, str(source), "-o", str(made)]
            try:
                _run([*command, "-fopenmp"])
            except subprocess.CalledProcessError:
                _run(command)  # a compiler without OpenMP: one thread
            made.replace(target)
    return target


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thinkgate"


def _cpu() -> str:
    """What the compiler's `native` means here: a cache folder may be shared by machines."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor() or platform.machine())


def _reason(error: Exception) -> str:
    return str(getattr(error, "stderr", None) or error).strip()[:500]
