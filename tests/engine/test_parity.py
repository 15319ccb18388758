"""Greedy answers are those of transformers, token for token, whatever the batch, the arrivals and the cache do.

The reference reads each finished answer in one forward pass of transformers' own module: every token must be the likeliest one
after those before it, among all tokens or among those that the grammar allows there. That is what `generate` does step by step
(`test_reference_is_generate` holds it against it), at a fraction of the time.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList

from engine import EngineConfig, GrammarSpec, LLMEngine, RequestOutput, SamplingParams
from engine.grammar import Matcher, apply_token_bitmask_inplace, new_bitmask

SMOLLM2 = Path(__file__).parent.parent.parent / ".cache" / "models" / "smollm2-0.1.2"
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


def likeliest(logits: torch.Tensor, token_id: int) -> bool:
    return bool(logits[token_id] >= logits.max() - MARGIN)


def new_matcher(engine: LLMEngine, spec: GrammarSpec) -> Matcher:
    future = engine._grammars.request(spec)
    compiled = future.result()
    engine._grammars.release(spec, future)
    return compiled.new_matcher(engine._loaded.stop_token_ids)


@torch.no_grad()
def assert_greedy(engine: LLMEngine, model: Any, output: RequestOutput, spec: GrammarSpec | None) -> None:
    """Check every token of an answer, given those before it."""
    prompt_ids, token_ids = output.prompt_token_ids, output.token_ids
    logits = model(input_ids=torch.tensor([prompt_ids + token_ids])).logits[0, len(prompt_ids) - 1 : -1].float()
    matcher = None if spec is None else new_matcher(engine, spec)
    for position, token_id in enumerate(token_ids):
        row = logits[position : position + 1]
        if matcher is not None:
            bitmask = new_bitmask(1, row.shape[1])
            matcher.fill_bitmask(bitmask, 0)
            apply_token_bitmask_inplace(row, bitmask, torch.tensor([0]))
            assert matcher.accept_tokens([token_id])
        if not likeliest(row[0], token_id):
            # Only an answer that would not end within its limit may leave the likeliest way, and to the shortest end.
            assert output.limits_hit == ("shortest_completion",), (position, token_id, int(row[0].argmax()))
            return


class StepMask(LogitsProcessor):
    """A grammar in `generate`, one mask a step, with no cleverness."""

    def __init__(self, matcher: Any, prompt_len: int) -> None:
        self.matcher = matcher
        self.num_seen = prompt_len

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        new_ids = input_ids[0, self.num_seen :].tolist()
        assert self.matcher.accept_tokens(new_ids)
        self.num_seen += len(new_ids)
        bitmask = new_bitmask(1, scores.shape[1])
        self.matcher.fill_bitmask(bitmask, 0)
        scores = scores.clone()
        apply_token_bitmask_inplace(scores, bitmask, torch.tensor([0]))
        return scores


def test_reference_is_generate(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    for prompt_ids in ([1, 2, 3], [40, 50], [9] * 20):
        for spec in (None, SPEC):
            # Long enough for every answer of this grammar: one that would be cut is led to its end instead.
            params = SamplingParams(max_tokens=24 if spec is None else 100)
            [output] = tiny_engine.generate([prompt_ids], params, grammars=spec, on_unknown="constrain")
            processors = LogitsProcessorList()
            if spec is not None:
                processors.append(StepMask(new_matcher(tiny_engine, spec), len(prompt_ids)))
            wanted = model.generate(
                torch.tensor([prompt_ids]),
                max_new_tokens=params.max_tokens,
                do_sample=False,
                logits_processor=processors,
                eos_token_id=list(tiny_engine._loaded.stop_token_ids),
            )
            assert output.token_ids == wanted[0, len(prompt_ids) :].tolist()
            assert_greedy(tiny_engine, model, output, spec)


def random_prompts(rng: random.Random, count: int, vocab_size: int) -> list[list[int]]:
    """Prompts with few beginnings, so that some are found in the cache."""
    heads = [[rng.randrange(vocab_size) for _ in range(rng.randint(1, 60))] for _ in range(4)]
    return [rng.choice(heads) + [rng.randrange(vocab_size) for _ in range(rng.randint(0, 20))] for _ in range(count)]


def serve(
    engine: LLMEngine, prompts: list[list[int]], specs: list[GrammarSpec | None], rng: random.Random
) -> list[RequestOutput]:
    """Let requests arrive at random and run them to their ends."""
    finals: dict[str, RequestOutput] = {}
    for number, (prompt_ids, spec) in enumerate(zip(prompts, specs, strict=True)):
        params = SamplingParams(max_tokens=rng.randint(1, 40))
        engine.add_request(str(number), prompt_ids, params, grammar=spec, on_unknown="constrain")
        for _ in range(rng.randint(0, 3)):
            finals |= {output.request_id: output for output in engine.step() if output.finished}
    while engine.has_unfinished():
        finals |= {output.request_id: output for output in engine.step() if output.finished}
    return [finals[str(number)] for number in range(len(prompts))]


@pytest.mark.parametrize("max_num_seqs", [1, 7, 32])
@pytest.mark.parametrize("max_draft_tokens", [0, 6], ids=["no-drafts", "drafts"])
def test_answers_are_greedy_whatever_happens(tiny_model: Path, max_num_seqs: int, max_draft_tokens: int) -> None:
    """Random arrivals, prompts in pieces, known beginnings, and too few blocks for all."""
    rng = random.Random(max_num_seqs)
    engine = LLMEngine(
        EngineConfig(
            model=str(tiny_model),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + 48,
            max_model_len=144,
            kv_block_size=8,
            kv_cache_bytes=(152 if max_num_seqs < 16 else 200) * 256,
            max_draft_tokens=max_draft_tokens,
        )
    )
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    prompts = random_prompts(rng, 50, 900)
    specs = [SPEC if rng.random() < 0.4 else None for _ in prompts]
    outputs = serve(engine, prompts, specs, rng)
    for output, spec in zip(outputs, specs, strict=True):
        assert output.error is None
        assert_greedy(engine, model, output, spec)
    assert engine._kv_cache.num_prefix_hit_tokens > 0
    assert max_num_seqs < 7 or engine._scheduler.num_preemptions > 0
    assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
    engine.close()


@pytest.mark.slow
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason="run tests/bench/fetch_smollm2.py first")
@pytest.mark.parametrize("max_num_seqs", [1, 8, 32])
def test_smollm2_is_greedy_too(max_num_seqs: int) -> None:
    rng = random.Random(max_num_seqs)
    engine = LLMEngine(
        EngineConfig(model=str(SMOLLM2), dtype="float32", max_num_seqs=max_num_seqs, max_model_len=256, kv_cache_bytes=40 * 2**20)
    )
    model = AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32)
    prompts = random_prompts(rng, 24, 40_000)
    specs = [SPEC if rng.random() < 0.4 else None for _ in prompts]
    for output, spec in zip(serve(engine, prompts, specs, rng), specs, strict=True):
        assert output.error is None
        assert_greedy(engine, model, output, spec)
    engine.close()
