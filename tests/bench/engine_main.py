"""The command line of `engine.py`: which parts run on which model, and the targets of each row."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from engine_speed import FREE, GENERATE, NO_DRAFTS, VLLM, Row, SpeedBench
from engine_workloads import FACTS, INVOICE, LEDGER, PERSON
from fetch_smollm2 import FOLDER
from reporting import make_parser, print_table, write_json
from setup_vllm_cpu import FOLDER as VLLM_FOLDER

from engine import resolve_model
from engine.pocket.orders import Order, held_out_orders
from tests.engine.parity import Parity

PARTS = ("parity", "decode", "arrivals", "structured", "drafts", "mask")
DECODE_TARGETS = {1: {GENERATE: 1.5, VLLM: 1.0}, 16: {GENERATE: 1.5, VLLM: 1.0}}
ARRIVALS_TARGET = 2.5
BATCHED_TARGET = 0.98
"""Structured beside free at batch 16."""
DRAFTS_TARGET = 0.95
"""Default settings beside no drafts: drafts may cost a few percent where they gain nothing."""
MASK_SHARE = Path(__file__).with_name("mask_share.py")


def run_general(args: argparse.Namespace, parts: set[str]) -> list[Row]:
    """Measure SmolLM2, which does not think."""
    bench = SpeedBench(
        "SmolLM2-135M",
        args.model,
        args.dtype,
        rounds=2 if args.quick else 4,
        num_tokens=12 if args.quick else 40,
        vllm_python=args.vllm if args.vllm.exists() else None,
    )
    begin(args)
    rows = []
    if "decode" in parts:
        for batch in (1, 16) if args.quick else (1, 8, 16):
            rows += bench.decode(batch, DECODE_TARGETS.get(batch, {}))
    if "arrivals" in parts:
        rows += bench.arrivals(6 if args.quick else 32, interval_s=0.1, target=ARRIVALS_TARGET)
    if "structured" in parts:
        rows += bench.structured("person", PERSON, "Invent a person.", 16, {FREE: BATCHED_TARGET, NO_DRAFTS: DRAFTS_TARGET})
        for what, schema, question, target in single_answers(is_quick=args.quick):
            rows += bench.structured(what, schema, question, 1, {FREE: target, NO_DRAFTS: DRAFTS_TARGET})
    if "drafts" in parts:
        for batch in (1,) if args.quick else (1, 16):
            rows += bench.free_text(batch, DRAFTS_TARGET)
    bench.close()
    return rows


def begin(args: argparse.Namespace) -> None:
    """Wait for a line where that is asked for."""
    print("ready", file=sys.stderr, flush=True)
    if args.wait:
        sys.stdin.readline()


def single_answers(*, is_quick: bool) -> list[tuple[str, dict[str, Any], str, float]]:
    """Give name, schema, question and target of the answers at batch 1; what is asked for is invented or copied."""
    cases = [
        ("person", PERSON, "Invent a person.", 1.4),
        ("invoice", INVOICE, "Invent an invoice.", 1.8),
        ("person from text", PERSON, f"Who is this? {FACTS}", 2.0),
        ("invoice from text", INVOICE, f"Read this invoice. {LEDGER}", 2.0),
    ]
    return cases[:1] if is_quick else cases


def run_pocket(args: argparse.Namespace, parts: set[str]) -> list[Row]:
    """Measure the pocket model in float32, as users get it; thinking and all for the structured part."""
    bench = SpeedBench(
        "pocket-r1", resolve_model("pocket-r1"), "float32", rounds=3 if args.quick else 5, num_tokens=40 if args.quick else 80
    )
    begin(args)
    rows = []
    if "decode" in parts:
        for batch in (1, 16):
            rows += bench.decode(batch, DECODE_TARGETS[batch])
    if "arrivals" in parts:
        rows += bench.arrivals(12 if args.quick else 32, interval_s=0.02, target=ARRIVALS_TARGET)
    if "structured" in parts:
        [sample] = held_out_orders(1)
        schema = Order.model_json_schema()
        rows += bench.structured("order", schema, sample.text, 16, {FREE: BATCHED_TARGET, NO_DRAFTS: DRAFTS_TARGET})
        rows += bench.structured("order", schema, sample.text, 1, {NO_DRAFTS: DRAFTS_TARGET})
    if "drafts" in parts:
        for batch in (1, 16):
            rows += bench.free_text(batch, DRAFTS_TARGET)
    bench.close()
    return rows


def run_parity(args: argparse.Namespace) -> list[dict[str, object]]:
    """Compare answers with those of `transformers.generate`."""
    sources = {"pocket-r1": resolve_model("pocket-r1"), "SmolLM2-135M": args.model}
    names = ["pocket-r1"] if args.quick or args.only == "pocket" else ["SmolLM2-135M"] if args.only else list(sources)
    rows: list[dict[str, object]] = []
    for name in names:
        parity = Parity(sources[name], 24 if args.quick else 200)
        for batch in (1, 16) if args.quick else (1, 4, 16, 32):
            report = parity.check(batch)
            rows.append(
                {
                    "model": f"{name} float32",
                    "batch": batch,
                    "prompts": len(parity.prompts),
                    "tokens": report.num_tokens,
                    "equal": report.num_equal,
                    "ties": report.num_ties,
                    "different": len(report.different),
                    "preemptions": report.num_preemptions,
                    "known tokens": report.num_prefix_hit_tokens,
                }
            )
            print("...", rows[-1], *report.different, file=sys.stderr, flush=True)
    return rows


def run_mask_share(args: argparse.Namespace) -> int:
    """Let `mask_share.py` print its own table."""
    if not MASK_SHARE.exists():
        print("mask_share.py is not here", file=sys.stderr)
        return 0
    return subprocess.run([sys.executable, str(MASK_SHARE), *(["--quick"] if args.quick else [])], check=False).returncode


def parse(description: str, arguments: Sequence[str] | None) -> tuple[argparse.Namespace, set[str]]:
    """Read the command line; says what is wrong with it."""
    parser = make_parser(description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", default=str(FOLDER), help="folder of the general model (default %(default)s)")
    parser.add_argument("--dtype", default="bfloat16", help="of the general model (default %(default)s)")
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts to run (default %(default)s)")
    parser.add_argument("--only", choices=("general", "pocket"), help="one of the two models")
    python = VLLM_FOLDER / "bin" / "python"
    parser.add_argument("--vllm", type=Path, default=python, help="Python that has vLLM (default %(default)s)")
    parser.add_argument("--wait", action="store_true", help="wait for a line on standard input once a model is loaded")
    args = parser.parse_args(arguments)
    parts = set(args.parts.split(","))
    if not parts <= set(PARTS):
        parser.error(f"no part {', '.join(sorted(parts - set(PARTS)))}; there are {', '.join(PARTS)}")
    if args.only != "pocket" and not Path(args.model).is_dir():
        parser.error(f"no folder {args.model}: run tests/bench/fetch_smollm2.py, or say --only pocket")
    return args, parts


def main(description: str, arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if an answer differs or the mask bench fails."""
    args, parts = parse(description, arguments)
    parity = run_parity(args) if "parity" in parts else []
    rows: list[Row] = []
    if parts - {"parity", "mask"}:
        rows += run_general(args, parts) if args.only != "pocket" else []
        rows += run_pocket(args, parts) if args.only != "general" else []
    if parity:
        print_table("answers beside transformers.generate", parity)
    speeds = [row.as_dict() for row in rows]
    if speeds:
        print_table(f"tokens per second, best round, {torch.get_num_threads()} threads", speeds)
    write_json(args.json, "engine", {"parity": parity, "speed": speeds}, is_quick=args.quick)
    status = run_mask_share(args) if "mask" in parts else 0
    return int(status != 0 or any(row["different"] for row in parity))
