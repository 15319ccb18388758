"""Reserve, transition and the shortest completion."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from engine import GrammarSpec, InvalidRequestError, LLMEngine, RequestOutput, SamplingParams

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["x", "yy"]}, "ok": {"type": "boolean"}},
    "required": ["kind", "ok"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.from_json_schema(SCHEMA)


def run(engine: LLMEngine, spec: GrammarSpec, **options: Any) -> RequestOutput:
    ids = engine.render([{"role": "user", "content": "x"}], thinking=True)
    [output] = engine.generate([ids], SamplingParams(**options), grammars=spec)
    return output


def test_reserve_closes_the_thinking_in_time_b28(tiny_engine: LLMEngine) -> None:
    output = run(tiny_engine, SPEC, max_tokens=60, reserve=30)
    assert output.stop_reason == "stop"
    assert output.limits_hit == ("reserve",)
    jsonschema_rs.validate(SCHEMA, json.loads(output.content))
    assert 20 <= output.num_reasoning_tokens <= 30


def test_smaller_budget_wins_over_the_reserve(tiny_engine: LLMEngine) -> None:
    output = run(tiny_engine, SPEC, max_tokens=60, reserve=20, max_reasoning_tokens=7)
    assert (output.num_reasoning_tokens, output.limits_hit) == (7, ("max_reasoning_tokens",))
    output = run(tiny_engine, SPEC, max_tokens=60, reserve=50, max_reasoning_tokens=30)
    assert output.limits_hit == ("reserve",)
    assert output.num_reasoning_tokens < 10


def test_transition_is_thinking_and_stands_before_the_end(tiny_engine: LLMEngine) -> None:
    output = run(tiny_engine, SPEC, max_tokens=80, max_reasoning_tokens=6, transition=" So the answer is:")
    assert output.reasoning.endswith(" So the answer is:")
    jsonschema_rs.validate(SCHEMA, json.loads(output.content))


@pytest.mark.parametrize("reserve", [60, 99])
def test_reserve_that_leaves_nothing_is_refused(tiny_engine: LLMEngine, reserve: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        run(tiny_engine, SPEC, max_tokens=60, reserve=reserve)
    assert caught.value.param == "reserve"


OPEN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2}},
                "required": ["name", "tags"],
                "additionalProperties": False,
            },
            "minItems": 1,
        },
        "total": {"type": "number"},
    },
    "required": ["title", "items", "total"],
    "additionalProperties": False,
}
OPEN_SPEC = GrammarSpec.from_json_schema(OPEN_SCHEMA)


@pytest.mark.parametrize("max_tokens", [70, 130])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_answer_that_would_be_cut_is_brought_to_its_end(tiny_engine: LLMEngine, max_tokens: int, seed: int | None) -> None:
    """A random model writes strings and arrays for ever; the limit ends them, the value stays whole."""
    sampling = {} if seed is None else {"temperature": 1.0, "seed": seed}
    output = run(tiny_engine, OPEN_SPEC, max_tokens=max_tokens, max_reasoning_tokens=3, **sampling)
    assert output.stop_reason == "stop"
    assert len(output.token_ids) <= max_tokens
    jsonschema_rs.validate(OPEN_SCHEMA, json.loads(output.content))


def test_answer_that_ends_by_itself_is_left_alone(tiny_engine: LLMEngine) -> None:
    free = run(tiny_engine, SPEC, max_tokens=200, max_reasoning_tokens=3)
    near = run(tiny_engine, SPEC, max_tokens=len(free.token_ids), max_reasoning_tokens=3)
    assert near.token_ids == free.token_ids
    assert "shortest_completion" not in near.limits_hit


def test_answer_for_which_there_is_no_room_ends_at_the_limit(tiny_engine: LLMEngine) -> None:
    output = run(tiny_engine, OPEN_SPEC, max_tokens=16, max_reasoning_tokens=3)
    assert output.stop_reason == "length"


def test_shortest_completion_says_so(tiny_engine: LLMEngine) -> None:
    output = run(tiny_engine, OPEN_SPEC, max_tokens=90, max_reasoning_tokens=3)
    assert output.limits_hit == ("max_reasoning_tokens", "shortest_completion")
