"""Reserve, transition and the shortest completion."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from engine import GrammarSpec, InvalidRequestError, LLMEngine, RequestOutput, SamplingParams
from engine.grammar.endings import Endings

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
    assert output.cut is not None
    assert output.answer_start is not None
    assert output.cut.phase == "answer"
    assert output.cut.num_answer_tokens == 16 - output.answer_start
    assert output.cut.shortest_len is not None
    assert output.cut.shortest_len > output.cut.num_answer_tokens
    enough = run(tiny_engine, OPEN_SPEC, max_tokens=output.answer_start + output.cut.shortest_len, max_reasoning_tokens=3)
    assert (enough.stop_reason, enough.cut) == ("stop", None)
    jsonschema_rs.validate(OPEN_SCHEMA, json.loads(enough.content))


SMALL_SCHEMAS: dict[str, Any] = {
    "object": SCHEMA, "enum": {"enum": ["red", "green"]}, "integer": {"type": "integer"}, "boolean": {"type": "boolean"},
    "array": {"type": "array", "items": {"type": "integer"}}, "string": {"type": "string"}, "anything": {},
}  # fmt: skip
MODES: dict[str, dict[str, Any]] = {
    "thinks": {},
    "thinks-not": {},
    "budget": {"max_reasoning_tokens": 0},
    "reserve": {"reserve": 1},
}


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 10])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SMALL_SCHEMAS)
def test_few_tokens_give_a_whole_answer_or_say_what_was_cut(
    tiny_engine: LLMEngine, name: str, mode: str, max_tokens: int
) -> None:
    if mode == "reserve" and max_tokens == 1:
        pytest.skip("is refused: the reserve would be all there is")
    ids = tiny_engine.render([{"role": "user", "content": "x"}], thinking=mode != "thinks-not")
    spec = GrammarSpec.from_json_schema(SMALL_SCHEMAS[name])
    [output] = tiny_engine.generate([ids], SamplingParams(max_tokens=max_tokens, **MODES[mode]), grammars=spec)
    assert output.error is None
    assert len(output.token_ids) <= max_tokens
    if output.stop_reason == "stop":
        assert output.cut is None
        jsonschema_rs.validate(SMALL_SCHEMAS[name], json.loads(output.content))
        return
    assert output.cut is not None
    assert (output.cut.phase == "thinking") == (output.answer_start is None)
    assert output.cut.shortest_len is not None
    if output.cut.phase == "answer":
        assert output.cut.shortest_len > output.cut.num_answer_tokens == max_tokens - (output.answer_start or 0)
        assert f"takes {output.cut.shortest_len} tokens" in output.cut.message
    else:
        assert "inside the thinking" in output.cut.message
    assert "raise max_tokens" in output.cut.hint


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        (GrammarSpec.regex("[ab]"), ()),
        (GrammarSpec.from_json_schema({"type": "boolean"}), ()),
        (GrammarSpec.regex("[ab]+"), ("shortest_completion",)),
    ],
    ids=["must-end", "must-end-json", "could-go-on"],
)
def test_value_without_room_for_its_stop_id_is_whole(tiny_engine: LLMEngine, spec: GrammarSpec, limits: tuple[str, ...]) -> None:
    """It has not been cut; only where it could have gone on, the limit may have changed it."""
    [free] = tiny_engine.generate([[5, 6]], SamplingParams(max_tokens=40), grammars=spec, on_unknown="constrain")
    room = len(free.token_ids) - 1
    [output] = tiny_engine.generate([[5, 6]], SamplingParams(max_tokens=room), grammars=spec, on_unknown="constrain")
    assert output.token_ids == free.token_ids[:-1]
    assert (output.content, output.stop_reason, output.matched_stop) == (free.content, "stop", None)
    assert (output.limits_hit, output.cut) == (limits, None)


def test_ending_from_within_an_answer_is_not_kept_as_one_from_its_start(tiny_engine: LLMEngine) -> None:
    """The gate decides by the first id, so the guard first sees the grammar behind it: a minus sign here, which `0` ends."""
    spec = GrammarSpec.from_json_schema({})
    minus = tiny_engine.tokenizer.convert_tokens_to_ids("-")
    prompt = tiny_engine.tokenizer.encode("3 lamps", add_special_tokens=False)
    params = SamplingParams(max_tokens=2, logit_bias={minus: 100.0})
    [output] = tiny_engine.generate([prompt], params, grammars=spec)
    assert output.token_ids[0] == minus
    matcher = tiny_engine._grammars.request(spec).result().new_matcher(sorted(tiny_engine._loaded.stop_token_ids))
    found = tiny_engine._admission.endings.from_start(hash(spec), matcher)
    assert found is not None
    assert found == Endings(tiny_engine._admission._vocabulary).from_start(1, matcher)


def test_free_text_says_where_it_was_cut(tiny_engine: LLMEngine) -> None:
    for thinking, phase, message in ((True, "thinking", "inside the thinking"), (False, "answer", "inside the answer")):
        ids = tiny_engine.render([{"role": "user", "content": "x"}], thinking=thinking)
        [output] = tiny_engine.generate([ids], SamplingParams(max_tokens=4, ignore_eos=True))
        assert output.cut is not None
        assert (output.stop_reason, output.cut.phase, output.cut.shortest_len) == ("length", phase, None)
        assert message in output.cut.message


def test_shortest_completion_says_so(tiny_engine: LLMEngine) -> None:
    output = run(tiny_engine, OPEN_SPEC, max_tokens=90, max_reasoning_tokens=3)
    assert output.limits_hit == ("max_reasoning_tokens", "shortest_completion")
