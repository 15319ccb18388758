"""Requests of every kind, crowded into few blocks with drafts, preemption and shared masks, are what each of them is alone."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from engine import EngineConfig, EngineError, GrammarSpec, LLMEngine, RequestOutput, SamplingParams
from engine.kv_cache_size import bytes_per_token
from tests.engine.schemas import make_schema

MAX_LEN = 120
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "n": {"type": "integer"}}, "required": ["a", "n"]},
    {"type": "array", "items": {"type": "string", "maxLength": 6}, "maxItems": 3},
    {},
    make_schema(random.Random(3)),
]
SPECS = [*map(GrammarSpec.from_json_schema, SCHEMAS), GrammarSpec.regex("[A-Z]{3}(</think>)?x*"), GrammarSpec.regex("é+ü{2}")]


@dataclass
class Job:
    """A request, and what was handed out for it."""

    prompt: list[int]
    params: SamplingParams
    spec: int | None
    on_unknown: Any
    priority: int
    token_ids: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=lambda: ["", ""])
    num_logprobs: int = 0
    final: RequestOutput | None = None

    def add_to(self, engine: LLMEngine, name: str) -> None:
        grammar = None if self.spec is None else SPECS[self.spec]
        engine.add_request(name, self.prompt, self.params, grammar=grammar, on_unknown=self.on_unknown, priority=self.priority)

    def take(self, output: RequestOutput) -> None:
        self.token_ids += output.new_token_ids
        self.texts[0] += output.reasoning_delta
        self.texts[1] += output.content_delta
        self.num_logprobs += len(output.new_logprobs)
        self.final = output if output.finished else None


def random_job(rng: random.Random, engine: LLMEngine, heads: list[list[int]]) -> Job:
    most, spec = rng.choice([1, 2, 3, 20, 60, 60]), rng.choice([None, None, *range(len(SPECS))])
    options: dict[str, Any] = {
        "max_tokens": most,
        "temperature": rng.choice([0.0, 0.7, 1.5]),
        "seed": rng.randrange(1000),
        "max_reasoning_tokens": rng.choice([None, 0, 1, 2, 8]),
        "reserve": rng.choice([0, 0, most - 1, most // 2]),
        "transition": rng.choice(["", " so", ", that is enough: é"]),
        "top_k": rng.choice([0, 5]),
        "repetition_penalty": rng.choice([1.0, 1.2]),
        "frequency_penalty": rng.choice([0, 0.5]),
        "logit_bias": rng.choice([{}, {rng.randrange(900): 100.0}]),
        "bad_words": rng.choice([(), ("a", "lamp")]),
        "min_tokens": rng.choice([0, min(4, most)]),
        "logprobs": rng.choice([None, 0, 3]),
        "logprobs_mode": rng.choice(["raw", "processed"]),
    }
    if rng.random() < 0.4:
        # Nothing but the limits: the way that most requests go.
        options = {name: options[name] for name in ("max_tokens", "max_reasoning_tokens", "reserve", "transition")}
    if spec is None:
        options["stop"] = rng.choice([(), ("a",), ("; ", "e"), ("é",)])
    question = engine.render([{"role": "user", "content": "3 lamps at €4"}], thinking=rng.choice([None, True, False]))
    prompt = question if rng.random() < 0.5 else [*rng.choice(heads), rng.randrange(900)]
    on_unknown = rng.choice(["first_token", "open", "constrain"])
    return Job(prompt, SamplingParams(**options), spec, on_unknown, rng.randint(-1, 1))


def check(job: Job, engine: LLMEngine) -> None:
    """What holds of every answer, whatever the model wrote."""
    output, params = job.final, job.params
    assert output is not None
    assert output.error is None
    assert (job.token_ids, *job.texts) == (output.token_ids, output.reasoning, output.content)
    assert job.num_logprobs == (0 if params.logprobs is None else len(output.token_ids))
    assert len(output.token_ids) <= params.max_tokens
    if params.max_reasoning_tokens is not None:
        most = params.max_reasoning_tokens + len(engine.tokenizer.encode(params.transition, add_special_tokens=False))
        assert output.num_reasoning_tokens <= most
    if output.stop_reason == "stop":
        assert not any(stop in output.content for stop in params.stop)
        if job.spec is not None and job.spec < len(SCHEMAS):
            jsonschema_rs.validate(SCHEMAS[job.spec], json.loads(output.content))


def what_matters(output: RequestOutput) -> tuple[Any, ...]:
    return output.token_ids, output.stop_reason, output.reasoning, output.content, output.limits_hit, output.matched_stop


@pytest.mark.parametrize(("seed", "count"), [(1, 50), pytest.param(2, 400, marks=pytest.mark.slow)])
def test_crowded_requests_are_what_they_are_alone(tiny_model: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    alone = LLMEngine(
        EngineConfig(
            model=str(tiny_model),
            max_model_len=MAX_LEN,
            max_num_seqs=1,
            max_draft_tokens=0,
            prefix_caching=False,
            grammar_memo_bytes=None,
            grammar_upgrade_after=None,  # backends differ in small things
        )
    )
    crowded = LLMEngine(
        EngineConfig(
            model=str(tiny_model),
            max_model_len=MAX_LEN,
            max_num_seqs=8,
            kv_block_size=4,
            kv_cache_bytes=bytes_per_token(alone._loaded) * (MAX_LEN + 8),
            max_num_batched_tokens=14,
            adapt_drafts=False,
            max_queue=count,
            grammar_upgrade_after=None,
        )
    )
    heads = [[rng.randrange(900) for _ in range(rng.randint(1, 50))] for _ in range(3)]
    jobs: dict[str, Job] = {}
    num_made = 0
    while num_made < count or crowded.has_unfinished():
        while num_made < count and rng.random() < 0.6:
            name, job = str(num_made), random_job(rng, alone, heads)
            num_made += 1
            try:
                job.add_to(crowded, name)
            except EngineError:  # a contradiction, or a bias against the grammar's end; refused alone too
                continue
            jobs[name] = job
        if jobs and rng.random() < 0.05 and crowded.abort(name := rng.choice(list(jobs))):
            del jobs[name]
        for output in crowded.step():
            jobs[output.request_id].take(output)
    assert crowded.totals().num_preemptions > 0
    assert crowded.totals().num_accepted_draft_tokens > 0
    for name, job in jobs.items():
        check(job, crowded)
        if job.params.temperature == 0 and job.params.logprobs is None:
            # Greedy tokens are read off the logits; with log-probabilities they are chosen as all others.
            job.params = replace(job.params, logprobs=0)
        job.add_to(alone, name)
        last: RequestOutput | None = None
        while alone.has_unfinished():
            last = next(iter(alone.step()), last)
        assert last is not None
        assert job.final is not None
        assert what_matters(job.final) == what_matters(last), job
    crowded.close()
    alone.close()
