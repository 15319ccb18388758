"""`thinkgate serve`: an OpenAI-compatible server; needs the extra `proxy`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidRequestError, MissingExtraError

KEYS_VARIABLE = "THINKGATE_API_KEYS"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `thinkgate serve` was asked for; None leaves a limit at its default."""

    models: Sequence[str]
    host: str
    port: int
    base_url: str | None = None
    upstream_key: str | None = None
    family: str = "auto"
    families: Path | None = None
    key_file: Path | None = None
    max_concurrency: int | None = None
    timeout_s: float | None = None


def read_keys(key_file: Path | None, environment: Mapping[str, str]) -> list[str]:
    """Collect the API keys: one a line from the file, and a comma-separated list from the environment.

    Keys are not taken as arguments, since every user of a machine can read those.

    Raises:
        InvalidRequestError: The file cannot be read, or holds no key.
    """
    keys = [key.strip() for key in environment.get(KEYS_VARIABLE, "").split(",") if key.strip()]
    if key_file is None:
        return keys
    try:
        lines = key_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"cannot read {key_file}: {error}", param="api-key-file") from error
    from_file = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not from_file:
        raise InvalidRequestError(f"{key_file} holds no key", param="api-key-file", hint="write one key a line")
    return [*keys, *from_file]


def run(options: ServeOptions) -> int:
    """Serve until the process is asked to stop.

    Raises:
        MiddlewareError: It cannot start.
    """
    try:
        from ..proxy.limits import Limits
        from ..proxy.server import listen, open_models, serve
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the server needs {error.name}", hint='pip install "thinkgate[proxy]"') from error

    given = {"max_concurrency": options.max_concurrency, "timeout_s": options.timeout_s}
    limits = Limits(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    keys = read_keys(options.key_file, os.environ)
    models = open_models(
        options.models,
        base_url=options.base_url,
        upstream_key=options.upstream_key,
        family=options.family,
        families=options.families,
    )
    listener = listen(options.host, options.port)
    port = listener.getsockname()[1]
    host = f"[{options.host}]" if ":" in options.host else options.host

    def announce() -> None:
        names = ", ".join(model.id for model in models)
        _say(f"thinkgate serves {names} on http://{host}:{port}/v1")
        if not keys and options.host not in _LOOPBACK:
            _say(f"warning: no API keys are set, anybody who reaches this address can use it (see {KEYS_VARIABLE})")

    asyncio.run(
        serve(
            models,
            listener,
            api_keys=keys,
            limits=limits,
            on_loading=lambda model: _say(f"loading {model.model} ..."),
            on_ready=announce,
        )
    )
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
