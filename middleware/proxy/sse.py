"""Send server-sent events over ASGI: frames, keep-alive comments and the closing `[DONE]`.

Owns the transport of a stream only: it does not know what a frame says.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from starlette.types import Send

Frame: TypeAlias = dict[str, Any]

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

_MAX_WAITING_FRAMES = 64


class FrameSource:
    """Run a generator of frames in a task of its own, so that waiting for a frame can time out without harming it.

    The generator gets `timeout_s` seconds in all. At most `_MAX_WAITING_FRAMES` frames wait for a slow reader; then the generator
    waits. Use as an async context manager: leaving it cancels the generator and waits until that has cleaned up.
    """

    def __init__(self, frames: AsyncGenerator[Frame, None], *, timeout_s: float) -> None:
        self._frames = frames
        self._timeout_s = timeout_s
        self._queue: asyncio.Queue[Frame | Exception | None] = asyncio.Queue(_MAX_WAITING_FRAMES)

    async def __aenter__(self) -> FrameSource:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def get(self, wait_s: float) -> Frame | None:
        """Give the next frame, an empty one if none came within `wait_s` seconds, None at the end.

        Raises:
            Exception: What the generator raised; `TimeoutError` where the whole stream ran out of time.
        """
        try:
            async with asyncio.timeout(wait_s):
                item = await self._queue.get()
        except TimeoutError:
            return {}
        if isinstance(item, Exception):
            raise item
        return item

    async def _run(self) -> None:
        ending: Exception | None = None
        try:
            async with asyncio.timeout(self._timeout_s), aclosing(self._frames):
                async for frame in self._frames:
                    await self._queue.put(frame)
        except Exception as error:  # handed on to the reader, whatever it is
            ending = error
        await self._queue.put(ending)


# Lines of events end with CR or LF alone, but many clients split at whatever Unicode calls a line break (httpx-sse#34).
_LINE_BREAKS = str.maketrans({char: f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"})


def encode_frame(body: Frame) -> bytes:
    """Give one `data:` frame; the JSON is one line, so one `data:` line is enough."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":")).translate(_LINE_BREAKS)
    return b"data: " + text.encode() + b"\n\n"


async def send_events(
    first: Frame | None,
    source: FrameSource,
    send: Send,
    *,
    keep_alive_s: float,
    describe_error: Callable[[Exception], Frame],
) -> None:
    """Send `first` and all frames that follow, then `[DONE]`. The response must have been started.

    A comment after every `keep_alive_s` seconds of silence keeps clients and proxies from giving up during long thinking. An
    error becomes the last frame.
    """
    frame = first
    while frame is not None:
        await _send_part(send, encode_frame(frame) if frame else KEEP_ALIVE)
        try:
            frame = await source.get(keep_alive_s)
        except Exception as error:  # the headers are out, so this is the only place left to say it
            await _send_part(send, encode_frame(describe_error(error)))
            break
    await send({"type": "http.response.body", "body": DONE, "more_body": False})


async def _send_part(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
