"""What gate and masks add to a step that the model does not hide: 16 constrained rows over 151,936 columns.

The model is SmolLM2-135M's layers in Qwen3's layout with random weights, under Qwen3's tokenizer: what it writes is nonsense
that obeys the schema, and costs what a real one would. Every step is split into what the engine's own metrics say and what calls
of the gate, the grammar, the closing guard and the drafts take; the same prompts without a grammar stand beside it.

    python tests/bench/mask_share.py [--quick] [--json FILE] [--dtype DTYPE] [--batch N]
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_vocabulary import COLUMNS, BenchVocabulary
from fill_schemas import WRITTEN
from reporting import make_parser, print_table, write_json
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine import EngineConfig, GrammarSpec, LLMEngine, SamplingParams, commit
from engine.grammar.backends.llguidance_matcher import LLGuidanceMatcher
from engine.grammar.backends.xgrammar_backend import _XGrammarMatcher
from engine.grammar.kernels.likeliest import LikeliestKernel
from engine.grammar.memo.memo_matcher import MemoMatcher
from engine.metrics import RequestStats, StepStats
from engine.sequence import Sequence as EngineSequence
from reasoning_parsers import ReasoningGate

WATCHED: tuple[tuple[str, Any, str], ...] = (
    ("gate", ReasoningGate, "commit"),
    ("gate", ReasoningGate, "leftover_in"),
    ("accept", MemoMatcher, "accept_tokens"),
    ("accept", LLGuidanceMatcher, "accept_tokens"),
    ("accept", _XGrammarMatcher, "accept_tokens"),
    ("guard", commit, "_keep_closable"),
    ("drafts", EngineSequence, "propose_drafts"),
    ("look", LikeliestKernel, "__call__"),
)
"""What is timed from outside; calls inside of another watched call count for the outer one."""


def make_model(folder: Path, dtype: str, *, num_layers: int = 30) -> None:
    """Write a model with random weights and a real tokenizer."""
    config = Qwen3Config(
        vocab_size=COLUMNS, hidden_size=576, intermediate_size=1536, num_hidden_layers=num_layers, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, max_position_embeddings=2048, tie_word_embeddings=True, eos_token_id=151645,
    )  # fmt: skip
    torch.manual_seed(7)
    Qwen3ForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    for path in BenchVocabulary().folder.glob("tokenizer*"):
        shutil.copy(path, folder)


class Watch:
    """Times calls while a step runs."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((part for part, _, _ in WATCHED), 0.0)
        self._depth = 0

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Put the timers in and take them out again."""
        originals = [(owner, name, getattr(owner, name)) for _, owner, name in WATCHED]
        for part, owner, name in WATCHED:
            setattr(owner, name, self._timed(part, getattr(owner, name)))
        try:
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **more: Any) -> Any:
            self._depth += 1
            started = time.perf_counter()
            try:
                return function(*arguments, **more)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds[part] += time.perf_counter() - started

        return timed


class Bench:
    """One engine, whose steps are recorded."""

    def __init__(self, model: str, dtype: str, batch: int, *, max_draft_tokens: int) -> None:
        self.steps: list[StepStats] = []
        self.engine = LLMEngine(
            EngineConfig(
                model=model, dtype=dtype, family="qwen3", max_num_seqs=batch, max_model_len=1024, prefix_caching=False,
                max_draft_tokens=max_draft_tokens,
            ),
            observer=self._note,
        )  # fmt: skip
        self.batch = batch

    def _note(self, stats: StepStats | RequestStats) -> None:
        if isinstance(stats, StepStats):
            self.steps.append(stats)

    def run(self, grammar: GrammarSpec | None, *, num_steps: int, max_tokens: int = 600) -> dict[str, float]:
        """Give the mean milliseconds of the parts of a step, of full batches that decode only; then let the requests go.

        Args:
            grammar: Of all of them.
            num_steps: Steps at most.
            max_tokens: Limit of an answer; near it the closing guard looks at every token.
        """
        prompts = [
            self.engine.render([{"role": "user", "content": f"Invent one. ({number})"}], thinking=False)
            for number in range(self.batch)
        ]
        params = [SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True) for number in range(self.batch)]
        for prompt, param, number in zip(prompts, params, range(self.batch), strict=True):
            self.engine.add_request(str(number), prompt, param, grammar=grammar)
        watch = Watch()
        self.steps.clear()
        marks: list[dict[str, float]] = []
        with watch.on():
            while self.engine.has_unfinished() and len(self.steps) <= num_steps:
                before, num_before = dict(watch.seconds), len(self.steps)
                self.engine.step()
                if len(self.steps) > num_before:
                    marks.append({part: watch.seconds[part] - before[part] for part in before})
        for number in range(self.batch):
            self.engine.abort(str(number))
        kept = [
            (step, mark)
            for step, mark in zip(self.steps, marks, strict=True)
            if step.num_scheduled_tokens - step.num_draft_tokens == self.batch and step.num_running == self.batch
        ]
        return {name: 1e3 * statistics.mean(value(step, mark) for step, mark in kept) for name, value in PARTS.items()}


PARTS: dict[str, Callable[[StepStats, dict[str, float]], float]] = {
    "step": lambda step, _: step.step_s,
    "forward": lambda step, _: step.forward_s,
    "fill": lambda step, _: step.fill_s,
    "wait for masks": lambda step, _: step.mask_wait_s,
    "look": lambda _, mark: mark["look"],
    "apply": lambda step, mark: max(0.0, step.apply_s - mark["look"]),
    "gate": lambda _, mark: mark["gate"],
    "accept": lambda _, mark: mark["accept"],
    "guard": lambda _, mark: mark["guard"],
    "drafts": lambda _, mark: mark["drafts"],
    "rows": lambda step, _: step.num_scheduled_tokens / 1e3,
}
NOT_HIDDEN = ("wait for masks", "masks in look", "apply", "gate", "accept", "guard", "drafts")


def measure_share(
    *, is_quick: bool, dtype: str = "bfloat16", batch: int = 16, kinds: Sequence[str] = (), rounds: int = 1
) -> list[dict[str, Any]]:
    """Give rows per schema class, with and without drafts, and one without a grammar; of the rounds the fastest counts.

    The first answers of a class come into states whose masks are not known (`new`), the same answers again into known ones.
    """
    chosen = kinds or (("flat object", "bounded strings") if is_quick else tuple(case.kind for case in WRITTEN))
    num_steps = 12 if is_quick else 40
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), dtype)
        for max_draft_tokens in (0,) if is_quick else (0, 12):
            bench = Bench(folder, dtype, batch, max_draft_tokens=max_draft_tokens)
            bench.run(None, num_steps=4)
            free = min((bench.run(None, num_steps=num_steps) for _ in range(rounds)), key=lambda parts: parts["step"])
            about = {"class": "free text", "states": "", "drafts": max_draft_tokens, "max_tokens": 600}
            rows.append(about | _columns(free, free, share=0.0))
            for case in (case for case in WRITTEN if case.kind in chosen):
                grammar = GrammarSpec.from_json_schema(case.schema)
                # With 60 no answer under patterns fits, with 100 just one.
                for limit in (600,) if is_quick else (600, 100, 60):
                    runs = [bench.run(grammar, num_steps=num_steps, max_tokens=limit) for _ in range(1 + rounds)]
                    for states, parts in (("new", runs[0]), ("known", min(runs[1:], key=lambda parts: parts["step"]))):
                        about = {"class": case.kind, "states": states, "drafts": max_draft_tokens, "max_tokens": limit}
                        rows.append(about | _columns(parts, free))
            bench.engine.close()
    return rows


def _columns(parts: dict[str, float], free: dict[str, float], *, share: float | None = None) -> dict[str, Any]:
    """Give the columns of a row; the look for the likeliest token counts as far as it takes longer than without masks."""
    parts = parts | {"masks in look": max(0.0, parts["look"] - free["look"] * parts["rows"] / free["rows"])}
    if share is None:
        share = sum(parts[name] for name in NOT_HIDDEN) / parts["step"]
    num_rows = parts.pop("rows")
    return {"rows": round(num_rows, 1)} | {f"{name} ms": round(value, 3) for name, value in parts.items()} | {
        "share %": round(100 * share, 2)
    }  # fmt: skip


def main() -> None:
    """Run as a script."""
    parser = make_parser("what gate and masks add to a step that the model does not hide")
    parser.add_argument("--dtype", default="bfloat16", help="of the model (default %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="sequences (default %(default)s)")
    arguments = parser.parse_args()
    rows = measure_share(is_quick=arguments.quick, dtype=arguments.dtype, batch=arguments.batch)
    print_table(f"gate and masks in a step of {arguments.batch} rows, milliseconds", rows)
    write_json(arguments.json, "mask_share", rows, is_quick=arguments.quick)


if __name__ == "__main__":
    main()
