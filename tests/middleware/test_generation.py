"""The core through the public clients, on a scripted upstream; each case once without and once with asyncio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from middleware import (
    AnswerTruncatedError,
    AsyncClient,
    Client,
    ContentDelta,
    Event,
    FinalResult,
    InvalidAnswerError,
    InvalidRequestError,
    NoFinalAnswerError,
    PartialObject,
    ReasoningDelta,
    ReasoningTruncatedError,
    Regex,
    Result,
    RetryStarted,
    TokenLogprob,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    Usage,
)
from middleware.testing import Reply, ScriptedUpstream, reply
from middleware.upstreams.base import UpstreamDelta, UpstreamEnd, UpstreamTraits

REMOTE = UpstreamTraits(wraps_root=True, extracts_answer=True)


class Color(BaseModel):
    hue: Literal["red", "green"]
    pct: int = Field(ge=50)


class Node(BaseModel):
    name: str
    kids: list[Node] = []


GOOD = '{"hue":"green","pct":75}'
Collect = Callable[..., list[Event[Any]]]


def collect_sync(upstream: ScriptedUpstream, output_type: Any, messages: Any = "hi", **options: Any) -> list[Event[Any]]:
    with Client("test", upstream=upstream) as client, client.stream(output_type, messages, **options) as stream:
        return list(stream)


def collect_async(upstream: ScriptedUpstream, output_type: Any, messages: Any = "hi", **options: Any) -> list[Event[Any]]:
    async def run() -> list[Event[Any]]:
        async with AsyncClient("test", upstream=upstream) as client, client.stream(output_type, messages, **options) as stream:
            return [event async for event in stream]

    return asyncio.run(run())


@pytest.fixture(params=[collect_sync, collect_async], ids=["sync", "async"])
def collect(request: pytest.FixtureRequest) -> Collect:
    return request.param  # type: ignore[no-any-return]


def result_of(events: Sequence[Event[Any]]) -> Result[Any]:
    last = events[-1]
    assert isinstance(last, FinalResult)
    return last.result


def partials_of(events: Sequence[Event[Any]]) -> list[Any]:
    return [event.value for event in events if isinstance(event, PartialObject)]


def test_stream_gives_every_delta_then_the_result(collect: Collect) -> None:
    events = collect(ScriptedUpstream([reply("I think.", GOOD)]), Color)
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "I think."
    assert "".join(event.text for event in events if isinstance(event, ContentDelta)) == GOOD
    result = result_of(events)
    assert (result.output, result.reasoning, result.content) == (Color(hue="green", pct=75), "I think.", GOOD)
    assert (result.attempts, result.finish_reason, result.usage) == (1, "stop", Usage(10, 8, 2))
    assert result.duration_s >= 0


def test_partials_never_show_half_a_field_d21(collect: Collect) -> None:
    script = [UpstreamDelta(content=piece) for piece in ('{"hue":"gr', 'een","pct":7', "5}")]
    events = collect(ScriptedUpstream([[*script, UpstreamEnd()]]), Color)
    assert partials_of(events) == [{}, {"hue": "green"}, {"hue": "green", "pct": 75}]


def test_partials_of_a_recursive_model_d23(collect: Collect) -> None:
    text = '{"name":"a","kids":[{"name":"b","kids":[]}]}'
    for traits in (UpstreamTraits(), REMOTE):
        events = collect(ScriptedUpstream([reply("", text)], traits=traits), Node)
        assert partials_of(events)[-1] == json.loads(text)
        assert result_of(events).output.kids[0].name == "b"


def test_partials_are_snapshots(collect: Collect) -> None:
    values = partials_of(collect(ScriptedUpstream([reply("", GOOD)]), Color))
    values[-1]["hue"] = "changed"
    assert values[-2] == {"hue": "green"}


def test_partials_see_the_content_only_a11(collect: Collect) -> None:
    events = collect(ScriptedUpstream([reply('try {"tmp":1} first', '{"city":"Oslo"}')]), {"type": "object"})
    assert partials_of(events)[-1] == {"city": "Oslo"}
    assert all("tmp" not in str(value) for value in partials_of(events))


def test_list_is_wrapped_for_upstreams_that_want_objects_d25(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", '{"value":[1,2,3]}')], traits=REMOTE)
    events = collect(upstream, list[int])
    assert result_of(events).output == [1, 2, 3]
    assert partials_of(events)[-1] == [1, 2, 3]
    schema = upstream.requests[0].schema
    assert schema is not None
    assert (schema["type"], schema["required"]) == ("object", ["value"])


def test_list_is_not_wrapped_for_the_engine_d25(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", "[1,2,3]")])
    assert result_of(collect(upstream, list[int])).output == [1, 2, 3]
    assert upstream.requests[0].schema == {"type": "array", "items": {"type": "integer"}}


def test_free_text_has_no_schema_and_no_partials(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", '{"a":1} is JSON')])
    events = collect(upstream, None)
    assert (result_of(events).output, partials_of(events), upstream.requests[0].schema) == ('{"a":1} is JSON', [], None)


def test_invalid_answer_is_asked_for_again_with_its_problems(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("a", '{"hue":"green","pct":7}'), reply("b", GOOD)])
    events = collect(upstream, Color, [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])
    (retry,) = (event for event in events if isinstance(event, RetryStarted))
    assert (retry.attempt, retry.problems[0].pointer) == (2, "#/pct")
    *before, answer, note = upstream.requests[1].messages
    assert [message["content"] for message in before] == ["s", "u"]
    assert (answer["role"], answer["content"]) == ("assistant", '{"hue":"green","pct":7}')
    assert note["role"] == "user"
    assert "#/pct: 7 is less than the minimum of 50" in note["content"]
    result = result_of(events)
    assert (result.attempts, result.reasoning, result.usage.prompt_tokens) == (2, "b", 20)
    assert upstream.reported == [upstream.requests[0]]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("Sure! Name: Bob", id="D4"),
        pytest.param('{\n\n{\n"v":"x"\n}\n', id="D6"),
        pytest.param('{"v":NaN}', id="ruling-8"),
    ],
)
def test_bad_answers_end_in_a_typed_error(collect: Collect, content: str) -> None:
    upstream = ScriptedUpstream([reply("r", content)] * 3, traits=REMOTE)
    with pytest.raises(InvalidAnswerError) as caught:
        collect(upstream, {"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]})
    error = caught.value
    assert len(upstream.requests) == len(error.attempts) == 3
    assert (error.raw_content, error.reasoning, error.phase, error.usage.prompt_tokens) == (content, "r", "answer", 30)
    assert error.problems[0].kind == "json"


def test_max_attempts_bounds_the_attempts(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", "no")])
    with pytest.raises(InvalidAnswerError, match="in 1 attempt"):
        collect(upstream, Color, max_attempts=1)
    assert upstream.reported == upstream.requests


def test_problem_of_a_python_validator_is_no_news_about_the_upstream(collect: Collect) -> None:
    class Picky(BaseModel):
        a: int

        def model_post_init(self, _: Any) -> None:
            raise ValueError("never good enough")

    upstream = ScriptedUpstream([reply("", '{"a":1}')] * 2)
    with pytest.raises(InvalidAnswerError, match="never good enough"):
        collect(upstream, Picky, max_attempts=2)
    assert upstream.reported == []
    assert "never good enough" in upstream.requests[1].messages[-1]["content"]


def test_empty_tuple_is_an_answer(collect: Collect) -> None:
    assert result_of(collect(ScriptedUpstream([reply("", "[]")]), tuple[int, ...])).output == ()


def test_partials_appear_behind_a_fence_or_not_at_all(collect: Collect) -> None:
    def partials(before: str) -> list[Any]:
        return partials_of(collect(ScriptedUpstream([reply("", before + GOOD)], traits=REMOTE), Color))

    assert partials("Here it is:\n```json\n")[-1] == {"hue": "green", "pct": 75}
    assert partials("Here it is: ") == []
    assert partials("x" * 5000 + "\n```json\n") == []


def test_truncated_thinking_is_not_repeated_d26(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("thinking on and on", finish_reason="length")])
    with pytest.raises(ReasoningTruncatedError) as caught:
        collect(upstream, Color)
    error = caught.value
    assert (error.reasoning, error.raw_content, error.phase, error.finish_reason) == (
        "thinking on and on",
        "",
        "reasoning",
        "length",
    )
    assert error.usage.reasoning_tokens == 5
    assert "max_reasoning_tokens" in (error.hint or "")
    assert len(upstream.requests) == 1


def test_truncated_answer_carries_the_partial_object(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("r", '{"hue":"green","pct":7', finish_reason="length")])
    with pytest.raises(AnswerTruncatedError) as caught:
        collect(upstream, Color)
    error = caught.value
    assert (error.reasoning, error.raw_content, error.partial) == ("r", '{"hue":"green","pct":7', {"hue": "green"})
    assert (error.phase, error.finish_reason, len(upstream.requests)) == ("answer", "length", 1)


def test_truncated_answer_of_a_wrapped_type_carries_the_value(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", '{"value":[1,2', finish_reason="length")], traits=REMOTE)
    with pytest.raises(AnswerTruncatedError) as caught:
        collect(upstream, list[int])
    assert caught.value.partial == [1]


def test_truncated_free_text_is_a_result(collect: Collect) -> None:
    result = result_of(collect(ScriptedUpstream([reply("", "once upon", finish_reason="length")]), None))
    assert (result.output, result.finish_reason) == ("once upon", "length")


def test_empty_answer_adds_no_assistant_turn_d26(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("only thinking"), reply("", GOOD)])
    result = result_of(collect(upstream, Color))
    assert result.attempts == 2
    (message,) = upstream.requests[1].messages
    assert message["role"] == "user"
    assert message["content"].startswith("hi\n\n")
    assert "no answer" in message["content"]


def test_empty_answer_after_an_assistant_turn_d26(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("only thinking"), reply("", GOOD)])
    collect(upstream, Color, [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}])
    assert [message["role"] for message in upstream.requests[1].messages] == ["user", "assistant", "user"]


def test_values_of_a_thinned_out_stream_come_at_the_end(collect: Collect) -> None:
    text = json.dumps([{"name": f"item {index}"} for index in range(2000)])
    events = collect(ScriptedUpstream([reply("", text)]), list[dict[str, str]])
    assert partials_of(events)[-1] == json.loads(text)


def test_usage_adds_up() -> None:
    assert Usage(1, 2, None) + Usage(3, 4, None) == Usage(4, 6, None)
    assert (Usage(1, 2, None) + Usage(3, 4, 5)).reasoning_tokens == 5
    assert Usage(1, 2).total_tokens == 3


def test_no_final_answer_raises_a21(collect: Collect) -> None:
    with pytest.raises(NoFinalAnswerError) as caught:
        collect(ScriptedUpstream([reply("I think")] * 3), Color)
    assert (caught.value.reasoning, caught.value.raw_content, caught.value.finish_reason) == ("I think", "", "stop")


def test_no_final_answer_of_free_text_raises_a21(collect: Collect) -> None:
    with pytest.raises(NoFinalAnswerError):
        collect(ScriptedUpstream([reply("I think")]), None, max_attempts=1)


@pytest.mark.parametrize(("end", "has_hint"), [(UpstreamEnd(), True), (UpstreamEnd(usage=Usage(1, 1)), False)])
def test_nothing_at_all_is_told_apart_from_an_empty_answer(collect: Collect, end: UpstreamEnd, has_hint: bool) -> None:
    with pytest.raises(NoFinalAnswerError) as caught:
        collect(ScriptedUpstream([[end]]), Color, max_attempts=1)
    assert ("nothing at all was received" in (caught.value.hint or "")) == has_hint


def test_refusal_is_not_asked_again(collect: Collect) -> None:
    upstream = ScriptedUpstream([[UpstreamEnd(refusal="I may not")]])
    with pytest.raises(NoFinalAnswerError, match="I may not"):
        collect(upstream, Color)


def test_content_filter_is_not_asked_again(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", '{"hue":', finish_reason="content_filter")])
    with pytest.raises(NoFinalAnswerError) as caught:
        collect(upstream, Color)
    assert caught.value.finish_reason == "content_filter"


def test_enforcement_is_upstream_only_if_the_first_answer_kept_to_the_schema(collect: Collect) -> None:
    end = UpstreamEnd(enforcement="upstream", strategy="native")
    good, fenced = UpstreamDelta(content=GOOD), UpstreamDelta(content=f"```json\n{GOOD}\n```")
    scripts: list[tuple[list[Reply], str]] = [
        ([[good, end]], "upstream"),
        ([[fenced, end]], "validated"),
        ([[UpstreamDelta(content="no"), end], [good, end]], "validated"),
    ]
    for script, expected in scripts:
        result = result_of(collect(ScriptedUpstream(script, traits=REMOTE), Color))
        assert (result.enforcement, result.strategy) == (expected, "native")
        assert bool(result.notes) is (expected == "validated")


def test_enforcement_of_the_engine_is_passed_on(collect: Collect) -> None:
    end = UpstreamEnd(enforcement="masked", strategy="mask", checked_after=("#/properties/pct/minimum",))
    result = result_of(collect(ScriptedUpstream([[UpstreamDelta(content=GOOD), end]]), Color))
    assert (result.enforcement, result.checked_after) == ("masked", ("#/properties/pct/minimum",))


def test_missing_thinking_is_noted_d5(collect: Collect) -> None:
    result = result_of(collect(ScriptedUpstream([reply("", GOOD)]), Color, thinking=True))
    assert result.reasoning is None
    assert "thinking was asked for" in result.notes[0]


def test_upstream_error_carries_what_was_received(collect: Collect) -> None:
    script: Reply = [UpstreamDelta("so far", '{"hue"'), UpstreamBusyError("busy", status=429)]
    with pytest.raises(UpstreamBusyError) as caught:
        collect(ScriptedUpstream([script]), Color)
    assert (caught.value.reasoning, caught.value.raw_content, caught.value.retryable) == ("so far", '{"hue"', True)


def test_stream_without_an_end_is_an_error(collect: Collect) -> None:
    with pytest.raises(UpstreamError, match="ended without"):
        collect(ScriptedUpstream([[UpstreamDelta(content="x")]]), Color)


def test_time_runs_out_between_attempts(collect: Collect) -> None:
    with pytest.raises(UpstreamTimeoutError):
        collect(ScriptedUpstream([reply("", "no")] * 3), Color, timeout_s=1e-9)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"on_unknown": "maybe"}, "on_unknown"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": float("inf")}, "timeout_s"),
        ({"min_p": 2}, "min_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"logit_bias": {-5: 1}}, "logit_bias"),
        ({"logit_bias": {5: 101}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"stop": ""}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"logprob": 5}, "logprob"),
        ({"max_token": 5}, "max_token"),
        ({"temprature": 5}, "temprature"),
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(collect: Collect, options: dict[str, Any], param: str) -> None:
    upstream = ScriptedUpstream([])
    with pytest.raises(InvalidRequestError) as caught:
        collect(upstream, Color, **options)
    assert caught.value.param == param
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"temperature": -1}, "at least 0"),
        ({"top_p": 0}, "above 0, at most 1"),
        ({"max_attempts": 0}, "at least 1, at most 100"),
        ({"max_tokens": 0}, "at least 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_option_out_of_range_tells_the_range(collect: Collect, options: dict[str, Any], hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        collect(ScriptedUpstream([]), Color, **options)
    assert caught.value.hint == hint


def test_other_options_are_passed_on(collect: Collect) -> None:
    upstream = ScriptedUpstream([reply("", GOOD)])
    collect(upstream, Color, seed=3, service_tier="flex")
    settings = upstream.requests[0].settings
    assert (settings.seed, settings.extra, settings.max_tokens) == (3, {"service_tier": "flex"}, None)


@pytest.mark.parametrize("stop", ["x", ("x", "y")])
def test_stop_texts_are_refused_where_a_type_binds_the_answer(collect: Collect, stop: Any) -> None:
    upstream = ScriptedUpstream([])
    for output_type in (Color, Regex("a+")):
        with pytest.raises(InvalidRequestError) as caught:
            collect(upstream, output_type, stop=stop)
        assert caught.value.param == "stop"
    assert upstream.requests == []


def test_logprobs_of_the_last_attempt_are_the_results(collect: Collect) -> None:
    def script(text: str, *logprobs: TokenLogprob) -> Reply:
        return [UpstreamDelta("t", text, logprobs), UpstreamDelta(logprobs=logprobs), UpstreamEnd(is_reasoning_open=False)]

    bad, good = TokenLogprob("no", -1.0), TokenLogprob("yes", -0.5)
    events = collect(ScriptedUpstream([script("no", bad), script(GOOD, good)]), Color, logprobs=0)
    assert result_of(events).logprobs == (good, good)
    assert [event.logprobs for event in events if isinstance(event, ContentDelta)] == [(bad,), (bad,), (good,), (good,)]


def test_refused_further_attempt_tells_what_was_wrong_with_the_last(collect: Collect) -> None:
    """Its prompt is longer, and may not fit any more."""
    too_long = InvalidRequestError("the prompt has 9 tokens", param="messages")
    with pytest.raises(InvalidAnswerError) as caught:
        collect(ScriptedUpstream([reply("I think", '{"hue":"blue","pct":75}'), [too_long]]), Color)
    error = caught.value
    assert (error.reasoning, error.raw_content, len(error.attempts)) == ("I think", '{"hue":"blue","pct":75}', 1)
    assert "hue" in str(error.problems[0])
    assert error.hint is not None
    assert "the prompt has 9 tokens" in error.hint


def test_constraint_that_proves_too_complex_carries_what_was_written(collect: Collect) -> None:
    script: Reply = [UpstreamDelta("I think", '{"hue":'), UnsupportedSchemaError("too complex")]
    with pytest.raises(UnsupportedSchemaError) as caught:
        collect(ScriptedUpstream([script]), Color)
    assert (caught.value.reasoning, caught.value.raw_content) == ("I think", '{"hue":')


def test_long_patterns_are_shown_in_part(collect: Collect) -> None:
    pattern = "|".join(f"a{number}" for number in range(5000))
    upstream = ScriptedUpstream([reply("", '"b"')] * 2, traits=UpstreamTraits(extracts_answer=True))
    with pytest.raises(InvalidAnswerError) as caught:
        collect(upstream, {"type": "string", "pattern": pattern}, max_attempts=2)
    assert len(str(caught.value)) < 1000
    assert sum(len(message["content"]) for message in upstream.requests[1].messages) < 2000
    assert pattern in caught.value.problems[0].message
