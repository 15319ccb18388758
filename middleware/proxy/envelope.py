"""The outermost layer: a request id, the key check, and an OpenAI-shaped error for whatever goes wrong inside.

Logs method, path, status, request id and duration. Never logs bodies, prompts, answers or keys, nor the message of an unexpected
exception, which may quote them.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import MiddlewareError
from .errors import ApiError, from_middleware_error
from .keys import KeyRing

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health"})
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


class Envelope:
    """ASGI layer around the routes."""

    def __init__(self, app: ASGIApp, *, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection; everything but HTTP is passed through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        started_at = time.perf_counter()
        request_id = _request_id(headers.get("x-request-id"))
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = MutableHeaders(scope=message)
                out["x-request-id"] = request_id
                out["openai-processing-ms"] = str(round((time.perf_counter() - started_at) * 1000))
            await send(message)

        try:
            if scope["path"] not in OPEN_PATHS and not self._keys.opens(headers.get("authorization")):
                raise ApiError(401, "missing or wrong API key; send it as `Authorization: Bearer KEY`", code="invalid_api_key")
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # the border of the server: every failure gets an answer
            reply = to_api_error(error)
            if not status:
                response = JSONResponse(reply.body(), status_code=reply.status, headers=reply.headers())
                await response(scope, receive, send_with_id)
        elapsed_ms = (time.perf_counter() - started_at) * 1000
        # 499: the client left before there was anything to say.
        logger.info("%s %s %d %s %.0f ms", scope["method"], scope["path"], status or 499, request_id, elapsed_ms)


def to_api_error(error: Exception) -> ApiError:
    """Translate anything that was raised; what nobody expected is logged by type and place."""
    match error:
        case ApiError():
            return error
        case MiddlewareError():
            return from_middleware_error(error)
        case TimeoutError():
            return ApiError(504, "no complete answer within the server's time limit", code="upstream_timeout")
        case HTTPException(status_code=404):
            return ApiError(404, "no such path; see /v1/models and /v1/chat/completions", code="not_found")
        case HTTPException(status_code=405):
            return ApiError(405, "this path does not take that method", code="method_not_allowed")
        case _:
            place = "".join(traceback.format_tb(error.__traceback__))
            logger.error("unexpected %s\n%s", type(error).__name__, place)
            return ApiError(500, "internal error; the server's log has its place", code="internal_error")


def _request_id(offered: str | None) -> str:
    if offered is not None and _REQUEST_ID.fullmatch(offered):
        return offered
    return f"req_{uuid.uuid4().hex}"
