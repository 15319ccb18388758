"""Write rules as EBNF for xgrammar."""

from __future__ import annotations

import re
from typing import NoReturn

from ..errors import InvalidGrammarError, UnsupportedGrammarError
from .ebnf import MACROS, ROOT
from .nodes import (
    Both,
    Chars,
    Either,
    Foreign,
    Lexeme,
    Node,
    Other,
    Ranges,
    Ref,
    Repeat,
    Row,
    Rules,
    Text,
    Tokens,
    negate_ranges,
    quantifier,
)

_HALVES = r"\ud800-\udfff"
"""Halves of surrogate pairs, which xgrammar 0.2.9 takes for characters that a negated class holds; no text holds them."""


def render_ebnf(rules: Rules) -> str:
    """Write rules as EBNF for xgrammar.

    Raises:
        UnsupportedGrammarError: Something that xgrammar does not have; the message names it.
    """
    for rule in rules.rules.values():
        if rule.options:
            raise UnsupportedGrammarError(
                f"the option {rule.options} of {rule.name}: xgrammar has no such thing",
                line=rule.place.line,
                column=rule.place.column,
                hint="use llguidance",
            )
    if rules.ignored:
        raise UnsupportedGrammarError("%ignore: xgrammar has no such thing", hint="use llguidance")
    names = _rule_names(rules)
    return "".join(f"{names[rule.name]} ::= {_render(rule.node, names)}\n" for rule in rules.rules.values())


def render_node(node: Node) -> str:
    """Write a node that calls no rule.

    Raises:
        UnsupportedGrammarError: As above.
    """
    return _render(node, {})


def _rule_names(rules: Rules) -> dict[str, str]:
    """Give names that EBNF takes: the start rule is `root`."""
    names = {rules.start: ROOT}
    taken = {ROOT, "true", "false", "Token", *MACROS}
    for name in rules.rules:
        if name in names:
            continue
        candidate = re.sub(r"[^A-Za-z0-9_]", "_", name)
        while candidate in taken or not re.match("[A-Za-z_]", candidate):
            candidate = f"r_{candidate}"
        taken.add(candidate)
        names[name] = candidate
    return names


def _render(node: Node, names: dict[str, str]) -> str:
    match node:
        case Text(text):
            return '"' + "".join(map(_escape, text)) + '"'
        case Chars(ranges):
            return _render_chars(ranges)
        case Row(items):
            return " ".join(_render(item, names) for item in items) if items else '""'
        case Either(items):
            return "(" + " | ".join(_render(item, names) for item in items) + ")"
        case Lexeme(item):
            return f"({_render(item, names)})"
        case Repeat(item, low, high):
            inner = _render(item, names)
            return (f"({inner})" if isinstance(item, (Row, Repeat)) else inner) + quantifier(low, high)
        case Ref(name):
            return names[name]
        case Tokens():
            return _render_tokens(node)
        case _:
            return _refuse(node)


def _refuse(node: Both | Other | Foreign) -> NoReturn:
    if isinstance(node, Foreign):
        raise UnsupportedGrammarError(
            f"{node.feature}: xgrammar has no such thing", line=node.place.line, column=node.place.column, hint="use llguidance"
        )
    raise UnsupportedGrammarError("look-ahead, intersection and complement: xgrammar has none", hint="use llguidance")


def _render_chars(ranges: Ranges) -> str:
    if not ranges:
        raise InvalidGrammarError("a character class without characters")
    others = negate_ranges(ranges)
    # xgrammar reads the negation faster, and a class of everything needs one.
    is_negated = len(others) < len(ranges) and bool(others)
    pieces = (
        _escape_class(low) if low == high else f"{_escape_class(low)}-{_escape_class(high)}"
        for low, high in (others if is_negated else ranges)
    )
    return ("[^" + _HALVES if is_negated else "[") + "".join(pieces) + "]"


def _render_tokens(node: Tokens) -> str:
    if node.is_negated or node.name or any(low != high for low, high in node.ranges):
        raise UnsupportedGrammarError(
            "a token by name, a range of tokens or all tokens but some: xgrammar has none",
            line=node.place.line,
            column=node.place.column,
            hint="name token ids, or use llguidance",
        )
    return "Token(" + ", ".join(str(low) for low, _ in node.ranges) + ")"


def _escape(char: str) -> str:
    # Spelled out in full: xgrammar 0.2.9 reads hexadecimal digits that follow `\xfc` as part of it.
    if char.isascii() and (char.isalnum() or char in " !#$%&()*+,-./:;<=>?@[]^_`{|}~'"):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _escape_class(code_point: int) -> str:
    char = chr(code_point)
    if char.isascii() and char.isalnum():
        return char
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"
