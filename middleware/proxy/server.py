"""Run the application with uvicorn: load the models, listen, serve, and let running requests finish at the end."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import uvicorn

from ..async_client import AsyncClient
from ..errors import InvalidRequestError
from .app import create_app
from .backend import ServedModel
from .limits import Limits


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; port 0 takes a free one.

    Raises:
        InvalidRequestError: The address cannot be used.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidRequestError(
            f"cannot listen on {host}:{port}: {reason}", param="port", hint="choose another with --port; 0 takes a free one"
        ) from error


async def serve(
    models: Iterable[ServedModel],
    listener: socket.socket,
    *,
    api_keys: Sequence[str] = (),
    limits: Limits | None = None,
    on_loading: Callable[[ServedModel], None] = lambda model: None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Load the models, then serve until SIGINT or SIGTERM; closes the clients and the listener.

    Raises:
        UpstreamError: A model cannot be loaded.
    """
    models = list(models)
    limits = limits or Limits()
    app = create_app(models, api_keys=api_keys, limits=limits)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=max(1, round(limits.shutdown_s)),
    )
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        for model in models:
            await stack.enter_async_context(model.client)
        for model in models:
            on_loading(model)
            await model.client.load()
        # What loading left is there to stay: a pass of the collector over it would hold up every stream for half a second.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        server = uvicorn.Server(config)
        with _stopped_by_signals(server):
            on_ready()
            await server.serve(sockets=[listener])


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the server gracefully, also before it has started and after it has stopped.

    uvicorn installs handlers of its own only while it runs, and raises a signal again once it has stopped: by then there is
    nothing left to interrupt, and the process ends as if it had returned.
    """

    def stop(signum: int, frame: object) -> None:
        server.should_exit = True

    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def open_models(
    specs: Iterable[str],
    *,
    base_url: str | None = None,
    upstream_key: str | None = None,
    family: str = "auto",
    families: Path | None = None,
) -> list[ServedModel]:
    """Make the served models from `MODEL` or `NAME=MODEL` strings.

    Raises:
        InvalidRequestError: A name is given twice, a model or a family is unknown, or the file of families cannot be used.
    """
    models: dict[str, ServedModel] = {}
    for spec in specs:
        name, separator, model = spec.partition("=")
        model = model if separator else name
        if name in models:
            raise InvalidRequestError(
                f"two models are called {name!r}", param="model", hint="give one another name: --model NAME=MODEL"
            )
        is_remote = not model.startswith("local/")
        client = AsyncClient(
            model,
            base_url=base_url if is_remote else None,
            api_key=upstream_key if is_remote else None,
            family=family,
            families=families,
        )
        models[name] = ServedModel(name, model, client)
    return list(models.values())
