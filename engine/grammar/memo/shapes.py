"""What of a value the rest of its answer can depend on, read from the schema.

A shape is given only where nothing but the named facts matters: of a plain string its length, of an object its last property, of
an array its length. Everything else is *opaque*: the text of such a value counts, letter by letter, until the value ends. Behind
its end no value matters any more, since a keyword that looked back from there would have made what holds the value opaque.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ..rewrite.dialect import LATEST, draft_of

_MAX_LINKS = 50
_ASIDE = frozenset(("$defs", "definitions", "$comment", "title", "description", "default", "examples", "deprecated"))
_IDENTIFYING = frozenset(("$schema", "$id", "id"))
"""Beside the root they change what words or references mean."""
_STRING = frozenset(("minLength", "maxLength"))
_OTHER_STRING = frozenset(("pattern", "format", "contentMediaType", "contentEncoding", "contentSchema"))
_OBJECT = frozenset(("properties", "required", "additionalProperties"))
_OTHER_OBJECT = frozenset(
    "patternProperties propertyNames minProperties maxProperties dependentRequired dependentSchemas dependencies".split()
)
_ARRAY = frozenset(("items", "prefixItems", "minItems", "maxItems"))
_OTHER_ARRAY = frozenset(("uniqueItems", "contains", "minContains", "maxContains", "additionalItems"))
_NUMBER = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_OF_A_TYPE = _STRING | _OTHER_STRING | _OBJECT | _OTHER_OBJECT | _ARRAY | _OTHER_ARRAY | _NUMBER
_FIRST_BYTES = {
    "string": b'"',
    "object": b"{",
    "array": b"[",
    "number": b"-0123456789",
    "integer": b"-0123456789",
    "boolean": b"tf",
    "null": b"n",
}


@dataclass(frozen=True, slots=True)
class StringShape:
    """A string of which only the length matters.

    Attributes:
        need: Characters that it must have.
        room: Characters that it may have; None for any number.
    """

    need: int = 0
    room: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ObjectShape:
    """An object of which only names matter, and of the schema's names only the last one.

    Attributes:
        names: Position of each property that the schema names.
    """

    names: Mapping[str, int]
    _children: Mapping[str, Any] = field(repr=False)
    _others: Any = field(repr=False)
    _reader: ShapeReader = field(repr=False)

    def child(self, name: str) -> Shapes:
        """Give what a property may be."""
        return self._reader.shapes(self._children.get(name, self._others))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayShape:
    """An array of which only the length matters.

    Attributes:
        settled: From so many items on the number of items does not matter; None if it always does.
    """

    settled: int | None
    _prefix: tuple[Any, ...] = field(repr=False)
    _items: Any = field(repr=False)
    _reader: ShapeReader = field(repr=False)

    def child(self, index: int) -> Shapes:
        """Give what an item may be."""
        return self._reader.shapes(self._prefix[index] if index < len(self._prefix) else self._items)


Shape = StringShape | ObjectShape | ArrayShape
Shapes = Mapping[int, Shape]
"""By its first byte, what a value may be; opaque where nothing is said."""
OPAQUE: Shapes = {}


class ShapeReader:
    """Reads the shapes of one schema, a place at a time.

    Args:
        schema: The whole schema, not to be changed as long as this lives.
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._known: dict[int, Shapes] = {}
        # Before 2020-12 it is a word without a meaning, and the items are what `items` says.
        self._has_prefixes = not isinstance(schema, dict) or draft_of(schema, LATEST) == LATEST

    @property
    def root(self) -> Shapes:
        """What the answer may be."""
        return self.shapes(self._root)

    def shapes(self, schema: Any) -> Shapes:
        """Give what a value of `schema`, a part of the whole one, may be."""
        return self._shapes(schema, 0)

    def _shapes(self, schema: Any, num_links: int) -> Shapes:
        schema = self._follow(schema)
        if schema is True:
            schema = _ANY
        if not isinstance(schema, dict) or num_links > _MAX_LINKS:
            return OPAQUE
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = OPAQUE  # for branches that lead back to it
            known = self._known[id(schema)] = self._read(schema, num_links)
        return known

    def _read(self, schema: dict[str, Any], num_links: int) -> Shapes:
        keys = self._words(schema)
        if keys in ({"anyOf"}, {"oneOf"}):
            return self._read_branches(schema[next(iter(keys))], num_links)
        if keys - _OF_A_TYPE - {"type"}:
            return OPAQUE
        found: dict[int, Shape] = {}
        types = _types_of(schema)
        if "string" in types and not keys & _OTHER_STRING:
            found[0x22] = StringShape(int(schema.get("minLength", 0)), _whole(schema.get("maxLength")))
        if "object" in types and not keys & _OTHER_OBJECT and keys & (_OBJECT | {"type"}):
            children = schema.get("properties", {})
            # Required ones have a place in the order of a grammar too.
            names = {name: index for index, name in enumerate(dict.fromkeys((*children, *schema.get("required", ()))))}
            found[0x7B] = ObjectShape(names, children, schema.get("additionalProperties", True), self)
        if "array" in types and not keys & _OTHER_ARRAY and isinstance(schema.get("items", True), (dict, bool)):
            prefix = tuple(schema.get("prefixItems", ())) if self._has_prefixes else ()
            settled = None if "maxItems" in keys else max(len(prefix), int(schema.get("minItems", 0)), 1)
            found[0x5B] = ArrayShape(settled, prefix, schema.get("items", True), self)
        return found

    def _read_branches(self, branches: Iterable[Any], num_links: int) -> Shapes:
        """Join branches of which the first byte of a value tells which one it is; that byte is opaque where it does not."""
        joined: dict[int, Shape] = {}
        taken: set[int] = set()
        for branch in branches:
            first_bytes = self._first_bytes(self._follow(branch))
            shapes = self._shapes(branch, num_links + 1)
            for byte in first_bytes:
                if byte in taken:
                    joined.pop(byte, None)
                elif byte in shapes:
                    joined[byte] = shapes[byte]
            taken |= first_bytes
        return joined

    def _first_bytes(self, schema: Any) -> set[int]:
        types = _types_of(schema) if isinstance(schema, dict) else _FIRST_BYTES.keys()
        return {byte for name in types for byte in _FIRST_BYTES.get(name, b"")}

    def _follow(self, schema: Any) -> Any:
        """Give what a reference without anything beside it leads to; the schema itself where it is none that is understood."""
        for _ in range(_MAX_LINKS):
            if not isinstance(schema, dict) or self._words(schema) != {"$ref"}:
                return schema
            target = self._find(schema["$ref"])
            if target is None:
                return schema
            schema = target
        return schema

    def _words(self, schema: Mapping[str, Any]) -> set[str]:
        words = schema.keys() - _ASIDE
        return words - _IDENTIFYING if schema is self._root else words

    def _find(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        place = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            # Under another base a reference means something else.
            if not isinstance(place, dict) or name not in place or (place is not self._root and place.keys() & _IDENTIFYING):
                return None
            place = place[name]
        return place


_ANY: dict[str, Any] = {}


def _types_of(schema: Mapping[str, Any]) -> Iterable[str]:
    types = schema.get("type", _FIRST_BYTES.keys())
    return (types,) if isinstance(types, str) else types


def _whole(bound: Any) -> int | None:
    return None if bound is None else int(bound)
