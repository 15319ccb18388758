"""Replies of servers as public reports show them, through litellm; a test's id names the report."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from middleware import (
    AnswerTruncatedError,
    AsyncClient,
    Client,
    ContentDelta,
    NoFinalAnswerError,
    PartialObject,
    ReasoningTruncatedError,
    UpstreamError,
    Usage,
)
from middleware.upstreams.litellm_loader import load_litellm
from tests.middleware.fake_openai import FakeServer, Reply, chunk, frames_reply, ignores_litellm_warnings, serve

pytestmark = ignores_litellm_warnings

ANSWER = '{"fit":1}'
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
LAST = chunk({}, "stop") | {"usage": USAGE}


class Fit(BaseModel):
    fit: int


@pytest.fixture(scope="module", autouse=True)
def _litellm() -> Iterator[None]:
    load_litellm()
    yield
    gc.collect()  # what litellm left, while its warnings are ignored


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serve() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with Client("openai/test", base_url=server.url, api_key="key", timeout_s=60) as connected:
        yield connected


@pytest.mark.parametrize(
    ("frames", "reasoning"),
    [
        pytest.param(
            [chunk({"content": ""}) | {"usage": ZEROS}, chunk({"content": ANSWER}) | {"usage": ZEROS}, LAST],
            None,
            id="CLIProxyAPI-3077",
        ),
        pytest.param(
            [chunk({"content": ANSWER}), chunk({}, "stop"), chunk({}) | {"choices": [], "usage": USAGE}], None, id="rig-1212"
        ),
        pytest.param(
            [
                chunk({"content": ANSWER}),
                chunk({}, "stop"),
                chunk({}) | {"choices": [{"index": 0, "delta": {}}], "usage": USAGE},
            ],
            None,
            id="mlx-dspark-37",
        ),
        pytest.param(
            [chunk({"reasoning": "t", "tool_calls": []}), chunk({"content": ANSWER, "tool_calls": []}), LAST],
            "t",
            id="openclaw-61534",
        ),
        pytest.param(
            [chunk({"reasoning_content": "", "content": ""}), chunk({"content": ANSWER, "reasoning_content": ""}), LAST],
            None,
            id="lobehub-5964",
        ),
        pytest.param(
            [chunk({"reasoning": "t", "reasoning_content": "t"}), chunk({"content": ANSWER, "reasoning_content": None}), LAST],
            "t",
            id="vllm-29408",
        ),
        pytest.param(
            [chunk({"reasoning_details": [{"type": "reasoning.text", "text": "t"}]}), chunk({"content": ANSWER}), LAST],
            "t",
            id="langchain_dart-793",
        ),
        pytest.param(
            [chunk({"reasoning_details": [{"type": "reasoning.summary", "summary": "t"}]}), chunk({"content": ANSWER}), LAST],
            "t",
            id="langchain_dart-793-summary",
        ),
        pytest.param([chunk({"reasoning": "t", "content": '{"fit"'}), chunk({"content": ":1}"}), LAST], "t", id="vllm-43938"),
        pytest.param([": PROCESSING\n\n", chunk({"content": ANSWER}), ": PROCESSING\n\n", LAST], None, id="comments-between"),
        pytest.param([chunk({"content": ANSWER}, ""), LAST], None, id="empty-finish-reason"),
        pytest.param([chunk({}) | {"choices": []}, chunk({"content": ANSWER}), LAST], None, id="no-choice-in-the-first-chunk"),
    ],
)
def test_stream_is_read(server: FakeServer, client: Client, frames: list[Any], reasoning: str | None) -> None:
    server.play(frames_reply(*frames))
    result = client.generate(Fit, "hi")
    assert (result.output, result.content, result.reasoning, result.notes) == (Fit(fit=1), ANSWER, reasoning, ())
    assert result.usage == Usage(7, 5)


@pytest.mark.parametrize("name", ["thinking", "reasoning", "thought", "antThinking", "think"])
@pytest.mark.parametrize("size", [1, 100])
def test_answer_behind_tags_of_any_name_pydantic_ai_2334(server: FakeServer, client: Client, name: str, size: int) -> None:
    text = f'<{name}>try {{"fit":9}} and {{}}, or </{name[1:]}></{name}>\n{ANSWER}'
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    server.play(frames_reply(*(chunk({"content": piece}) for piece in pieces), LAST))
    result = client.generate(Fit, "hi")
    assert (result.output, result.reasoning) == (Fit(fit=1), f'try {{"fit":9}} and {{}}, or </{name[1:]}>')


def test_tags_of_other_names_are_text_where_no_schema_binds_the_answer(server: FakeServer, client: Client) -> None:
    server.play(frames_reply(chunk({"content": "<thought>of the day</thought> Rest."}), LAST))
    assert client.generate(str, "hi").output == "<thought>of the day</thought> Rest."


@pytest.mark.parametrize("type_", [pytest.param(Fit, id="vllm-16182"), pytest.param(list[int], id="wrapped-list")])
def test_answer_filed_as_thinking_is_the_answer_and_says_so(server: FakeServer, client: Client, type_: Any) -> None:
    text = ANSWER if type_ is Fit else '{"value":[1]}'
    server.play(frames_reply(chunk({"reasoning_content": text}), LAST))
    with client.stream(type_, "hi") as stream:
        events = list(stream)
        result = stream.result
    assert result.output == (Fit(fit=1) if type_ is Fit else [1])
    assert (result.reasoning, result.content) == (None, text)
    assert result.notes == ("the upstream filed the answer as thinking; it was taken as the answer",)
    assert ContentDelta(text) in events
    assert [event.value for event in events if isinstance(event, PartialObject)][-1] == ({"fit": 1} if type_ is Fit else [1])


@pytest.mark.parametrize(
    "delta",
    [
        pytest.param({"reasoning_content": 'I would say {"fit":1}'}, id="thinking-about-it"),
        pytest.param({"reasoning_content": '{"fit":"x"}'}, id="not-valid"),
        pytest.param({"content": f"<think>{ANSWER}"}, id="ruling-2-thinking-that-was-opened"),
    ],
)
def test_thinking_is_no_answer(server: FakeServer, client: Client, delta: dict[str, Any]) -> None:
    server.play(*[frames_reply(chunk(delta), LAST)] * 3)
    with pytest.raises(NoFinalAnswerError):
        client.generate(Fit, "hi")


def test_cut_off_thinking_is_no_answer_though_it_reads_like_one(server: FakeServer, client: Client) -> None:
    server.play(frames_reply(chunk({"reasoning_content": ANSWER}), chunk({}, "length") | {"usage": USAGE}))
    with pytest.raises(ReasoningTruncatedError):
        client.generate(Fit, "hi")


@pytest.mark.parametrize("reason", ["model_length", "max_tokens", "length"])
def test_limit_by_any_name_is_a_limit_pi_go_245(server: FakeServer, client: Client, reason: str) -> None:
    server.play(frames_reply(chunk({"content": '{"fi'}), chunk({}, reason) | {"usage": USAGE}))
    with pytest.raises(AnswerTruncatedError):
        client.generate(Fit, "hi")


def test_log_probability_of_nothing_is_a_number_sglang_20323(server: FakeServer, client: Client) -> None:
    content = [{"token": "x", "logprob": -0.5, "bytes": None, "top_logprobs": [{"token": "y", "logprob": None}]}]
    frame = chunk({"content": ANSWER})
    frame["choices"][0]["logprobs"] = {"content": content}
    server.play(frames_reply(frame, LAST))
    [item] = client.generate(Fit, "hi", logprobs=1).logprobs
    assert (item.logprob, item.top[0].logprob) == (-0.5, -9999.0)


@pytest.mark.parametrize(
    ("body", "content_type", "message", "num_requests"),
    [
        pytest.param(
            {"object": "error", "message": "Unexpected token 12606", "type": "BadRequestError", "code": 400},
            "application/json",
            "Unexpected token 12606",
            3,  # as with status 400: what the server refuses may be the schema
            id="tenstorrent-vllm-386",
        ),
        pytest.param({"error": {"message": "no such route"}}, "application/json", "no such route", 1, id="enveloped"),
        pytest.param({"error": "Unexpected endpoint"}, "application/json; charset=utf-8", "Unexpected endpoint", 1, id="flat"),
        pytest.param({"choices": [{"message": {"content": ANSWER}}]}, "application/json", "does not stream", 1, id="whole"),
        pytest.param("<html>Welcome</html>", "text/html", "<html>Welcome", 1, id="web-page"),
        pytest.param([], "application/json", r"\[\]", 1, id="no-object"),
    ],
)
def test_document_in_place_of_a_stream_is_told(
    server: FakeServer, client: Client, body: Any, content_type: str, message: str, num_requests: int
) -> None:
    raw = body if isinstance(body, str) else json.dumps(body)
    server.play(*[Reply(raw=raw, content_type=content_type)] * num_requests)
    with pytest.raises(UpstreamError, match=message):
        client.generate(Fit, "hi")
    assert len(server.bodies) == num_requests


def test_events_that_say_they_are_a_document_are_read(server: FakeServer, client: Client) -> None:
    reply = frames_reply(chunk({"content": ANSWER}), LAST)
    reply.content_type = "application/json"
    server.play(reply)
    assert client.generate(Fit, "hi").output == Fit(fit=1)


async def test_document_is_told_and_events_are_read_asynchronously(server: FakeServer) -> None:
    reply = frames_reply(chunk({"content": ANSWER}), LAST)
    reply.content_type = "application/json"
    server.play(reply, Reply(raw='{"error": "Unexpected endpoint"}', content_type="application/json"))
    async with AsyncClient("openai/test", base_url=server.url, api_key="key", timeout_s=60) as client:
        assert (await client.generate(Fit, "hi")).output == Fit(fit=1)
        with pytest.raises(UpstreamError, match="Unexpected endpoint"):
            await client.generate(Fit, "hi")
