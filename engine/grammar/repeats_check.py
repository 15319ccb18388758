"""Repetitions inside repetitions: in how many ways a text can be shared among them.

`([a-z]{1,20},){1,20}` is harmless, since a comma says where the inner one ends. `([a-z]{1,20},?){1,20}` is not: automata then
count every way of sharing. Measured on texts of some hundred characters: xgrammar 0.2.9 takes seconds a token from some 300 ways
on, and llguidance 1.9.1 runs out of its states above 1,000.
"""

from __future__ import annotations

from typing import NamedTuple

from .nodes import Chars, Either, Node, Ranges, Repeat, Row, Rules, Text, children, merge_ranges

MAX_WAYS = 1_000
"""Ways that bounded repetitions may share a text, beyond which no backend gets along."""
MAX_XGRAMMAR_WAYS = 256
_OPEN_REPEAT = 8
_LARGE = 2**20


class Sharing(NamedTuple):
    """Nested repetitions whose ends are open to doubt.

    Attributes:
        depth: How many are nested.
        ways: Product of their bounds, an open one counting little.
        bounded_ways: Product of the bounds of those that have one.
    """

    depth: int = 0
    ways: int = 1
    bounded_ways: int = 1


def worst_sharing(rules: Rules) -> Sharing:
    """Give the worst nest of a grammar; a call of another rule is no repetition."""
    return max((_sharing(rule.node) for rule in rules.rules.values()), key=_badness, default=Sharing())


def _sharing(node: Node) -> Sharing:
    # Looking at what may follow costs more than the nest itself, and few have one.
    return _measure(node, ()) if _product(node) > MAX_XGRAMMAR_WAYS else Sharing()


def _badness(sharing: Sharing) -> tuple[bool, int]:
    return (sharing.depth > 1, sharing.ways)


def _product(node: Node) -> int:
    inner = max(map(_product, children(node)), default=1)
    if isinstance(node, Repeat) and node.low != node.high:
        return min(inner * (node.high or _OPEN_REPEAT), _LARGE)
    return inner * node.low if isinstance(node, Repeat) and inner > 1 else inner


def _measure(node: Node, after: Ranges) -> Sharing:
    """Measure a node after which a character of `after` may come."""
    match node:
        case Repeat(item, low, high):
            begin = first_chars(item)
            inner = _measure(item, merge_ranges((*begin.ranges, *after)))
            is_open = low != high and _overlap(begin.ranges, after)
            if inner.depth == 0 and not is_open:
                return inner
            ways = min(inner.ways * (high or _OPEN_REPEAT), _LARGE)
            return Sharing(inner.depth + 1, ways, min(inner.bounded_ways * (high or 1), _LARGE))
        case Row(items):
            found = []
            for item in reversed(items):
                found.append(_measure(item, after))
                begin = first_chars(item)
                after = merge_ranges((*begin.ranges, *after)) if begin.can_be_empty else begin.ranges
            return max(found, key=_badness, default=Sharing())
        case _:
            return max((_measure(child, after) for child in children(node)), key=_badness, default=Sharing())


def _overlap(some: Ranges, others: Ranges) -> bool:
    return any(low <= high_other and low_other <= high for low, high in some for low_other, high_other in others)


class Begin(NamedTuple):
    """What a node's texts begin with, and whether the empty text is one."""

    ranges: Ranges
    can_be_empty: bool


def first_chars(node: Node) -> Begin:
    """Give the characters that a text of the node can begin with; calls of rules count as none."""
    match node:
        case Text(text):
            return Begin(((ord(text[0]), ord(text[0])),) if text else (), not text)
        case Chars(ranges):
            return Begin(ranges, False)
        case Row(items):
            found: Ranges = ()
            for item in items:
                begin = first_chars(item)
                found = merge_ranges((*found, *begin.ranges))
                if not begin.can_be_empty:
                    return Begin(found, False)
            return Begin(found, True)
        case Either(items):
            begins = [first_chars(item) for item in items]
            merged = merge_ranges(pair for begin in begins for pair in begin.ranges)
            return Begin(merged, any(begin.can_be_empty for begin in begins))
        case Repeat(item, low):
            begin = first_chars(item)
            return Begin(begin.ranges, begin.can_be_empty or low == 0)
        case _:
            begins = [first_chars(child) for child in children(node)]
            return begins[0] if begins else Begin((), False)
