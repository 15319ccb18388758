"""Admission of schemas: is it one, does it refer to itself only, can some value satisfy it.

What a backend enforces is told by `support.py`, from the schema that `rewrite/` gives it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import jsonschema_rs

from ..errors import InvalidGrammarError
from .rewrite import program_of
from .rewrite.dialect import LATEST, draft_of
from .rewrite.graph import SchemaGraph, escape_pointer
from .rewrite.metaschemas import metaschema_registry

MAX_DEPTH = 64
"""Nesting of schemas beyond which a schema is refused; compilers recurse."""

_SCHEMA_KEYS = frozenset((
    "additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems",
))  # fmt: skip
_SCHEMA_LIST_KEYS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems", "items"))
_SCHEMA_MAP_KEYS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_OBJECT = (dict, Mapping)
# The plain type first: to ask an abstract one takes ten times as long.

MAX_DATA_DEPTH = 200
"""Nesting of anything in a schema, constants included."""
MAX_SUBSCHEMAS = 30_000
MAX_VALUES = 500_000
"""Values in a schema, constants included. What is written down once and used twice, as objects in Python can be, counts twice."""


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
        if isinstance(place.schema, _OBJECT):
            stack.extend(reversed(_children(place)))


def each_subschema(schema: Any) -> Iterator[Any]:
    """Give every subschema without its place, outer ones first: half the work. Its depth was checked (`check_form`)."""
    return chain.from_iterable(_levels(schema))


def _levels(schema: Any) -> Iterator[list[Any]]:
    """Give the subschemas of each depth."""
    level = [schema]
    while level:
        yield level
        inner: list[Any] = []
        for current in level:
            if isinstance(current, _OBJECT):
                for key, value in current.items():
                    if key in _SCHEMA_MAP_KEYS and isinstance(value, _OBJECT):
                        inner += value.values()
                    elif key in _SCHEMA_LIST_KEYS and isinstance(value, list):
                        inner += value
                    elif key in _SCHEMA_KEYS:
                        inner.append(value)
        level = inner


def _children(place: Place) -> list[Place]:
    children: list[Place] = []
    depth = place.depth + 1
    for key, value in place.schema.items():
        if key in _SCHEMA_MAP_KEYS and isinstance(value, _OBJECT):
            pointer = f"{place.pointer}/{escape_pointer(key)}"
            children += [Place(child, f"{pointer}/{escape_pointer(name)}", depth) for name, child in value.items()]
        elif key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            pointer = f"{place.pointer}/{escape_pointer(key)}"
            children += [Place(child, f"{pointer}/{index}", depth) for index, child in enumerate(value)]
        elif key in _SCHEMA_KEYS:
            children.append(Place(value, f"{place.pointer}/{escape_pointer(key)}", depth))
    return children


def check_schema(schema: Any) -> None:
    """Refuse what is no JSON schema, or refers outside itself. Nothing is ever fetched.

    Raises:
        InvalidGrammarError: With the JSON pointer of the place.
        UnsupportedGrammarError: A remote reference.
    """
    check_form(schema)
    check_meaning(schema)


def check_form(schema: Any) -> None:
    """Refuse what is no JSON, nested too deeply, or holds something else where a schema must stand.

    Raises:
        InvalidGrammarError: With the JSON pointer of the place.
    """
    if not isinstance(schema, (dict, bool)):
        raise InvalidGrammarError(f"a JSON schema is an object, not {type(schema).__name__}", pointer="#")
    if not _is_surely_data(schema):
        _check_data(schema)
    if not _is_surely_formed(schema):
        _check_places(schema)


def _is_surely_formed(schema: Any) -> bool:
    """Whether `_check_places` passes; without pointers, which are most of its work."""
    num_subschemas = 0
    for depth, level in enumerate(_levels(schema)):
        num_subschemas += len(level)
        if depth > MAX_DEPTH or num_subschemas > MAX_SUBSCHEMAS:
            return False
        for found in level:
            kind = type(found)
            if kind is not bool and (kind is not dict or ("$ref" in found and type(found["$ref"]) is not str)):
                return False
    return True


def _check_places(schema: Any) -> None:
    for number, place in enumerate(walk_schemas(schema)):
        if number > MAX_SUBSCHEMAS:
            raise InvalidGrammarError(f"the schema has more than {MAX_SUBSCHEMAS} subschemas", pointer=place.pointer)
        if not isinstance(place.schema, (dict, bool, Mapping)) and not _UNREAD.search(place.pointer):
            raise InvalidGrammarError(
                f"a schema must be an object or a boolean, not {type(place.schema).__name__}", pointer=place.pointer
            )
        reference = place.schema.get("$ref") if isinstance(place.schema, _OBJECT) else None
        if reference is not None and not isinstance(reference, str):
            raise InvalidGrammarError("$ref must be a string", pointer=f"{place.pointer}/$ref")


_UNREAD = re.compile(r"/(?:\$defs|definitions)/[^/]*$")
"""A definition under a word that its draft does not know may be anything while nothing refers to it."""


def _not_valid(error: jsonschema_rs.ValidationError) -> InvalidGrammarError:
    return InvalidGrammarError(f"not a valid JSON schema: {error.message}", pointer=_pointer_of(error), hint=_hint(error))


def check_meaning(schema: Any) -> None:
    """Refuse what the draft of a schema does not allow, and references that lead nowhere or elsewhere.

    Raises:
        InvalidGrammarError: With the JSON pointer of the place.
        UnsupportedGrammarError: A remote reference.
    """
    try:  # this asks the metaschema too
        jsonschema_rs.validator_for(schema, validate_formats=True, offline=True, registry=metaschema_registry())
    except Exception as error:  # jsonschema-rs raises its own and plain ValueError alike for unusable schemas
        _check_form_of_draft(schema)
        unreached = SchemaGraph(schema).unreached  # where a reference leads nowhere, this names its place
        if unreached:
            raise unreached[0] from error
        if isinstance(error, jsonschema_rs.ValidationError):
            raise _not_valid(error) from error
        raise InvalidGrammarError(f"not a usable JSON schema: {error}", pointer="#") from error


def _check_form_of_draft(schema: Any) -> None:
    try:
        jsonschema_rs.meta.validate(schema, registry=metaschema_registry())
    except jsonschema_rs.ValidationError as error:
        raise _not_valid(error) from error
    except Exception as error:  # as above
        raise InvalidGrammarError(f"not a usable JSON schema: {error}", pointer="#") from error


def check_satisfiable(source: str) -> None:
    """Refuse a schema, given as JSON text, that no finite value satisfies.

    Raises:
        InvalidGrammarError: With the JSON pointer of the place that cannot be satisfied.
    """
    impossible = program_of(source).find_impossible()
    if impossible is not None:
        pointer, reason = impossible
        raise InvalidGrammarError(f"no value can satisfy this schema: {reason}", pointer=pointer)


def _is_surely_data(schema: Any) -> bool:
    """Whether `_check_data` passes; level by level and without pointers, which takes a third of its time."""
    level, num_values = [schema], 1
    for _ in range(MAX_DATA_DEPTH + 1):
        inner: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is dict:
                if not all(type(key) is str for key in value):
                    return False
                inner += value.values()
            elif kind is list:
                inner += value
            elif not (kind is str or kind is bool or kind is int or value is None or (kind is float and math.isfinite(value))):
                return False
        num_values += len(inner)
        if not inner:
            return num_values <= MAX_VALUES
        if num_values > MAX_VALUES:
            return False
        level = inner
    return False


def _check_data(schema: Any) -> None:
    """Refuse what is not JSON, and what is nested too deeply for any reader that recurses."""
    stack = [(schema, "#", 0)]
    num_values = 1
    while stack:
        value, pointer, depth = stack.pop()
        if num_values > MAX_VALUES:
            raise InvalidGrammarError(f"the schema has more than {MAX_VALUES} values", pointer=pointer)
        if depth > MAX_DATA_DEPTH:
            raise InvalidGrammarError(f"the schema is nested deeper than {MAX_DATA_DEPTH} levels", pointer=pointer)
        if isinstance(value, _OBJECT):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidGrammarError(f"the key {key!r} is not a text", pointer=pointer)
                if not isinstance(item, str):
                    stack.append((item, f"{pointer}/{escape_pointer(key)}" if depth <= MAX_DEPTH else pointer, depth + 1))
            num_values += len(value)
        elif isinstance(value, (list, tuple)):
            stack.extend((item, pointer, depth + 1) for item in value if not isinstance(item, str))
            num_values += len(value)
        else:
            _check_plain(value, pointer)


def _check_plain(value: Any, pointer: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidGrammarError(f"{value} is not JSON", pointer=pointer)
    if value is not None and not isinstance(value, (str, int, float)):
        raise InvalidGrammarError(f"a {type(value).__name__} is not JSON", pointer=pointer)


def _pointer_of(error: jsonschema_rs.ValidationError) -> str:
    return "#" + "".join(f"/{escape_pointer(str(part))}" for part in error.instance_path)


_ANNOTATIONS = frozenset("title description default examples deprecated readOnly writeOnly $comment".split())


def strip_annotations(schema: Any) -> Any:
    """Give the schema without keywords that no value can break, so that a description is never part of a grammar or its key.

    Identifiers stay where a reference may need them, and `$schema` where it names an older draft.
    """
    if not isinstance(schema, Mapping):
        return schema
    references = [inner for inner in each_subschema(schema) if _refers(inner)]
    stripped = dict(schema) if any(map(_needs_annotations, references)) else _strip(schema)
    if draft_of(schema, LATEST) == LATEST:
        stripped.pop("$schema", None)
    if not any(map(_needs_identifiers, references)):
        stripped.pop("$id", None)
    return stripped


def _strip(schema: Any) -> Any:
    if not isinstance(schema, _OBJECT):
        return schema
    stripped: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SCHEMA_MAP_KEYS and isinstance(value, _OBJECT):
            stripped[key] = {name: _strip(child) for name, child in value.items()}
        elif key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            stripped[key] = [_strip(child) for child in value]
        elif key not in _ANNOTATIONS:
            stripped[key] = _strip(value) if key in _SCHEMA_KEYS else value
    return stripped


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def _refers(schema: Any) -> bool:
    return isinstance(schema, _OBJECT) and any(word in schema for word in _REFERENCES)


def _needs_annotations(schema: Mapping[str, Any]) -> bool:
    """Whether a reference leads into what is otherwise no part of the meaning, such as an example."""
    reference = schema.get("$ref")
    return isinstance(reference, str) and not _ANNOTATIONS.isdisjoint(reference.split("/"))


def _needs_identifiers(schema: Mapping[str, Any]) -> bool:
    return any(not str(schema.get(word, "#")).startswith("#") for word in _REFERENCES)


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


def _is_masked_multiple(schema: Mapping[str, Any]) -> bool:
    multiple = schema["multipleOf"]
    has_range = any(key in schema for key in (*_LOW_ENDS, *_HIGH_ENDS))
    return (
        schema.get("type") == "integer" and isinstance(multiple, int) and 1 <= multiple <= MAX_MASKED_MULTIPLE and not has_range
    )


MAX_MASKED_MULTIPLE = 1024
NARROWEST_RANGE = 1e-5
"""Ranges of numbers are written with six decimals; in a narrower one with more of them nothing, or the empty text, is left."""
_LOW_ENDS = ("minimum", "exclusiveMinimum")
_HIGH_ENDS = ("maximum", "exclusiveMaximum")
_NEGATED_CLASS = re.compile(r"(?<!\\)\[\^(?:\\.|[^\]\\])*\]")
_MISREAD_PATTERN = re.compile(
    r"""(?<!\\)(?:\\\\)*(?:["\0-\x1f]|\\["\\nrtfv0]|\\c[A-Za-z]|\\(?:x|u00)(?:22|5[cC]|[01][0-9A-Fa-f]))""", re.DOTALL
)
"""Patterns that name a character which JSON escapes: it would stand in the string as it is (but not in a negated class)."""


_JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_OTHER_NAMES = {
    "str": "string", "text": "string", "date": "string", "datetime": "string", "file": "string", "int": "integer",
    "long": "integer", "float": "number", "double": "number", "decimal": "number", "bool": "boolean", "dict": "object",
    "map": "object", "list": "array", "tuple": "array", "set": "array", "none": "null",
}  # fmt: skip


def _hint(error: jsonschema_rs.ValidationError) -> str | None:
    """Say what was meant where a schema is none."""
    if isinstance(error.instance, bool) and [*error.instance_path][-1:] == ["required"]:
        return "required is a list of names, beside properties"
    if isinstance(error.instance, list) and [*error.instance_path][-1:] == ["items"]:
        return "a list of schemas stands under prefixItems since draft 2020-12"
    return _type_hint(error)


def _type_hint(error: jsonschema_rs.ValidationError) -> str | None:
    """Give the types where a schema's `type` is none of them; the metaschema says only that no alternative fits."""
    if list(error.schema_path)[-2:] != ["type", "anyOf"]:
        return None
    words = error.instance if isinstance(error.instance, list) else [error.instance]
    wrong = next((word.lower() for word in words if isinstance(word, str) and word not in _JSON_TYPES), "")
    if wrong == "any":
        return "leave type out, where anything may stand"
    near = [_OTHER_NAMES[wrong]] if wrong in _OTHER_NAMES else difflib.get_close_matches(wrong, _JSON_TYPES, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}types are {', '.join(_JSON_TYPES[:-1])} and {_JSON_TYPES[-1]}"
