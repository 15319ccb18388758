"""Who runs when: budgets, places, preemption, and nothing held that should not be."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from engine import EngineConfig, GrammarSpec, InvalidRequestError, LLMEngine, RequestOutput, SamplingParams
from engine.sequence import Sequence

SPEC = GrammarSpec.from_json_schema({"type": "object", "properties": {"a": {"enum": ["x", "yy"]}}, "required": ["a"]})


BYTES_PER_TOKEN = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, their size, float32


def small_engine(model: Path, *, num_blocks: int, max_num_seqs: int, max_num_batched_tokens: int = 64) -> LLMEngine:
    """An engine with so few blocks that sequences have to make room for each other."""
    return LLMEngine(
        EngineConfig(
            model=str(model),
            max_model_len=96,
            kv_block_size=4,
            kv_cache_bytes=num_blocks * 4 * BYTES_PER_TOKEN,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
    )


def run_to_end(engine: LLMEngine) -> dict[str, RequestOutput]:
    finals: dict[str, RequestOutput] = {}
    while engine.has_unfinished():
        finals |= {output.request_id: output for output in engine.step() if output.finished}
    return finals


def reference(model: LlamaForCausalLM, prompt_ids: list[int], max_tokens: int) -> list[int]:
    out = model.generate(torch.tensor([prompt_ids]), max_new_tokens=max_tokens, do_sample=False)
    ids: list[int] = out[0, len(prompt_ids) :].tolist()
    return ids


def test_long_prompt_does_not_hold_up_the_others(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=4, max_num_batched_tokens=20))
    engine.add_request("short", [1, 2], SamplingParams(max_tokens=30))
    engine.step()
    engine.add_request("long", [3] * 200, SamplingParams(max_tokens=2))
    got = [[output.request_id for output in engine.step()] for _ in range(11)]
    assert all("short" in ids for ids in got)
    assert [("long" in ids) for ids in got].index(True) == 10
    engine.close()


def test_preempted_sequences_end_as_if_alone(tiny_model: Path) -> None:
    engine = small_engine(tiny_model, num_blocks=30, max_num_seqs=8, max_num_batched_tokens=24)
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    prompts = [[number + 1, 2 * number + 1, 7, 9][: 1 + number % 4] for number in range(10)]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=60))
    assert engine._scheduler.num_preemptions > 0
    for prompt_ids, output in zip(prompts, outputs, strict=True):
        assert output.token_ids == reference(model, prompt_ids, 60)
    assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
    engine.close()


def test_preempted_constrained_sequences_stay_valid(tiny_model: Path) -> None:
    engine = small_engine(tiny_model, num_blocks=26, max_num_seqs=8, max_num_batched_tokens=24)
    think = SamplingParams(max_tokens=80, max_reasoning_tokens=40)
    prompts = [engine.render([{"role": "user", "content": text}]) for text in "abcdef"]
    alone = [engine.generate([ids], think, grammars=SPEC)[0].token_ids for ids in prompts]
    together = engine.generate(prompts, think, grammars=SPEC)
    assert engine._scheduler.num_preemptions > 0
    assert [output.token_ids for output in together] == alone
    engine.close()


def test_first_come_first_served_but_for_priorities(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=1))
    for name, priority in (("a", 0), ("late", 5), ("b", 0), ("urgent", -1)):
        engine.add_request(name, [1, 2], SamplingParams(max_tokens=2), priority=priority)
    assert list(run_to_end(engine)) == ["urgent", "a", "b", "late"]
    engine.close()


def test_low_priority_is_not_overtaken_for_ever(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=1))
    engine.add_request("early", [1], SamplingParams(max_tokens=1), priority=1)
    place, number = engine._scheduler._places["early"]
    engine._scheduler._places["early"] = (place - 60, number)
    engine.add_request("late", [1], SamplingParams(max_tokens=1), priority=0)
    assert list(run_to_end(engine)) == ["early", "late"]
    engine.close()


def test_nobody_overtakes_a_prompt_that_waits_for_room(tiny_model: Path) -> None:
    engine = small_engine(tiny_model, num_blocks=26, max_num_seqs=8)
    engine.add_request("first", [1] * 60, SamplingParams(max_tokens=20))
    engine.step()
    engine.add_request("big", [2] * 60, SamplingParams(max_tokens=2))
    engine.add_request("small", [3], SamplingParams(max_tokens=2))
    assert list(run_to_end(engine)) in (["first", "big", "small"], ["first", "small", "big"])
    engine.close()


def test_cache_too_small_for_one_request_is_refused(tiny_model: Path) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        small_engine(tiny_model, num_blocks=20, max_num_seqs=2)
    assert caught.value.param == "kv_cache_bytes"
    assert caught.value.hint


def test_one_sequence_of_full_length_fits_the_smallest_cache(tiny_model: Path) -> None:
    engine = small_engine(tiny_model, num_blocks=24, max_num_seqs=2)
    outputs = engine.generate([[5], [6]], SamplingParams(max_tokens=200))
    assert all(output.stop_reason in ("length", "stop") for output in outputs)
    engine.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_arrivals_aborts_and_few_blocks_leak_nothing(tiny_model: Path, seed: int) -> None:
    rng = random.Random(seed)
    engine = small_engine(
        tiny_model, num_blocks=rng.randint(24, 40), max_num_seqs=rng.randint(1, 6), max_num_batched_tokens=rng.randint(8, 40)
    )
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    heads = [[rng.randint(0, 900) for _ in range(rng.randint(1, 40))] for _ in range(3)]
    asked: dict[str, tuple[list[int], int]] = {}
    finals: dict[str, RequestOutput] = {}
    for number in range(40):
        prompt_ids = rng.choice(heads) + [rng.randint(0, 900) for _ in range(rng.randint(0, 8))]
        asked[str(number)] = (prompt_ids, rng.randint(1, 30))
        constrained = rng.random() < 0.3
        engine.add_request(
            str(number),
            prompt_ids,
            SamplingParams(max_tokens=asked[str(number)][1]),
            grammar=SPEC if constrained else None,
            on_unknown="constrain",
            priority=rng.randint(0, 1),
        )
        if constrained:
            del asked[str(number)]
        for _ in range(rng.randint(0, 4)):
            finals |= {output.request_id: output for output in engine.step() if output.finished}
        if rng.random() < 0.2:
            gone = str(rng.randint(0, number))
            engine.abort(gone)
            asked.pop(gone, None)
    finals |= run_to_end(engine)
    engine.step()
    assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
    assert engine._scheduler._places == {}
    for name, (prompt_ids, max_tokens) in asked.items():
        if name in finals:
            assert finals[name].token_ids == reference(model, prompt_ids, max_tokens)
    engine.close()


def test_drafts_stay_within_the_models_length(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions behind it have no rotation, no learned embedding, and perhaps no block."""
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_model_len=40))
    real, last = engine._runner.run, list[int]()

    def run(chunks: Any) -> torch.Tensor:
        last.extend(chunk.sequence.num_cached_tokens + chunk.num_query_tokens for chunk in chunks)
        return real(chunks)

    monkeypatch.setattr(engine._runner, "run", run)
    monkeypatch.setattr(Sequence, "propose_drafts", lambda self, limit: (7,) * limit)
    prompts = [[1, 2, 3, 4] * 8, [7] * 30, [5, 6] * 14]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=100, ignore_eos=True))
    assert all(output.error is None and output.stop_reason == "length" for output in outputs)
    assert max(last) <= 40
    engine.close()


