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
