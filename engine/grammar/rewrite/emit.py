"""Write a schema in normal form as a JSON schema that a backend reads without guessing.

One definition per place; equal ones become one (`share.py`). What a backend cannot say is left out and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .expand import flatten
from .facets import KINDS, Conjunction, Facets, kind_of, to_fraction
from .layout import Layout
from .program import Program
from .share import JsonSchema, reference, share
from .split import split_arrays, split_numbers, split_objects

MAX_DECIMALS = 20
MAX_SPREAD = 200
"""Values inside listed objects and arrays that are written one by one, so that white space may stand between them."""
SAFE_INTEGER = 2**53
"""Integers beyond are rounded by backends that read numbers as doubles."""


class Emitter:
    """Writes one schema for one backend.

    Attributes:
        checked: Pointers of keywords that the result does not say, with the reason.
        left_out: Those of them that no backend is told.
        narrowed: Pointers of keywords that the result says, and that allow more than it says, with what is not written.
        backend: Name of the backend.
    """

    backend = ""
    counts_open_objects = False

    def __init__(self, program: Program) -> None:
        self.program = program
        self.checked: dict[str, str] = dict.fromkeys(program.graph.dynamic, "its target depends on how it is reached")
        self.left_out = set(self.checked)
        self.narrowed: dict[str, str] = {}
        self._names: dict[Conjunction, str] = {}
        self._definitions: dict[str, JsonSchema] = {}
        self._queue: list[Conjunction] = []

    def emit(self) -> JsonSchema:
        """Write the schema."""
        root = self.refer(self.program.root)
        known: dict[int, JsonSchema] = {}
        while self._queue:
            conjunction = self._queue.pop()
            alternatives = self.program.alternatives[conjunction]  # one list for many places
            if id(alternatives) not in known:
                known[id(alternatives)] = self.union(alternatives)
            self._definitions[self._names[conjunction]] = known[id(alternatives)]
        return share(root, self._definitions)

    def miss(self, pointers: Iterable[str], note: str) -> None:
        """Say that keywords are not in the result."""
        for pointer in pointers:
            self.checked.setdefault(pointer, note)

    def leave_out(self, pointers: Iterable[str], note: str) -> None:
        """Say that keywords are not in the result for any backend."""
        for pointer in pointers:
            self.checked.setdefault(pointer, note)
            self.left_out.add(pointer)

    def refer(self, conjunction: Conjunction) -> JsonSchema:
        """Refer to a place."""
        conjunction = flatten(conjunction)
        if not conjunction:
            return {}
        if conjunction not in self.program.productive:
            return False
        if conjunction not in self._names:
            self._names[conjunction] = f"d{len(self._names)}"
            self._queue.append(conjunction)
        return reference(self._names[conjunction])

    def is_possible(self, one: Facets) -> bool:
        """Whether some finite value is in an alternative of one type."""
        return all(need in self.program.productive for need in self.program._needs(one))

    def union(self, alternatives: Iterable[Facets]) -> JsonSchema:
        """Write alternatives."""
        found: list[JsonSchema] = []
        for one in alternatives:
            if one.link is not None:
                part = self.refer(one.link)
                found += [] if part is False else [part]
            else:
                self.leave_out(one.checks, "beyond what can be written as a grammar of reasonable size")
                parts = split_numbers(one) if one.excluded else [one]
                found += [part for other in parts for part in self.alternative(other)]
        if len(found) == 1:
            return found[0]
        unique = list({json.dumps(part): part for part in found if part is not False}.values())
        if {} in unique:
            return {}
        if not unique:
            return False
        return unique[0] if len(unique) == 1 else {"anyOf": unique}

    def alternative(self, one: Facets) -> list[JsonSchema]:
        """Write one alternative, a schema for each of its types."""
        self.leave_out(one.checks, "beyond what can be written as a grammar of reasonable size")
        if one.values is not None:
            return self.values(one)
        if _says_nothing(one):
            return [{}]
        found: list[JsonSchema] = []
        plain = [kind for kind in KINDS if kind in one.kinds and self._is_plain(one, kind)]
        if plain:
            found.append({"type": plain[0] if len(plain) == 1 else plain})
        if "number" in one.kinds:
            self.leave_out(one.fractions, "that a number is not whole is only seen at its end")
        for kind in KINDS:
            if kind in one.kinds and kind not in plain:
                part = one
                if len(one.kinds) > 1:  # else its layout is known
                    part = one.copy()
                    part.kinds = frozenset({kind})
                found += getattr(self, f"write_{kind}")(part)
        return found

    def _is_plain(self, one: Facets, kind: str) -> bool:
        words = _WORDS.get(kind)
        return words is None or all(getattr(one, word) == getattr(_NOTHING, word) for word in words)

    def values(self, one: Facets) -> list[JsonSchema]:
        """Write the only values."""
        kept = [_plain_number(value) for value in one.values or ()]
        wide = [value for value in kept if _has_wide_number(value)]
        exact = [value for value in kept if not _has_wide_number(value)]
        spread = [value for value in exact if isinstance(value, (dict, list))]
        spread = spread if sum(map(_num_values, spread)) <= MAX_SPREAD else []
        flat = [value for value in exact if not spread or not isinstance(value, (dict, list))]
        found: list[JsonSchema] = [{"enum": flat}] if flat else []
        found += map(_constant, spread)
        if wide:
            self.leave_out(one.where("enum", "const"), "numbers beyond 64 bits or twenty decimals are rounded")
            found += [{"type": kind} for kind in dict.fromkeys(map(kind_of, wide))]
        return found

    def write_boolean(self, one: Facets) -> list[JsonSchema]:
        """Write booleans."""
        return [{"enum": sorted(one.booleans)}]

    def write_number(self, one: Facets) -> list[JsonSchema]:
        """Write numbers."""
        raise NotImplementedError

    def write_string(self, one: Facets) -> list[JsonSchema]:
        """Write strings."""
        raise NotImplementedError

    def write_object_layout(self, one: Facets, layout: Layout) -> JsonSchema:
        """Write one object."""
        raise NotImplementedError

    def write_array(self, one: Facets) -> list[JsonSchema]:
        """Write arrays."""
        found: list[JsonSchema] = []
        if any(kind_of(value) == "array" for value in one.excluded):
            self.leave_out(one.where("not", "\0excluded"), "arrays are not excluded one by one")
        for part in split_arrays(self.program, one):
            self.leave_out(part.checks, "the array is too long for every case of it")
            found += self.values(part) if part.values is not None else [self._array(part)]
        return [part for part in found if part is not False]

    def _array(self, one: Facets) -> JsonSchema:
        layout = self.program.ensure(one)
        if not self.is_possible(one):
            return False
        schema: dict[str, Any] = {"type": "array"}
        prefix = [self.refer(child) for child in layout.prefix]
        if False in prefix:
            prefix = prefix[: prefix.index(False)]
        elif layout.items is not None:
            items = self.refer(layout.items)
        rest = False if len(prefix) < len(layout.prefix) or layout.items is None else items
        if prefix:
            schema["prefixItems"] = prefix
        schema["items"] = rest
        if one.min_items:
            schema["minItems"] = one.min_items
        if rest is False:
            schema["maxItems"] = len(prefix)
        elif one.max_items is not None:
            schema["maxItems"] = one.max_items
        return schema

    def write_object(self, one: Facets) -> list[JsonSchema]:
        """Write objects."""
        if any(kind_of(value) == "object" for value in one.excluded):
            self.leave_out(one.where("not", "\0excluded"), "objects are not excluded one by one")
        found: list[JsonSchema] = []
        for part in split_objects(self.program, one, is_open_counted=self.counts_open_objects):
            say = self.leave_out if self.counts_open_objects else self.miss
            say(part.checks, "the properties that may be counted are too many")
            layout = self.program.ensure(part)
            if layout.is_loose:
                self.leave_out(
                    part.where("propertyNames", "patternProperties", "additionalProperties"), "rules for names overlap"
                )
            if self.is_possible(part):
                found.append(self.write_object_layout(part, layout))
        return found

    def object_base(self, one: Facets, layout: Layout) -> dict[str, Any]:
        """Write what is the same for all backends."""
        schema: dict[str, Any] = {"type": "object"}
        properties = {name: False if child is None else self.refer(child) for name, child in layout.properties.items()}
        if properties:
            schema["properties"] = properties
        if one.required:
            schema["required"] = list(one.required)
        return schema


_NOTHING = Facets()
_WORDS = {
    "boolean": ("booleans",),
    "number": ("is_integer", "low", "high", "multiples", "fractions"),
    "string": ("min_length", "max_length", "texts", "excluded"),
    "array": ("arrays", "min_items", "max_items", "contains", "is_unique", "excluded"),
    "object": ("objects", "required", "min_properties", "max_properties", "names", "excluded"),
}


def _says_nothing(one: Facets) -> bool:
    if one.kinds != _NOTHING.kinds:
        return False
    return all(getattr(one, word) == getattr(_NOTHING, word) for words in _WORDS.values() for word in words)


def _num_values(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_num_values, inner))


def _constant(value: Any) -> JsonSchema:
    if isinstance(value, dict):
        properties = {name: _constant(item) for name, item in value.items()}
        return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}
    if isinstance(value, list):
        items = {"prefixItems": list(map(_constant, value)), "minItems": len(value)} if value else {}
        return {"type": "array", **items, "items": False, "maxItems": len(value)}
    return {"enum": [value]}


def _plain_number(value: Any) -> Any:
    """Write whole numbers as integers, also inside."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER:
        return int(value)
    if isinstance(value, dict):
        return {name: _plain_number(item) for name, item in value.items()}
    return [_plain_number(item) for item in value] if isinstance(value, list) else value


def _has_wide_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_wide_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_wide_number, value))
    if isinstance(value, float):
        return bool(to_fraction(value).denominator > 10**MAX_DECIMALS)
    return isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63
