"""Greedy answers held against `transformers.generate`, token for token, under everything that may disturb them.

Used by `test_parity.py` and by `tests/bench/engine.py`. The reference runs one prompt at a time in float32, with a mask per step
where there is a grammar, and no cleverness.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

from engine import EngineConfig, GrammarSpec, LLMEngine, RequestOutput, SamplingParams
from engine.grammar import Matcher, apply_token_bitmask_inplace, new_bitmask
from engine.kv_cache_size import bytes_per_token

SPEC = GrammarSpec.from_json_schema(
    {
        "type": "object",
        "properties": {"kind": {"enum": ["x", "yy"]}, "n": {"type": "integer"}, "ok": {"type": "boolean"}},
        "required": ["kind", "n", "ok"],
        "additionalProperties": False,
    }
)
MARGIN = 1e-4
"""Logits closer than this are taken as equal: sums in another order differ in the last bits."""
CONSTRAINED_TOKENS = 100
"""Enough for every answer of `SPEC`: one that would be cut is led to its end, which `generate` does not do."""
MAX_FREE_TOKENS = 40
BLOCK_SIZE = 8


def new_matcher(engine: LLMEngine, spec: GrammarSpec) -> Matcher:
    future = engine._grammars.request(spec)
    compiled = future.result()
    engine._grammars.release(spec, future)
    return compiled.new_matcher(engine._loaded.stop_token_ids)


class StepMask(LogitsProcessor):
    """A grammar in `generate`, one mask a step, with no cleverness."""

    def __init__(self, matcher: Matcher, prompt_len: int) -> None:
        self.matcher = matcher
        self.num_seen = prompt_len

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        new_ids = input_ids[0, self.num_seen :].tolist()
        assert self.matcher.accept_tokens(new_ids)
        self.num_seen += len(new_ids)
        bitmask = new_bitmask(1, scores.shape[1])
        self.matcher.fill_bitmask(bitmask, 0)
        scores = scores.clone()
        apply_token_bitmask_inplace(scores, bitmask.to(scores.device), torch.tensor([0], device=scores.device))
        return scores


def generate_alone(engine: LLMEngine, model: Any, prompt: Sequence[int], max_tokens: int, spec: GrammarSpec | None) -> list[int]:
    """Let transformers answer one prompt greedily; `engine` only lends its grammars and its stop ids."""
    processors = LogitsProcessorList()
    if spec is not None:
        processors.append(StepMask(new_matcher(engine, spec), len(prompt)))
    input_ids = torch.tensor([list(prompt)], device=model.device)
    output = model.generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        logits_processor=processors,
        eos_token_id=list(engine._loaded.stop_token_ids),
        pad_token_id=engine.tokenizer.pad_token_id,
    )
    return [int(token_id) for token_id in output[0, len(prompt) :]]


def random_prompts(rng: random.Random, count: int, vocab_size: int, *, longest: int = 60) -> list[list[int]]:
    """Prompts with few beginnings, so that some are found in the cache."""
    heads = [[rng.randrange(vocab_size) for _ in range(rng.randint(1, longest))] for _ in range(4)]
    return [rng.choice(heads) + [rng.randrange(vocab_size) for _ in range(rng.randint(0, 20))] for _ in range(count)]


def serve(
    engine: LLMEngine, prompts: Sequence[list[int]], specs: Sequence[GrammarSpec | None], rng: random.Random
) -> list[RequestOutput]:
    """Let requests arrive at random and run them to their ends."""
    finals: dict[str, RequestOutput] = {}
    for number, (prompt_ids, spec) in enumerate(zip(prompts, specs, strict=True)):
        params = SamplingParams(max_tokens=rng.randint(1, MAX_FREE_TOKENS) if spec is None else CONSTRAINED_TOKENS)
        engine.add_request(str(number), prompt_ids, params, grammar=spec, on_unknown="constrain")
        for _ in range(rng.randint(0, 3)):
            finals |= {output.request_id: output for output in engine.step() if output.finished}
    while engine.has_unfinished():
        finals |= {output.request_id: output for output in engine.step() if output.finished}
    return [finals[str(number)] for number in range(len(prompts))]


@dataclass(slots=True)
class ParityReport:
    """How many answers are those of `generate`.

    Attributes:
        batch: Sequences that ran together at most.
        num_equal: Token for token.
        num_ties: Equal up to a place where two tokens are equally likely but for rounding.
        num_tokens: Tokens compared.
        num_preemptions: Sequences that were computed again.
        num_prefix_hit_tokens: Prompt tokens that were not computed, being known.
        different: What is neither, in words.
    """

    batch: int
    num_equal: int = 0
    num_ties: int = 0
    num_tokens: int = 0
    num_preemptions: int = 0
    num_prefix_hit_tokens: int = 0
    different: list[str] = field(default_factory=list)


class Parity:
    """One model, its prompts, and what `generate` makes of them.

    Args:
        source: Folder of the model.
        num_prompts: Prompts; two in five are constrained.
        longest: Longest beginning that prompts share.
        device: Where both compute.
        margin: Logits closer than this are taken as equal.
    """

    def __init__(self, source: str, num_prompts: int, *, longest: int = 60, device: str = "cpu", margin: float = MARGIN) -> None:
        rng = random.Random(11)
        self._source = source
        self._device = device
        self._margin = margin
        self._model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval().to(device)
        vocab_size = self._model.config.get_text_config().vocab_size
        self._max_model_len = longest + 20 + CONSTRAINED_TOKENS + 4
        self.prompts = random_prompts(rng, num_prompts, vocab_size * 4 // 5, longest=longest)
        self.specs = [SPEC if rng.random() < 0.4 else None for _ in self.prompts]
        self._wanted: dict[int, list[int]] = {}

    def check(self, batch: int) -> ParityReport:
        """Serve all prompts with `batch` sequences together, in few blocks, with all drafts that there are."""
        # One sequence of full length fits, and a little more: the running ones must make room for each other.
        num_tokens = self._max_model_len + BLOCK_SIZE * (2 if batch < 16 else 8)
        token_bytes = bytes_per_token(cast(Any, SimpleNamespace(model=self._model)))
        config = EngineConfig(
            model=self._source,
            device=self._device,
            dtype="float32",
            max_num_seqs=batch,
            max_num_batched_tokens=batch + 48,
            max_model_len=self._max_model_len,
            kv_block_size=BLOCK_SIZE,
            adapt_drafts=False,
            kv_cache_bytes=num_tokens * token_bytes,
            grammar_upgrade_after=None,  # backends differ in small things
        )
        engine = LLMEngine(config)
        try:
            outputs = serve(engine, self.prompts, self.specs, random.Random(batch))
            report = ParityReport(batch)
            for index, output in enumerate(outputs):
                self._compare(engine, index, output, report)
            report.num_preemptions = engine._scheduler.num_preemptions
            report.num_prefix_hit_tokens = engine._kv_cache.num_prefix_hit_tokens
            assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
        finally:
            engine.close()
        return report

    def _compare(self, engine: LLMEngine, index: int, output: RequestOutput, report: ParityReport) -> None:
        if index not in self._wanted:
            num_tokens = MAX_FREE_TOKENS if self.specs[index] is None else CONSTRAINED_TOKENS
            self._wanted[index] = generate_alone(engine, self._model, self.prompts[index], num_tokens, self.specs[index])
        ours = output.token_ids
        wanted = self._wanted[index][: len(ours)] if output.matched_stop is None else self._wanted[index]
        report.num_tokens += len(ours)
        if output.error is None and ours == wanted:
            report.num_equal += 1
            return
        place = next((i for i, (a, b) in enumerate(zip(ours, wanted, strict=False)) if a != b), min(len(ours), len(wanted)))
        if output.error is None and place < min(len(ours), len(wanted)):
            gap = self._gap([*self.prompts[index], *ours[:place]], ours[place], wanted[place])
            if gap < self._margin:
                report.num_ties += 1
                return
        report.different.append(f"prompt {index} at token {place}: {output.stop_reason}, {output.error!r}")

    @torch.no_grad()
    def _gap(self, token_ids: list[int], ours: int, wanted: int) -> float:
        logits = self._model(input_ids=torch.tensor([token_ids], device=self._device)).logits[0, -1]
        return abs(float(logits[wanted] - logits[ours]))
