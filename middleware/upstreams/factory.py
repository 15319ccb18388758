"""From a model name to the upstream that serves it. Imports the chosen side late: neither torch nor litellm is loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidRequestError, UnknownModelError
from .base import Upstream
from .schema_modes import STRATEGIES, Strategy

LOCAL_PREFIX = "local/"


def create_upstream(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    family: str = "auto",
    strategy: Strategy = "auto",
    engine_options: Mapping[str, Any] | None = None,
) -> Upstream:
    """Return the upstream for a model name. Loads nothing.

    Raises:
        UnknownModelError: Not a model name.
        InvalidRequestError: An option does not fit this kind of model.
    """
    if not model.strip() or model != model.strip():
        raise UnknownModelError(f"not a model name: {model!r}", hint=_NAMES_HINT)
    if strategy not in STRATEGIES:
        raise InvalidRequestError(f"no strategy {strategy!r}", param="strategy", hint=f"one of {STRATEGIES}")
    if model.startswith(LOCAL_PREFIX):
        return _create_local(model.removeprefix(LOCAL_PREFIX), base_url, family, strategy, engine_options)
    if engine_options is not None:
        raise InvalidRequestError("engine_options are for local models", param="engine_options", hint=_NAMES_HINT)
    from .remote import RemoteUpstream

    return RemoteUpstream(model, base_url=base_url, api_key=api_key, family=family, strategy=strategy)


def _create_local(
    name: str, base_url: str | None, family: str, strategy: Strategy, engine_options: Mapping[str, Any] | None
) -> Upstream:
    if not name:
        raise UnknownModelError("no model after local/", hint=_NAMES_HINT)
    if base_url is not None:
        raise InvalidRequestError("a local model has no base_url", param="base_url", hint=_NAMES_HINT)
    if strategy != "auto":
        raise InvalidRequestError("local models are always masked", param="strategy", hint="leave strategy out")
    from .local import LocalUpstream

    return LocalUpstream(name, family=family, engine_options=dict(engine_options or {}))


_NAMES_HINT = "local/<name, folder or hub id> for the engine, else <provider>/<model> as litellm writes it"
