"""Alternatives that a backend cannot say in one piece, written as several that it can, as long as they are few."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

from .facets import ArrayGroup, Facets, ObjectGroup, is_equal, kind_of, to_fraction
from .graph import Node
from .layout import Layout

if TYPE_CHECKING:
    from .program import Program

MAX_PARTS = 32
MAX_POSITIONS = 8
MAX_LISTED = 400
MAX_GAPS = 16
NOTHING = Node("", always=False)
EVERYTHING = Node("", always=True)


def split_numbers(one: Facets) -> list[Facets]:
    """Cut the excluded numbers out of the range."""
    gaps = sorted({to_fraction(value) for value in one.excluded if kind_of(value) == "number"})
    if not gaps or "number" not in one.kinds:
        return [one]
    if len(gaps) > MAX_GAPS:
        return [one.with_check(*one.where("not", "\0excluded"))]
    others = one.copy()
    others.kinds = one.kinds - {"number"}
    found = [others] if others.kinds else []
    for low, high in zip([None, *gaps], [*gaps, None], strict=True):
        part = one.copy()
        part.kinds = frozenset({"number"})
        part.excluded = tuple(value for value in one.excluded if kind_of(value) != "number")
        if low is not None:
            part.raise_low(low, True)
        if high is not None:
            part.lower_high(high, True)
        if not part.is_number_empty():
            found.append(part)
    return found


def split_arrays(program: Program, one: Facets) -> list[Facets]:
    """Write `contains` and `uniqueItems` out where arrays are short; elsewhere they are checked afterwards."""
    if one.kinds != {"array"}:
        return [one]
    found = [one]
    if one.is_unique:
        found = _list_unique(program, one)
    return [part for other in found for part in _place_contains(other)]


def _list_unique(program: Program, one: Facets) -> list[Facets]:
    changed = one.copy()
    changed.is_unique = False
    if one.max_items is not None and one.max_items <= 1:
        return [changed]
    layout = program.layout(one)
    values = None if layout.prefix or layout.items is None else _values_of(program, layout)
    if values is None:
        return [changed.with_check(*one.where("uniqueItems"))]
    most = min(len(values), len(values) if one.max_items is None else one.max_items)
    listed: list[Any] = []
    for size in range(one.min_items, most + 1):
        for chosen in permutations(values, size):
            listed.append(list(chosen))
            if len(listed) > MAX_LISTED:
                changed.max_items = most
                return [changed.with_check(*one.where("uniqueItems"))]
    changed.values = tuple(listed)
    return [changed] if listed and not one.contains else [changed.with_check(*one.where("contains"))] if listed else []


def _values_of(program: Program, layout: Layout) -> list[Any] | None:
    from .expand import flatten

    values: list[Any] = []
    if layout.items is None:
        return None
    for one in program.expander.expand(flatten(layout.items)):
        if one.values is None:
            return None
        values += [value for value in one.values if not any(is_equal(value, other) for other in values)]
    return values


def _place_contains(one: Facets) -> list[Facets]:
    if not one.contains or one.values is not None:
        return [one]
    changed = one.copy()
    changed.contains = ()
    counted = []
    for found in one.contains:
        if found.node.always is True:
            changed.min_items = max(changed.min_items, found.low)
            if found.high is not None:
                changed.max_items = min(found.high, found.high if changed.max_items is None else changed.max_items)
        else:
            counted.append(found)
    if not counted:
        return [changed]
    wanted = counted[0]
    if len(counted) > 1 or wanted.low != 1 or wanted.high is not None or one.max_items is None or one.max_items > MAX_POSITIONS:
        return [changed.with_check(*one.where("contains", "minContains", "maxContains"))]
    parts = []
    for index in range(one.max_items):
        part = changed.copy()
        part.arrays += (ArrayGroup((EVERYTHING,) * index + (wanted.node,), None, False),)
        part.min_items = max(part.min_items, index + 1)
        parts.append(part)
    return parts


def split_objects(program: Program, one: Facets, *, is_open_counted: bool) -> list[Facets]:
    """Write bounds on the number of properties as choices of which declared ones are there.

    Args:
        program: The schema.
        one: An alternative whose only type is object.
        is_open_counted: Whether the backend counts properties by itself when all declared ones are required.
    """
    if one.kinds != {"object"} or one.values is not None or not (one.min_properties or one.max_properties is not None):
        return [one]
    layout = program.layout(one)
    optional = [name for name, child in layout.properties.items() if child is not None and name not in one.required]
    is_closed = layout.rest is None and not layout.regions
    fixed = len(one.required)
    least = max(0, one.min_properties - fixed)
    most = None if one.max_properties is None else one.max_properties - fixed
    if is_closed and most is not None and most >= len(optional):
        most = None
    plain = one.copy()
    plain.min_properties, plain.max_properties = 0, None
    if not least and most is None:
        return [plain]
    if is_closed:
        choices = _choose(optional, least, most)
    elif not optional and is_open_counted:
        return [one]
    else:
        choices = (
            _choose(optional, 0, most if most is None else min(most, len(optional)), is_exact=True) if is_open_counted else None
        )
    if choices is None or len(choices) > MAX_PARTS:
        return [plain.with_check(*one.where("minProperties", "maxProperties"))]
    return [_with_names(one if not is_closed else plain, there, lacking) for there, lacking in choices]


def _choose(
    optional: list[str], least: int, most: int | None, *, is_exact: bool = False
) -> list[tuple[list[str], list[str]]] | None:
    """List which optional names are there and which are lacking; the others may be either."""
    if len(optional) > 16:
        return None
    if most is None and not is_exact:
        # The first `least` names that are there decide.
        found = []
        for chosen in combinations(range(len(optional)), least):
            there = [optional[index] for index in chosen]
            lacking = [name for index, name in enumerate(optional[: chosen[-1]]) if index not in chosen]
            found.append((there, lacking))
            if len(found) > MAX_PARTS:
                return None
        return found
    found = []
    for size in range(least, (len(optional) if most is None else min(most, len(optional))) + 1):
        for names in combinations(optional, size):
            found.append((list(names), [name for name in optional if name not in names]))
            if len(found) > MAX_PARTS:
                return None
    return found


def _with_names(one: Facets, there: list[str], lacking: list[str]) -> Facets:
    part = one.copy()
    part.required = (*one.required, *there)
    part.objects += (ObjectGroup(dict.fromkeys(lacking, NOTHING), {}, None, (1 << 30,), False),)
    return part
