"""Find what contradicts itself in an alternative and take it out: types that no value can be of, values that its rules forbid."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from .children import declared_names, is_closed, item_conjunction, matches, prefix_length, property_conjunction
from .facets import Conjunction, Facets, key_of, kind_of, to_fraction

if TYPE_CHECKING:
    from .expand import Alternatives, Expander

MAX_DEPTH = 10
"""Levels of a schema that are looked into for contradictions while a place is expanded."""


def settle_all(expander: Expander, alternatives: Alternatives, pointer: str) -> Alternatives:
    """Give the alternatives that are left."""
    found = []
    for one in alternatives:
        reason = _settle(expander, one, pointer)
        if reason is None:
            found.append(one)
        else:
            expander.fail(*reason)
    return found


def _settle(expander: Expander, one: Facets, pointer: str) -> tuple[str, str] | None:
    """Narrow an alternative in place; give the reason if nothing is left of it."""
    reason = (pointer, "its rules contradict one another: no value can satisfy them")
    _exclude_small(one)
    for kind, narrow in (("boolean", _boolean), ("number", _number), ("string", _string), ("array", _array), ("object", _object)):
        if kind in one.kinds and (found := narrow(expander, one, pointer)):
            one.kinds -= {kind}
            reason = found
    if one.values is not None:
        excluded = set(map(key_of, one.excluded))
        is_free = not one.texts and not one.min_length and one.max_length is None and "string" in one.kinds
        one.values = tuple(
            value
            for value in one.values
            if (not excluded or key_of(value) not in excluded)
            and ((is_free and type(value) is str) or _follows(expander, one, value))  # long lists are of such texts
        )
        one.excluded = ()
        one.kinds = frozenset(map(kind_of, one.values))
        if not one.values:
            return (pointer, "no value of the enum can satisfy the rules beside it")
    return None if one.kinds else reason


def _exclude_small(one: Facets) -> None:
    for value in one.excluded:
        if value is None:
            one.kinds -= {"null"}
        elif isinstance(value, bool):
            one.booleans -= {value}


def _boolean(expander: Expander, one: Facets, pointer: str) -> tuple[str, str] | None:
    return None if one.booleans else (pointer, "no value is left")


def _number(expander: Expander, one: Facets, pointer: str) -> tuple[str, str] | None:
    return (pointer, "no number is within these bounds") if one.is_number_empty() else None


def _string(expander: Expander, one: Facets, pointer: str) -> tuple[str, str] | None:
    if one.max_length is not None and one.min_length > one.max_length:
        return (pointer, "minLength is larger than maxLength: no value can satisfy both")
    return None


def _array(expander: Expander, one: Facets, pointer: str) -> tuple[str, str] | None:
    reason = (pointer, "minItems is larger than the number of items that are possible: no value can satisfy both")
    for index in range(min(prefix_length(one) + 1, 64)):
        if one.max_items is not None and index >= one.max_items:
            break
        conjunction = item_conjunction(one, index)
        if conjunction and expander.is_surely_empty(conjunction):
            one.max_items = index
            if one.min_items > index:
                reason = why(expander, conjunction) or reason
            break
    if one.max_items is not None and one.min_items > one.max_items:
        return reason
    for found in one.contains:
        if found.low and expander.is_surely_empty((found.node,)):
            return why(expander, (found.node,)) or (pointer, "no item can satisfy `contains`")
    return None


def _object(expander: Expander, one: Facets, pointer: str) -> tuple[str, str] | None:
    for name in one.required:
        conjunction = property_conjunction(one, name)
        if conjunction and expander.is_surely_empty(conjunction):
            return why(expander, conjunction) or (pointer, f"the property {name!r} is required, and no value can satisfy it")
        if one.names and any(not _admits_name(expander, node, name) for node in one.names):
            return (pointer, f"the property {name!r} is required, and propertyNames forbids it")
    least = max(one.min_properties, len(one.required))
    most = one.max_properties
    if least > len(one.required) and is_closed(one):  # the required ones are possible, as was just seen
        possible = len([name for name in declared_names(one) if not _is_forbidden(one, name)])
        most = possible if most is None else min(most, possible)
    if any(node.always is False for node in one.names):
        most = 0
    if most is not None and least > most:
        return (pointer, "more properties are needed than are possible: no value can satisfy both")
    return None


def _is_forbidden(one: Facets, name: str) -> bool:
    return any(node.always is False for node in property_conjunction(one, name))


def why(expander: Expander, conjunction: Conjunction) -> tuple[str, str] | None:
    """Give the reason why nothing satisfies a conjunction."""
    from .expand import flatten

    known = expander.reasons.get(flatten(conjunction))
    if known is None and conjunction:
        false = next((node for node in conjunction if node.always is False), None)
        return (false.pointer, "no value can satisfy `false`") if false is not None and false.pointer else None
    return known


def _admits_name(expander: Expander, node: Any, name: str) -> bool:
    return any(admits(expander, one, name) for one in expander.expand((node,)))


def admits(expander: Expander, one: Facets, value: Any) -> bool:
    """Whether an alternative lets a value through; what is checked only afterwards is not asked."""
    if one.link is not None:
        return any(admits(expander, other, value) for other in expander.expand(one.link))
    if one.excluded and key_of(value) in set(map(key_of, one.excluded)):
        return False
    if one.values is not None and key_of(value) not in set(map(key_of, one.values)):
        return False
    return _follows(expander, one, value)


def _follows(expander: Expander, one: Facets, value: Any) -> bool:
    kind = kind_of(value)
    return kind in one.kinds and (kind not in _ADMIT or all(_ADMIT[kind](expander, one, value)))


def _admit_boolean(expander: Expander, one: Facets, value: bool) -> Iterator[bool]:
    yield value in one.booleans


def _admit_number(expander: Expander, one: Facets, value: Any) -> Iterator[bool]:
    number = to_fraction(value)
    yield not one.is_integer or number.denominator == 1
    yield not one.fractions or number.denominator != 1
    if one.low is not None:
        yield number > one.low or (number == one.low and not one.is_low_open)
    if one.high is not None:
        yield number < one.high or (number == one.high and not one.is_high_open)
    yield from ((number / step).denominator == 1 for step in one.multiples)


def _admit_string(expander: Expander, one: Facets, value: str) -> Iterator[bool]:
    yield one.min_length <= len(value) <= (len(value) if one.max_length is None else one.max_length)
    for rule in one.texts:
        yield matches(rule.kind, rule.text, value) is not rule.is_negated


def _admit_array(expander: Expander, one: Facets, value: list[Any]) -> Iterator[bool]:
    yield one.min_items <= len(value) <= (len(value) if one.max_items is None else one.max_items)
    for index, item in enumerate(value):
        yield _admits_child(expander, item_conjunction(one, index), item)
    if one.is_unique:
        yield len(set(map(key_of, value))) == len(value)
    for found in one.contains:
        # Items that are only possibly right count as right, so only the lower bound can be told.
        count = sum(_admits_child(expander, (found.node,), item) for item in value)
        yield count >= found.low


def _admit_object(expander: Expander, one: Facets, value: dict[str, Any]) -> Iterator[bool]:
    yield all(name in value for name in one.required)
    yield one.min_properties <= len(value) <= (len(value) if one.max_properties is None else one.max_properties)
    for name, item in value.items():
        yield _admits_child(expander, property_conjunction(one, name), item)
        yield all(_admits_name(expander, node, name) for node in one.names)


def _admits_child(expander: Expander, conjunction: Conjunction, value: Any) -> bool:
    if not conjunction:
        return True
    return any(admits(expander, one, value) for one in expander.expand(conjunction))


_ADMIT: dict[str, Any] = {
    "boolean": _admit_boolean,
    "number": _admit_number,
    "string": _admit_string,
    "array": _admit_array,
    "object": _admit_object,
}


def tag_values(expander: Expander, one: Facets, name: str) -> set[Hashable] | None:
    """Give the values that the required property `name` may have, as `key_of` tells them apart; None if they are not listed."""
    if name not in one.required or one.kinds != {"object"}:
        return None
    found: set[Hashable] = set()
    conjunction = property_conjunction(one, name)
    if not conjunction or len(expander._in_progress) > MAX_DEPTH:
        return None
    for alternative in expander.expand(conjunction):
        if alternative.values is None:
            return None
        found.update(map(key_of, alternative.values))
    return found
