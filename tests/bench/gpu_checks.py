"""The checks of `gpu_check.py`: each gives what it found in words, and raises where something is wrong."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM

from engine import EngineConfig, GrammarSpec, LLMEngine, RequestOutput, SamplingParams, model_runner
from engine.fast_path import cuda
from engine.fast_path.cuda import GraphForward, VarlenOps
from engine.fast_path.forward import FlatForward
from engine.fast_path.torch_ops import TorchOps
from engine.grammar.kernels import make_kernel
from engine.model_runner import CHECK_TOLERANCE
from tests.engine.bitmask_oracle import WIDTHS, check_kernel
from tests.engine.cuda_stand_ins import GraphOnCpu, capture_on_cpu, varlen_on_cpu
from tests.engine.flat_batches import LENGTHS, new_batch, new_layer, new_layout
from tests.engine.parity import MARGIN, SPEC, Parity

PROMPTS = [[5 + index, 9, 7 + index % 3, 40] * (1 + index % 5) for index in range(16)]
KERNELS = {"cuda": ("triton", "torch", "torch_compile", "xgrammar"), "cpu": ("native", "numpy", "torch", "triton", "xgrammar")}
HEADS = ((4, 4, 32), (9, 3, 64), (14, 2, 64), (32, 8, 128))
LONG = {"long": [(1, 700), (300, 600), (1, 257), (1, 256)]}
"""More than one block of flash attention's size."""


class DifferentError(Exception):
    """Two ways to the same numbers have led to others."""


