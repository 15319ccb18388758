"""POST /v1/chat/completions: read, admit, answer; one request from its first byte to its last.

Owns the order of the steps. The pieces are wire.py (the request), backend.py (the model), replies.py (the JSON) and sse.py (the
stream). A client that goes away cancels its generation, whether streamed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ..events import ContentDelta, ReasoningDelta
from .backend import Outcome, Piece, ServedModel
from .envelope import to_api_error
from .errors import ApiError
from .limits import Limits, Slots
from .replies import ReplyWriter
from .sse import HEADERS, Frame, FrameSource, send_events
from .wire import CompletionCall, read_call

SEND_GRACE_S = 10.0
"""Seconds beyond the time limit until a client that does not read loses its connection, and gives its slot back."""


class ChatCompletions:
    """ASGI endpoint."""

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits, slots: Slots) -> None:
        self._models = models
        self._limits = limits
        self._slots = slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with self._slots.take():
            call = read_call(await self._read_body(scope, receive))
            model = find_model(self._models, call.model)
            respond = self._respond_streamed if call.is_streamed else self._respond_whole
            # Within the time there is an answer, or an error that says so; what is left is for a client that does not read it.
            async with asyncio.timeout(self._limits.timeout_s + SEND_GRACE_S):
                await _while_connected(respond(model, call, scope, send), receive)

    async def _read_body(self, scope: Scope, receive: Receive) -> bytes:
        encoding = Headers(scope=scope).get("content-encoding", "identity")
        if encoding.strip().lower() not in ("", "identity"):
            raise ApiError(415, f"a body with content-encoding {encoding[:60]!r} is not read", code="unsupported_encoding")
        limit = self._limits.max_body_bytes
        too_large = ApiError(413, f"the request body is larger than {limit} bytes", code="request_too_large")
        announced = Headers(scope=scope).get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            raise too_large
        data = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(400, "the client left before the request was complete", code="incomplete_request")
                    data += message.get("body", b"")
                    if len(data) > limit:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(data)
        except TimeoutError:
            raise ApiError(408, "the request body did not arrive in time", code="request_timeout") from None

    async def _respond_whole(self, model: ServedModel, call: CompletionCall, scope: Scope, send: Send) -> None:
        writer = _writer(call)
        limit = self._limits.timeout_s
        async with asyncio.timeout(limit), aclosing(model.complete_all(call, timeout_s=limit)) as pieces:
            by_index = {index: piece async for index, piece in pieces if isinstance(piece, Outcome)}
        outcomes = [by_index[index] for index in range(call.n)]
        report = outcomes[0].report()
        headers = {
            f"x-thinkgate-{name.replace('_', '-')}": str(report[name])
            for name in ("enforcement", "strategy", "attempts", "truncated_in")
            if name in report
        }
        await JSONResponse(writer.completion(outcomes, model.count_usage(outcomes)), headers=headers)(scope, _never_receive, send)

    async def _respond_streamed(self, model: ServedModel, call: CompletionCall, scope: Scope, send: Send) -> None:
        limit, keep_alive_s = self._limits.timeout_s, self._limits.keep_alive_s
        async with FrameSource(_frames(model, call, limit), timeout_s=limit) as source:
            # An error that comes before the first token is still sent with its own status: the headers wait for that.
            first = await source.get(keep_alive_s)
            raw_headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send({"type": "http.response.start", "status": 200, "headers": raw_headers})
            await send_events(
                first, source, send, keep_alive_s=keep_alive_s, describe_error=lambda error: to_api_error(error).body()
            )


def _writer(call: CompletionCall) -> ReplyWriter:
    return ReplyWriter(
        call.model,
        include_reasoning=call.include_reasoning,
        include_usage=call.include_usage,
        include_logprobs=call.wants_logprobs,
    )


async def _frames(model: ServedModel, call: CompletionCall, timeout_s: float) -> AsyncGenerator[Frame, None]:
    writer = _writer(call)
    begun: set[int] = set()
    outcomes: list[Outcome] = []
    async with aclosing(model.complete_all(call, timeout_s=timeout_s)) as pieces:
        async for index, piece in pieces:
            if index not in begun:
                begun.add(index)
                yield writer.first_chunk(index)
            if isinstance(piece, Outcome):
                outcomes.append(piece)
            frame = _frame_of(piece, writer, index)
            if frame is not None:
                yield frame
    usage = writer.usage_chunk(model.count_usage(outcomes))
    if usage is not None:
        yield usage


def find_model(models: Mapping[str, ServedModel], model_id: str) -> ServedModel:
    """Give the model that clients call `model_id`.

    Raises:
        ApiError: 404 `model_not_found`.
    """
    model = models.get(model_id)
    if model is None:
        known = ", ".join(sorted(models))
        raise ApiError(
            404, f"there is no model {model_id[:200]!r} here; there is: {known}", param="model", code="model_not_found"
        )
    return model


def _frame_of(piece: Piece, writer: ReplyWriter, index: int) -> Frame | None:
    match piece:
        case ReasoningDelta(text=text):
            return writer.reasoning_chunk(text, index)
        case ContentDelta(text=text, logprobs=logprobs):
            return writer.content_chunk(text, logprobs, index)
        case Outcome():
            return writer.closing_chunk(piece, index)


async def _while_connected(work: Coroutine[None, None, None], receive: Receive) -> None:
    """Run `work` until it ends or the client goes away; then cancel it and wait until it has cleaned up."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()
        await asyncio.wait({working, watching})
    if not working.cancelled():
        working.result()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _never_receive() -> dict[str, str]:
    raise AssertionError("a plain response reads nothing")
