"""Choices between branches that only list values, read as one list.

Written by type checkers and by people who give every value a title: `anyOf: [{"const": 1, "title": "one"}, ...]`. As a choice,
hundreds of branches would be hundreds of alternatives.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from .expand import asserted_words
from .facets import key_of
from .graph import Node, SchemaGraph


def join_values(graph: SchemaGraph) -> None:
    """Write such an `anyOf` or `oneOf` as `enum`, which keeps the pointer of the choice; changes the nodes in place."""
    for node in graph.nodes:
        for keyword in ("anyOf", "oneOf"):
            listed = _listed(node, keyword)
            if listed is not None:
                node.pointers["enum"] = node.where(keyword)
                node.keywords["enum"] = listed
                del node.keywords[keyword]


def _listed(node: Node, keyword: str) -> list[Any] | None:
    if keyword not in node.keywords or node.keywords.keys() & {"enum", "const"}:
        return None
    found: dict[Hashable, list[Any]] = {}
    for branch in node.keywords[keyword]:
        values = _values_of(branch)
        if values is None:
            return None
        for key, value in {key_of(value): value for value in values}.items():
            found.setdefault(key, []).append(value)
    # Exactly one branch of a `oneOf` may hold a value.
    return [values[0] for values in found.values() if keyword == "anyOf" or len(values) == 1]


def _values_of(node: Node) -> list[Any] | None:
    words = asserted_words(node)
    if words == ["const"]:
        return [node.keywords["const"]]
    return list(node.keywords["enum"]) if words == ["enum"] else None