def test_drafts_take_no_block_from_a_token(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sequences that fit without guesses are not preempted for guesses."""
    monkeypatch.setattr(Sequence, "propose_drafts", lambda self, limit: (7,) * limit)
    engine = small_engine(tiny_model, num_blocks=30, max_num_seqs=3)
    prompts = [[number] + [7] * 27 for number in range(3)]
    outputs = engine.generate(prompts, SamplingParams(max_tokens=11, ignore_eos=True))
    assert all(len(output.token_ids) == 11 for output in outputs)
    assert engine._scheduler.num_preemptions == 0
    engine.close()


@pytest.mark.parametrize("state", ["waiting", "in-its-prompt", "decoding", "preempted"])
def test_abort_at_any_state_gives_everything_back(tiny_model: Path, state: str) -> None:
    engine = small_engine(tiny_model, num_blocks=24, max_num_seqs=2, max_num_batched_tokens=16)
    engine.add_request("other", [1, 2, 3], SamplingParams(max_tokens=60, ignore_eos=True))
    prompt_ids = {"in-its-prompt": [5] * 60, "preempted": [5] * 40}.get(state, [5] * 10)
    engine.add_request("gone", prompt_ids, SamplingParams(max_tokens=50, ignore_eos=True), priority=1)
    gone = engine._sequences["gone"]
    arrived: dict[str, Callable[[], bool]] = {
        "waiting": lambda: True,
        "in-its-prompt": lambda: 0 < gone.num_cached_tokens < len(prompt_ids),
        "decoding": lambda: len(gone.token_ids) > 3,
        "preempted": lambda: engine._scheduler.num_preemptions > 0,
    }
    while not arrived[state]():
        engine.step()
    assert engine.abort("gone")
    assert not engine.abort("gone")
    assert gone.blocks.block_ids == []
    assert len(run_to_end(engine)["other"].token_ids) == 60
    assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
    engine.close()


def test_blocks_are_counted_between_any_two_requests(tiny_engine: LLMEngine, caplog: pytest.LogCaptureFixture) -> None:
    cache = tiny_engine._kv_cache
    for _ in range(2):
        tiny_engine.generate([[5] * 40], SamplingParams(max_tokens=3))
        assert "please report this" not in caplog.text
    cache._pool.take(3)  # as by a sequence that was forgotten
    tiny_engine.generate([[5] * 40], SamplingParams(max_tokens=3))
    assert "3 blocks of the KV cache are held although nothing runs" in caplog.text
    assert cache.num_free_blocks == cache.num_blocks


def test_prompt_of_a_one_token_answer_is_known_afterwards(tiny_engine: LLMEngine) -> None:
    for _ in range(2):
        tiny_engine.generate([[5] * 40], SamplingParams(max_tokens=1))
    assert tiny_engine._kv_cache.num_prefix_hit_tokens == 32


def test_failed_sequence_leaves_no_prefix(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(chunks: Any) -> torch.Tensor:
        real(chunks)
        raise RuntimeError("half done")

    real = tiny_engine._runner.run
    with monkeypatch.context() as patched:
        patched.setattr(tiny_engine._runner, "run", fail)
        [output] = tiny_engine.generate([[5] * 40], SamplingParams(max_tokens=1))
    assert output.error is not None
    tiny_engine.generate([[5] * 40], SamplingParams(max_tokens=1))
    assert tiny_engine._kv_cache.num_prefix_hit_tokens == 0
