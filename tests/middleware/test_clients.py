"""Life of the clients: names, closing, leaving early, cancelling, importing."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator

import pytest

import middleware
from middleware import (
    AsyncClient,
    Client,
    InvalidRequestError,
    MiddlewareError,
    MissingExtraError,
    UnknownModelError,
    UpstreamTimeoutError,
)
from middleware.testing import ScriptedUpstream, reply
from middleware.upstreams.base import ChatRequest, UpstreamDelta, UpstreamItem
from middleware.upstreams.factory import create_upstream
from middleware.upstreams.local import LocalUpstream
from middleware.upstreams.remote import RemoteUpstream

ANSWER = {"type": "object"}


class HangingUpstream(ScriptedUpstream):
    """Sends one delta and then nothing."""

    def __init__(self) -> None:
        super().__init__([])
        self.was_cancelled = False

    async def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        try:
            yield UpstreamDelta(reasoning="hm")
            await asyncio.sleep(3600)
        except (asyncio.CancelledError, GeneratorExit):
            self.was_cancelled = True
            raise


@pytest.mark.parametrize("name", ["", " ", "local/", " openai/x"])
def test_bad_model_names_are_refused_with_a_hint(name: str) -> None:
    with pytest.raises(UnknownModelError) as caught:
        Client(name)
    assert "local/" in (caught.value.hint or "")
    assert caught.value.param == "model"


def test_model_names_choose_the_side() -> None:
    assert isinstance(create_upstream("local/pocket-r1"), LocalUpstream)
    assert isinstance(create_upstream("openai/test", base_url="http://127.0.0.1:1/v1"), RemoteUpstream)


@pytest.mark.parametrize(
    ("model", "options", "param"),
    [
        ("local/x", {"base_url": "http://x"}, "base_url"),
        ("local/x", {"strategy": "native"}, "strategy"),
        ("openai/x", {"engine_options": {}}, "engine_options"),
        ("openai/x", {"strategy": "magic"}, "strategy"),
        ("openai/x", {"family": "no-such-family"}, "family"),
        ("openai/x", {"timeout_s": 0}, "timeout_s"),
    ],
)
def test_options_of_the_other_side_are_refused(model: str, options: dict[str, str], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Client(model, **options)  # type: ignore[arg-type]
    assert caught.value.param == param


def test_stream_left_early_is_cancelled() -> None:
    upstream = ScriptedUpstream([reply("a long thought", "{}")])
    with Client("test", upstream=upstream) as client:
        with client.stream(ANSWER, "hi") as stream:
            next(stream)
        assert upstream.num_cancelled == 1
        assert upstream.is_closed is False
    assert upstream.is_closed is True


def test_stream_that_is_dropped_is_cancelled_at_once() -> None:
    upstream = ScriptedUpstream([reply("a long thought", "{}")])
    client = Client("test", upstream=upstream)
    stream = client.stream(ANSWER, "hi")
    next(stream)
    gc.disable()
    try:
        del stream
        assert upstream.num_cancelled == 1
    finally:
        gc.enable()


def test_stream_that_was_never_begun_asks_nothing() -> None:
    upstream = ScriptedUpstream([])
    with Client("test", upstream=upstream) as client, client.stream(ANSWER, "hi") as stream:
        with pytest.raises(InvalidRequestError, match="no result yet"):
            _ = stream.result
    assert upstream.requests == []


async def test_async_stream_left_early_is_cancelled() -> None:
    upstream = ScriptedUpstream([reply("a long thought", "{}")])
    async with AsyncClient("test", upstream=upstream) as client, client.stream(ANSWER, "hi") as stream:
        async for _ in stream:
            break
    assert upstream.num_cancelled == 1
    assert upstream.is_closed is True


async def test_cancelling_the_task_cancels_the_request() -> None:
    upstream = HangingUpstream()
    async with AsyncClient("test", upstream=upstream) as client:
        task = asyncio.create_task(client.generate(ANSWER, "hi"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert upstream.was_cancelled


class SteadyUpstream(ScriptedUpstream):
    """Sends a delta whenever the event loop turns, without end."""

    async def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        while True:
            await asyncio.sleep(0)
            yield UpstreamDelta(reasoning="hm")


@pytest.mark.parametrize("num_turns", range(8))
async def test_cancellation_is_not_lost_between_items(num_turns: int) -> None:
    async with AsyncClient("test", upstream=SteadyUpstream([])) as client:
        task = asyncio.create_task(client.generate(ANSWER, "hi", timeout_s=5))
        for _ in range(20 + num_turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_async_call_has_a_deadline() -> None:
    upstream = HangingUpstream()
    async with AsyncClient("test", upstream=upstream) as client:
        with pytest.raises(UpstreamTimeoutError) as caught:
            await client.generate(ANSWER, "hi", timeout_s=0.05)
    assert caught.value.reasoning == "hm"
    assert upstream.was_cancelled


async def test_async_client_serves_many_calls_at_once() -> None:
    upstream = ScriptedUpstream([reply("", '{"a":1}')] * 20)
    async with AsyncClient("test", upstream=upstream) as client:
        results = await asyncio.gather(*(client.generate(ANSWER, "hi") for _ in range(20)))
    assert [result.output for result in results] == [{"a": 1}] * 20


def test_closed_client_is_refused() -> None:
    client = Client("test", upstream=ScriptedUpstream([]))
    client.close()
    client.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        client.generate(None, "hi")


async def test_closed_async_client_is_refused() -> None:
    client = AsyncClient("test", upstream=ScriptedUpstream([]))
    async with client.stream(None, "hi") as stream:
        with pytest.raises(InvalidRequestError, match="no result yet"):
            _ = stream.result
    await client.close()
    await client.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        await client.generate(None, "hi")


def test_missing_litellm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with Client("openai/test") as client, pytest.raises(MissingExtraError, match="litellm") as caught:
        client.load()
    assert caught.value.hint == "pip install litellm"


def test_public_names_exist() -> None:
    assert all(hasattr(middleware, name) for name in middleware.__all__)
    assert list(middleware.__all__) == sorted(middleware.__all__)


def test_every_error_has_a_hint_and_says_whether_to_retry() -> None:
    public = [getattr(middleware, name) for name in middleware.__all__]
    errors = [item for item in public if isinstance(item, type) and issubclass(item, MiddlewareError)]
    assert len(errors) == 15
    for kind in errors:
        error = kind("what happened", hint="what to do")
        assert (error.hint, error.message, str(error)) == ("what to do", "what happened", "what happened (what to do)")
        assert error.retryable in (True, False)


def test_import_loads_neither_torch_nor_litellm() -> None:
    code = (
        "import sys, middleware; middleware.Client('openai/x'); middleware.Client('local/pocket-r1');"
        "print([name for name in ('torch', 'litellm', 'transformers', 'engine', 'xgrammar', 'openai') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_answer_that_never_ends_has_a_deadline() -> None:
    class Endless(ScriptedUpstream):
        def stream(self, request: ChatRequest) -> Generator[UpstreamItem, None, None]:
            for _ in range(500):
                time.sleep(0.01)
                yield UpstreamDelta(reasoning="hm")

    with Client("test", upstream=Endless([])) as client, pytest.raises(UpstreamTimeoutError) as caught:
        client.generate(ANSWER, "hi", timeout_s=0.2)
    assert (caught.value.reasoning or "").startswith("hmhm")


class SlowToLoad(ScriptedUpstream):
    """Takes its time to get ready."""

    def load(self) -> None:
        time.sleep(0.3)


def test_loading_takes_nothing_of_the_time_of_a_call() -> None:
    with Client("x/y", upstream=SlowToLoad([reply("", '{"a":1}')])) as client:
        assert client.generate(ANSWER, "hi", timeout_s=0.2).output == {"a": 1}


async def test_loading_takes_nothing_of_the_time_of_an_asynchronous_call() -> None:
    async with AsyncClient("x/y", upstream=SlowToLoad([reply("", '{"a":1}')])) as client:
        assert (await client.generate(ANSWER, "hi", timeout_s=0.2)).output == {"a": 1}
