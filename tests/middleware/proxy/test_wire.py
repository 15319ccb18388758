from __future__ import annotations

import json
from typing import Any

import pytest

from middleware import Choice, Grammar, Regex, StructuralTag
from middleware.proxy.errors import ApiError
from middleware.proxy.wire import HARMLESS_FIELDS, NEUTRAL_VALUES, read_call

MESSAGES = [{"role": "user", "content": "hi"}]


def _read(**fields: Any) -> Any:
    return read_call(json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode())


def _refusal(data: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_call(data)
    assert caught.value.status == 400
    return caught.value


def test_read_call_takes_a_plain_request() -> None:
    call = _read()
    assert (call.model, call.messages, call.schema, call.thinking, call.settings) == ("m", MESSAGES, None, None, {})
    assert not call.is_streamed
    assert call.include_reasoning


def test_read_call_collects_settings() -> None:
    call = _read(max_tokens=5, temperature=1, top_p=0.5, top_k=3, seed=7, thinking_token_budget=2)
    assert call.settings == {
        "max_tokens": 5, "temperature": 1, "top_p": 0.5, "top_k": 3, "seed": 7, "max_reasoning_tokens": 2,
    }  # fmt: skip


def test_read_call_prefers_the_newer_names() -> None:
    call = _read(max_tokens=5, max_completion_tokens=6, thinking_token_budget=2, max_reasoning_tokens=3)
    assert call.settings == {"max_tokens": 6, "max_reasoning_tokens": 3}


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        pytest.param({"reasoning_effort": "none"}, False, id="effort-none"),
        pytest.param({"reasoning_effort": "low"}, True, id="effort-low"),
        pytest.param({"chat_template_kwargs": {"enable_thinking": False}}, False, id="switch-off"),
        pytest.param({"chat_template_kwargs": {"thinking": True}, "reasoning_effort": "none"}, True, id="switch-beats-effort"),
        pytest.param({"chat_template_kwargs": {}}, None, id="empty-switches"),
    ],
)
def test_read_call_reads_the_thinking_switch(fields: dict[str, Any], thinking: bool | None) -> None:
    assert _read(**fields).thinking is thinking


def test_read_call_joins_text_parts_and_maps_developer() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "d"}, {"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    assert _read(messages=messages).messages == [
        {"role": "system", "content": "d"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": ""},
    ]


def test_read_call_reads_no_limit_as_vllm_does_vllm_20859() -> None:
    assert _read(top_k=-1, thinking_token_budget=-1).settings == {}
    assert _read(max_reasoning_tokens=2, thinking_token_budget=-1).settings == {"max_reasoning_tokens": 2}


def test_read_call_drops_the_thinking_of_earlier_turns() -> None:
    thinking = {"reasoning_content": "t", "reasoning": "t", "reasoning_details": [{"type": "reasoning.text", "text": "t"}]}
    messages = [{"role": "assistant", "content": "x", **thinking, "refusal": None, "tool_calls": []}, *MESSAGES]
    assert _read(messages=messages).messages[0] == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("response_format", "schema"),
    [
        pytest.param({"type": "text"}, None, id="text"),
        pytest.param({"type": "json_object"}, {"type": "object"}, id="D16-json-object-is-sent-as-a-schema"),
        pytest.param(
            {"type": "json_object", "schema": {"type": "array"}}, {"type": "array"}, id="llama.cpp-12276-word-for-a-schema"
        ),
        pytest.param(
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "array"}}}, {"type": "array"}, id="schema"
        ),
        pytest.param({"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": {}}}, {}, id="empty-schema"),
    ],
)
def test_read_call_reads_the_response_format(response_format: dict[str, Any], schema: dict[str, Any] | None) -> None:
    assert _read(response_format=response_format).schema == schema


@pytest.mark.parametrize("name", sorted(HARMLESS_FIELDS))
def test_read_call_ignores_harmless_fields(name: str) -> None:
    assert _read(**{name: {"a": "b"}}).settings == {}


