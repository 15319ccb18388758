"""A real server on a free port, in a thread of the test process, in front of scripted upstreams."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from middleware import AsyncClient
from middleware.proxy import Limits, ServedModel, create_app
from middleware.proxy.server import listen
from middleware.testing import Reply, ScriptedUpstream
from middleware.upstreams.base import ChatRequest, Upstream, UpstreamDelta, UpstreamItem


@dataclass(frozen=True)
class Running:
    """Where the server is."""

    port: int

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class EndlessUpstream(ScriptedUpstream):
    """Thinks for ever, one piece every `pause_s` seconds, and counts the requests that were cancelled."""

    def __init__(self, *, pause_s: float = 0.01, silence_s: float = 0.0, piece: str = "hm ") -> None:
        super().__init__([])
        self._piece = piece
        self._pause_s = pause_s
        self._silence_s = silence_s
        self.has_started = threading.Event()
        self.was_cancelled = threading.Event()

    async def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        self.requests.append(request)
        self.has_started.set()
        try:
            await asyncio.sleep(self._silence_s)
            while True:
                yield UpstreamDelta(reasoning=self._piece)
                await asyncio.sleep(self._pause_s)
        except (GeneratorExit, asyncio.CancelledError):
            self.was_cancelled.set()
            raise


def served(upstream: Upstream, model: str = "local/scripted") -> ServedModel:
    return ServedModel(model, model, AsyncClient(model, upstream=upstream))


def scripted(*replies: Reply, model: str = "local/scripted") -> tuple[ScriptedUpstream, ServedModel]:
    upstream = ScriptedUpstream(replies)
    return upstream, served(upstream, model)


@contextmanager
def running(*models: ServedModel, api_keys: Sequence[str] = (), limits: Limits | None = None) -> Generator[Running, None, None]:
    listener = listen("127.0.0.1", 0)
    app = create_app(models, api_keys=api_keys, limits=limits)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Running(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
