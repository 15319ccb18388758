"""The proxy over real sockets, asked by the real OpenAI client."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest

from middleware import (
    InvalidSchemaError,
    TokenLogprob,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
    Usage,
)
from middleware.proxy import Limits
from middleware.testing import reply
from middleware.upstreams.base import UpstreamDelta, UpstreamEnd
from middleware.upstreams.local import LocalUpstream

from .serving import EndlessUpstream, Running, running, scripted, served

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}
MESSAGES: Any = [{"role": "user", "content": "hi"}]
MODEL = "local/scripted"


def _openai(server: Running, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=options.pop("api_key", "any"), max_retries=0, **options)


def _post(server: Running, **fields: Any) -> httpx2.Response:
    body = {"model": MODEL, "messages": MESSAGES, **fields}
    return httpx2.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=30)


def _events(text: str) -> Iterator[str]:
    for block in text.split("\n\n"):
        if block:
            yield block.removeprefix("data: ")


def test_server_answers_a_schema_request_with_thinking_and_usage() -> None:
    upstream, model = scripted(reply("let me think", '{"a": 1}'))
    with running(model) as server, _openai(server) as client:
        completion = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=FORMAT)
    message = completion.choices[0].message
    assert json.loads(message.content or "") == {"a": 1}
    assert message.model_extra == {"reasoning_content": "let me think", "reasoning": "let me think"}
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.completion_tokens_details.reasoning_tokens == 3
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (10, 5, 15)
    assert upstream.requests[0].schema == SCHEMA


def test_server_parses_into_a_pydantic_model_through_the_openai_client() -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        a: int

    _, model = scripted(reply("t", '{"a": 1}'))
    with running(model) as server, _openai(server) as client:
        completion = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Answer)
    assert completion.choices[0].message.parsed == Answer(a=1)


def test_server_streams_role_thinking_content_finish_and_usage() -> None:
    _, model = scripted(reply("thinking", '{"a": 1}'))
    with running(model) as server, _openai(server) as client:
        chunks = list(
            client.chat.completions.create(
                model=MODEL, messages=MESSAGES, response_format=FORMAT, stream=True, stream_options={"include_usage": True}
            )
        )
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [chunk.choices[0].delta for chunk in chunks[:-1]]
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "thinking"
    assert json.loads("".join(delta.content or "" for delta in deltas)) == {"a": 1}
    assert not any(delta.content and (delta.model_extra or {}).get("reasoning_content") for delta in deltas)
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4
    assert len({chunk.id for chunk in chunks}) == 1


def test_server_stream_without_usage_has_none_and_ends_with_done() -> None:
    _, model = scripted(reply("t", "hello"))
    with running(model) as server:
        response = _post(server, stream=True)
    events = list(_events(response.text))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    assert all("usage" not in json.loads(event) for event in events[:-1])


def test_server_frames_hold_no_line_break_of_unicode_httpx_sse_34() -> None:
    text = "a\u2028b\u2029c\x85d"
    _, model = scripted(reply(text, text))
    with running(model) as server:
        response = _post(server, stream=True)
    lines = [line for line in response.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == text
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == text


def test_server_d16_json_object_is_sent_as_a_schema() -> None:
    upstream, model = scripted(reply("", '{"x": [1]}'))
    with running(model) as server, _openai(server) as client:
        completion = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format={"type": "json_object"})
    assert json.loads(completion.choices[0].message.content or "") == {"x": [1]}
    assert upstream.requests[0].schema == {"type": "object"}


def test_server_hides_the_thinking_on_request() -> None:
    _, model = scripted(reply("secret", "ok"), reply("secret", "ok"))
    with running(model) as server:
        whole = _post(server, include_reasoning=False)
        streamed = _post(server, include_reasoning=False, stream=True)
    assert "secret" not in whole.text + streamed.text
    assert whole.json()["choices"][0]["message"]["content"] == "ok"
    assert "reasoning" not in streamed.text


def test_server_d4_prose_is_never_a_success() -> None:
    _, model = scripted(*[reply("", "Sure! Name: Bob")] * 6, model="openai/x")
    with running(model) as server:
        whole = _post(server, model="openai/x", response_format=FORMAT)
        streamed = _post(server, model="openai/x", response_format=FORMAT, stream=True)
    for response in (whole, streamed):
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (502, "validation_failed")
        assert error["details"]["attempts"] == 3
        assert error["details"]["raw_content"] == "Sure! Name: Bob"
        assert response.headers["x-should-retry"] == "false"


def test_server_d12_an_upstream_that_drops_the_schema_is_caught() -> None:
    _, model = scripted(reply("", "prose"), reply("", '{"a": 1}'), model="openai/x")
    with running(model) as server:
        response = _post(server, model="openai/x", response_format=FORMAT)
    assert json.loads(response.json()["choices"][0]["message"]["content"]) == {"a": 1}
    assert response.headers["x-thinkgate-enforcement"] == "validated"
    assert response.headers["x-thinkgate-attempts"] == "2"


def test_server_truncated_thinking_is_200_with_length_and_the_phase() -> None:
    _, model = scripted(reply("on and on", "", finish_reason="length"), reply("on and on", "", finish_reason="length"))
    with running(model) as server, _openai(server) as client:
        completion = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=FORMAT)
        chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=FORMAT, stream=True))
    assert completion.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == "length"
    assert completion.choices[0].message.content is None
    for reply_body in (completion, chunks[-1]):
        assert (reply_body.model_extra or {})["thinkgate"]["truncated_in"] == "reasoning"


def test_server_e16_a_billion_choices_are_refused() -> None:
    upstream, model = scripted()
    with running(model) as server, _openai(server) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=MESSAGES, n=10**9)
    assert (caught.value.param, caught.value.code) == ("n", "invalid_value")
    assert upstream.requests == []


def test_server_names_an_invalid_schema_and_goes_on() -> None:
    _, model = scripted(reply("", '{"a": 1}'))
    bad: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"properties": {"zip": 7}}}}
    with running(model) as server, _openai(server) as client:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=bad, stream=stream)
            assert (caught.value.code, caught.value.param) == ("schema_invalid", "response_format.json_schema.schema")
        assert client.chat.completions.create(model=MODEL, messages=MESSAGES, response_format=FORMAT).choices


def test_server_unknown_model_is_404_and_names_the_known_ones() -> None:
    _, model = scripted()
    with running(model) as server, _openai(server) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="nope", messages=MESSAGES)
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("nope")
    assert caught.value.code == "model_not_found"
    assert MODEL in str(caught.value)


def test_server_lists_and_shows_models() -> None:
    _, one = scripted()
    _, two = scripted(model="local/two")
    with running(one, two) as server, _openai(server) as client:
        assert [model.id for model in client.models.list()] == [MODEL, "local/two"]
        assert client.models.retrieve("local/two").id == "local/two"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        pytest.param(UpstreamTimeoutError("slow"), 504, "upstream_timeout", id="timeout"),
        pytest.param(UpstreamBusyError("busy"), 503, "overloaded", id="busy"),
        pytest.param(UpstreamError("key is wrong", status=401), 502, "upstream_error", id="our-key-is-wrong"),
        pytest.param(UpstreamError("context too long", status=400), 400, "upstream_error", id="bad-request"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_server_reports_upstream_errors_with_their_status(error: UpstreamError, status: int, code: str, stream: bool) -> None:
    _, model = scripted([error])
    with running(model) as server:
        response = _post(server, stream=stream)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


def test_server_reports_an_error_inside_a_stream_as_a_frame() -> None:
    _, model = scripted([*reply("thinking", "")[:2], UpstreamError("the line went dead")])
    with running(model) as server:
        response = _post(server, stream=True)
    events = list(_events(response.text))
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["error"]["message"] == "the line went dead"


@pytest.mark.parametrize("stream", [False, True])
def test_server_cancels_the_generation_when_the_client_leaves(stream: bool) -> None:
    upstream = EndlessUpstream()
    body = json.dumps({"model": MODEL, "messages": MESSAGES, "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with running(served(upstream)) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + body)
            assert upstream.has_started.wait(10)
        assert upstream.was_cancelled.wait(10)
        for _ in range(100):
            health = httpx2.get(f"{server.base_url}/health").json()
            if health["num_running"] == 0:
                break
            time.sleep(0.05)
        assert health == {"status": "ok", "num_running": 0}


def test_server_sends_keep_alive_comments_while_the_model_is_silent() -> None:
    upstream = EndlessUpstream(silence_s=0.4, pause_s=0.05)
    with running(served(upstream), limits=Limits(keep_alive_s=0.1, timeout_s=0.7)) as server:
        response = _post(server, stream=True)
    assert response.text.startswith(": keep-alive\n\n")
    events = [event for event in _events(response.text) if not event.startswith(":")]
    assert json.loads(events[-2])["error"]["code"] == "upstream_timeout"
    assert events[-1] == "[DONE]"


def test_health_names_the_model_whose_engine_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = LocalUpstream("pocket-r1")
    with running(served(upstream)) as server:
        assert httpx2.get(f"{server.base_url}/health").status_code == 200
        gone = SimpleNamespace(is_alive=lambda: False, why_not_alive=lambda: "its thread ended", close=lambda: None)
        monkeypatch.setattr(upstream, "_engine", gone)
        response = httpx2.get(f"{server.base_url}/health")
    assert response.status_code == 503
    assert response.json() == {
        "status": "failed",
        "num_running": 0,
        "failed": {MODEL: "the engine of 'pocket-r1' takes no requests: its thread ended"},
    }


def test_server_ends_a_request_at_its_deadline() -> None:
    upstream = EndlessUpstream()
    with running(served(upstream), limits=Limits(timeout_s=0.2)) as server:
        response = _post(server)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
    assert upstream.was_cancelled.is_set()


def test_server_gives_up_on_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("middleware.proxy.chat.SEND_GRACE_S", 0.1)
    upstream = EndlessUpstream(piece="x" * 500_000)
    body = json.dumps({"model": MODEL, "messages": MESSAGES, "stream": True}).encode()
    with running(served(upstream), limits=Limits(timeout_s=0.5)) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert upstream.has_started.wait(5)
        assert upstream.was_cancelled.wait(5)
        deadline = time.monotonic() + 30
        while httpx2.get(f"{server.base_url}/health").json()["num_running"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_server_refuses_a_compressed_body() -> None:
    _, model = scripted()
    with running(model) as server:
        response = httpx2.post(
            f"{server.base_url}/v1/chat/completions", content=b"\x1f\x8b", headers={"content-encoding": "gzip"}
        )
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_encoding")


def test_server_refuses_more_than_it_has_room_for() -> None:
    upstream = EndlessUpstream()
    with running(served(upstream), limits=Limits(max_concurrency=1)) as server:
        with httpx2.stream(
            "POST", f"{server.base_url}/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "stream": True}
        ):
            assert upstream.has_started.wait(5)
            refused = _post(server)
            assert httpx2.get(f"{server.base_url}/health").json()["num_running"] == 1
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize("is_chunked", [False, True])
def test_server_refuses_a_body_that_is_too_large(is_chunked: bool) -> None:
    _, model = scripted()
    data = b"x" * 5000
    content = iter([data[:2500], data[2500:]]) if is_chunked else data
    with running(model, limits=Limits(max_body_bytes=4000)) as server:
        response = httpx2.post(f"{server.base_url}/v1/chat/completions", content=content)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


def test_server_gives_up_on_a_body_that_does_not_come() -> None:
    _, model = scripted()
    with running(model, limits=Limits(body_timeout_s=0.1)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
            assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_server_survives_a_client_that_leaves_in_the_middle_of_its_request() -> None:
    _, model = scripted(reply("", "ok"))
    with running(model) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{")
        assert _post(server).json()["choices"][0]["message"]["content"] == "ok"


def test_server_asks_for_a_key_where_keys_are_set() -> None:
    _, model = scripted(reply("", "ok"))
    with running(model, api_keys=["right", "other"]) as server:
        with _openai(server, api_key="wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
        with _openai(server, api_key="right") as client:
            assert client.chat.completions.create(model=MODEL, messages=MESSAGES).choices[0].message.content == "ok"
        assert httpx2.get(f"{server.base_url}/health").status_code == 200
        assert httpx2.get(f"{server.base_url}/v1/models", headers={"authorization": "Basic right"}).status_code == 401


@pytest.mark.parametrize(
    ("offered", "is_kept"), [("abc-123", True), ("has space", False), ("x" * 200, False)], ids=["good", "space", "long"]
)
def test_server_echoes_a_request_id(offered: str, is_kept: bool) -> None:
    with running() as server:
        response = httpx2.get(f"{server.base_url}/v1/models", headers={"x-request-id": offered})
    assert (response.headers["x-request-id"] == offered) is is_kept
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/chat/completions", 405)])
def test_server_answers_wrong_paths_and_methods_in_the_envelope(method: str, path: str, status: int) -> None:
    with running() as server:
        response = httpx2.request(method, f"{server.base_url}{path}")
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]


def test_server_never_logs_prompts_not_even_when_something_breaks(caplog: pytest.LogCaptureFixture) -> None:
    upstream, model = scripted(reply("", "fine"))

    def explode(request: object) -> Any:
        raise RuntimeError(str(request))

    caplog.set_level("DEBUG", logger="middleware")
    with running(model) as server:
        assert _post(server, messages=[{"role": "user", "content": "hunter2"}]).status_code == 200
        upstream.astream = explode  # type: ignore[method-assign]
        response = _post(server, messages=[{"role": "user", "content": "hunter2"}])
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert "RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text + response.text


LOGPROBS = (
    TokenLogprob("he", -0.5, b"he", (TokenLogprob("he", -0.5, b"he"), TokenLogprob("\ufffd", -9999.0, b"\xe2"))),
    TokenLogprob("llo", -0.25, b"llo"),
)


def with_logprobs() -> list[Any]:
    end = UpstreamEnd(usage=Usage(10, 3, 1), is_reasoning_open=False)
    return [UpstreamDelta("t", "he", LOGPROBS[:1]), UpstreamDelta("", "llo", LOGPROBS[1:]), end]


def test_server_gives_log_probabilities_as_openai_does() -> None:
    upstream, model = scripted(with_logprobs(), with_logprobs())
    with running(model) as server, _openai(server) as client:
        whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2)
        chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2, stream=True))
    assert [request.settings.logprobs for request in upstream.requests] == [2, 2]
    assert whole.choices[0].logprobs is not None
    streamed = [item for chunk in chunks if chunk.choices[0].logprobs for item in chunk.choices[0].logprobs.content or ()]
    for items in (whole.choices[0].logprobs.content, streamed):
        assert items is not None
        read = [(item.token, item.logprob, item.bytes) for item in items]
        assert read == [("he", -0.5, [104, 101]), ("llo", -0.25, [108, 108, 111])]
        top = [(item.token, item.logprob, item.bytes) for item in items[0].top_logprobs]
        assert top == [("he", -0.5, [104, 101]), ("\ufffd", -9999.0, [226])]


def test_server_without_log_probabilities_says_none() -> None:
    _, model = scripted(reply("", "hello"))
    with running(model) as server:
        assert _post(server).json()["choices"][0]["logprobs"] is None


def test_server_gives_n_answers_with_seeds_of_their_own() -> None:
    upstream, model = scripted(*[reply("t", f"answer {number}") for number in range(3)])
    with running(model) as server, _openai(server) as client:
        completion = client.chat.completions.create(model=MODEL, messages=MESSAGES, n=3, seed=7)
    assert sorted(choice.message.content or "" for choice in completion.choices) == ["answer 0", "answer 1", "answer 2"]
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert sorted(request.settings.seed or 0 for request in upstream.requests) == [7, 8, 9]
    assert completion.usage is not None
    # Our engine reads the prompt of all of them once.
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (10, 9)


def test_server_gives_seeds_of_a_wire_integer_to_all_answers() -> None:
    upstream, model = scripted(reply("", "a"), reply("", "b"))
    with running(model) as server:
        assert _post(server, n=2, seed=2**63 - 1).status_code == 200
    assert sorted(request.settings.seed or 0 for request in upstream.requests) == [-(2**63), 2**63 - 1]


def test_server_counts_the_prompt_of_every_request_to_a_remote_model() -> None:
    _, model = scripted(reply("", "a"), reply("", "b"), model="openai/x")
    with running(model) as server:
        usage = _post(server, model="openai/x", n=2).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (20, 2)


def test_server_streams_n_answers_side_by_side() -> None:
    _, model = scripted(*[reply("thinking", f'{{"a": {number}}}') for number in range(2)])
    with running(model) as server, _openai(server) as client:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}, "n": 2, "response_format": FORMAT}
        chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, **options))
    texts = dict.fromkeys(range(2), "")
    ends = {}
    for chunk in chunks[:-1]:
        [choice] = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            ends[choice.index] = choice.finish_reason
    assert sorted(json.loads(text)["a"] for text in texts.values()) == [0, 1]
    assert ends == {0: "stop", 1: "stop"}
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []


def test_server_ends_all_answers_with_the_first_error() -> None:
    upstream, model = scripted([UpstreamUnavailableError("gone")], reply("t", "fine"))
    with running(model) as server:
        response = _post(server, n=2)
        assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unavailable")
        # And the next request is served.
        # The other answer may be stopped before it asks, or ask later.
        upstream._replies.clear()
        upstream._replies += [reply("", "again")] * 2
        assert _post(server).json()["choices"][0]["message"]["content"] == "again"


def test_server_refuses_stop_texts_beside_a_schema() -> None:
    _, model = scripted()
    with running(model) as server:
        error = _post(server, stop=["}"], response_format=FORMAT).json()["error"]
    assert (error["param"], error["code"]) == ("stop", "invalid_value")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": FORMAT}, "response_format.json_schema.schema"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"json": SCHEMA}}, "structured_outputs.json"),
    ],
)
def test_server_names_the_field_and_the_place_of_a_bad_constraint(fields: dict[str, Any], param: str) -> None:
    written = UpstreamDelta("hm", "{")
    _, model = scripted(
        [InvalidSchemaError("bad", line=2, column=7)], [written, UnsupportedSchemaError("too much", pointer="#/a")]
    )
    with running(model) as server:
        error = _post(server, **fields).json()["error"]
        assert (error["param"], error["code"], error["details"]) == (param, "schema_invalid", {"line": 2, "column": 7})
        error = _post(server, **fields).json()["error"]
    assert (error["param"], error["code"]) == (param, "schema_not_supported")
    assert error["details"] == {"pointer": "#/a", "reasoning_content": "hm", "raw_content": "{"}


def test_server_gives_what_was_written_before_the_upstream_broke_off() -> None:
    _, model = scripted([UpstreamDelta("hm", ""), UpstreamUnavailableError("gone")])
    with running(model) as server:
        error = _post(server).json()["error"]
    assert (error["code"], error["details"]) == ("upstream_unavailable", {"reasoning_content": "hm", "raw_content": ""})
