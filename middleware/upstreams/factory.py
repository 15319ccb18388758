"""From a model name to the upstream that serves it. Imports the chosen side late: neither torch nor litellm is loaded here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reasoning_parsers import FamilyRegistry, ReasoningParserError, load_registry

from ..errors import InvalidRequestError, UnknownModelError
from .base import Upstream
from .schema_modes import STRATEGIES, Strategy

LOCAL_PREFIX = "local/"
Families = str | Path | FamilyRegistry | None
"""A TOML or JSON file with families, a registry, or None for those that ship and those that are installed."""


def create_upstream(
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    family: str = "auto",
    families: Families = None,
    strategy: Strategy = "auto",
    engine_options: Mapping[str, Any] | None = None,
) -> Upstream:
    """Return the upstream for a model name. Loads nothing but a file of families.

    Raises:
        UnknownModelError: Not a model name.
        InvalidRequestError: An option does not fit this kind of model, or the file of families cannot be used.
    """
    if not model.strip() or model != model.strip():
        raise UnknownModelError(f"not a model name: {model!r}", hint=_NAMES_HINT)
    if strategy not in STRATEGIES:
        raise InvalidRequestError(f"no strategy {strategy!r}", param="strategy", hint=f"one of {STRATEGIES}")
    registry = read_registry(families)
    if model.startswith(LOCAL_PREFIX):
        options = {**(engine_options or {}), **({} if registry is None else {"families": registry})}
        return _create_local(model.removeprefix(LOCAL_PREFIX), base_url, family, strategy, options)
    if engine_options is not None:
        raise InvalidRequestError("engine_options are for local models", param="engine_options", hint=_NAMES_HINT)
    from .remote import RemoteUpstream

    return RemoteUpstream(model, base_url=base_url, api_key=api_key, family=family, families=registry, strategy=strategy)


def read_registry(families: Families) -> FamilyRegistry | None:
    """Give the registry for what the user said of families; None for the default one.

    Raises:
        InvalidRequestError: The file cannot be used.
    """
    if families is None or isinstance(families, FamilyRegistry):
        return families
    try:
        return load_registry(families)
    except ReasoningParserError as error:
        raise InvalidRequestError(str(error), param="families") from error


def _create_local(name: str, base_url: str | None, family: str, strategy: Strategy, engine_options: dict[str, Any]) -> Upstream:
    if not name:
        raise UnknownModelError("no model after local/", hint=_NAMES_HINT)
    if base_url is not None:
        raise InvalidRequestError("a local model has no base_url", param="base_url", hint=_NAMES_HINT)
    if strategy != "auto":
        raise InvalidRequestError("local models are always masked", param="strategy", hint="leave strategy out")
    from .local import LocalUpstream

    return LocalUpstream(name, family=family, engine_options=engine_options)


_NAMES_HINT = "local/<name, folder or hub id> for the engine, else <provider>/<model> as litellm writes it"
