"""Keywords that leave a choice become alternatives, as long as those are few.

Otherwise the alternatives say less, and name the keyword.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from .complement import complement, negated
from .contradictions import tag_values
from .facets import ArrayGroup, Conjunction, Facets, ObjectGroup
from .graph import Node

if TYPE_CHECKING:
    from .expand import Alternatives, Expander

MAX_PAIRS = 400
"""Pairs of branches of one `oneOf` that are compared."""
MAX_OVERLAPS = 4
MAX_TRACKED = 4
"""Branches of an `anyOf` of which every set is tried where `unevaluated...` must know which of them held."""
EVERYTHING = Node("", always=True)


def links(expander: Expander, conjunction: Conjunction) -> Alternatives | None:
    """Give the branches of a lone `anyOf`, or of a lone `oneOf` whose branches exclude one another, as links; None otherwise."""
    from .expand import asserted_words, flatten

    if len(conjunction) != 1:
        return None
    node = conjunction[0]
    if "anyOf" not in node.keywords and "oneOf" not in node.keywords:
        return None
    words = asserted_words(node)
    if words not in (["anyOf"], ["oneOf"]):
        return None
    branches: list[Node] = node.keywords[words[0]]
    if words == ["oneOf"] and (
        len(branches) ** 2 > 2 * MAX_PAIRS or _overlaps(expander, _each(expander, Facets(), branches), branches)
    ):
        return None
    found = [flatten((branch,)) for branch in branches]
    return [Facets(link=target) if target else Facets() for target in found if not expander.is_surely_empty(target)]


def apply(expander: Expander, node: Node, keyword: str, alternatives: Alternatives) -> Alternatives:
    """Multiply the alternatives by the choices that a keyword leaves."""
    if expander.is_tired:
        return [one.with_check(node.where(keyword)) for one in alternatives]
    found = _CHOICES[keyword](expander, node, alternatives)
    limit = max(256, len(node.keywords[keyword])) if len(alternatives) == 1 and isinstance(node.keywords[keyword], list) else 256
    if len(found) > limit:
        return [one.with_check(node.where(keyword)) for one in alternatives]
    return found


def _each(expander: Expander, one: Facets, branches: Sequence[Node]) -> list[Alternatives]:
    found = []
    for number, branch in enumerate(branches):
        with expander.step(number):
            found.append(expander.apply(branch, [one]))
    return found


def _any_of(expander: Expander, node: Node, alternatives: Alternatives) -> Alternatives:
    branches: list[Node] = node.keywords["anyOf"]
    if not expander.tracking:
        return [found for one in alternatives for part in _each(expander, one, branches) for found in part]
    if len(branches) > MAX_TRACKED:
        return [one.with_check(node.where("anyOf")) for one in alternatives]
    # What a branch evaluates counts whenever it holds, so every set of branches that may hold together is an alternative.
    found = []
    for size in range(1, len(branches) + 1):
        for chosen in combinations(branches, size):
            together = alternatives
            for branch in chosen:
                together = expander.apply(branch, together)
            found += together
    return found


def _one_of(expander: Expander, node: Node, alternatives: Alternatives) -> Alternatives:
    branches: list[Node] = node.keywords["oneOf"]
    pointer = node.where("oneOf")
    found = []
    for one in alternatives:
        parts = _each(expander, one, branches)
        if len(branches) ** 2 > 2 * MAX_PAIRS and not _have_own_tags(expander, parts):
            found += [other.with_check(pointer) for part in parts for other in part]
            continue
        overlaps = _overlaps(expander, parts, branches)
        for number, part in enumerate(parts):
            partners = [branches[second if first == number else first] for first, second in overlaps if number in (first, second)]
            found += _without(expander, part, partners, pointer)
    return found


def _without(expander: Expander, part: Alternatives, partners: Sequence[Node], pointer: str) -> Alternatives:
    """Take the partners' values out of the alternatives of a branch."""
    if len(partners) > MAX_OVERLAPS:
        return [one.with_check(pointer) for one in part]
    for partner in partners:
        part = _exclude(expander, part, partner, pointer)
    return part


def _exclude(expander: Expander, alternatives: Alternatives, node: Node, pointer: str) -> Alternatives:
    choices = complement(node, pointer)
    if expander.tracking:  # nothing counts as evaluated in what must not hold
        saved, expander.tracking = expander.tracking, 0
        found = [
            _evaluates_nothing(one, other)
            for one in alternatives
            for choice in choices
            for other in expander.apply(choice, [one])
        ]
        expander.tracking = saved
    else:
        found = [other for choice in choices for other in expander.apply(choice, alternatives)]
    if len(found) > 64:
        return [one.with_check(pointer) for one in alternatives]
    return found


def _evaluates_nothing(before: Facets, after: Facets) -> Facets:
    changed = after.copy()
    known = len(before.objects), len(before.arrays), len(before.contains)
    changed.objects = after.objects[: known[0]] + tuple(replace(group, evaluates=False) for group in after.objects[known[0] :])
    changed.arrays = after.arrays[: known[1]] + tuple(replace(group, evaluates=False) for group in after.arrays[known[1] :])
    changed.contains = after.contains[: known[2]] + tuple(replace(found, evaluates=False) for found in after.contains[known[2] :])
    return changed