@pytest.mark.parametrize("name", sorted(NEUTRAL_VALUES))
def test_read_call_takes_unsupported_fields_that_ask_for_nothing(name: str) -> None:
    for value in [None, *NEUTRAL_VALUES[name]]:
        assert _read(**{name: value}).settings == {}


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"stop": "END"}, {"stop": "END"}),
        ({"stop": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"stop": []}, {}),
        ({"presence_penalty": -0.5, "frequency_penalty": 1}, {"presence_penalty": -0.5, "frequency_penalty": 1}),
        ({"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1}, {}),
        ({"repetition_penalty": 1.1, "min_p": 0.05, "top_k": 4}, {"repetition_penalty": 1.1, "min_p": 0.05, "top_k": 4}),
        ({"logit_bias": {"50": -100, "7": 1.5}}, {"logit_bias": {50: -100, 7: 1.5}}),
        ({"logit_bias": {}}, {}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 5}, {"logprobs": 5}),
        ({"logprobs": False, "top_logprobs": 0}, {}),
        ({"seed": 3, "n": 1}, {"seed": 3}),
    ],
)
def test_read_call_reads_sampling_options(fields: dict[str, Any], settings: dict[str, Any]) -> None:
    call = _read(**fields)
    assert call.settings == settings
    assert call.wants_logprobs == ("logprobs" in settings)


