"""What an alternative says about the parts of a value: properties by name, items by index."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs

from .facets import Conjunction, Facets


@lru_cache(maxsize=4096)
def _validator(keyword: str, text: str) -> Any:
    return jsonschema_rs.validator_for({keyword: text}, validate_formats=True, offline=True)


def matches(keyword: str, rule: str, text: str) -> bool:
    """Whether a string satisfies a `pattern` or a `format`, as the check afterwards sees it."""
    return bool(_validator(keyword, rule).is_valid(text))


def property_conjunction(one: Facets, name: str) -> Conjunction:
    """Give what the property `name` must satisfy."""
    if len(one.objects) == 1 and not one.objects[0].patterns:
        node = one.objects[0].properties.get(name, one.objects[0].rest)
        return () if node is None else (node,)
    found: list[Any] = []
    for group in one.objects:
        own = [group.properties[name]] if name in group.properties else []
        own += [node for pattern, node in group.patterns.items() if matches("pattern", pattern, name)]
        found += own or ([group.rest] if group.rest is not None else [])
    return tuple(dict.fromkeys(found))


def item_conjunction(one: Facets, index: int) -> Conjunction:
    """Give what the item at `index` must satisfy."""
    found = []
    for group in one.arrays:
        if index < len(group.prefix):
            found.append(group.prefix[index])
        elif group.rest is not None:
            found.append(group.rest)
    return tuple(dict.fromkeys(found))


def prefix_length(one: Facets) -> int:
    """Give the number of items that have rules of their own."""
    return max((len(group.prefix) for group in one.arrays), default=0)


def declared_names(one: Facets) -> list[str]:
    """Give the names that the schema knows, in its order: declared ones, then those that are only required."""
    names: dict[str, None] = {}
    for group in sorted(one.objects, key=lambda group: group.order):
        names.update(dict.fromkeys(group.properties))
    names.update(dict.fromkeys(one.required))
    return list(names)


def is_closed(one: Facets) -> bool:
    """Whether no name but the declared ones is possible."""
    return any(group.rest is not None and group.rest.always is False and not group.patterns for group in one.objects)
