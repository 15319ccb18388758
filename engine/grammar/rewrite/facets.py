"""One alternative of a schema in normal form: for every type of JSON what a value of that type must be like.

A schema is a union of such alternatives. Children are conjunctions of subschemas that are not looked into here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, lcm
from operator import attrgetter
from typing import Any, Literal

from .graph import Node

Conjunction = tuple[Node, ...]
"""Subschemas that hold together; empty = any value."""
KINDS = ("null", "boolean", "number", "string", "array", "object")
ANY_KIND = frozenset(KINDS)
NOTHING = Node("", always=False)


@dataclass(frozen=True, slots=True)
class TextRule:
    """A rule for strings, where it was written, and whether it is negated."""

    kind: Literal["pattern", "format", "value"]
    text: str
    pointer: str
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class ArrayGroup:
    """`prefixItems` and `items` of one schema object; `rest` None says nothing."""

    prefix: tuple[Node, ...]
    rest: Node | None
    evaluates: bool


@dataclass(frozen=True, slots=True)
class ObjectGroup:
    """`properties`, `patternProperties` and `additionalProperties` of one schema object; `rest` None says nothing.

    `order` sorts groups by where they stand in the schema.
    """

    properties: Mapping[str, Node]
    patterns: Mapping[str, Node]
    rest: Node | None
    order: tuple[int, ...]
    evaluates: bool


@dataclass(frozen=True, slots=True)
class Contains:
    """`contains` with its bounds."""

    node: Node
    low: int
    high: int | None
    evaluates: bool


@dataclass(slots=True)
class Facets:
    """What one alternative says. Copied before it is changed.

    Attributes:
        values: The only values, None for any.
        fractions: Pointers of keywords that allow no whole number.
        excluded: Values that are not allowed.
        checks: Pointers of keywords that this alternative says less than: they must be checked on the finished value.
        origins: Per keyword the pointers where it was written, to be named when a backend cannot mask it.
        link: The alternative is this conjunction, and nothing else.
        applied: Subschemas made of others that are in it already: taking one in again would change nothing.
    """

    kinds: frozenset[str] = ANY_KIND
    booleans: frozenset[bool] = frozenset((False, True))
    is_integer: bool = False
    fractions: frozenset[str] = frozenset()
    low: Fraction | None = None
    is_low_open: bool = False
    high: Fraction | None = None
    is_high_open: bool = False
    multiples: tuple[Fraction, ...] = ()
    min_length: int = 0
    max_length: int | None = None
    texts: tuple[TextRule, ...] = ()
    arrays: tuple[ArrayGroup, ...] = ()
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    is_unique: bool = False
    objects: tuple[ObjectGroup, ...] = ()
    required: tuple[str, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    names: tuple[Node, ...] = ()
    values: tuple[Any, ...] | None = None
    excluded: tuple[Any, ...] = ()
    checks: frozenset[str] = frozenset()
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    link: Conjunction | None = None
    applied: frozenset[Node] = frozenset()

    def copy(self) -> Facets:
        """Give a copy to change."""
        return Facets(*_values_of(self))

    def with_check(self, *pointers: str) -> Facets:
        """Give a copy that says less than the keywords at `pointers`."""
        changed = self.copy()
        changed.checks = self.checks.union(pointers)
        return changed

    def with_applied(self, node: Node) -> Facets:
        """Give a copy that knows that a subschema is in it."""
        changed = self.copy()
        changed.applied = self.applied | {node}
        return changed

    def note(self, keyword: str, pointer: str) -> None:
        """Remember where a keyword was written."""
        known = self.origins.get(keyword)
        self.origins = {**self.origins, keyword: known | {pointer} if known else frozenset((pointer,))}

    def where(self, *keywords: str) -> frozenset[str]:
        """Give the pointers of keywords."""
        return frozenset().union(*(self.origins.get(keyword, frozenset()) for keyword in keywords))

    def raise_low(self, bound: Fraction, is_open: bool) -> None:
        """Take in a lower bound for numbers."""
        if self.low is None or (bound, is_open) > (self.low, self.is_low_open):
            self.low, self.is_low_open = bound, is_open

    def lower_high(self, bound: Fraction, is_open: bool) -> None:
        """Take in an upper bound for numbers."""
        if self.high is None or (bound, not is_open) < (self.high, not self.is_high_open):
            self.high, self.is_high_open = bound, is_open

    def integer_range(self) -> tuple[int | None, int | None]:
        """Give the lowest and the highest integer within the bounds."""
        low = high = None
        if self.low is not None:
            low = floor(self.low) + 1 if self.is_low_open else ceil(self.low)
        if self.high is not None:
            high = ceil(self.high) - 1 if self.is_high_open else floor(self.high)
        return low, high

    def integers(self, limit: int) -> range | None:
        """Give the integers that are allowed; None if they are more than `limit`, or this is not about integers."""
        low, high = self.integer_range()
        if not self.is_integer or low is None or high is None or "number" not in self.kinds:
            return None
        step = self._integer_step()
        first = -(-low // step) * step
        return range(first, high + 1, step) if (high - first) // step < limit else None

    def _integer_step(self) -> int:
        return int(common_multiple((*self.multiples, Fraction(1))) or 1)

    def is_number_empty(self) -> bool:
        """Whether no number is within the bounds."""
        if self.is_integer and self.fractions:
            return True
        if self.low is None or self.high is None:
            return False
        if self.is_integer:
            low, high = self.integer_range()
            whole = self._integer_step()
            return low is not None and high is not None and -(-low // whole) * whole > high
        if self.low > self.high or (self.low == self.high and (self.is_low_open or self.is_high_open)):
            return True
        step = common_multiple(self.multiples)
        if step is None:
            return False
        first = ceil(self.low / step) * step
        first += step if first == self.low and self.is_low_open else 0
        return first > self.high or (first == self.high and self.is_high_open)


_values_of = attrgetter(*Facets.__slots__)


def common_multiple(numbers: Iterable[Fraction]) -> Fraction | None:
    """Give the least number that all are whole parts of; None for none."""
    result: Fraction | None = None
    for number in numbers:
        if result is None:
            result = number
            continue
        numerator = (result.numerator * number.denominator, number.numerator * result.denominator)
        result = Fraction(lcm(*numerator), result.denominator * number.denominator)
    return result


def to_fraction(number: Any) -> Fraction:
    """Read a JSON number as what its digits say."""
    return Fraction(number) if isinstance(number, int) else Fraction(str(number))


def to_number(value: Fraction) -> int | float:
    """Write a number for a schema; exact for integers, the nearest double otherwise."""
    return int(value) if value.denominator == 1 else float(value)


def kind_of(value: Any) -> str:
    """Name the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "number"


def key_of(value: Any) -> Hashable:
    """Give what is equal for JSON values that are the same, and for no others: 1 is 1.0, and neither is True."""
    kind = kind_of(value)
    if kind == "number":
        return value if isinstance(value, int) else to_fraction(value)  # equal ones have one hash, too
    if kind == "array":
        return ("array", tuple(map(key_of, value)))
    if kind == "object":
        return ("object", frozenset((name, key_of(item)) for name, item in value.items()))
    return (kind, value)


def is_equal(first: Any, second: Any) -> bool:
    """Whether two JSON values are the same."""
    return key_of(first) == key_of(second)
