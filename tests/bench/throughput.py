"""Tokens per second beside `transformers.generate`, and structured against free, all in one run.

Contenders of a row take turns (A, B, A, B ...) and the best round of each counts, so that other work on the machine falls on all.
Parts: decoding at several batch sizes; requests of mixed lengths that arrive over time (the peer collects what has come and runs
it as one padded batch, which is what can be done with `generate`); and the same answers with and without a grammar.

    python tests/bench/fetch_smollm2.py
    python tests/bench/throughput.py [--quick] [--json FILE] [--model FOLDER] [--dtype DTYPE] [--parts PARTS]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from fetch_smollm2 import FOLDER
from reporting import make_parser, print_table, write_json
from transformers import AutoModelForCausalLM

from engine import EngineConfig, GrammarSpec, LLMEngine, SamplingParams, resolve_model
from engine.pocket.orders import Order, held_out_orders

PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 20},
        "last_name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "is_member": {"type": "boolean"},
        "favourite_colour": {"enum": ["red", "green", "blue", "yellow"]},
    },
    "required": ["first_name", "last_name", "age", "is_member", "favourite_colour"],
    "additionalProperties": False,
}
LINE = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "maxLength": 24},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
        "unit_price": {"type": "integer", "minimum": 1, "maximum": 9999},
    },
    "required": ["description", "quantity", "unit_price"],
    "additionalProperties": False,
}
INVOICE = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "string", "pattern": "^INV-[0-9]{6}$"},
        "issue_date": {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"},
        "currency": {"enum": ["EUR", "USD", "GBP", "CHF"]},
        "customer_name": {"type": "string", "maxLength": 24},
        "payment_status": {"enum": ["paid", "unpaid", "overdue"]},
        "line_items": {"type": "array", "items": LINE, "minItems": 2, "maxItems": 2},
        "total_amount": {"type": "integer", "minimum": 1, "maximum": 999999},
    },
    "required": [
        "invoice_number",
        "issue_date",
        "currency",
        "customer_name",
        "payment_status",
        "line_items",
        "total_amount",
    ],
    "additionalProperties": False,
}
TEXTS = (
    "The history of the city begins with a small settlement at the river, where merchants from the north",
    "To make a good soup, one needs a large pot, fresh vegetables and some patience. First",
    "The committee met on Monday to discuss the new rules for the library. The chair said that",
    "In the garden behind the house there stood an old apple tree, and every autumn",
)
FACTS = "Maria Keller is 34 years old, likes the colour green and has been a member of the club since last year."
LEDGER = (
    "Invoice INV-204518 of 2024-03-17 to Nordwind Trading in EUR, unpaid: 12 desk lamps at 45 each and 3 oak shelves at 210 "
    "each, 1170 in total."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; throughputs in tokens per second of the best round."""

    model: str
    what: str
    batch: int
    ours: float
    peer: float
    peer_name: str

    @property
    def ratio(self) -> float:
        """How many times as fast we are."""
        return round(self.ours / self.peer, 2)


Contender = Callable[[], int]
"""Does one round and gives the number of tokens that were asked for."""


def compete(ours: Contender, peer: Contender, *, rounds: int) -> tuple[float, float]:
    """Let both take turns; tokens per second of the best round of each."""
    best = [0.0, 0.0]
    for _ in range(rounds):
        for index, contender in enumerate((ours, peer)):
            began = time.perf_counter()
            num_tokens = contender()
            best[index] = max(best[index], num_tokens / (time.perf_counter() - began))
    print(f"... {best[0]:.1f} beside {best[1]:.1f} tokens per second", file=sys.stderr, flush=True)
    return round(best[0], 1), round(best[1], 1)


