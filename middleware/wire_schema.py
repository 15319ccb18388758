"""Schema shapes that providers want, made from the schema that we check against.

Every change here either narrows the schema or only respells it: what keeps to the result keeps to the original.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
# Values under these keys are data, not schemas: what looks like a keyword in them is none.
_DATA_KEYS = frozenset({"const", "enum", "default", "examples", "example"})
_DEFINITIONS = ("$defs", "definitions")
# Values under these keys are mappings from free names to schemas.
_NAME_KEYS = frozenset({"properties", "patternProperties", "dependentSchemas", *_DEFINITIONS})


def is_object_schema(schema: Schema) -> bool:
    """Whether the root is an object schema that a provider takes as it is, root reference followed."""
    return flatten_root(schema).get("type") == "object"


def flatten_root(schema: Schema) -> Schema:
    """Put the target of a root `$ref` in its place, as pydantic writes one for a model that refers to itself."""
    seen = set()
    while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        key, _, name = reference.removeprefix("#/").partition("/")
        target = schema.get(key, {}).get(name) if key in _DEFINITIONS else None
        if not isinstance(target, dict):
            break
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        if rest.keys() & target.keys() - {"title", "description"}:
            break  # both sides constrain the same thing: they cannot be written into one object
        schema = {**target, **rest}
    return schema


def wrap_root(schema: Schema) -> Schema:
    """Wrap a schema as `{"value": ...}`. Definitions stay at the root, references inside are rewritten."""
    moved = _map_schemas(schema, _rebase_reference)
    definitions = {key: moved.pop(key) for key in _DEFINITIONS if key in moved}
    dialect = {"$schema": moved.pop("$schema")} if "$schema" in moved else {}
    return {
        **dialect,
        "type": "object",
        "properties": {"value": moved},
        "required": ["value"],
        "additionalProperties": False,
        **definitions,
    }


def _rebase_reference(schema: Schema) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return schema
    if reference.startswith(tuple(f"#/{key}/" for key in _DEFINITIONS)):
        return schema
    return {**schema, "$ref": "#/properties/value" + reference[1:]}


def respell_unions(schema: Schema) -> Schema:
    """Spell `oneOf` with a `discriminator`, as pydantic writes it for tagged unions, as plain `anyOf`.

    See https://github.com/livekit/agents/issues/5302: strict endpoints refuse the former.
    """
    return _map_schemas(schema, _respell_union)


def _respell_union(schema: Schema) -> Schema:
    if "oneOf" not in schema or "discriminator" not in schema:
        return schema
    return {("anyOf" if key == "oneOf" else key): value for key, value in schema.items() if key != "discriminator"}


def close_objects(schema: Schema) -> Schema:
    """Make every property required and every object closed, as OpenAI's strict mode asks."""
    return _map_schemas(schema, _close_object)


def _close_object(schema: Schema) -> Schema:
    if not isinstance(schema.get("properties"), dict) or schema.get("additionalProperties"):
        return schema
    return {**schema, "required": list(schema["properties"]), "additionalProperties": False}


def is_strict(schema: Schema) -> bool:
    """Whether the schema is in the subset that strict modes take: closed objects, everything required, no free maps."""
    strict = True

    def look(part: Schema) -> Schema:
        nonlocal strict
        if part.get("type") == "object" or "properties" in part:
            properties = part.get("properties", {})
            strict &= part.get("additionalProperties") is False and set(part.get("required", ())) == set(properties)
        strict &= bool(part) and not part.keys() & {"oneOf", "allOf", "not", "if", "patternProperties"}
        return part

    _map_schemas(schema, look)
    return strict


def _map_schemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Apply `change` to every schema inside, innermost first. Returns a copy; does not change `schema`."""
    return change({key: _map_value(key, value, change) for key, value in schema.items()})


def _map_value(key: str, value: Any, change: Callable[[Schema], Schema]) -> Any:
    if key in _DATA_KEYS:
        return value
    if key in _NAME_KEYS and isinstance(value, dict):
        return {name: _map_schemas(part, change) if isinstance(part, dict) else part for name, part in value.items()}
    if isinstance(value, dict):
        return _map_schemas(value, change)
    if isinstance(value, list):
        return [_map_schemas(part, change) if isinstance(part, dict) else part for part in value]
    return value
