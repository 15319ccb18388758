"""A server on 127.0.0.1 that speaks OpenAI's chat dialect and does what a test tells it to, faults included."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

# litellm leaves connections to the garbage collector, and reads pydantic models in a way that pydantic 2.11 deprecated.
ignores_litellm_warnings = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::DeprecationWarning",
    "ignore:Items? .* on TypedDict class:UserWarning",
)

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12, "completion_tokens_details": {"reasoning_tokens": 3}}


@dataclass
class Reply:
    """One scripted reply.

    Attributes:
        deltas: Deltas of the stream; a float in between waits that many seconds.
        finish_reason: None = the stream breaks off.
        status: Anything but 200 sends `body` instead of a stream.
        error_frame: Sent after the deltas.
        raw: Sent as it stands, in place of all that.
        content_type: Of the stream, or of `raw`.
    """

    deltas: Sequence[dict[str, Any] | float] = ()
    finish_reason: str | None = "stop"
    usage: dict[str, Any] | None = field(default_factory=lambda: dict(USAGE))
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    error_frame: dict[str, Any] | None = None
    raw: str | None = None
    content_type: str = "text/event-stream"


def text_reply(*pieces: str, **options: Any) -> Reply:
    return Reply([{"content": piece} for piece in pieces], **options)


def frames_reply(*frames: dict[str, Any] | str) -> Reply:
    """Frames as a server wrote them; a text is sent as it stands."""
    texts = [frame if isinstance(frame, str) else f"data: {json.dumps(frame)}\n\n" for frame in frames]
    return Reply(raw="".join(texts) + "data: [DONE]\n\n")


def refusal(status: int, message: str = "no", **options: Any) -> Reply:
    return Reply(status=status, body={"error": {"message": message, "type": "invalid_request_error", "code": None}}, **options)


class FakeServer:
    """Scripts by order of arrival, or by a function of the request body."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.replies: list[Reply] = []
        self.answer: Callable[[dict[str, Any]], Reply] | None = None
        self.num_disconnects = 0
        self.url = ""

    def play(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    def reply_to(self, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        return self.answer(body) if self.answer is not None else self.replies.pop(0)


@contextmanager
def serve() -> Iterator[FakeServer]:
    server = FakeServer()
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"script": server}))
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    script: FakeServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = self.script.reply_to(body)
        try:
            if reply.status != 200:
                self._send_body(reply)
            else:
                self._send_stream(reply)
        except (BrokenPipeError, ConnectionResetError):
            self.script.num_disconnects += 1

    def _send_body(self, reply: Reply) -> None:
        payload = json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _send_stream(self, reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", reply.content_type)
        self.end_headers()
        if reply.raw is not None:
            self.wfile.write(reply.raw.encode())
            return
        for delta in reply.deltas:
            if isinstance(delta, float):
                time.sleep(delta)
            else:
                self._frame(chunk(delta))
        if reply.error_frame is not None:
            self._frame(reply.error_frame)
        if reply.finish_reason is not None:
            self._frame(chunk({}, reply.finish_reason))
            if reply.usage is not None:
                self._frame({**chunk({}), "choices": [], "usage": reply.usage})
            self.wfile.write(b"data: [DONE]\n\n")

    def _frame(self, payload: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(payload).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "test", "choices": [choice]}
