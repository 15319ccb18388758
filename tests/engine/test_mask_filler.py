"""Masks are filled beside the model: the same answers, and nobody touches a matcher while a row of it is filled."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import EngineConfig, EngineStepError, GrammarSpec, LLMEngine, RequestOutput, SamplingParams, mask_filler
from engine.grammar.bitmask import BitmaskPool
from engine.mask import StepMasks, fill_masks
from engine.mask_filler import MaskFiller
from engine.metrics import StepClock

SPEC = GrammarSpec.from_json_schema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 9}, "ok": {"type": "boolean"}, "n": {"type": "integer"}},
        "required": ["name", "ok", "n"],
        "additionalProperties": False,
    }
)


class Fills:
    """Counts fills by the thread that they ran on, and says while one goes on."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.is_going_on = False
        self.delay_s = 0.0
        self.error: Exception | None = None

    def __call__(self, *arguments: Any, **options: Any) -> StepMasks:
        self.threads.append(threading.current_thread().name)
        self.is_going_on = True
        time.sleep(self.delay_s)
        try:
            if self.error is not None:
                raise self.error
            return fill_masks(*arguments, **options)
        finally:
            self.is_going_on = False

    @property
    def num_beside(self) -> int:
        return sum(name.startswith("thinkgate-masks") for name in self.threads)


@pytest.fixture
def fills(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fills]:
    found = Fills()
    monkeypatch.setattr(mask_filler, "fill_masks", found)
    monkeypatch.setattr(mask_filler, "BESIDE_FROM_S", -1.0)
    monkeypatch.setattr(mask_filler, "has_spare_core", lambda: True)
    yield found
    assert not found.is_going_on


def answers(tiny_model: Path, **options: Any) -> list[RequestOutput]:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=4, max_model_len=128, **options))
    prompts = [engine.render([{"role": "user", "content": text}], thinking=True) for text in ("a", "b", "two c", "3 d", "e")]
    params = [
        SamplingParams(max_tokens=70, max_reasoning_tokens=10 + 4 * number, temperature=number % 2 * 0.9, seed=number)
        for number in range(5)
    ]
    outputs = engine.generate(prompts, params, grammars=[SPEC, SPEC, None, SPEC, SPEC])
    assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
    engine.close()
    return outputs


@pytest.mark.parametrize(
    "options",
    [{"max_draft_tokens": 0}, {}, {"kv_cache_bytes": 80_000}],
    ids=["one token a step", "drafts", "preemption"],
)
def test_answers_are_those_without_a_second_thread(
    tiny_model: Path, fills: Fills, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    beside = answers(tiny_model, **options)
    assert fills.num_beside == len(fills.threads) > 0
    monkeypatch.setattr(mask_filler, "BESIDE_FROM_S", float("inf"))
    fills.threads.clear()
    alone = answers(tiny_model, **options)
    assert fills.num_beside == 0 < len(fills.threads)
    assert [(each.token_ids, each.content, each.stop_reason) for each in beside] == [
        (each.token_ids, each.content, each.stop_reason) for each in alone
    ]


def test_model_that_fails_is_waited_for_by_nobody_but_the_fill(
    tiny_engine: LLMEngine, fills: Fills, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch fails, but not before its rows are filled: failing lets matchers go."""
    fills.delay_s = 0.2
    run, retire = tiny_engine._runner.run, tiny_engine._retire
    still_filling: list[bool] = []

    def fail(*_: Any) -> torch.Tensor:
        raise RuntimeError("the device is gone")

    def note(*arguments: Any) -> RequestOutput:
        still_filling.append(fills.is_going_on)
        return retire(*arguments)

    monkeypatch.setattr(tiny_engine._runner, "run", fail)
    monkeypatch.setattr(tiny_engine, "_retire", note)
    [failed] = tiny_engine.generate([[5, 6]], grammars=SPEC, on_unknown="constrain")
    assert isinstance(failed.error, EngineStepError)
    assert still_filling == [False]
    assert fills.num_beside == 1
    fills.delay_s = 0.0
    monkeypatch.setattr(tiny_engine._runner, "run", run)
    [answer] = tiny_engine.generate([[5, 6]], SamplingParams(max_tokens=80), grammars=SPEC, on_unknown="constrain")
    assert answer.stop_reason == "stop"


def test_fill_that_fails_ends_its_batch_only(tiny_engine: LLMEngine, fills: Fills) -> None:
    fills.error = ValueError("a row is broken")
    [failed] = tiny_engine.generate([[5, 6]], grammars=SPEC, on_unknown="constrain")
    assert isinstance(failed.error, EngineStepError)
    assert "a row is broken" in str(failed.error)
    fills.error = None
    [answer] = tiny_engine.generate([[5, 6]], SamplingParams(max_tokens=80), grammars=SPEC, on_unknown="constrain")
    assert answer.stop_reason == "stop"


def test_request_that_goes_away_between_steps_leaves_the_others_alone(tiny_engine: LLMEngine, fills: Fills) -> None:
    params = SamplingParams(max_tokens=80)
    for name in "abc":
        tiny_engine.add_request(name, [5, 6], params, grammar=SPEC, on_unknown="constrain")
    finals: dict[str, RequestOutput] = {}
    num_steps = 0
    while tiny_engine.has_unfinished():
        outputs = tiny_engine.step()
        num_steps += bool(outputs)
        if num_steps == 2:
            tiny_engine.abort("b")
        finals |= {output.request_id: output for output in outputs if output.finished}
    assert sorted(finals) == ["a", "c"]
    assert finals["a"].token_ids == finals["c"].token_ids
    assert finals["a"].stop_reason == "stop"


@pytest.mark.parametrize(("worth_s", "is_beside"), [(0.001, True), (1e6, False)], ids=["dear rows", "cheap rows"])
def test_second_thread_is_woken_for_rows_that_are_worth_it(
    monkeypatch: pytest.MonkeyPatch, worth_s: float, is_beside: bool
) -> None:
    fills = Fills()
    fills.delay_s = 0.01
    monkeypatch.setattr(mask_filler, "fill_masks", fills)
    monkeypatch.setattr(mask_filler, "BESIDE_FROM_S", worth_s)
    monkeypatch.setattr(mask_filler, "has_spare_core", lambda: True)
    filler = MaskFiller(40, BitmaskPool(1, 40), is_device_apart=False)
    for _ in range(12):
        filler.start([], StepClock())()
    filler.close()
    assert not fills.threads[0].startswith("thinkgate-masks")
    assert fills.threads[-1].startswith("thinkgate-masks") is is_beside


def test_device_of_its_own_is_told_what_to_do_first(fills: Fills) -> None:
    filler = MaskFiller(40, BitmaskPool(1, 40), is_device_apart=True)
    clock = StepClock()
    finish = filler.start([], clock)
    assert not fills.threads
    assert finish().rows == []
    assert fills.num_beside == 0
    assert clock.seconds("fill") > 0
    filler.close()


def test_no_core_to_spare_means_that_nothing_runs_beside_the_model(
    tiny_engine: LLMEngine, fills: Fills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_filler, "has_spare_core", lambda: False)
    [answer] = tiny_engine.generate([[5, 6]], SamplingParams(max_tokens=80), grammars=SPEC, on_unknown="constrain")
    assert answer.stop_reason == "stop"
    assert fills.threads
    assert not fills.num_beside


@pytest.mark.parametrize("num_threads", [1, 10_000])
def test_spare_core_is_one_that_torch_does_not_use(monkeypatch: pytest.MonkeyPatch, num_threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert mask_filler.has_spare_core() == (num_threads == 1)
