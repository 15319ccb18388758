"""What the engine tells of its steps and requests."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine import AsyncLLMEngine, EngineClosedError, EngineConfig, GrammarSpec, LLMEngine, SamplingParams
from engine.metrics import RequestStats, StepStats

SPEC = GrammarSpec.from_json_schema({"enum": ["x", "yy"]})


def test_records_add_up_to_what_came_out(tiny_model: Path) -> None:
    records: list[StepStats | RequestStats] = []
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=2), observer=records.append)
    prompts = [engine.render([{"role": "user", "content": text}], thinking=True) for text in ("a", "two chairs", "3 lamps")]
    params = [SamplingParams(max_tokens=30, max_reasoning_tokens=4), SamplingParams(max_tokens=9), SamplingParams(max_tokens=12)]
    outputs = engine.generate(prompts, params, grammars=[SPEC, None, None])
    steps = [record for record in records if isinstance(record, StepStats)]
    requests = [record for record in records if isinstance(record, RequestStats)]
    num_tokens = sum(len(output.token_ids) for output in outputs)
    assert sum(step.num_new_tokens for step in steps) == num_tokens == sum(request.num_tokens for request in requests)
    for step in steps:
        parts = (step.schedule_s, step.forward_s, step.mask_wait_s, step.select_s, step.advance_s)
        assert min(parts) >= 0
        assert 0 < sum(parts) <= step.step_s
        assert 0 <= step.apply_s <= step.select_s
        assert step.mask_wait_s <= step.fill_s + step.step_s
    assert max(step.fill_s for step in steps) > 0 < max(step.apply_s for step in steps)
    assert {step.num_running for step in steps} <= {0, 1, 2}
    # Prompts and all tokens but the last ones are computed once, and the drafts that did not hold.
    wasted = sum(step.num_draft_tokens - step.num_accepted_draft_tokens for step in steps)
    num_hits = engine.totals().num_prefix_hit_tokens
    assert sum(step.num_scheduled_tokens for step in steps) >= sum(map(len, prompts)) + num_tokens - 3 - num_hits
    assert sum(step.num_scheduled_tokens for step in steps) <= sum(map(len, prompts)) + num_tokens + wasted
    [constrained] = [request for request in requests if request.grammar_wait_s is not None]
    assert constrained.limits_hit == ("max_reasoning_tokens",)
    assert constrained.num_reasoning_tokens == 4
    assert all(request.first_token_s is not None and request.first_token_s <= request.total_s for request in requests)
    totals = engine.totals()
    assert (totals.num_steps, totals.num_finished, totals.num_new_tokens) == (len(steps), 3, num_tokens)
    assert (totals.num_running, totals.num_waiting, totals.num_limits_hit) == (0, 0, 1)
    assert totals.num_free_blocks == totals.num_blocks
    engine.close()


def test_compiles_cache_hits_and_aborts_are_told(tiny_model: Path) -> None:
    records: list[StepStats | RequestStats] = []
    engine = LLMEngine(EngineConfig(model=str(tiny_model)), observer=records.append)
    for _ in range(3):
        engine.generate([[5, 6, 7]], SamplingParams(max_tokens=20), grammars=SPEC, on_unknown="constrain")
    engine.add_request("gone", [5, 6, 7], SamplingParams(max_tokens=20, ignore_eos=True))
    engine.step()
    engine.abort("gone")
    engine.add_request("never-ran", [5, 6, 7], grammar=GrammarSpec.regex("[ab]{7}"))
    engine.abort("never-ran")
    first, *later, gone, never = [record for record in records if isinstance(record, RequestStats)]
    assert (first.grammar_cache, [record.grammar_cache for record in later]) == ("none", ["memory"] * 2)
    assert first.compile_s is not None
    assert 0 < first.compile_s <= (first.grammar_wait_s or 0)
    assert {record.backend for record in (first, *later)} <= {"xgrammar", "llguidance"}
    assert (gone.stop_reason, gone.num_tokens, gone.backend) == ("abort", 1, None)
    assert (never.stop_reason, never.num_tokens, never.grammar_wait_s, never.grammar_cache) == ("abort", 0, None, None)
    totals = engine.totals()
    assert (totals.num_finished, totals.num_aborted) == (3, 2)
    assert (totals.num_grammar_cache_hits, totals.grammar_compile_s) == (2, first.compile_s)
    engine.close()


def test_observer_that_raises_changes_nothing(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(record: StepStats | RequestStats) -> None:
        raise ValueError("no")

    engine = LLMEngine(EngineConfig(model=str(tiny_model)), observer=broken)
    with caplog.at_level(logging.ERROR):
        [output] = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=3))
    assert len(output.token_ids) == 3
    assert "observer failed" in caplog.text
    engine.close()


def test_drain_lets_requests_finish_and_takes_no_more(tiny_model: Path) -> None:
    engine = AsyncLLMEngine(EngineConfig(model=str(tiny_model)))
    stream = engine.submit([5, 6, 7], SamplingParams(max_tokens=20, ignore_eos=True))
    assert engine.is_alive()
    assert engine.drain(timeout_s=60)
    assert not engine.is_alive()
    outputs = list(stream)
    assert (outputs[-1].stop_reason, len(outputs[-1].token_ids)) == ("length", 20)
    with pytest.raises(EngineClosedError):
        engine.submit([5], SamplingParams())


def test_drain_ends_what_takes_too_long(tiny_model: Path) -> None:
    engine = AsyncLLMEngine(EngineConfig(model=str(tiny_model)))
    stream = engine.submit([5, 6, 7], SamplingParams(max_tokens=500, ignore_eos=True))
    assert not engine.drain(timeout_s=0.05)
    last = list(stream)[-1]
    assert isinstance(last.error, EngineClosedError)


def test_several_streams_share_a_request(tiny_model: Path) -> None:
    engine = AsyncLLMEngine(EngineConfig(model=str(tiny_model)))
    params = SamplingParams(n=3, seed=4, temperature=1.0, max_tokens=8)
    texts = [list(stream)[-1].token_ids for stream in engine.submit_n([5, 6, 7], params)]
    assert len({tuple(text) for text in texts}) == 3
    again = [list(stream)[-1].token_ids for stream in engine.submit_n([5, 6, 7], params)]
    assert again == texts
    assert engine.totals().num_finished == 6
    engine.close()