class GpuChecks:
    """The checks for one model on one device.

    Args:
        model: Folder of the model.
        device: CUDA, or the CPU for a rehearsal.
        is_quick: Whether to take smaller sizes.
    """

    def __init__(self, model: str, device: torch.device, *, is_quick: bool) -> None:
        self._model = model
        self._device = device
        self._is_rehearsal = device.type == "cpu"
        self._is_quick = is_quick
        self._graphs: type[GraphForward] = GraphOnCpu if self._is_rehearsal else GraphForward
        self._sizes = [1, 2, 4] if self._is_rehearsal else [1, 2, 4, 8, 16]
        self._num_tokens = (6 if is_quick else 12) if self._is_rehearsal else (32 if is_quick else 128)

    def all(self) -> dict[str, Callable[[], str]]:
        """Give the checks by name, the quick ones first."""
        return {
            "bitmask kernels against NumPy": self.check_bitmasks,
            "flash attention over blocks against PyTorch": self.check_attention,
            "greedy float32 against transformers": self.check_parity,
            "CUDA graphs against float32": self.check_graphs,
            "tokens per second, batch 1": lambda: self.measure(1),
            f"tokens per second, batch {self._sizes[-1]}": lambda: self.measure(self._sizes[-1]),
        }

    def check_bitmasks(self) -> str:
        """Compare every kernel for this device with the oracle."""
        widths = (33, 4097) if self._is_rehearsal else (*WIDTHS, 151_936)
        counts = {}
        for name in KERNELS[self._device.type]:
            kernel = make_kernel(name)
            if kernel is not None:
                counts[name] = check_kernel(kernel, widths=widths, device=self._device)
        if not counts.keys() & {"triton", "native"}:
            raise DifferentError(f"no kernel but {', '.join(counts)} here")
        return ", ".join(f"{name} {count} tables" for name, count in counts.items())

    def check_attention(self) -> str:
        """Compare flash attention over blocks with scaled dot products over gathered ones."""
        dtypes = (torch.bfloat16,) if self._is_quick else (torch.bfloat16, torch.float16)
        count, most = 0, 0.0
        for dtype in dtypes:
            for heads, kv_heads, dim in HEADS[:2] if self._is_rehearsal else HEADS:
                for lengths in (LENGTHS if self._is_rehearsal else LENGTHS | LONG).values():
                    for window in (None, 10):
                        most = max(most, self._attention_difference(lengths, dtype, (heads, kv_heads, dim), window))
                        count += 1
        if not most <= 0.05:
            raise DifferentError(f"{most:.3g} off, of values of about 1")
        return f"{count} batches, at most {most:.2g} off"

    def check_parity(self) -> str:
        """Compare answers, free and constrained, with transformers alone: token for token."""
        num_prompts = (8 if self._is_quick else 16) if self._is_rehearsal else 60
        # A device sums in an order of its own, also in float32.
        parity = Parity(self._model, num_prompts, device=str(self._device), margin=MARGIN if self._is_rehearsal else 1e-3)
        reports = [parity.check(batch) for batch in ((4,) if self._is_rehearsal else (1, 16))]
        different = [text for report in reports for text in report.different]
        if different:
            raise DifferentError("; ".join(different[:3]))
        equal, ties = (sum(getattr(report, name) for report in reports) for name in ("num_equal", "num_ties"))
        return f"{equal} answers equal, {ties} but for a tie; {sum(report.num_tokens for report in reports)} tokens"

    def check_graphs(self) -> str:
        """Check every token of the graph path in bfloat16: near the likeliest of transformers in float32; graphs of all sizes."""
        with self._engine(self._graphs) as engine:
            for size in self._sizes:
                outputs = self._generate(engine, size)
            sizes = engine._runner._forward.captured_sizes  # type: ignore[attr-defined]
            stop_ids = list(engine._loaded.stop_token_ids)
        if sizes != self._sizes:
            raise DifferentError(f"only graphs of {sizes} sequences were captured; the log says why")
        num_likeliest, num_tokens, most = self._judge(outputs, stop_ids)
        if not most <= CHECK_TOLERANCE[torch.bfloat16]:
            raise DifferentError(f"a token is {most:.2g} of the largest logit below the likeliest")
        with self._engine(FlatForward) as engine:
            eager = self._generate(engine, self._sizes[-1])
        same = sum(a == b for x, y in zip(eager, outputs, strict=True) for a, b in zip(x.token_ids, y.token_ids, strict=True))
        share = f"{num_likeliest} of {num_tokens} tokens are float32's, the others at most {most:.2g} below"
        return f"{share}; {same} are the eager way's"

    def measure(self, batch: int) -> str:
        """Measure the ways with `batch` sequences, free and under a schema; the second round counts."""
        found = []
        for name, way in (("graphs", self._graphs), ("eager", FlatForward)):
            with self._engine(way) as engine:
                found.append(f"{name} {self._speed(engine, batch, None):.0f}")
                found.append(f"{name} with schema {self._speed(engine, batch, SPEC):.0f}")
        found.append(f"transformers {self._peer_speed(batch):.0f}")
        return ", ".join(found)

    def _attention_difference(
        self, lengths: list[tuple[int, int]], dtype: torch.dtype, heads: tuple[int, int, int], window: int | None
    ) -> float:
        num_heads, num_kv_heads, dim = heads
        layout = new_layout(dtype, heads=num_heads, kv_heads=num_kv_heads, dim=dim, device=self._device)
        layer = new_layer(norm=None, window=window)
        torch.manual_seed(2)
        width = (num_heads + 2 * num_kv_heads) * dim
        qkv = torch.randn(sum(query_len for query_len, _ in lengths), width).to(self._device, dtype)
        results = []
        for ops in (TorchOps(layout), VarlenOps(layout, attention=varlen_on_cpu if self._is_rehearsal else None)):
            block_size = 4 if self._is_rehearsal else 256
            batch, cache = new_batch(lengths, layout, device=self._device, block_size=block_size)
            ops.begin(batch)
            results.append(ops.attend(qkv.clone(), layer, cache.layers[0]).float())
        return float((results[0] - results[1]).abs().max())

    @contextlib.contextmanager
    def _engine(self, way: Callable[..., Any]) -> Iterator[LLMEngine]:
        # Without drafts, so that all steps that decode are those that graphs take.
        config = EngineConfig(
            model=self._model, device=str(self._device), dtype="bfloat16", prefix_caching=False, max_draft_tokens=0
        )
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(model_runner, "WAYS", (way,)))
            if self._is_rehearsal:
                stack.enter_context(patch.object(cuda, "capture", capture_on_cpu))
            engine = LLMEngine(config)
            try:
                yield engine
            finally:
                engine.close()

    def _generate(self, engine: LLMEngine, batch: int, spec: GrammarSpec | None = None) -> list[RequestOutput]:
        params = SamplingParams(max_tokens=self._num_tokens if spec is None else 60, ignore_eos=spec is None)
        outputs = engine.generate(PROMPTS[:batch], params, grammars=spec, on_unknown="constrain")
        for output in outputs:
            if output.error is not None:
                raise output.error
        return outputs

    @torch.no_grad()
    def _judge(self, outputs: list[RequestOutput], stop_ids: list[int]) -> tuple[int, int, float]:
        """Give the tokens that are float32's likeliest, all tokens, and how far the others lie below, as a share of the logit."""
        model = self._peer(torch.float32)
        num_likeliest, num_tokens, most = 0, 0, 0.0
        for output in outputs:
            prompt_ids, token_ids = output.prompt_token_ids, torch.tensor(output.token_ids, device=self._device)
            input_ids = torch.tensor([[*prompt_ids, *output.token_ids]], device=self._device)
            logits = model(input_ids=input_ids).logits[0, len(prompt_ids) - 1 : -1]
            scale = logits.abs().amax(dim=-1)
            logits[:, stop_ids] = -torch.inf  # as in the engine, which was told to go on
            below = (logits.amax(dim=-1) - logits.gather(-1, token_ids[:, None])[:, 0]) / scale
            num_likeliest += int((below == 0).sum())
            num_tokens += len(token_ids)
            most = max(most, float(below.max()))
        return num_likeliest, num_tokens, most

    def _speed(self, engine: LLMEngine, batch: int, spec: GrammarSpec | None) -> float:
        self._generate(engine, batch, spec)
        began = time.perf_counter()
        outputs = self._generate(engine, batch, spec)
        return sum(len(output.token_ids) for output in outputs) / (time.perf_counter() - began)

    def _peer(self, dtype: torch.dtype) -> Any:
        return AutoModelForCausalLM.from_pretrained(self._model, dtype=dtype).eval().to(self._device)

    def _peer_speed(self, batch: int) -> float:
        model = self._peer(torch.bfloat16)
        input_ids = torch.tensor([prompt[:4] for prompt in PROMPTS[:batch]], device=self._device)
        options = {"max_new_tokens": self._num_tokens, "min_new_tokens": self._num_tokens, "do_sample": False}
        seconds = 0.0
        for _ in range(2):
            began = time.perf_counter()
            model.generate(input_ids, attention_mask=torch.ones_like(input_ids), **options).tolist()
            seconds = time.perf_counter() - began
        return batch * self._num_tokens / seconds
