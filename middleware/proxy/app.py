"""The ASGI application: routes, and the models behind them.

`create_app` takes ready models, so that any server (or a test) can run it; server.py is the one that `thinkgate serve` starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from .backend import ServedModel
from .chat import ChatCompletions, find_model
from .envelope import Envelope, to_api_error
from .keys import KeyRing
from .limits import Limits, Slots
from .replies import model_body


def create_app(models: Iterable[ServedModel], *, api_keys: Iterable[str] = (), limits: Limits | None = None) -> Starlette:
    """Build the application.

    Args:
        models: What is served; the caller closes their clients after the server has stopped.
        api_keys: Keys that open it; none leaves it open.
        limits: None means the defaults.
    """
    by_id = {model.id: model for model in models}
    limits = limits or Limits()
    slots = Slots(limits.max_concurrency)
    created = int(time.time())

    async def list_models(request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [model_body(model_id, created=created) for model_id in by_id]})

    async def show_model(request: Request) -> JSONResponse:
        model = find_model(by_id, request.path_params["model_id"])
        return JSONResponse(model_body(model.id, created=created))

    async def health(request: Request) -> JSONResponse:
        failed = {model.id: text for model in by_id.values() if (text := model.why_unhealthy()) is not None}
        if failed:
            return JSONResponse({"status": "failed", "num_running": slots.num_taken, "failed": failed}, status_code=503)
        return JSONResponse({"status": "ok", "num_running": slots.num_taken})

    async def refuse(request: Request, error: Exception) -> JSONResponse:
        reply = to_api_error(error)
        return JSONResponse(reply.body(), status_code=reply.status, headers=reply.headers())

    return Starlette(
        routes=[
            Route("/v1/chat/completions", ChatCompletions(by_id, limits, slots), methods=["POST"]),
            Route("/v1/models", list_models),
            Route("/v1/models/{model_id:path}", show_model),
            Route("/health", health),
        ],
        middleware=[Middleware(Envelope, keys=KeyRing(api_keys))],
        # Starlette's own handler answers these in plain text.
        exception_handlers={404: refuse, 405: refuse},
    )
