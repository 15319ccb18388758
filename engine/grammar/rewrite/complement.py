"""Write what a subschema excludes as subschemas of which one must hold.

Together they hold for every value that the subschema does not; what cannot be said exactly says more, and names the pointer
that must be checked then. What a complement says about names and items does not count as evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .facets import KINDS
from .graph import CHECK, EXCLUDED, FRACTION, NOT_FORMAT, NOT_PATTERN, Node

NEVER = Node("", always=False)
ALWAYS = Node("", always=True)


def complement(node: Node, pointer: str) -> list[Node]:
    """Give subschemas of which at least one holds exactly when `node` does not.

    Args:
        node: What must not hold.
        pointer: The keyword to be checked where the complement is not exact.
    """
    if node.always is not None:
        return [] if node.always else [ALWAYS]
    found = []
    for keyword, value in node.keywords.items():
        rule = _RULES.get(keyword)
        if rule is not None:
            found += [Node(pointer, keywords=part) for part in rule(node, value, pointer)]
    return found


def negated(node: Node, pointer: str) -> Node:
    """Give a subschema that holds when `node` does not."""
    if node.always is not None:
        return NEVER if node.always else ALWAYS
    return Node(pointer, keywords={"not": node})


Part = dict[str, Any]


def _unknown(kind: str | None, pointer: str) -> Iterator[Part]:
    yield {**({"type": kind} if kind else {}), CHECK: pointer}


def _type(node: Node, value: Any, pointer: str) -> Iterator[Part]:
    named = {value} if isinstance(value, str) else set(value)
    others = [kind for kind in KINDS if kind not in named and not (kind == "number" and "integer" in named)]
    if others:
        yield {"type": others}
    if "integer" in named and "number" not in named:
        yield {"type": "number", FRACTION: pointer}


def _properties(node: Node, value: Mapping[str, Node], pointer: str) -> Iterator[Part]:
    for name, child in value.items():
        if child.always is not True:
            yield {"type": "object", "required": [name], "properties": {name: negated(child, pointer)}}


def _required(node: Node, value: list[str], pointer: str) -> Iterator[Part]:
    for name in value:
        yield {"type": "object", "properties": {name: Node(pointer, always=False)}}


def _additional(node: Node, value: Node, pointer: str) -> Iterator[Part]:
    if value.always is True:
        return
    if value.always is False and not node.keywords.keys() & {"properties", "patternProperties"}:
        yield {"type": "object", "minProperties": 1}
    else:
        yield {"type": "object", "minProperties": 1, CHECK: pointer}


def _bound(kind: str, other: str, change: int = 0) -> Callable[[Node, Any, str], Iterator[Part]]:
    def rule(node: Node, value: Any, pointer: str) -> Iterator[Part]:
        if value + change >= 0 or not change:
            yield {"type": kind, other: value + change}

    return rule


def _items(node: Node, value: Node, pointer: str) -> Iterator[Part]:
    if value.always is True:
        return
    if node.keywords.get("prefixItems"):
        yield {"type": "array", "minItems": len(node.keywords["prefixItems"]) + 1, CHECK: pointer}
    else:
        yield {"type": "array", "contains": negated(value, pointer)}


def _prefix(node: Node, value: list[Node], pointer: str) -> Iterator[Part]:
    for index, child in enumerate(value):
        if child.always is not True:
            yield {"type": "array", "minItems": index + 1, "prefixItems": [ALWAYS] * index + [negated(child, pointer)]}


def _contains(node: Node, value: Node, pointer: str) -> Iterator[Part]:
    low, high = node.keywords.get("minContains", 1), node.keywords.get("maxContains")
    if low == 1:
        yield {"type": "array", "items": negated(value, pointer)}
    elif low > 1:
        yield from _unknown("array", pointer)
    if high is not None:
        yield {"type": "array", "contains": value, "minContains": int(high) + 1}


def _one_of(node: Node, value: list[Node], pointer: str) -> Iterator[Part]:
    yield {"allOf": [negated(branch, pointer) for branch in value]}
    for number, first in enumerate(value):
        for second in value[number + 1 :]:
            yield {"allOf": [first, second]}


def _if(node: Node, value: Node, pointer: str) -> Iterator[Part]:
    then, otherwise = node.keywords.get("then"), node.keywords.get("else")
    if then is not None:
        yield {"allOf": [value, negated(then, pointer)]}
    if otherwise is not None:
        yield {"allOf": [negated(value, pointer), negated(otherwise, pointer)]}


def _dependent_required(node: Node, value: Mapping[str, list[str]], pointer: str) -> Iterator[Part]:
    for name, others in value.items():
        for other in others:
            yield {"type": "object", "required": [name], "properties": {other: Node(pointer, always=False)}}


def _dependent_schemas(node: Node, value: Mapping[str, Node], pointer: str) -> Iterator[Part]:
    for name, schema in value.items():
        yield {"type": "object", "required": [name], "allOf": [negated(schema, pointer)]}


_RULES: Mapping[str, Callable[[Node, Any, str], Iterator[Part]]] = {
    "type": _type,
    "const": lambda node, value, pointer: iter([{EXCLUDED: [value]}]),
    "enum": lambda node, value, pointer: iter([{EXCLUDED: value}]),
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "patternProperties": lambda node, value, pointer: _unknown("object", pointer),
    "propertyNames": lambda node, value, pointer: _unknown("object", pointer),
    "minProperties": _bound("object", "maxProperties", -1),
    "maxProperties": _bound("object", "minProperties", 1),
    "minimum": _bound("number", "exclusiveMaximum"),
    "exclusiveMinimum": _bound("number", "maximum"),
    "maximum": _bound("number", "exclusiveMinimum"),
    "exclusiveMaximum": _bound("number", "minimum"),
    "multipleOf": lambda node, value, pointer: _unknown("number", pointer),
    "minLength": _bound("string", "maxLength", -1),
    "maxLength": _bound("string", "minLength", 1),
    "pattern": lambda node, value, pointer: iter([{"type": "string", NOT_PATTERN: value}]),
    "format": lambda node, value, pointer: iter([{"type": "string", NOT_FORMAT: value}]),
    "minItems": _bound("array", "maxItems", -1),
    "maxItems": _bound("array", "minItems", 1),
    "items": _items,
    "prefixItems": _prefix,
    "contains": _contains,
    "uniqueItems": lambda node, value, pointer: _unknown("array", pointer) if value else iter(()),
    "unevaluatedItems": lambda node, value, pointer: _unknown("array", pointer),
    "unevaluatedProperties": lambda node, value, pointer: _unknown("object", pointer),
    "anyOf": lambda node, value, pointer: iter([{"allOf": [negated(branch, pointer) for branch in value]}]),
    "allOf": lambda node, value, pointer: iter([{"allOf": [negated(branch, pointer)]} for branch in value]),
    "oneOf": _one_of,
    "not": lambda node, value, pointer: iter([{"allOf": [value]}]),
    "$ref": lambda node, value, pointer: iter([{"allOf": [negated(value, pointer)]}]),
    "$dynamicRef": lambda node, value, pointer: iter([{"allOf": [negated(value, pointer)]}]),
    "$recursiveRef": lambda node, value, pointer: iter([{"allOf": [negated(value, pointer)]}]),
    "if": _if,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
}
