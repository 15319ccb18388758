"""What nobody could run where this was written: the engine on one CUDA device, in under five minutes.

Parity with `transformers.generate` in float32, the bitmask kernel against the CPU's, flash attention over blocks against plain
PyTorch, the CUDA-graph path against the eager one, and tokens per second of both.

    python tests/bench/gpu_check.py [--json FILE] [--model NAME] [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from reporting import make_parser, print_table, write_json
from transformers import AutoModelForCausalLM

from engine import EngineConfig, LLMEngine, SamplingParams, model_runner, resolve_model
from engine.fast_path.cuda import GraphForward
from engine.fast_path.forward import FlatForward
from engine.grammar import apply_token_bitmask_inplace, new_bitmask

PROMPTS = [[5 + index, 9, 7 + index % 3, 40] * (1 + index % 5) for index in range(16)]
WIDTHS = (31, 32, 33, 32_001, 151_936)


def run_engine(model: str, dtype: str, way: Any, num_tokens: int) -> tuple[list[list[int]], float, str]:
    """Generate with one way to run the model: tokens, seconds of the second round, name of the way."""
    usual = model_runner.WAYS
    model_runner.WAYS = (way,) if way is not None else usual
    try:
        config = EngineConfig(model=model, device="cuda", dtype=dtype, prefix_caching=False, max_draft_tokens=0)
        engine = LLMEngine(config)
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        engine.generate(PROMPTS, params)
        torch.cuda.synchronize()
        began = time.perf_counter()
        outputs = engine.generate(PROMPTS, params)
        seconds = time.perf_counter() - began
        name = engine._runner.way
        engine.close()
    finally:
        model_runner.WAYS = usual
    return [output.token_ids for output in outputs], seconds, name


def check_parity(model: str, num_tokens: int) -> str:
    """Compare greedy float32 answers with transformers alone."""
    ours, _, way = run_engine(model, "float32", None, num_tokens)
    theirs: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    theirs.to("cuda").eval()
    num_equal = 0
    for prompt, token_ids in zip(PROMPTS, ours, strict=True):
        out = theirs.generate(
            torch.tensor([prompt], device="cuda"), max_new_tokens=num_tokens, min_new_tokens=num_tokens, do_sample=False
        )
        num_equal += out[0, len(prompt) :].tolist() == token_ids
    return f"{num_equal} of {len(PROMPTS)} equal ({way})"


def check_graphs(model: str, num_tokens: int) -> str:
    """Compare the graph path with the eager one in bfloat16, answers and speed."""
    eager, eager_s, _ = run_engine(model, "bfloat16", FlatForward, num_tokens)
    graphs, graphs_s, _ = run_engine(model, "bfloat16", GraphForward, num_tokens)
    same = sum(a == b for x, y in zip(eager, graphs, strict=True) for a, b in zip(x, y, strict=True))
    total = num_tokens * len(PROMPTS)
    return f"{same} of {total} tokens equal; eager {total / eager_s:.0f}, graphs {total / graphs_s:.0f} tokens per second"


def check_bitmask() -> str:
    """Compare the mask kernel on the device with the CPU's."""
    for width in WIDTHS:
        logits = torch.randn(7, width)
        bitmask = new_bitmask(5, width)
        bitmask.random_(-(2**31), 2**31 - 1)
        rows = torch.tensor([6, 0, 2, 3, 5])
        on_device = logits.cuda()
        apply_token_bitmask_inplace(logits, bitmask, rows)
        apply_token_bitmask_inplace(on_device, bitmask.cuda(), rows.cuda())
        if not torch.equal(on_device.cpu(), logits):
            return f"DIFFERENT at width {width}"
    return f"equal at widths {WIDTHS}"


def main() -> int:
    """Run the checks and print a table; 1 without a device."""
    parser = make_parser("the engine on one CUDA device")
    parser.add_argument("--model", default="pocket-r1", help="model to run (default %(default)s)")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here; nothing was checked", file=sys.stderr)
        return 1
    model, num_tokens = resolve_model(args.model), 24 if args.quick else 100
    checks: dict[str, Callable[[], str]] = {
        "greedy float32 against transformers": lambda: check_parity(model, num_tokens),
        "bitmask kernel against the CPU": check_bitmask,
        "CUDA graphs and flash attention": lambda: check_graphs(model, num_tokens),
    }
    rows = []
    for name, check in checks.items():
        try:
            rows.append({"check": name, "result": check()})
        except Exception as error:  # every check is to be seen, whatever happens to another
            rows.append({"check": name, "result": f"FAILED: {error!r}"})
    print_table(torch.cuda.get_device_name(), rows)
    write_json(args.json, "gpu_check", rows, is_quick=args.quick)
    return int(any("FAILED" in row["result"] or "DIFFERENT" in row["result"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
