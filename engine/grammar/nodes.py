"""What the texts of regular expressions and grammars are read into, whatever their language: a tree of nodes, and named rules.

Characters are code points without the surrogates, which no text holds. Nothing here recurses deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Ranges = tuple[tuple[int, int], ...]
MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
MAX_DEPTH = 64
"""Nesting of brackets beyond which a text is refused; compilers recurse."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in the user's text: line and column, both from 1, in characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Text:
    """This text."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of sorted, disjoint, inclusive ranges; none at all if they are empty."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Row:
    """All items, one after the other; the empty text if there are none."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of the items; nothing matches if there are none."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` at least `low` and at most `high` times; None is no bound."""

    item: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """Another rule."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token by id, whatever its text; `ranges` are inclusive. `name` is the token's text where that was given instead."""

    ranges: Ranges
    is_negated: bool
    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Both:
    """Texts that every item matches. Only inside terminals, and only llguidance has it."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Texts that `item` does not match. Only inside terminals, and only llguidance has it."""

    item: Node


@dataclass(frozen=True, slots=True)
class Lexeme:
    """`item`, read as one lexeme by grammars that have lexemes."""

    item: Node


@dataclass(frozen=True, slots=True)
class Foreign:
    """A piece that one backend knows and that is passed on as it is: `%json {...}` and the like.

    Attributes:
        text: The piece as written.
        feature: What it is, for messages.
        backend: The backend that has it.
    """

    text: str
    feature: str
    backend: str
    place: Place


Node = Text | Chars | Row | Either | Repeat | Ref | Tokens | Both | Other | Lexeme | Foreign
EMPTY = Row(())
BEGIN = Place(1, 1)


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule.

    Attributes:
        is_terminal: Lark's upper-case names: one lexeme, a regular expression that calls no rule.
        options: Options of the rule as written, brackets included (`[lazy]`); llguidance only.
    """

    name: str
    node: Node
    place: Place
    is_terminal: bool = False
    options: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """A grammar: rules by name, in the order of the text, and where it starts.

    Attributes:
        ignored: What may stand between any two lexemes; llguidance only.
        directives: Lines that are passed on as they are; llguidance only.
    """

    rules: dict[str, Rule]
    start: str
    ignored: tuple[Node, ...] = ()
    directives: tuple[Foreign, ...] = field(default=())


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges, join those that touch, and leave the surrogates out."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(piece for item in merged for piece in _without_surrogates(*item))


def _without_surrogates(low: int, high: int) -> Iterator[tuple[int, int]]:
    first, last = _SURROGATES
    if high < first or low > last:
        yield (low, high)
        return
    if low < first:
        yield (low, first - 1)
    if high > last:
        yield (last + 1, high)


def negate_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Give every character that is not in `ranges`."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in merge_ranges(ranges):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return merge_ranges([*gaps, (start, MAX_CODE_POINT)] if start <= MAX_CODE_POINT else gaps)


def children(node: Node) -> tuple[Node, ...]:
    """Give the nodes directly below."""
    match node:
        case Row(items) | Either(items) | Both(items):
            return items
        case Repeat(item) | Other(item) | Lexeme(item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Give a node and everything below it, in the order of the text."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(children(current)))


def map_refs(node: Node, names: dict[str, str]) -> Node:
    """Give a copy in which every call goes to the new name of its rule."""
    match node:
        case Ref(name, place):
            return Ref(names[name], place)
        case Row(items):
            return Row(tuple(map_refs(item, names) for item in items))
        case Either(items):
            return Either(tuple(map_refs(item, names) for item in items))
        case Both(items):
            return Both(tuple(map_refs(item, names) for item in items))
        case Repeat(item, low, high):
            return Repeat(map_refs(item, names), low, high)
        case Other(item):
            return Other(map_refs(item, names))
        case Lexeme(item):
            return Lexeme(map_refs(item, names))
        case _:
            return node


def make_repeat(item: Node, low: int, high: int | None) -> Node:
    """Repeat, without what needs no repetition, and a repetition of a repetition as one where that says the same.

    Compilers work hard on nested ones: `((a{1,40}){1,40}){1,40}` shares a text in countless ways.
    """
    if high == 0 or item == EMPTY:
        return EMPTY
    if (low, high) == (1, 1):
        return item
    if isinstance(item, Repeat) and (low == high or _is_gapless(item, low)):
        most = None if high is None or item.high is None else high * item.high
        return Repeat(item.item, low * item.low, most)
    return Repeat(item, low, high)


def _is_gapless(item: Repeat, low: int) -> bool:
    """Whether `low` rounds of `item` reach as far as `low + 1` rounds begin; more rounds then do, too."""
    if low == 0:
        return item.low <= 1
    return item.high is None or low * item.high + 1 >= (low + 1) * item.low


def quantifier(low: int, high: int | None) -> str:
    """Write the bounds of a repetition as every language here reads them."""
    plain = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return plain or (f"{{{low},}}" if high is None else f"{{{low},{high}}}")
