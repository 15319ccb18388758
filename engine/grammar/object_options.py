"""Options about the objects of a schema: undeclared properties, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UnsupportedGrammarError
from .schema_check import walk_schemas

_COMBINING = ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas", "patternProperties")
_SAYS_ITSELF = ("additionalProperties", "unevaluatedProperties")


def close_objects(schema: Any) -> Any:
    """Give the schema with `additionalProperties: false` in every object that does not say.

    Raises:
        UnsupportedGrammarError: Properties that are put together from several subschemas, which such a default would tear apart.
    """
    if not isinstance(schema, Mapping):
        return schema
    copied = _copy(schema)
    for place in list(walk_schemas(copied)):
        found = place.schema
        if not isinstance(found, dict) or any(key in found for key in _SAYS_ITSELF) or not _is_object(found):
            continue
        combining = next((key for key in _COMBINING if key in found and key != "patternProperties"), None)
        if combining is not None or "/allOf/" in place.pointer[place.pointer.rfind("/properties/") + 1 :]:
            raise UnsupportedGrammarError(
                f"additional_properties=False beside {combining or 'allOf'}: the parts would forbid each other's properties",
                pointer=place.pointer,
                hint="write additionalProperties or unevaluatedProperties into the schema",
            )
        found["additionalProperties"] = False
    return copied


def _is_object(schema: Mapping[str, Any]) -> bool:
    return "properties" in schema or schema.get("type") == "object"


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
