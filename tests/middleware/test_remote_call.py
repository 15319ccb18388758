"""One remote request without a network: what is sent, and how chunks are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from middleware import InvalidRequestError, TokenLogprob, UpstreamError, UpstreamUnavailableError
from middleware.settings import GenerationSettings
from middleware.upstreams.base import ChatRequest, UpstreamDelta, UpstreamEnd
from middleware.upstreams.chunks import read_delta
from middleware.upstreams.content_splitter import find_family
from middleware.upstreams.remote_call import RemoteCall, Target
from middleware.upstreams.schema_modes import CapabilityMemory, SchemaMode, response_format

SCHEMA = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "integer"}}}
CASES = json.loads((Path(__file__).parents[1] / "cases" / "text_cases.json").read_text())
FIELDS = ("A11", "A20", "A22.a", "A22.b", "A22.c", "D4", "D6", "D8")


class Refused(Exception):
    status_code = 400


def make_call(
    *,
    family: str = "auto",
    mode: SchemaMode = "native",
    memory: CapabilityMemory | None = None,
    schema: Any = SCHEMA,
    **settings: Any,
) -> RemoteCall:
    target = Target(
        model="openai/test",
        base_url="http://127.0.0.1:1/v1",
        api_key="k",
        family=find_family("openai/test", family),
        strictens=False,
        thinking_control=settings.pop("thinking_control", "template"),
        budget_control=settings.pop("budget_control", "none"),
    )
    request = ChatRequest([{"role": "user", "content": "hi"}], schema, GenerationSettings(**settings))
    return RemoteCall(request, target, memory or CapabilityMemory(mode))


def chunk(delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **more}


def read(call: RemoteCall, deltas: Iterable[dict[str, Any]], finish_reason: str = "stop") -> tuple[str, str, UpstreamEnd]:
    items: list[Any] = []
    for delta in deltas:
        items += call.receive(chunk(delta))
    items += call.receive(chunk({}, finish_reason))
    items += call.end()
    end = items.pop()
    assert isinstance(end, UpstreamEnd)
    assert all(isinstance(item, UpstreamDelta) and (item.reasoning or item.content) for item in items)
    return "".join(item.reasoning for item in items), "".join(item.content for item in items), end


def pieces_of(case: dict[str, Any], size: int | None) -> list[dict[str, Any]]:
    if case["text"] is None:
        return list(case["deltas"])
    if size is None:
        return [{"content": piece} for piece in case.get("deltas", [case["text"]])]
    return [{"content": case["text"][start : start + size]} for start in range(0, len(case["text"]), size)]


@pytest.mark.parametrize("size", [None, 1, 3, 1000], ids=["as-given", "1", "3", "whole"])
@pytest.mark.parametrize("case", [case for case in CASES if case["id"] in FIELDS], ids=lambda case: str(case["id"]))
def test_reply_is_split_as_in_the_case(case: dict[str, Any], size: int | None) -> None:
    for schema in (SCHEMA, None):
        call = make_call(family=case["parser"], schema=schema, thinking=case["thinking_enabled"])
        reasoning, content, _ = read(call, pieces_of(case, size))
        assert reasoning.strip() == (case["reasoning"] or "")
        if "content" in case:
            assert content.strip() == (case["content"] or "")


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        pytest.param({"reasoning_content": "r"}, ("r", ""), id="reasoning_content"),
        pytest.param({"reasoning": "r"}, ("r", ""), id="reasoning"),
        pytest.param({"thinking": "r"}, ("r", ""), id="thinking"),
        pytest.param({"reasoning_content": "r", "reasoning": "r", "thinking": "r"}, ("r", ""), id="T10-not-twice"),
        pytest.param({"reasoning_content": "r", "content": "c"}, ("r", "c"), id="both-in-one-delta"),
        pytest.param({"thinking_blocks": [{"type": "thinking", "thinking": "r", "signature": "s"}]}, ("r", ""), id="blocks"),
        pytest.param({"thinking_blocks": [{"thinking": "r"}], "reasoning_content": "r"}, ("r", ""), id="blocks-not-twice"),
        pytest.param(
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}, {"type": "text", "text": "c"}]},
            ("r", "c"),
            id="T11-parts",
        ),
        pytest.param({"content": None, "reasoning": None}, ("", ""), id="nulls"),
        pytest.param({}, ("", ""), id="empty"),
    ],
)
def test_delta_is_read_whatever_the_spelling(delta: dict[str, Any], expected: tuple[str, str]) -> None:
    assert read_delta(delta) == expected


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_every_thinking_delta_survives_d8(field: str) -> None:
    reasoning, content, _ = read(make_call(), [*({field: f"t{number}"} for number in range(1, 6)), {"content": '{"a":1}'}])
    assert (reasoning, content) == ("t1t2t3t4t5", '{"a":1}')


def test_template_opened_thinking_is_split_off_without_a_family_a4() -> None:
    for size in (1, 4, 100):
        text = 'plan {"x":2}</think>\n\n{"a":1}'
        pieces = [{"content": text[start : start + size]} for start in range(0, len(text), size)]
        reasoning, content, _ = read(make_call(), pieces)
        assert (reasoning, content.strip()) == ('plan {"x":2}', '{"a":1}')


def test_markers_inside_the_answer_are_data() -> None:
    text = '{"a":"use </think> and <think>"}'
    assert read(make_call(), [{"content": text}])[:2] == ("", text)
    assert read(make_call(family="deepseek_r1"), [{"content": character} for character in text])[:2] == ("", text)
    assert read(make_call(), [{"reasoning": "r"}, {"content": "<think>"}, {"content": "x"}])[:2] == ("r", "<think>x")


def test_family_none_looks_for_no_markers() -> None:
    assert read(make_call(family="none"), [{"content": "<think>r</think>x"}])[:2] == ("", "<think>r</think>x")


def test_answer_filed_as_thinking_is_an_answer_when_thinking_is_off() -> None:
    reasoning, content, end = read(make_call(thinking=False), [{"reasoning": '{"a"'}, {"reasoning": ":1}"}])
    assert (reasoning, content) == ("", '{"a":1}')
    assert "filed the answer as thinking" in end.notes[0]
    assert read(make_call(thinking=False), [{"reasoning": "r"}, {"content": "{}"}])[:2] == ("r", "{}")


def test_open_thinking_is_reported() -> None:
    *_, end = read(make_call(), [{"content": "<think>on and on"}], "length")
    assert (end.finish_reason, end.is_reasoning_open) == ("length", True)
    *_, end = read(make_call(), [{"content": "<think>r</think>{"}], "length")
    assert end.is_reasoning_open is False


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("hosted_vllm/Qwen/Qwen3-8B", "qwen3"),
        ("deepseek/deepseek-r1", "deepseek_r1"),
        ("ollama/qwq:32b", "deepseek_r1"),
        ("openai/test", "qwen3"),
    ],
)
def test_family_is_found_by_the_model_name(model: str, family: str) -> None:
    row = find_family(model, "auto")
    assert row is not None
    assert row.name == family


def test_native_request_carries_the_schema_in_order_c26() -> None:
    arguments = make_call().arguments()
    sent = arguments["response_format"]["json_schema"]["schema"]
    assert list(sent["properties"]) == ["z", "a"]
    assert arguments["messages"] == [{"role": "user", "content": "hi"}]
    assert arguments["drop_params"] is False
    assert arguments["stream"] is True
    assert "temperature" not in arguments


@pytest.mark.parametrize("mode", ["json_object", "prompted"])
def test_weaker_requests_carry_the_schema_in_the_prompt(mode: SchemaMode) -> None:
    arguments = make_call(mode=mode).arguments()
    system = arguments["messages"][0]
    assert system["role"] == "system"
    assert json.dumps(SCHEMA) in system["content"]
    assert arguments.get("response_format") == ({"type": "json_object"} if mode == "json_object" else None)


def test_prompted_schema_joins_the_callers_system_message() -> None:
    call = make_call(mode="prompted")
    call._request.messages.insert(0, {"role": "system", "content": "be brief"})  # type: ignore[attr-defined]
    system, user = call.arguments()["messages"]
    assert system["content"].startswith("be brief\n\n")
    assert user["role"] == "user"


def test_refused_schema_is_asked_for_in_weaker_ways_d3_d16() -> None:
    memory = CapabilityMemory("native")
    call = make_call(memory=memory)
    formats = [call.arguments().get("response_format", {}).get("type")]
    for _ in range(2):
        assert list(call.step_down(Refused("this response_format is unavailable now"))) == []
        formats.append(call.arguments().get("response_format", {}).get("type"))
    assert formats == ["json_schema", "json_object", None]
    with pytest.raises(UpstreamError) as caught:
        list(call.step_down(Refused("something else")))
    assert caught.value.status == 400
    assert [ask.mode for ask in memory.asks()] == ["native", "json_object", "prompted"]


def test_json_object_refused_becomes_json_schema_d16() -> None:
    call = make_call(mode="json_object")
    list(call.step_down(Refused("'response_format.type' must be 'json_schema' or 'text'")))
    assert call.arguments()["response_format"]["type"] == "json_schema"


def test_working_way_of_asking_is_remembered_d20() -> None:
    memory = CapabilityMemory("native")
    call = make_call(memory=memory)
    list(call.step_down(Refused("no")))
    *_, end = read(call, [{"content": "{}"}])
    assert (end.strategy, end.enforcement) == ("json_object", "validated")
    assert "refused the schema as native" in end.notes[0]
    assert make_call(memory=memory).arguments()["response_format"]["type"] == "json_object"


def test_ignored_schema_goes_into_the_prompt_d20() -> None:
    memory = CapabilityMemory("native")
    assert read(make_call(memory=memory), [{"content": "{}"}])[2].enforcement == "upstream"
    memory.note_ignored()
    call = make_call(memory=memory)
    assert json.dumps(SCHEMA) in call.arguments()["messages"][0]["content"]
    assert call.arguments()["response_format"]["type"] == "json_schema"
    assert read(call, [{"content": "{}"}])[2].enforcement == "validated"


def test_error_after_text_is_final_and_gives_the_text_first() -> None:
    call = make_call()
    list(call.receive(chunk({"content": "prose that may be thinking"})))
    given = call.step_down(Refused("no"))
    assert next(given) == UpstreamDelta(content="prose that may be thinking")
    with pytest.raises(UpstreamError):
        next(given)


def test_stream_without_finish_reason_is_cut_off() -> None:
    call = make_call()
    list(call.receive(call.tap.straighten(chunk({"content": "{}"}))))
    with pytest.raises(UpstreamUnavailableError, match="finish_reason"):
        list(call.end())


def test_usage_is_read_and_an_estimate_is_said_to_be_one() -> None:
    call = make_call()
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 2}}
    list(call.receive(call.tap.straighten({**chunk({"content": "{}"}, "stop"), "usage": usage})))
    end = list(call.end())[-1]
    assert isinstance(end, UpstreamEnd)
    assert (end.usage.prompt_tokens, end.usage.completion_tokens, end.usage.reasoning_tokens, end.notes) == (3, 4, 2, ())

    call = make_call()
    list(call.receive(call.tap.straighten(chunk({"content": "{}"}, "stop"))))
    list(call.receive({"choices": [], "usage": usage}))
    end = list(call.end())[-1]
    assert isinstance(end, UpstreamEnd)
    assert end.usage.reasoning_tokens is None
    assert "estimate" in end.notes[0]


def test_tool_calls_are_noted_and_second_choices_left_out() -> None:
    call = make_call()
    list(call.receive(chunk({"tool_calls": [{"id": "a"}]})))
    assert list(call.receive({"choices": [{"index": 1, "delta": {"content": "{}"}, "finish_reason": None}]})) == []
    *_, end = read(call, [], "tool_calls")
    assert (end.finish_reason, "tool calls" in end.notes[0]) == ("tool_calls", True)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"thinking": False}, {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}),
        ({"thinking": True, "thinking_control": "effort"}, {"reasoning_effort": "medium"}),
        ({"thinking": False, "thinking_control": "effort"}, {"reasoning_effort": "none"}),
        ({"max_reasoning_tokens": 9, "budget_control": "vllm"}, {"extra_body": {"thinking_token_budget": 9}}),
        ({"max_reasoning_tokens": 2000, "budget_control": "anthropic"}, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ({"max_tokens": 5, "seed": 1, "top_k": 2}, {"max_tokens": 5, "seed": 1, "top_k": 2}),
        ({"extra": {"service_tier": "flex"}}, {"service_tier": "flex"}),
        ({"frequency_penalty": 1, "presence_penalty": -1.5}, {"frequency_penalty": 1, "presence_penalty": -1.5}),
        ({"min_p": 0.1, "repetition_penalty": 1.1}, {"min_p": 0.1, "repetition_penalty": 1.1}),
        ({"stop": "END"}, {"stop": ["END"]}),
        ({"stop": ("a", "b")}, {"stop": ["a", "b"]}),
        ({"logit_bias": {7: -100}}, {"logit_bias": {"7": -100}}),
        ({"logprobs": 0}, {"logprobs": True, "top_logprobs": 0}),
        ({"logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({}, {"logprobs": None, "stop": None, "logit_bias": None, "min_p": None}),
    ],
)
def test_options_are_sent_in_the_providers_words(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    arguments = make_call(**settings).arguments()
    assert {name: arguments.get(name) for name in expected} == expected


def test_body_fields_of_the_caller_are_kept_beside_ours() -> None:
    arguments = make_call(thinking=True, extra={"extra_body": {"min_p": 0.1}}).arguments()
    assert arguments["extra_body"] == {"chat_template_kwargs": {"enable_thinking": True}, "min_p": 0.1}


@pytest.mark.parametrize("name", ["n", "stream", "response_format", "api_base"])
def test_options_that_would_be_read_wrongly_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make_call(extra={name: 2})
    assert caught.value.param == name


@pytest.mark.parametrize(
    "settings",
    [{"thinking": True, "thinking_control": "none"}, {"max_reasoning_tokens": 5}, {"on_unknown": "open"}, {"reserve": 9}],
)
def test_options_that_cannot_be_sent_are_noted(settings: dict[str, Any]) -> None:
    call = make_call(**settings)
    call.arguments()
    *_, end = read(call, [{"content": "{}"}])
    assert len(end.notes) == 1


def test_response_format_is_strict_where_the_schema_allows() -> None:
    optional = {"type": "object", "title": "My Answer", "properties": {"a": {"type": "integer"}}}
    loose = response_format(optional, "native", strictens=False)
    strict = response_format(optional, "native", strictens=True)
    assert loose is not None
    assert strict is not None
    assert "strict" not in loose["json_schema"]
    assert loose["json_schema"]["name"] == "My_Answer"
    assert (strict["json_schema"]["strict"], strict["json_schema"]["schema"]["required"]) == (True, ["a"])
    assert optional == {"type": "object", "title": "My Answer", "properties": {"a": {"type": "integer"}}}


def test_logprobs_of_chunks_are_read() -> None:
    call = make_call(logprobs=1)
    content = [
        {"token": "é", "logprob": -0.5, "bytes": [195, 169], "top_logprobs": [{"token": "e", "logprob": -1, "bytes": None}]}
    ]
    choice = {"index": 0, "delta": {"content": "é"}, "logprobs": {"content": content}, "finish_reason": None}
    deltas = list(call.receive({"choices": [choice]}))
    expected = TokenLogprob("é", -0.5, "é".encode(), (TokenLogprob("e", -1.0),))
    assert [item for delta in deltas for item in delta.logprobs] == [expected]
    assert list(call.receive({"choices": [{**choice, "delta": {}, "logprobs": {"content": None}}]})) == []