def _overlaps(expander: Expander, parts: Sequence[Alternatives], branches: Sequence[Node]) -> list[tuple[int, int]]:
    """List the pairs of branches that may hold together."""
    if _have_own_tags(expander, parts):
        return []
    pairs = combinations([number for number, part in enumerate(parts) if part], 2)
    kinds = [frozenset().union(*(one.kinds for one in part)) for part in parts]
    meeting = ((first, second) for first, second in pairs if kinds[first] & kinds[second])
    return [(first, second) for first, second in meeting if expander.apply(branches[second], parts[first])]


def _have_own_tags(expander: Expander, parts: Sequence[Alternatives]) -> bool:
    """Whether one required property tells all branches apart by its values."""
    live = [part for part in parts if part]
    if not live or any(one.kinds != {"object"} for part in live for one in part):
        return False
    for name in live[0][0].required:
        seen: set[Hashable] = set()
        for part in live:
            values = _tags_of(expander, part, name)
            if values is None or values & seen:
                break
            seen |= values
        else:
            return True
    return False


def _tags_of(expander: Expander, part: Alternatives, name: str) -> set[Hashable] | None:
    values: set[Hashable] = set()
    for one in part:
        found = tag_values(expander, one, name)
        if found is None:
            return None
        values |= found
    return values


def _not(expander: Expander, node: Node, alternatives: Alternatives) -> Alternatives:
    return _exclude(expander, alternatives, node.keywords["not"], node.where("not"))


def _if(expander: Expander, node: Node, alternatives: Alternatives) -> Alternatives:
    then, otherwise = node.keywords.get("then", EVERYTHING), node.keywords.get("else", EVERYTHING)
    if then.always and otherwise.always and not expander.tracking:
        return alternatives
    pointer = node.where("if")
    held = expander.apply(then, expander.apply(node.keywords["if"], alternatives))
    rest = expander.apply(otherwise, _exclude(expander, alternatives, node.keywords["if"], pointer))
    return held + rest


def _dependent_required(expander: Expander, node: Node, alternatives: Alternatives) -> Alternatives:
    pointer = node.where("dependentRequired")
    for name, others in node.keywords["dependentRequired"].items():
        wanted = Node(pointer, keywords={"required": [name, *others]})
        alternatives = _depend(expander, name, wanted, pointer, alternatives) if others else alternatives
    return alternatives


def _dependent_schemas(expander: Expander, node: Node, alternatives: Alternatives) -> Alternatives:
    pointer = node.where("dependentSchemas")
    for name, schema in node.keywords["dependentSchemas"].items():
        wanted = Node(pointer, keywords={"required": [name], "allOf": [schema]})
        alternatives = _depend(expander, name, wanted, pointer, alternatives)
    return alternatives


def _depend(expander: Expander, name: str, wanted: Node, pointer: str, alternatives: Alternatives) -> Alternatives:
    if len(alternatives) > 32:
        return [one.with_check(pointer) for one in alternatives]
    others = [one for one in alternatives if "object" not in one.kinds]
    rest = [one for one in alternatives if "object" in one.kinds]
    is_object = Node(pointer, keywords={"type": "object"})
    has = expander.apply(is_object, expander.apply(wanted, rest))
    lacks = expander.apply(Node(pointer, keywords={"properties": {name: Node(pointer, always=False)}}), rest)
    return others + has + lacks


_CHOICES: Mapping[str, Callable[[Expander, Node, Alternatives], Alternatives]] = {
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
}


def take_unevaluated(node: Node, before: Facets, after: Facets, path: tuple[int, ...], *, has_dynamic: bool) -> Facets:
    """Write `unevaluatedProperties` and `unevaluatedItems` as rules for what the keywords beside them left over."""
    changed = after.copy()
    for keyword, rest in _unevaluated(node):
        pointer = node.where(keyword)
        changed.note(keyword, pointer)
        if has_dynamic:  # what is behind such a reference may evaluate more
            changed.checks |= {pointer}
            continue
        if keyword == "unevaluatedProperties":
            groups = [group for group in after.objects[len(before.objects) :] if group.evaluates]
            if all(group.rest is None for group in groups):
                names = {name: EVERYTHING for group in groups for name in group.properties}
                patterns = {pattern: EVERYTHING for group in groups for pattern in group.patterns}
                changed.objects += (ObjectGroup(names, patterns, rest, (*path, len(node.keywords)), True),)
        else:
            lists = [group for group in after.arrays[len(before.arrays) :] if group.evaluates]
            if any(found.evaluates for found in after.contains[len(before.contains) :]):
                changed.checks |= {pointer}
            elif all(group.rest is None for group in lists):
                length = max((len(group.prefix) for group in lists), default=0)
                changed.arrays += (ArrayGroup((EVERYTHING,) * length, rest, True),)
    return changed


def _unevaluated(node: Node) -> Iterator[tuple[str, Node]]:
    for keyword in ("unevaluatedProperties", "unevaluatedItems"):
        if keyword in node.keywords:
            yield keyword, node.keywords[keyword]


__all__ = ["apply", "links", "negated", "take_unevaluated"]
