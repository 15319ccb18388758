"""The schemas of JSON Schema itself, to which schemas may refer: the only documents beside its own that a schema can reach."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs
import jsonschema_specifications


@lru_cache(maxsize=1)
def metaschemas() -> dict[str, Any]:
    """Give the published schemas of all drafts by their URIs, without a fragment."""
    registry = jsonschema_specifications.REGISTRY
    return {uri: registry.contents(uri) for uri in registry}


@lru_cache(maxsize=1)
def metaschema_registry() -> jsonschema_rs.Registry:
    """Give them as `jsonschema-rs` takes them. With a registry it fetches nothing, whatever a schema names."""
    return jsonschema_rs.Registry(list(metaschemas().items()))
