"""Terminals that no text matches although each of their parts has one: intersections and complements, as of look-ahead."""

from __future__ import annotations

from collections.abc import Iterable

from .nodes import Both, Chars, Either, Foreign, Lexeme, Node, Other, Ref, Repeat, Row, Rules, Text, children, walk
from .rewrite.regular import Language, Languages, has_no_text

MAX_MOVES = 5_000
"""Moves of the automaton that are tried, some microseconds each; a terminal that takes more counts as one that has a text."""


def empty_terminals(rules: Rules, callees_first: Iterable[str]) -> set[str]:
    """Give the terminals that were found to match no text, of those that hold an intersection or a complement."""
    hiding = {rule.name for rule in rules.rules.values() if any(isinstance(node, (Both, Other)) for node in walk(rule.node))}
    if not hiding:
        return set()
    languages = Languages()
    known: dict[str, Language] = {}
    empty = set()
    for name in callees_first:
        rule = rules.rules[name]
        if not rule.is_terminal or not all(_is_readable(node, known) for node in walk(rule.node)):
            continue
        known[name] = _read(rule.node, languages, known)
        if name in hiding and has_no_text(languages, known[name], max_moves=MAX_MOVES):
            empty.add(name)
    return empty


def _is_readable(node: Node, known: dict[str, Language]) -> bool:
    """Whether a node says what it matches; a piece that is passed on as it is does not."""
    return not isinstance(node, Foreign) and (not isinstance(node, Ref) or node.name in known)


def _read(node: Node, languages: Languages, known: dict[str, Language]) -> Language:
    parts = [_read(child, languages, known) for child in children(node)]
    match node:
        case Text(text):
            return languages.text(text)
        case Chars(ranges):
            return languages.set(ranges)
        case Ref(name):
            return known[name]
        case Either():
            return languages.union(parts)
        case Both():
            return languages.intersection(parts)
        case Other():
            return languages.complement(parts[0])
        case Repeat(_, low, high):
            return languages.repeat(parts[0], low, high)
        case Row() | Lexeme():
            return languages.cat(*parts)
        case _:
            raise AssertionError(node)
