"""Find the place in a schema that llguidance's refusal speaks of; its messages name a keyword at best."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..rewrite.graph import escape_pointer
from ..schema_check import walk_schemas

_MAX_TRIES = 100
_SHARED = ("$defs", "definitions")


def find_place(schema: Any, reason: str, why_not: Callable[[object], str]) -> str | None:
    """Give the JSON pointer of the deepest subschema that is refused for the same reason by itself, or None.

    Args:
        schema: The refused schema.
        reason: Why it was refused.
        why_not: Gives the reason why a schema is refused, or an empty text.
    """
    if not isinstance(schema, Mapping):
        return None
    shared = {key: schema[key] for key in _SHARED if key in schema}
    places = [place for place in walk_schemas(schema) if isinstance(place.schema, Mapping)]
    # Those that hold the keyword of the message first, so that a large schema is not tried from end to end.
    places.sort(key=lambda place: (_named_key(place.schema, reason) is None, -place.depth))
    for place in places[:_MAX_TRIES]:
        own_reason = why_not({**shared, **place.schema})
        if own_reason and (own_reason in reason or reason in own_reason):
            key = _named_key(place.schema, reason)
            return place.pointer if key is None else f"{place.pointer}/{escape_pointer(key)}"
    return None


def _named_key(schema: Mapping[str, Any], reason: str) -> str | None:
    return next((key for key in schema if re.search(rf"\b{re.escape(key)}\b", reason)), None)
