"""Write a schema in normal form as a JSON schema that a backend reads without guessing.

One definition per place, inlined where it is used once or small. What a backend cannot say is left out and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from .expand import flatten
from .facets import KINDS, Conjunction, Facets, kind_of, to_fraction
from .layout import Layout
from .program import Program
from .split import split_arrays, split_numbers, split_objects

JsonSchema = dict[str, Any] | bool
SMALL = 160
"""Characters of a definition that is inlined wherever it is used."""
MAX_INLINE_DEPTH = 24
MAX_DECIMALS = 20
SAFE_INTEGER = 2**53
"""Integers beyond are rounded by backends that read numbers as doubles."""


class Emitter:
    """Writes one schema for one backend.

    Attributes:
        checked: Pointers of keywords that the result does not say, with the reason.
        backend: Name of the backend.
    """

    backend = ""
    counts_open_objects = False

    def __init__(self, program: Program) -> None:
        self.program = program
        self.checked: dict[str, str] = dict.fromkeys(program.graph.dynamic, "its target depends on how it is reached")
        self._names: dict[Conjunction, str] = {}
        self._definitions: dict[str, JsonSchema] = {}
        self._queue: list[Conjunction] = []

    def emit(self) -> JsonSchema:
        """Write the schema."""
        root = self.refer(self.program.root)
        while self._queue:
            conjunction = self._queue.pop()
            self._definitions[self._names[conjunction]] = self.union(self.program.alternatives[conjunction])
        return _inline(root, self._definitions)

    def miss(self, pointers: Iterable[str], note: str) -> None:
        """Say that keywords are not in the result."""
        for pointer in pointers:
            self.checked.setdefault(pointer, note)

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
        return {"$ref": f"#/$defs/{self._names[conjunction]}"}

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
                self.miss(one.checks, "beyond what can be written as a grammar of reasonable size")
                found += [part for other in split_numbers(one) for part in self.alternative(other)]
        unique = list({json.dumps(part): part for part in found if part is not False}.values())
        if {} in unique:
            return {}
        if not unique:
            return False
        return unique[0] if len(unique) == 1 else {"anyOf": unique}

    def alternative(self, one: Facets) -> list[JsonSchema]:
        """Write one alternative, a schema for each of its types."""
        self.miss(one.checks, "beyond what can be written as a grammar of reasonable size")
        if one.values is not None:
            return self.values(one)
        if _says_nothing(one):
            return [{}]
        found: list[JsonSchema] = []
        plain = [kind for kind in KINDS if kind in one.kinds and self._is_plain(one, kind)]
        if plain:
            found.append({"type": plain[0] if len(plain) == 1 else plain})
        if "number" in one.kinds:
            self.miss(one.fractions, "that a number is not whole is only seen at its end")
        for kind in KINDS:
            if kind in one.kinds and kind not in plain:
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
        found: list[JsonSchema] = [{"enum": exact}] if exact else []
        if wide:
            self.miss(one.where("enum", "const"), "numbers beyond 64 bits or twenty decimals are rounded")
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
            self.miss(one.where("not", "\0excluded"), "arrays are not excluded one by one")
        for part in split_arrays(self.program, one):
            self.miss(part.checks, "the array is too long for every case of it")
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
            self.miss(one.where("not", "\0excluded"), "objects are not excluded one by one")
        found: list[JsonSchema] = []
        for part in split_objects(self.program, one, is_open_counted=self.counts_open_objects):
            self.miss(part.checks, "the properties that may be counted are too many")
            layout = self.program.ensure(part)
            if layout.is_loose:
                self.miss(part.where("propertyNames", "patternProperties", "additionalProperties"), "rules for names overlap")
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
    words = ("kinds", *(word for words in _WORDS.values() for word in words))
    return all(getattr(one, word) == getattr(_NOTHING, word) for word in words)


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


def _inline(root: JsonSchema, definitions: dict[str, JsonSchema]) -> JsonSchema:
    """Put definitions where they are used, if that is once or if they are small, and none of them inside itself."""
    uses: dict[str, int] = {}
    for part in (root, *definitions.values()):
        for name in _references(part):
            uses[name] = uses.get(name, 0) + 1
    done: dict[str, JsonSchema] = {}
    depths: dict[str, int] = {}
    for name in _inner_first(root, definitions):
        body, depth = _replace(definitions[name], done, depths, uses)
        done[name], depths[name] = body, depth
    schema, _ = _replace(root, done, depths, uses)
    needed: dict[str, JsonSchema] = {}
    stack = list(_references(schema))
    while stack:
        name = stack.pop()
        if name not in needed:
            needed[name] = done[name]
            stack.extend(_references(done[name]))
    if isinstance(schema, dict) and needed:
        return {**schema, "$defs": {name: needed[name] for name in done if name in needed}}
    return schema


def _inner_first(root: JsonSchema, definitions: dict[str, JsonSchema]) -> list[str]:
    order: list[str] = []
    state: dict[str, int] = {}
    stack = [(name, False) for name in _references(root)]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            state[name] = 2
            order.append(name)
        elif name not in state:
            state[name] = 1
            stack.append((name, True))
            stack.extend((other, False) for other in _references(definitions[name]) if other not in state)
    return order


def _references(part: Any) -> list[str]:
    found: list[str] = []
    stack = [part]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            if isinstance(current.get("$ref"), str) and len(current) == 1:
                found.append(current["$ref"].removeprefix("#/$defs/"))
            elif not isinstance(current.get("enum"), list):
                stack.extend(current.values())
        elif isinstance(current, list):
            stack.extend(current)
    return found


def _replace(
    part: JsonSchema, done: dict[str, JsonSchema], depths: dict[str, int], uses: dict[str, int]
) -> tuple[JsonSchema, int]:
    """Give a copy with definitions put in, and its depth."""
    deepest = 0

    def copy(current: Any, depth: int) -> Any:
        nonlocal deepest
        deepest = max(deepest, depth)
        if isinstance(current, list):
            return [copy(item, depth + 1) for item in current]
        if not isinstance(current, dict) or isinstance(current.get("enum"), list):
            return current
        if len(current) == 1 and isinstance(current.get("$ref"), str):
            name = current["$ref"].removeprefix("#/$defs/")
            body = done.get(name)
            is_fit = body is not None and (uses[name] == 1 or len(json.dumps(body)) <= SMALL)
            if is_fit and depth + depths[name] <= MAX_INLINE_DEPTH:
                deepest = max(deepest, depth + depths[name])
                return body
            return current
        return {key: copy(value, depth + 1) for key, value in current.items()}

    return copy(part, 0), deepest
