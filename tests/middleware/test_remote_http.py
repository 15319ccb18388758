"""The remote path against a real server on 127.0.0.1, through litellm: what a user of `Client(base_url=...)` gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from middleware import (
    AsyncClient,
    Client,
    InvalidAnswerError,
    NoFinalAnswerError,
    PartialObject,
    ReasoningDelta,
    ReasoningTruncatedError,
    UnknownModelError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
    Usage,
)
from middleware.upstreams.litellm_loader import load_litellm
from middleware.upstreams.remote import RemoteUpstream
from tests.middleware.fake_openai import FakeServer, Reply, ignores_litellm_warnings, refusal, serve, text_reply

pytestmark = ignores_litellm_warnings


class Fit(BaseModel):
    fit: int


@pytest.fixture(scope="module", autouse=True)
def _litellm() -> None:
    load_litellm()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serve() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with connect(server) as connected:
        yield connected


def connect(server: FakeServer, model: str = "openai/test", **options: Any) -> Client:
    return Client(model, base_url=server.url, api_key="key", timeout_s=60, **options)


def formats(server: FakeServer) -> list[str | None]:
    return [body.get("response_format", {}).get("type") for body in server.bodies]


@pytest.mark.parametrize("model", ["openai/test", "hosted_vllm/test"])
@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([*({"thinking": f"t{number}"} for number in range(1, 6)), {"content": '{"fit":1}'}], id="D8-thinking"),
        pytest.param([*({"reasoning": f"t{number}"} for number in range(1, 6)), {"content": '{"fit":1}'}], id="reasoning"),
        pytest.param(
            [*({"reasoning_content": f"t{number}"} for number in range(1, 6)), {"content": '{"fit":1}'}], id="reasoning_content"
        ),
        pytest.param([{"content": "<thi"}, {"content": "nk>t1t2t3t4t5</th"}, {"content": 'ink>{"fit":1}'}], id="A20-tags"),
        pytest.param(
            [
                {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t1t2t3t4t5"}]}]},
                {"content": [{"type": "text", "text": '{"fit":1}'}]},
            ],
            id="T11-parts",
        ),
    ],
)
def test_thinking_arrives_whatever_the_field(server: FakeServer, model: str, deltas: list[dict[str, Any]]) -> None:
    server.play(Reply(deltas))
    with connect(server, model) as client, client.stream(Fit, "hi") as stream:
        events = list(stream)
        result = stream.result
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "t1t2t3t4t5"
    assert [event.value for event in events if isinstance(event, PartialObject)][-1] == {"fit": 1}
    assert (result.output, result.reasoning, result.content) == (Fit(fit=1), "t1t2t3t4t5", '{"fit":1}')
    assert (result.usage, result.enforcement, result.strategy) == (Usage(7, 5, 3), "upstream", "native")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('<think>r</think>\n```json\n{"fit":1}\n```', id="A22.a"),
        pytest.param('<think>r</think>\n```json\n{"fit":1}\n', id="A22.b"),
        pytest.param('<think>r</think>\nHere is the result:\n```json\n{"fit":1}\n```', id="A22.c"),
        pytest.param('<think>try {"fit":9} first</think>{"fit":1}', id="A11"),
    ],
)
def test_wrapped_answer_is_found(server: FakeServer, client: Client, text: str) -> None:
    server.play(text_reply(*text))
    result = client.generate(Fit, "hi")
    assert result.output == Fit(fit=1)
    assert result.reasoning in ("r", 'try {"fit":9} first')
    assert result.enforcement == ("upstream" if text.endswith('</think>{"fit":1}') else "validated")


def test_refused_schema_is_never_shown_d3_d16(server: FakeServer, client: Client) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if "response_format" in body:
            return refusal(400, "This response_format type is unavailable now")
        return text_reply('{"fit":2}')

    server.answer = answer
    for _ in range(2):
        result = client.generate(Fit, "hi")
        assert (result.output, result.enforcement, result.strategy) == (Fit(fit=2), "validated", "prompted")
    # The second call knows.
    assert formats(server) == ["json_schema", "json_object", None, None]
    assert '"fit"' in server.bodies[-1]["messages"][0]["content"]


def test_server_that_knows_json_schema_only_d16(server: FakeServer) -> None:
    server.play(refusal(400, "'response_format.type' must be 'json_schema' or 'text'"), text_reply("{}"))
    with connect(server, strategy="json_object") as client:
        assert client.generate({"type": "object"}, "hi").strategy == "native"
    assert formats(server) == ["json_object", "json_schema"]


def test_refusal_for_another_reason_is_shown(server: FakeServer, client: Client) -> None:
    server.play(*[refusal(400, "temperature is not welcome here")] * 3)
    with pytest.raises(UpstreamError, match="temperature is not welcome") as caught:
        client.generate(Fit, "hi", temperature=1.5)
    assert (caught.value.status, caught.value.retryable, len(server.bodies)) == (400, False, 3)


def test_prose_is_never_a_success_d4_d12(server: FakeServer, client: Client) -> None:
    server.play(*[text_reply("Sure! ", "Name: Bob")] * 3)
    with pytest.raises(InvalidAnswerError) as caught:
        client.generate(Fit, "hi")
    assert len(caught.value.attempts) == len(server.bodies) == 3
    assert caught.value.raw_content == "Sure! Name: Bob"


def test_drop_params_does_not_drop_the_schema_d12(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_litellm(), "drop_params", True)
    server.play(text_reply('{"fit":1}'), text_reply('{"fit":1}'))
    for model in ("openai/test", "hosted_vllm/test"):
        with connect(server, model) as client:
            client.generate(Fit, "hi")
    assert formats(server) == ["json_schema", "json_schema"]


def test_ignored_schema_is_learned_d20(server: FakeServer, client: Client) -> None:
    server.play(text_reply("Sure! It fits."), text_reply('{"fit":3}'), text_reply('{"fit":4}'))
    result = client.generate(Fit, "hi")
    assert (result.output.fit, result.attempts, result.enforcement) == (3, 2, "validated")
    assert client.generate(Fit, "hi").enforcement == "validated"
    heads = [body["messages"][0]["role"] for body in server.bodies]
    assert heads == ["user", "system", "system"]


def test_broken_json_is_not_repaired_d6(server: FakeServer, client: Client) -> None:
    server.play(*[text_reply('{\n\n{\n"fit":1\n}\n')] * 2)
    with pytest.raises(InvalidAnswerError):
        client.generate(Fit, "hi", max_attempts=2)


def test_list_is_wrapped_on_the_wire_d25(server: FakeServer, client: Client) -> None:
    server.play(text_reply('{"value":', '[{"fit":1},', '{"fit":2}]}'))
    result = client.generate(list[Fit], "hi")
    assert result.output == [Fit(fit=1), Fit(fit=2)]
    schema = server.bodies[0]["response_format"]["json_schema"]["schema"]
    assert (schema["type"], schema["required"], "$defs" in schema) == ("object", ["value"], True)


def test_key_order_reaches_the_server_c26(server: FakeServer, client: Client) -> None:
    server.play(text_reply('{"z":1,"a":2,"m":3}'))
    names = {name: {"type": "integer"} for name in "zam"}
    result = client.generate({"type": "object", "properties": names, "required": list("zam")}, "hi")
    assert list(server.bodies[0]["response_format"]["json_schema"]["schema"]["properties"]) == list("zam")
    assert list(result.output) == list("zam")


def test_truncated_thinking_carries_it(server: FakeServer, client: Client) -> None:
    server.play(Reply([{"reasoning": "on and on"}], finish_reason="length"))
    with pytest.raises(ReasoningTruncatedError) as caught:
        client.generate(Fit, "hi", max_tokens=5)
    assert (caught.value.reasoning, caught.value.usage, len(server.bodies)) == ("on and on", Usage(7, 5, 3), 1)
    assert server.bodies[0]["max_tokens"] == 5


def test_refusal_text_survives(server: FakeServer, client: Client) -> None:
    server.play(Reply([{"refusal": "I may"}, {"refusal": " not"}]))
    with pytest.raises(NoFinalAnswerError, match="I may not"):
        client.generate(Fit, "hi")


@pytest.mark.parametrize(
    ("reply", "kind", "retryable"),
    [
        pytest.param(refusal(401), UpstreamError, False, id="401"),
        pytest.param(refusal(404), UnknownModelError, False, id="404"),
        pytest.param(refusal(429, headers={"retry-after": "7"}), UpstreamBusyError, True, id="429"),
        pytest.param(refusal(500), UpstreamError, True, id="500"),
        pytest.param(refusal(503), UpstreamUnavailableError, True, id="503"),
        pytest.param(Reply(status=500, body="<html>"), UpstreamError, True, id="html"),
    ],
)
def test_server_errors_are_typed(
    server: FakeServer, client: Client, reply: Reply, kind: type[Exception], retryable: bool
) -> None:
    server.play(reply)
    with pytest.raises(kind) as caught:
        client.generate(Fit, "hi")
    assert caught.value.retryable is retryable  # type: ignore[attr-defined]
    assert len(server.bodies) == 1
    if isinstance(caught.value, UpstreamBusyError):
        assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("model", ["openai/test", "hosted_vllm/test"])
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply([{"content": '{"fit":1'}], finish_reason=None), id="breaks-off"),
        pytest.param(Reply([{"content": '{"fit":1}'}], finish_reason=None), id="breaks-off-when-whole"),
        pytest.param(
            Reply([{"content": '{"fit":1'}], finish_reason=None, error_frame={"error": {"message": "boom"}}), id="T13-error-frame"
        ),
    ],
)
def test_broken_stream_is_an_error_with_its_text(server: FakeServer, model: str, reply: Reply) -> None:
    server.play(reply)
    with connect(server, model) as client, pytest.raises(UpstreamError) as caught:
        client.generate(Fit, "hi")
    assert caught.value.retryable
    assert caught.value.raw_content.startswith('{"fit":1')


def test_unreachable_server_is_typed() -> None:
    with Client("openai/test", base_url="http://127.0.0.1:9/v1", api_key="k") as client, pytest.raises(UpstreamUnavailableError):
        client.generate(Fit, "hi")


@pytest.mark.parametrize(
    ("model", "mode", "thinking", "budget", "strictens"),
    [
        ("openai/gpt-4o", "native", "none", "none", True),
        ("openai/gpt-5", "native", "effort", "none", True),
        ("openai/gpt-3.5-turbo", "native", "none", "none", True),
        ("anthropic/claude-sonnet-4-5", "native", "effort", "anthropic", False),
        ("hosted_vllm/x", "native", "template", "vllm", False),
        ("ollama/no-such-model", "native", "effort", "none", False),
    ],
)
def test_what_is_known_of_a_model_decides_how_it_is_asked(
    model: str, mode: str, thinking: str, budget: str, strictens: bool
) -> None:
    target, memory = RemoteUpstream(model)._prepare()
    assert (target.thinking_control, target.budget_control, target.strictens) == (thinking, budget, strictens)
    assert memory.asks()[0].mode == mode


def test_unknown_provider_is_typed() -> None:
    with Client("no-such-provider/x") as client, pytest.raises(UnknownModelError) as caught:
        client.generate(Fit, "hi")
    assert "local/<model>" in (caught.value.hint or "")


def test_silent_server_runs_into_the_deadline(server: FakeServer, client: Client) -> None:
    server.play(Reply([{"content": "{"}, 4.0]))
    started = time.monotonic()
    with pytest.raises(UpstreamTimeoutError):
        client.generate(Fit, "hi", timeout_s=1)
    assert time.monotonic() - started < 4


def test_leaving_early_disconnects(server: FakeServer, client: Client) -> None:
    server.play(Reply([piece for number in range(200) for piece in ({"reasoning": f"t{number} " * 500}, 0.02)]))
    with client.stream(Fit, "hi") as stream:
        next(stream)
    _wait_until(lambda: server.num_disconnects == 1)


async def test_async_path_is_the_same(server: FakeServer) -> None:
    server.play(refusal(400), Reply([{"thinking": "t1"}, {"thinking": "t2"}, {"content": '{"fit":1}'}]), refusal(429))
    async with AsyncClient("openai/test", base_url=server.url, api_key="k") as client:
        result = await client.generate(Fit, "hi")
        assert (result.output, result.reasoning, result.strategy) == (Fit(fit=1), "t1t2", "json_object")
        with pytest.raises(UpstreamBusyError):
            await client.generate(Fit, "hi")


async def test_async_cancellation_disconnects(server: FakeServer) -> None:
    server.play(Reply([piece for number in range(200) for piece in ({"reasoning": f"t{number} " * 500}, 0.02)]))
    async with AsyncClient("openai/test", base_url=server.url, api_key="k") as client:
        task = asyncio.create_task(client.generate(Fit, "hi"))
        await asyncio.to_thread(_wait_until, lambda: len(server.bodies) == 1)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(_wait_until, lambda: server.num_disconnects == 1)


def _wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_caller_is_told_that_the_schema_was_ignored_d20(server: FakeServer, client: Client) -> None:
    server.play(text_reply("Sure! Bob"), text_reply('{"fit":1}'), text_reply('{"fit":2}'))
    for _ in range(2):
        result = client.generate(Fit, "hi")
        assert result.enforcement == "validated"
        assert any("not to keep to it" in note for note in result.notes)


@pytest.mark.parametrize(
    "deltas",
    [[{"reasoning_content": "why"}, {"content": '{"fit":1}'}], [{"content": "<think>why</think>"}, {"content": '{"fit":1}'}]],
    ids=["field", "tags"],
)
def test_thinking_that_was_not_counted_has_no_count(server: FakeServer, client: Client, deltas: list[dict[str, Any]]) -> None:
    server.play(Reply(deltas, usage={"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}))
    assert client.generate(Fit, "hi").usage == Usage(7, 5, None)


@pytest.mark.parametrize("body", [{"error": "the reason"}, {"detail": "the reason"}], ids=["text", "detail"])
def test_reason_in_a_flat_error_body_is_shown_t23(server: FakeServer, client: Client, body: dict[str, str]) -> None:
    server.play(Reply(status=404, body=body))
    with pytest.raises(UnknownModelError, match="the reason"):
        client.generate(None, "hi")


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        pytest.param("<|channel|>analysis<|message|>I think", "I think", id="thinking"),
        pytest.param(
            "<|channel|>analysis<|message|>I<|end|><|start|>assistant<|channel|>commentary<|message|>See.", "I", id="preamble"
        ),
    ],
)
@pytest.mark.parametrize("output_type", [Fit, str])
def test_a21_channel_that_is_not_the_final_one_is_no_answer(
    text: str, reasoning: str, output_type: Any, server: FakeServer
) -> None:
    server.play(*[text_reply(text[:20], text[20:])] * 3)
    with connect(server, "openai/gpt-oss-20b") as client, pytest.raises(NoFinalAnswerError) as caught:
        client.generate(output_type, "hi")
    expected = f"{reasoning}\nSee." if output_type is Fit and "See." in text else reasoning
    assert caught.value.reasoning == expected
    assert caught.value.finish_reason == "stop"


def test_final_channel_is_the_answer(server: FakeServer) -> None:
    text = '<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>{"fit":1}<|return|>'
    server.play(text_reply(*text))
    with connect(server, "openai/gpt-oss-20b") as client:
        result = client.generate(Fit, "hi")
    assert (result.output, result.reasoning, result.content) == (Fit(fit=1), "r", '{"fit":1}')
