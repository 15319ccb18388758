"""Many requests of every kind, with aborts, failing steps and too few blocks: no leak, and every answer is valid or an error."""

from __future__ import annotations

import gc
import json
import random
import threading
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch

from engine import (
    EngineBusyError,
    EngineConfig,
    EngineError,
    GrammarError,
    GrammarSpec,
    LLMEngine,
    RequestOutput,
    SamplingParams,
    llm_engine,
)
from engine.sequence import Sequence

SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 4},
    {"enum": ["red", "green", "blue"]},
]
SPECS = [GrammarSpec.from_json_schema(schema) for schema in SCHEMAS]
BAD_SPEC = GrammarSpec.lark('start: "a"\n%ignore " "', backend="xgrammar")
FAILURE_SHARE = 0.01


class Soak:
    """One engine with few blocks, a model that fails now and then, and callers without patience."""

    def __init__(self, model: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng = random.Random(seed)
        self.engine = LLMEngine(
            EngineConfig(
                model=str(model),
                max_model_len=96,
                kv_block_size=4,
                kv_cache_bytes=160 * 256,
                max_num_seqs=6,
                max_num_batched_tokens=32,
                max_queue=20,
            )
        )
        self.heads = [[self.rng.randrange(900) for _ in range(self.rng.randint(1, 40))] for _ in range(4)]
        self.asked: dict[str, int | None] = {}
        self.finals: dict[str, RequestOutput] = {}
        self._run = self.engine._runner.run
        monkeypatch.setattr(self.engine._runner, "run", self._fail_sometimes)

    def _fail_sometimes(self, chunks: Any) -> torch.Tensor:
        if self.rng.random() < FAILURE_SHARE:
            raise MemoryError("no room")
        logits = self._run(chunks)
        if len(logits) and self.rng.random() < FAILURE_SHARE:
            logits[self.rng.randrange(len(logits))] = float("nan")
        return logits

    def submit(self, name: str) -> None:
        rng = self.rng
        which = rng.choice([None, None, 0, 1, 2])
        params = SamplingParams(
            max_tokens=rng.randint(1, 50),
            temperature=rng.choice([0.0, 1.0]),
            seed=rng.randrange(100),
            max_reasoning_tokens=rng.choice([None, 0, 5]),
        )
        prompt_ids = rng.choice(self.heads) + [rng.randrange(900) for _ in range(rng.randint(0, 10))]
        try:
            self.engine.add_request(
                name,
                prompt_ids,
                params,
                grammar=BAD_SPEC if rng.random() < 0.02 else None if which is None else SPECS[which],
                on_unknown=rng.choice(["constrain", "open", "first_token"]),
                priority=rng.randint(-1, 1),
            )
        except (EngineBusyError, GrammarError):
            return
        self.asked[name] = which

    def step(self) -> None:
        self.finals |= {output.request_id: output for output in self.engine.step() if output.finished}
        scheduler, cache = self.engine._scheduler, self.engine._kv_cache
        held = {block_id for sequence in scheduler._running for block_id in sequence.blocks.block_ids}
        assert cache.num_free_blocks == cache.num_blocks - len(held)
        assert not any(sequence.blocks.block_ids for sequence in scheduler._waiting)

    def check(self) -> None:
        assert self.asked.keys() <= self.finals.keys()
        assert self.engine._kv_cache.num_free_blocks == self.engine._kv_cache.num_blocks
        assert self.engine._scheduler._places == {}
        for name, which in self.asked.items():
            output = self.finals[name]
            assert output.error is None or isinstance(output.error, EngineError)
            if which is not None and output.stop_reason == "stop":
                jsonschema_rs.validate(SCHEMAS[which], json.loads(output.content))


def run_soak(soak: Soak, count: int) -> None:
    num_sent = 0
    while num_sent < count or soak.engine.has_unfinished():
        if num_sent < count and soak.rng.random() < 0.5:
            soak.submit(str(num_sent))
            num_sent += 1
        if num_sent and soak.rng.random() < 0.04:
            gone = str(soak.rng.randrange(num_sent))
            soak.engine.abort(gone)
            soak.asked.pop(gone, None)
        soak.step()
    soak.check()


@pytest.mark.parametrize("count", [120, pytest.param(2000, marks=pytest.mark.slow)])
def test_soak_leaks_nothing(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    num_threads = threading.active_count()
    # Records with tracebacks hold the frames of steps that failed, and their sequences.
    monkeypatch.setattr(llm_engine.logger, "exception", llm_engine.logger.error)
    soak = Soak(tiny_model, count, monkeypatch)
    run_soak(soak, count)
    assert soak.engine._scheduler.num_preemptions > 0
    assert "please report" not in caplog.text
    gc.collect()
    # Matchers belong to them.
    assert not [thing for thing in gc.get_objects() if type(thing) is Sequence]
    soak.engine.close()
    assert threading.active_count() <= num_threads + 1