class Bench:
    """One model in our engine and in transformers, same dtype."""

    def __init__(self, name: str, source: str, dtype: str, *, rounds: int, num_tokens: int) -> None:
        self.name = f"{name} {dtype}"
        self.rounds = rounds
        self.num_tokens = num_tokens
        config = EngineConfig(model=source, dtype=dtype, max_num_seqs=32, max_model_len=2048, prefix_caching=False)
        self.engine = LLMEngine(config)
        self.plain = LLMEngine(
            EngineConfig(model=source, dtype=dtype, max_num_seqs=32, max_model_len=2048, prefix_caching=False, max_draft_tokens=0)
        )
        self.model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype)).eval()
        self.pad_id: int = self.engine.tokenizer.eos_token_id

    def close(self) -> None:
        """Stop the engines."""
        self.engine.close()
        self.plain.close()

    def prompts(self, count: int) -> list[list[int]]:
        """Prompts of different lengths and beginnings."""
        encode = self.engine.tokenizer.encode
        return [encode(f"{index}. {TEXTS[index % len(TEXTS)]}", add_special_tokens=False) for index in range(count)]

    def peer_batch(self, prompts: Sequence[Sequence[int]], num_tokens: int) -> None:
        """Run `transformers.generate` on left-padded prompts, all to the same length."""
        width = max(len(prompt) for prompt in prompts)
        padded = [[self.pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self.model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=self.pad_id,
        )

    def decode(self, batch: int) -> Row:
        """Equally long answers that all begin at once, without drafts."""
        prompts = self.prompts(batch)
        total = batch * self.num_tokens

        def ours() -> int:
            self.plain.generate(prompts, SamplingParams(max_tokens=self.num_tokens, ignore_eos=True))
            return total

        def peer() -> int:
            self.peer_batch(prompts, self.num_tokens)
            return total

        return Row(self.name, "decode", batch, *compete(ours, peer, rounds=self.rounds), "transformers.generate")

    def arrivals(self, count: int, *, interval_s: float) -> Row:
        """Prompts of 10 to 200 tokens and answers of 8 to 128, arriving over time."""
        rng = random.Random(7)
        base = self.prompts(count)
        jobs = []
        clock = 0.0
        for index in range(count):
            prompt = (base[index] * 10)[: rng.randint(10, 200)]
            jobs.append((clock, prompt, min(128, 8 + int(rng.expovariate(1 / 40)))))
            clock += rng.expovariate(1 / interval_s)
        total = sum(wanted for _, _, wanted in jobs)

        def ours() -> int:
            serve_ours(self.plain, jobs)
            return total

        def peer() -> int:
            serve_peer(self, jobs)
            return total

        return Row(
            self.name, "mixed arrivals", count, *compete(ours, peer, rounds=max(2, self.rounds - 2)), "generate, collected"
        )

    def structured(self, what: str, schema: dict[str, Any], question: str, batch: int, *, drafts: bool) -> Row:
        """The same number of tokens with a grammar and without one."""
        spec = GrammarSpec.from_json_schema(schema)
        messages = [[{"role": "user", "content": f"{question} ({index})"}] for index in range(batch)]
        prompts = [self.engine.render(each) for each in messages]
        engine = self.engine if drafts else self.plain
        params = SamplingParams(max_tokens=300)
        lengths = [len(output.token_ids) for output in engine.generate(prompts, params, grammars=spec, on_unknown="constrain")]

        def ours() -> int:
            return sum(
                len(output.token_ids) for output in engine.generate(prompts, params, grammars=spec, on_unknown="constrain")
            )

        def free() -> int:
            self.plain.generate(prompts, [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths])
            return sum(lengths)

        name = f"{what}, {'drafts' if drafts else 'no drafts'}"
        return Row(self.name, name, batch, *compete(ours, free, rounds=self.rounds), "free text, same engine")


Job = tuple[float, list[int], int]


def serve_ours(engine: LLMEngine, jobs: Sequence[Job]) -> None:
    """Submit each job when it arrives and step until all are done."""
    began = time.perf_counter()
    waiting = list(enumerate(jobs))
    while waiting or engine.has_unfinished():
        while waiting and waiting[0][1][0] <= time.perf_counter() - began:
            index, (_, prompt, wanted) = waiting.pop(0)
            engine.add_request(str(index), prompt, SamplingParams(max_tokens=wanted, ignore_eos=True))
        if engine.has_unfinished():
            engine.step()
        elif waiting:
            time.sleep(0.001)


def serve_peer(bench: Bench, jobs: Sequence[Job]) -> None:
    """Run what has arrived as one batch of at most 16, to the longest answer in it, and look again."""
    began = time.perf_counter()
    waiting = list(jobs)
    while waiting:
        ready = [job for job in waiting if job[0] <= time.perf_counter() - began][:16]
        if not ready:
            time.sleep(0.001)
            continue
        waiting = waiting[len(ready) :]
        bench.peer_batch([prompt for _, prompt, _ in ready], max(wanted for _, _, wanted in ready))


def run_general(args: argparse.Namespace, parts: set[str]) -> list[Row]:
    """SmolLM2, which does not think."""
    bench = Bench("SmolLM2-135M", args.model, args.dtype, rounds=2 if args.quick else 4, num_tokens=12 if args.quick else 40)
    rows = []
    if "decode" in parts:
        rows += [bench.decode(batch) for batch in ((1, 16) if args.quick else (1, 8, 16))]
    if "arrivals" in parts:
        rows.append(bench.arrivals(6 if args.quick else 32, interval_s=0.1))
    if "structured" in parts:
        person, invoice = f"Who is this? {FACTS}", f"Read this invoice. {LEDGER}"
        rows.append(bench.structured("person", PERSON, "Invent a person.", 16, drafts=False))
        rows.append(bench.structured("person", PERSON, "Invent a person.", 1, drafts=True))
        if args.quick:
            bench.close()
            return rows
        rows.append(bench.structured("invoice", INVOICE, "Invent an invoice.", 1, drafts=True))
        rows.append(bench.structured("person from text", PERSON, person, 1, drafts=True))
        rows.append(bench.structured("invoice from text", INVOICE, invoice, 1, drafts=True))
    bench.close()
    return rows


def run_pocket(args: argparse.Namespace, parts: set[str]) -> list[Row]:
    """The pocket model, in float32 as users get it; thinking and all for the structured part."""
    bench = Bench("pocket-r1", resolve_model("pocket-r1"), "float32", rounds=3, num_tokens=40 if args.quick else 80)
    rows = []
    if "decode" in parts:
        rows += [bench.decode(batch) for batch in (1, 16)]
    if "arrivals" in parts:
        rows.append(bench.arrivals(12 if args.quick else 32, interval_s=0.02))
    if "structured" in parts:
        [sample] = held_out_orders(1)
        for batch, drafts in ((16, False), (1, True)):
            rows.append(bench.structured("order", Order.model_json_schema(), sample.text, batch, drafts=drafts))
    bench.close()
    return rows


def main() -> None:
    """Run the command line."""
    parser = make_parser("throughput of the engine beside transformers.generate, and structured against free")
    parser.add_argument("--model", default=str(FOLDER), help="folder of the general model (default %(default)s)")
    parser.add_argument("--dtype", default="bfloat16", help="of the general model (default %(default)s)")
    parser.add_argument("--parts", default="decode,arrivals,structured", help="which parts to run (default %(default)s)")
    parser.add_argument("--only", choices=("general", "pocket"), help="one of the two models")
    args = parser.parse_args()
    parts = set(args.parts.split(","))
    rows: list[Row] = []
    if args.only != "pocket":
        rows += run_general(args, parts)
    if args.only != "general":
        rows += run_pocket(args, parts)
    table = [asdict(row) | {"ratio": row.ratio} for row in rows]
    print_table(f"tokens per second, best round, {torch.get_num_threads()} threads", table)
    write_json(args.json, "throughput", table, is_quick=args.quick)


if __name__ == "__main__":
    main()
