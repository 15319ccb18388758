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
from transformers import AutoModelForCausalLM

from engine import EngineConfig, GrammarSpec, LLMEngine, RequestOutput, SamplingParams, resolve_model
from engine.grammar import apply_token_bitmask_inplace, new_bitmask
from tests.engine.parity import MARGIN, SPEC, Parity, generate_alone, new_matcher, random_prompts, serve
from tests.engine.random_models import save_random_model
from tests.real_tokenizers import CACHE

SMOLLM2 = CACHE.parent / "models" / "smollm2-0.1.2"


def likeliest(logits: torch.Tensor, token_id: int) -> bool:
    return bool(logits[token_id] >= logits.max() - MARGIN)


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


def test_reference_is_generate(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    for prompt_ids in ([1, 2, 3], [40, 50], [9] * 20):
        for spec in (None, SPEC):
            # Long enough for every answer of this grammar: one that would be cut is led to its end instead.
            params = SamplingParams(max_tokens=24 if spec is None else 100)
            [output] = tiny_engine.generate([prompt_ids], params, grammars=spec, on_unknown="constrain")
            assert output.token_ids == generate_alone(tiny_engine, model, prompt_ids, params.max_tokens, spec)
            assert_greedy(tiny_engine, model, output, spec)


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
            adapt_drafts=False,
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


WINDOW = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 12}
RANDOM: dict[str, dict[str, Any]] = {
    "mistral": WINDOW,
    "qwen2": {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma3_text": WINDOW | {"layer_types": ["sliding_attention", "full_attention"]},
    "gpt2": {},
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["smollm2", "pocket-r1", *RANDOM])
def test_200_prompts_equal_generate(name: str, tmp_path: Path, pocket_tokenizer: Any) -> None:
    """Batches of 1 to 32, random arrivals, preemption and known beginnings, prompts longer than the window where there is one."""
    if name in RANDOM:
        save_random_model(tmp_path, pocket_tokenizer, name, **RANDOM[name])
        source = str(tmp_path)
    elif name == "smollm2" and not SMOLLM2.is_dir():
        pytest.skip("run tests/bench/fetch_smollm2.py first")
    else:
        source = str(SMOLLM2) if name == "smollm2" else resolve_model(name)
    parity = Parity(source, 200)
    for batch in (1, 5, 16, 32):
        report = parity.check(batch)
        assert report.different == []
        assert report.num_equal + report.num_ties == 200
        # Two tokens that are equally likely but for the order of a sum are rare: no way out for a wrong answer.
        assert report.num_ties <= 2
        assert report.num_prefix_hit_tokens > 0
        assert batch < 5 or report.num_preemptions > 0
