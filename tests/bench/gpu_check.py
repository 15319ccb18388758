"""What nobody could run where this was written: the engine on one CUDA device, in under five minutes.

Kernels against their references, float32 answers against `transformers.generate`, the CUDA-graph path against the eager one, and
tokens per second of all three. `--device cpu` is a rehearsal: the same checks with small sizes, Triton in its interpreter, and
stand-ins for flash attention and for the graphs. It says that this script works, and nothing about a GPU.

    python tests/bench/gpu_check.py [--device cpu] [--model NAME] [--quick] [--json FILE]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from gpu_checks import GpuChecks
from reporting import make_parser, print_table, write_json

from engine import resolve_model


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks and print a table; 1 where one fails, or without the device."""
    parser = make_parser("the engine on one CUDA device")
    parser.add_argument("--model", default="pocket-r1", help="model to run (default %(default)s)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ..., or cpu for a rehearsal (default %(default)s)")
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here; nothing was checked. --device cpu rehearses the script", file=sys.stderr)
        return 1
    if device.type == "cpu":
        # Read when triton is imported, which nothing here has done yet.
        os.environ["TRITON_INTERPRET"] = "1"
    rows = run_checks(GpuChecks(resolve_model(args.model), device, is_quick=args.quick).all())
    print_table(torch.cuda.get_device_name(device) if device.type == "cuda" else "rehearsal on the CPU, on stand-ins", rows)
    write_json(args.json, "gpu_check", rows, is_quick=args.quick)
    return int(any(row["verdict"] != "right" for row in rows))


def run_checks(checks: dict[str, Callable[[], str]]) -> list[dict[str, str]]:
    """Run every check, whatever happens to another."""
    rows = []
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            verdict, result = "right", check()
        except Exception as error:  # of whatever kind: it belongs into the table
            verdict, result = "WRONG", f"{type(error).__name__}: {error}".splitlines()[0]
        rows.append({"check": name, "verdict": verdict, "result": result, "seconds": f"{time.perf_counter() - began:.1f}"})
        print("...", *rows[-1].values(), file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
