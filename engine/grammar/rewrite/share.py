"""Put a schema together from definitions so that nothing long is in it twice.

Compilers pay for every character that they are given, and a format is a pattern of a thousand: equal parts of whatever places are
written once and referred to.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

JsonSchema = dict[str, Any] | bool
SHORT = 80
"""Characters of a part that is written wherever it is used."""
MAX_INLINE_DEPTH = 12
"""Subschemas inside one another; what is deeper gets a definition, since compilers recurse."""
_REFERENCE_LENGTH = 24
_PREFIX = "#/$defs/"
_MAPS = ("properties", "patternProperties")
_LISTS = ("anyOf", "allOf", "prefixItems")
_SINGLES = ("items", "additionalProperties")


def reference(name: str) -> dict[str, Any]:
    """Refer to a definition."""
    return {"$ref": _PREFIX + name}


def share(root: JsonSchema, definitions: Mapping[str, JsonSchema]) -> JsonSchema:
    """Give `root` with what it refers to.

    Args:
        root: A schema; in it and in the definitions subschemas stand below the words above only.
        definitions: By name, referred to as `reference` does.
    """
    parts = _Parts()
    numbers: dict[int, int] = {}  # many names may have one body
    for name in _inner_first(root, definitions):
        body = definitions[name]
        if id(body) not in numbers:
            numbers[id(body)] = parts.intern(body)
        parts.named[name] = numbers[id(body)]
    return parts.write(parts.intern(root))


@dataclass(frozen=True, slots=True)
class _Part:
    """A subschema, equal ones once: the first that was met, and the numbers of the parts inside, in its order.

    Attributes:
        length: Characters without the parts inside.
        target: The definition that it refers to and that is not known yet, since it is inside it.
    """

    schema: JsonSchema
    inside: tuple[int, ...]
    length: int
    target: str | None = None


class _Parts:
    """Parts by number, inner ones before those that they are in, but for references that lead back.

    Attributes:
        named: By name of a definition the number of its part.
    """

    def __init__(self) -> None:
        self.named: dict[str, int] = {}
        self._parts: list[_Part] = []
        self._numbers: dict[Hashable, int] = {}

    def intern(self, schema: JsonSchema) -> int:
        """Give the number of a subschema."""
        target = _target(schema)
        if target is not None:
            known = self.named.get(target)
            return self._number(("link", target), _Part(schema, (), 0, target)) if known is None else known
        if isinstance(schema, bool):
            return self._number(schema, _Part(schema, (), 5))
        inside: list[int] = []
        key: list[Hashable] = []
        length = 2
        for word, value in schema.items():
            children = _children(word, value)
            if children is not None:
                numbers = [self.intern(child) for child in children]
                names = tuple(value) if word in _MAPS else ("",) * len(numbers)
                key += (word, names, tuple(numbers))
                inside += numbers
                length += len(word) + sum(map(len, names)) + 8 * len(names)
            else:
                text = encode_basestring_ascii(value) if type(value) is str else json.dumps(value)
                key += (word, text)
                length += len(word) + len(text) + 6
        return self._number(tuple(key), _Part(schema, tuple(inside), length))

    def _number(self, key: Hashable, part: _Part) -> int:
        number = self._numbers.setdefault(key, len(self._parts))
        if number == len(self._parts):
            self._parts.append(part)
        return number

    def write(self, root: int) -> JsonSchema:
        """Write a part and the definitions that it needs."""
        names = self._choose_definitions(root)
        bodies: list[JsonSchema] = []
        written: list[JsonSchema] = []
        for number, part in enumerate(self._parts):
            if part.target is not None:
                bodies.append(reference(names[self.named[part.target]]))
            else:
                bodies.append(_replaced(part.schema, iter(part.inside), written))
            written.append(reference(names[number]) if number in names else bodies[number])
        found = written[root]
        if names and isinstance(found, dict):
            return {**found, "$defs": {name: bodies[number] for number, name in names.items()}}
        return found

    def _choose_definitions(self, root: int) -> dict[int, str]:
        """Give names to the parts that are used more than once and long, nested deeply, or inside themselves."""
        uses = [0] * len(self._parts)
        uses[root] = 1
        for part in self._parts:
            for number in part.inside:
                uses[number] += 1
        chosen = {self.named[part.target] for part in self._parts if part.target is not None}
        lengths: list[int] = []
        depths: list[int] = []
        for number, part in enumerate(self._parts):
            depth = 1 + max((depths[child] for child in part.inside), default=0)
            length = part.length + sum(lengths[child] for child in part.inside)
            is_reference = part.target is not None
            if not is_reference and ((uses[number] > 1 and length > SHORT) or depth >= MAX_INLINE_DEPTH):
                chosen.add(number)
            is_referred_to = is_reference or number in chosen
            lengths.append(_REFERENCE_LENGTH if is_referred_to else length)
            depths.append(0 if is_referred_to else depth)
        return {number: f"d{index}" for index, number in enumerate(sorted(chosen))}


def _replaced(schema: JsonSchema, inside: Iterator[int], written: list[JsonSchema]) -> JsonSchema:
    if isinstance(schema, bool):
        return schema
    found: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _MAPS:
            found[word] = {name: written[next(inside)] for name in value}
        elif word in _LISTS:
            found[word] = [written[next(inside)] for _ in value]
        else:
            found[word] = written[next(inside)] if word in _SINGLES else value
    return found


def _children(word: str, value: Any) -> list[JsonSchema] | None:
    """Give the subschemas below a word; None where it holds none."""
    if word in _MAPS:
        return list(value.values())
    if word in _LISTS:
        return list(value)
    return [value] if word in _SINGLES else None


def _target(schema: JsonSchema) -> str | None:
    found = schema.get("$ref") if isinstance(schema, dict) else None
    return found.removeprefix(_PREFIX) if isinstance(found, str) else None


def _inner_first(root: JsonSchema, definitions: Mapping[str, JsonSchema]) -> list[str]:
    order: list[str] = []
    seen: set[str] = set()
    stack = [(name, False) for name in _targets(root)]
    while stack:
        name, is_done = stack.pop()
        if is_done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack.extend((other, False) for other in _targets(definitions[name]) if other not in seen)
    return order


def _targets(schema: JsonSchema) -> Iterator[str]:
    stack = [schema]
    while stack:
        current = stack.pop()
        target = _target(current)
        if target is not None:
            yield target
        elif isinstance(current, dict):
            for word, value in current.items():
                stack += _children(word, value) or ()
