"""Walk a JSON schema before anything is compiled: is it valid, can it be satisfied, what will the masks not enforce.

The list of keywords that the masks do not enforce was measured on xgrammar 0.2.9 (`tests/engine/test_schema_check.py`
proves it against the installed version, in both directions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import jsonschema_rs

from ..errors import InvalidGrammarError, UnsupportedGrammarError

MAX_DEPTH = 64
"""Nesting of schemas beyond which a schema is refused; compilers recurse."""

_SCHEMA_KEYS = (
    "additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems",
)  # fmt: skip
_SCHEMA_LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SCHEMA_MAP_KEYS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

NEVER_MASKED = frozenset(
    "not if then else contains minContains maxContains dependentRequired dependentSchemas unevaluatedItems unevaluatedProperties "
    "uniqueItems dependencies $dynamicRef $recursiveRef".split()
)
"""Keywords that the masks never enforce."""
MASKED_FORMATS = frozenset(
    "email date time date-time duration ipv4 ipv6 hostname uuid uri uri-reference uri-template json-pointer "
    "relative-json-pointer".split()
)
"""String formats that the masks enforce; others are annotations there."""


class Place(NamedTuple):
    """A subschema, its JSON pointer (`#/...`) and its nesting depth."""

    schema: Any
    pointer: str
    depth: int


def walk_schemas(schema: Any) -> Iterator[Place]:
    """Give every subschema with its place, parents before children; data in `const`, `enum`, `default` is not walked.

    Raises:
        InvalidGrammarError: Nested deeper than `MAX_DEPTH`.
    """
    stack = [Place(schema, "#", 0)]
    while stack:
        place = stack.pop()
        yield place
        if place.depth > MAX_DEPTH:
            raise InvalidGrammarError(f"the schema is nested deeper than {MAX_DEPTH} levels", pointer=place.pointer)
        if isinstance(place.schema, Mapping):
            stack.extend(reversed(list(_children(place))))


def _children(place: Place) -> Iterator[Place]:
    for key, value in place.schema.items():
        pointer = f"{place.pointer}/{escape_pointer(key)}"
        if key in _SCHEMA_MAP_KEYS and isinstance(value, Mapping):
            for name, child in value.items():
                yield Place(child, f"{pointer}/{escape_pointer(name)}", place.depth + 1)
        elif key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            for index, child in enumerate(value):
                yield Place(child, f"{pointer}/{index}", place.depth + 1)
        elif key in _SCHEMA_KEYS:
            yield Place(value, pointer, place.depth + 1)


def escape_pointer(key: str) -> str:
    """Escape one reference token, RFC 6901 section 3 (https://www.rfc-editor.org/rfc/rfc6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def check_schema(schema: Any) -> None:
    """Refuse a schema that is not valid, that no value satisfies, or that refers outside itself.

    Raises:
        InvalidGrammarError: With the JSON pointer of the place.
        UnsupportedGrammarError: A remote reference.
    """
    if not isinstance(schema, (dict, bool)):
        raise InvalidGrammarError(f"a JSON schema is an object, not {type(schema).__name__}", pointer="#")
    places = list(walk_schemas(schema))
    for place in places:
        if not isinstance(place.schema, (Mapping, bool)):
            raise InvalidGrammarError(
                f"a schema must be an object or a boolean, not {type(place.schema).__name__}", pointer=place.pointer
            )
        if isinstance(place.schema, Mapping):
            _check_reference(schema, place)
    try:
        jsonschema_rs.meta.validate(schema)
        jsonschema_rs.validator_for(schema, validate_formats=True)
    except jsonschema_rs.ValidationError as error:
        raise InvalidGrammarError(f"not a valid JSON schema: {error.message}", pointer=_pointer_of(error)) from error
    except Exception as error:  # jsonschema-rs raises its own and plain ValueError alike for unusable schemas
        raise InvalidGrammarError(f"not a usable JSON schema: {error}", pointer="#") from error
    for place in places:
        _check_satisfiable(place)


def _pointer_of(error: jsonschema_rs.ValidationError) -> str:
    return "#" + "".join(f"/{escape_pointer(str(part))}" for part in error.instance_path)


def _check_reference(root: Any, place: Place) -> None:
    reference = place.schema.get("$ref")
    if reference is None:
        return
    pointer = f"{place.pointer}/$ref"
    if not isinstance(reference, str):
        raise InvalidGrammarError("$ref must be a string", pointer=pointer)
    if not reference.startswith("#"):
        raise UnsupportedGrammarError(
            f"the reference {reference!r} leaves the schema",
            pointer=pointer,
            hint="put the schema under $defs; nothing is fetched",
        )
    target: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
            target = target[int(key)]
        else:
            raise InvalidGrammarError(f"the reference {reference!r} points to nothing", pointer=pointer)


def _check_satisfiable(place: Place) -> None:
    schema = place.schema
    if schema is False:
        # Elsewhere it forbids a place that need not be there.
        if place.pointer == "#":
            raise InvalidGrammarError("no value can satisfy this schema", pointer=place.pointer)
        return
    if schema is True:
        return
    for name, child in schema.get("properties", {}).items():
        if child is False and name in schema.get("required", ()):
            raise InvalidGrammarError(
                f"the property {name!r} is required, and no value can satisfy it",
                pointer=f"{place.pointer}/properties/{escape_pointer(name)}",
            )
    if "enum" in schema and not schema["enum"]:
        raise InvalidGrammarError("an empty enum: no value can satisfy it", pointer=place.pointer)
    for low, high in (
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
        ("minimum", "maximum"),
        ("minProperties", "maxProperties"),
    ):
        if low in schema and high in schema and schema[low] > schema[high]:
            raise InvalidGrammarError(f"{low} is larger than {high}: no value can satisfy both", pointer=place.pointer)


_ANNOTATIONS = frozenset(
    "title description default examples deprecated readOnly writeOnly $comment $id $schema contentEncoding "
    "contentMediaType".split()
)


def strip_annotations(schema: Any) -> Any:
    """Give the schema without keywords that no value can break, so that a description is never part of a grammar or its key.

    `$id` and `$schema` go too: the schema has been read by then, and references are local.
    """
    if not isinstance(schema, Mapping):
        return schema
    return {key: value for key, value in map_subschemas(schema, strip_annotations).items() if key not in _ANNOTATIONS}


def map_subschemas(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Give a copy of `schema` in which `change` was applied to every direct subschema, and to nothing that is data."""

    def apply(key: str, value: Any) -> Any:
        if key in _SCHEMA_MAP_KEYS and isinstance(value, Mapping):
            return {name: change(child) for name, child in value.items()}
        if key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            return [change(child) for child in value]
        return change(value) if key in _SCHEMA_KEYS else value

    return {key: apply(key, value) for key, value in schema.items()}


CLOSED_INTEGER = 10**18
CLOSED_NUMBER = 10**15


def close_ranges(schema: Any) -> Any:
    """Give the schema with the missing end of half-open number ranges filled in, far out.

    A backend writes a half-open range as digits without end. 10**18 is the last power of ten in an int64, 10**15 the last below
    which a double holds every integer with three decimals.
    """
    if not isinstance(schema, Mapping):
        return schema
    closed = map_subschemas(schema, close_ranges)
    kinds = schema.get("type")
    far = {"integer": CLOSED_INTEGER, "number": CLOSED_NUMBER}.get(kinds) if isinstance(kinds, str) else None
    has_low = "minimum" in schema or "exclusiveMinimum" in schema
    has_high = "maximum" in schema or "exclusiveMaximum" in schema
    if far is None or has_low == has_high:
        return closed
    end = [schema[key] for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum") if key in schema]
    if any(abs(value) >= far for value in end):
        return closed
    return closed | ({"maximum": far} if has_low else {"minimum": -far})


def without_misread(schema: Any) -> Any:
    """Give the schema without the keywords that a backend reads wrongly: masks made of them would spoil good answers.

    They are among the `unenforced_keywords`.
    """
    if not isinstance(schema, Mapping):
        return schema
    misread = _misread(schema)
    kept = {key: value for key, value in map_subschemas(schema, without_misread).items() if key not in misread}
    # A property or a choice that no value satisfies is refused by the backend; to leave it out says the same.
    if isinstance(kept.get("properties"), Mapping):
        kept["properties"] = {name: child for name, child in kept["properties"].items() if child is not False}
    if isinstance(kept.get("anyOf"), list):
        kept["anyOf"] = [child for child in kept["anyOf"] if child is not False] or kept["anyOf"]
    return kept


def unenforced_keywords(schema: Any) -> tuple[str, ...]:
    """List the JSON pointers of keywords in `schema` that the masks do not enforce."""
    places = list(walk_schemas(schema))
    walked = {place.pointer for place in places}
    return tuple(pointer for place in places if isinstance(place.schema, Mapping) for pointer in _unenforced(place, walked))


def _unenforced(place: Place, walked: AbstractSet[str]) -> Iterator[str]:
    schema = place.schema
    keys = [key for key in schema if key in NEVER_MASKED] + _misread(schema)
    if "$ref" in schema and schema["$ref"] not in walked:
        # An anchor, which is not followed, or a place that is no subschema, which nobody has looked at.
        keys.append("$ref")
    if "type" not in schema and not place.pointer.endswith("/propertyNames"):
        keys += [key for key in schema if key in _NEEDS_A_TYPE]
    keys += _unmasked_text_rules(schema) + _unmasked_names(schema)
    if len(schema.get("allOf", ())) > 1:
        keys.append("allOf")
    if "oneOf" in schema:
        keys.append("oneOf")
    keys += _beside_decider(schema)
    if schema.get("additionalProperties") is not False:
        # Left out of the grammar, where it is then one of the undeclared properties.
        forbidden = [name for name, child in schema.get("properties", {}).items() if child is False]
        yield from (f"{place.pointer}/properties/{escape_pointer(name)}" for name in forbidden)
    yield from (f"{place.pointer}/{escape_pointer(key)}" for key in dict.fromkeys(keys))


def _misread(schema: Mapping[str, Any]) -> list[str]:
    keys = []
    if "multipleOf" in schema and not _is_masked_multiple(schema):
        keys.append("multipleOf")
    if "pattern" in schema and _MISREAD_PATTERN.search(_NEGATED_CLASS.sub("", schema["pattern"])):
        keys.append("pattern")
    low = max((schema[key] for key in _LOW_ENDS if key in schema), default=-CLOSED_NUMBER)
    high = min((schema[key] for key in _HIGH_ENDS if key in schema), default=CLOSED_NUMBER)
    is_narrow = -CLOSED_NUMBER < low < CLOSED_NUMBER and -CLOSED_NUMBER < high < CLOSED_NUMBER and high - low < NARROWEST_RANGE
    if is_narrow and "integer" not in schema.get("type", ()) and (round(low, 6), round(high, 6)) != (low, high):
        keys += [key for key in (*_LOW_ENDS, *_HIGH_ENDS) if key in schema]
    return keys


def _unmasked_text_rules(schema: Mapping[str, Any]) -> list[str]:
    keys = []
    if "pattern" in schema or schema.get("format") in MASKED_FORMATS:
        keys += [key for key in ("minLength", "maxLength") if key in schema]
    if "pattern" in schema and _LOOSE_PATTERN.search(schema["pattern"]):
        keys.append("pattern")
    if "format" in schema and ("pattern" in schema or schema["format"] not in MASKED_FORMATS - LOOSE_FORMATS):
        keys.append("format")
    return keys


def _unmasked_names(schema: Mapping[str, Any]) -> list[str]:
    """Keywords about names in an object: one that is not declared may come twice, one that is has that single rule."""
    declared = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    keys = []
    if any(name not in declared for name in schema.get("required", ())):
        keys.append("required")
    if schema.get("minProperties", 0) > 1 and (patterns or schema.get("additionalProperties") is not False):
        keys.append("minProperties")
    if patterns and (declared or len(patterns) > 1):
        keys.append("patternProperties")
    if "propertyNames" in schema and (declared or patterns):
        keys.append("propertyNames")
    return keys


def _beside_decider(schema: Mapping[str, Any]) -> list[str]:
    """Keywords that are dropped because one decides the value by itself."""
    decider = next((key for key in _DECIDERS if key in schema), None)
    if decider is None:
        return []
    dropped = [key for key in schema if key in _BESIDE_A_DECIDER and key != decider]
    values = [schema["const"]] if decider == "const" else schema["enum"] if decider == "enum" else None
    if values is None:
        return dropped
    if "type" in dropped and jsonschema_rs.is_valid({"items": {"type": schema["type"]}}, values):
        dropped.remove("type")
    return dropped + ([decider] if _has_wide_integer(values) else [])


def _has_wide_integer(value: Any) -> bool:
    """Whether data holds an integer that is no int64, which a backend rounds."""
    if isinstance(value, Mapping):
        return any(map(_has_wide_integer, value.values()))
    if isinstance(value, list):
        return any(map(_has_wide_integer, value))
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _is_masked_multiple(schema: Mapping[str, Any]) -> bool:
    multiple = schema["multipleOf"]
    has_range = any(key in schema for key in (*_LOW_ENDS, *_HIGH_ENDS))
    return (
        schema.get("type") == "integer" and isinstance(multiple, int) and 1 <= multiple <= MAX_MASKED_MULTIPLE and not has_range
    )


MAX_MASKED_MULTIPLE = 1024
NARROWEST_RANGE = 1e-5
"""Ranges of numbers are written with six decimals; in a narrower one with more of them nothing, or the empty text, is left."""
LOOSE_FORMATS = frozenset("date time date-time ipv4 ipv6".split())
"""Masked formats whose masks let values through that are not in the format, such as the 31st of February."""
_LOW_ENDS = ("minimum", "exclusiveMinimum")
_HIGH_ENDS = ("maximum", "exclusiveMaximum")
_NEGATED_CLASS = re.compile(r"(?<!\\)\[\^(?:\\.|[^\]\\])*\]")
_MISREAD_PATTERN = re.compile(
    r"""(?<!\\)(?:\\\\)*(?:["\0-\x1f]|\\["\\nrtfv0]|\\c[A-Za-z]|\\(?:x|u00)(?:22|5[cC]|[01][0-9A-Fa-f]))""", re.DOTALL
)
"""Patterns that name a character which JSON escapes: it would stand in the string as it is (but not in a negated class)."""
_LOOSE_PATTERN = re.compile(r"\(\?<?[=!]|(?<=[^\[\\(|])\^|(?<!\\)\$(?![)|]|$)")
"""Patterns with a look-around, or with an anchor that is not at an end, which is skipped."""
_NEEDS_A_TYPE = frozenset(
    "minItems maxItems minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum minProperties "
    "maxProperties patternProperties propertyNames".split()
)
"""Assertions that are dropped where the schema does not say the type they speak of."""
_DECIDERS = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""Keywords that decide the value by themselves; the first of them wins."""
_BESIDE_A_DECIDER = frozenset(
    "type const enum anyOf oneOf allOf format multipleOf properties required items prefixItems minItems maxItems minLength "
    "maxLength pattern minimum maximum exclusiveMinimum exclusiveMaximum additionalProperties additionalItems patternProperties "
    "propertyNames minProperties maxProperties".split()
)