def test_read_call_reads_the_number_of_answers() -> None:
    assert (_read(n=3).n, _read(n=None).n, _read().n) == (3, 1, 1)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        pytest.param({"n": 10**9}, "n", "invalid_value", id="E16-n-is-a-billion"),
        pytest.param({"n": 0}, "n", "invalid_value", id="n-0"),
        pytest.param({"n": True}, "n", "invalid_value", id="n-true"),
        pytest.param({"stop": 3}, "stop", "invalid_value", id="stop-number"),
        pytest.param({"stop": [3]}, "stop[0]", "invalid_value", id="stop-numbers"),
        pytest.param({"presence_penalty": 2.5}, "presence_penalty", "invalid_value", id="presence"),
        pytest.param({"frequency_penalty": "1"}, "frequency_penalty", "invalid_value", id="frequency"),
        pytest.param({"repetition_penalty": 0}, "repetition_penalty", "invalid_value", id="repetition"),
        pytest.param({"min_p": 1.5}, "min_p", "invalid_value", id="min-p"),
        pytest.param({"logit_bias": {"a": 1}}, "logit_bias", "invalid_value", id="bias-name"),
        pytest.param({"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value", id="bias-negative"),
        pytest.param({"logit_bias": [1]}, "logit_bias", "invalid_value", id="bias-list"),
        pytest.param({"logit_bias": {"5": "x"}}, "logit_bias.5", "invalid_value", id="bias-text"),
        pytest.param({"top_logprobs": 2}, "top_logprobs", "invalid_value", id="top-without-logprobs"),
        pytest.param({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value", id="top-21"),
        pytest.param({"logprobs": 1}, "logprobs", "invalid_value", id="logprobs-number"),
        pytest.param({"tools": [{}]}, "tools", "unsupported_parameter", id="tools"),
        pytest.param({"best_of": 2}, "best_of", "unknown_parameter", id="unknown-field"),
        pytest.param({"model": 3}, "model", "invalid_value", id="model-type"),
        pytest.param({"messages": []}, "messages", "invalid_value", id="no-messages"),
        pytest.param({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "invalid_value", id="content-type"),
        pytest.param({"messages": [{"role": "wizard", "content": ""}]}, "messages[0].role", "invalid_value", id="role"),
        pytest.param({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role", "invalid_value", id="tool-role"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "invalid_value",
            id="image",
        ),
        pytest.param({"temperature": 3}, "temperature", "invalid_value", id="temperature"),
        pytest.param({"temperature": "0"}, "temperature", "invalid_value", id="temperature-text"),
        pytest.param({"top_p": 0}, "top_p", "invalid_value", id="top-p"),
        pytest.param({"max_tokens": 0}, "max_tokens", "invalid_value", id="max-tokens-0"),
        pytest.param({"max_tokens": 10**30}, "max_tokens", "invalid_value", id="max-tokens-huge"),
        pytest.param({"max_tokens": True}, "max_tokens", "invalid_value", id="max-tokens-bool"),
        pytest.param({"seed": 2**64}, "seed", "invalid_value", id="seed-huge"),
        pytest.param({"logit_bias": {"9" * 5000: 1}}, "logit_bias", "invalid_value", id="bias-id-huge"),
        pytest.param({"response_format": {}}, "response_format.type", "invalid_value", id="format-without-type"),
        pytest.param({"response_format": {"type": "xml"}}, "response_format", "invalid_value", id="format-type"),
        pytest.param(
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "invalid_value",
            id="format-without-schema",
        ),
        pytest.param({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value", id="stream-options-alone"),
        pytest.param({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs.x", "unknown_parameter", id="template-switch"),
    ],
)
def test_read_call_refuses_and_names_the_field(fields: dict[str, Any], param: str, code: str) -> None:
    error = _refusal(json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode())
    assert (error.param, error.code) == (param, code)
    assert error.body()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"temperatur": 1}, "unknown request field 'temperatur' (did you mean 'temperature'?)"),
        ({"maxtokens": 1}, "unknown request field 'maxtokens' (did you mean 'max_tokens'?)"),
        ({"zzz": 1}, "unknown request field 'zzz'"),
        ({"structured_outputs": {"regx": "a"}}, "unknown field 'structured_outputs.regx' (did you mean 'regex'?)"),
        ({"response_format": {"type": "text", "x": 1}}, "unknown field 'response_format.x'"),
    ],
    ids=["near", "nearer", "unlike-any", "inner", "inner-unlike-any"],
)
def test_read_call_guesses_what_a_misspelt_field_was(body: dict[str, Any], message: str) -> None:
    error = _refusal(json.dumps({"model": "m", "messages": MESSAGES, **body}).encode())
    assert error.body()["error"]["message"] == message


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="array"),
        pytest.param(b"\xff\xfe", id="not-utf-8"),
        pytest.param(b'{"temperature": NaN}', id="nan"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"seed": ' + b"9" * 5000 + b"}", id="long-number"),
        pytest.param(b'{"model": "\\ud800"}', id="lone-surrogate"),
    ],
)
def test_read_call_refuses_what_is_no_json_object(data: bytes) -> None:
    assert _refusal(data).code == "invalid_request"


CONSTRAINTS: dict[str, tuple[dict[str, Any], Any]] = {
    "regex": ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
    "choice": ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(("a", "b"))),
    "grammar": ({"structured_outputs": {"grammar": "start: x"}}, Grammar("start: x")),
    "tag": ({"structured_outputs": {"structural_tag": '{"format": {}}'}}, StructuralTag({"format": {}})),
    "json": ({"structured_outputs": {"json": {"type": "array"}}}, {"type": "array"}),
    "json-text": ({"structured_outputs": {"json": '{"type": "array"}'}}, {"type": "array"}),
    "object": ({"structured_outputs": {"json_object": True}}, {"type": "object"}),
    "guided-regex": ({"guided_regex": "a+"}, Regex("a+")),
    "guided-choice": ({"guided_choice": ["a"]}, Choice(("a",))),
    "guided-grammar": ({"guided_grammar": 'root ::= "a"'}, Grammar('root ::= "a"')),
    "guided-json": ({"guided_json": {"type": "array"}}, {"type": "array"}),
}


@pytest.mark.parametrize(("fields", "output_type"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_read_call_reads_every_kind_of_constraint(fields: dict[str, Any], output_type: Any) -> None:
    assert _read(**fields).output_type == output_type


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": " "}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"structural_tag": "[]"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " ?"}}, "structured_outputs.whitespace_pattern"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a", "structured_outputs": {"regex": "a"}}, "structured_outputs.regex"),
    ],
    ids=str,
)
def test_read_call_takes_exactly_one_constraint(fields: dict[str, Any], param: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    assert _refusal(json.dumps(body).encode()).param == param
