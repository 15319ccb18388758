"""`thinkgate serve` as a real process in front of the pocket model, asked by the real OpenAI client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from engine.pocket.orders import Order
from tests.conftest import PocketServer

MODEL = "local/pocket-r1"
MESSAGES: Any = [{"role": "user", "content": "We need 3 lamps at 4 euros each."}]


@pytest.fixture
def client(pocket_server: PocketServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{pocket_server.base_url}/v1", api_key="any", max_retries=0) as client:
        yield client


def test_serve_command_parses_into_the_order_type(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Order, temperature=0)
    message = completion.choices[0].message
    assert isinstance(message.parsed, Order)
    assert (message.model_extra or {})["reasoning_content"]
    assert "</think>" not in (message.content or "")
    assert completion.usage is not None
    assert completion.usage.completion_tokens_details is not None
    assert 0 < (completion.usage.completion_tokens_details.reasoning_tokens or 0) < completion.usage.completion_tokens
    assert (completion.model_extra or {})["thinkgate"]["enforcement"] == "masked"


def test_serve_command_streams_what_it_answers_whole(client: openai.OpenAI) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "order", "schema": Order.model_json_schema()}}
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=schema, temperature=0)
    chunks = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=schema, temperature=0, stream=True)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    thinking = "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas)
    assert thinking == (whole.choices[0].message.model_extra or {})["reasoning_content"]


def test_serve_command_answers_json_object_with_an_object(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format={"type": "json_object"}, temperature=0, max_tokens=300
    )
    content = completion.choices[0].message.content
    if completion.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(content or ""), dict)
    else:
        assert content is None or content.startswith("{")


def test_serve_command_switches_the_thinking_off(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Order, reasoning_effort="none")
    assert isinstance(completion.choices[0].message.parsed, Order)
    assert not (completion.choices[0].message.model_extra or {})["reasoning_content"]


def test_serve_command_reports_truncated_thinking(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=3)
    assert completion.choices[0].finish_reason == "length"
    assert (completion.model_extra or {})["thinkgate"]["truncated_in"] == "reasoning"


def test_serve_command_says_why_an_answer_was_cut(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        client.chat.completions.parse(
            model=MODEL, messages=MESSAGES, response_format=Order, reasoning_effort="none", max_tokens=2
        )
    report = (caught.value.completion.model_extra or {})["thinkgate"]
    assert report["truncated_in"] == "answer"
    assert "no whole answer fits" in report["notes"][0]
    assert "raise max_tokens" in report["notes"][0]


def test_serve_command_refuses_a_bad_schema_and_serves_on(client: openai.OpenAI) -> None:
    bad: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "strnig"}}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=bad)
    assert caught.value.code == "schema_invalid"
    assert client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=3).choices


def test_serve_command_outlives_a_client_that_leaves(pocket_server: PocketServer, client: openai.OpenAI) -> None:
    body = {"model": MODEL, "messages": MESSAGES, "stream": True, "max_tokens": 400}
    with httpx2.stream("POST", f"{pocket_server.base_url}/v1/chat/completions", json=body, timeout=60) as response:
        next(response.iter_lines())
    assert client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=3).choices


def test_serve_command_lists_its_model_and_is_healthy(pocket_server: PocketServer, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert json.loads(httpx2.get(f"{pocket_server.base_url}/health").text)["status"] == "ok"
