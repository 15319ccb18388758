"""Write rules as Lark for llguidance (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md)."""

from __future__ import annotations

from .nodes import Both, Chars, Either, Foreign, Lexeme, Node, Other, Ref, Repeat, Row, Rules, Text, Tokens, quantifier

_ANY_TEXT = "/(?s:.*)/"
"""llguidance's complements are of bytes: without this they hold texts that are no UTF-8."""


def render_lark(rules: Rules) -> str:
    """Write rules as Lark for llguidance; terminals and lexemes become regular expressions.

    There is nothing that llguidance does not have: what only xgrammar has, EBNF and structural tags, never gets here.
    """
    lines = [f"%ignore {_render(node, in_terminal=True)}" for node in rules.ignored]
    lines.extend(
        f"{rule.name}{rule.options}: {_render(rule.node, in_terminal=rule.is_terminal)}" for rule in rules.rules.values()
    )
    return "\n".join(lines) + "\n"


def _render(node: Node, *, in_terminal: bool) -> str:
    match node:
        case Row(items):
            return " ".join(_render(item, in_terminal=in_terminal) for item in items) if items else '""'
        case Either(items):
            return "(" + " | ".join(_render(item, in_terminal=in_terminal) for item in items) + ")"
        case Both(items):
            pieces = [_render_other(item) if isinstance(item, Other) else _render(item, in_terminal=True) for item in items]
            pieces += [_ANY_TEXT] if all(isinstance(item, Other) for item in items) else []
            return "(" + " & ".join(f"({piece})" for piece in pieces) + ")"
        case Other():
            return f"({_render_other(node)} & {_ANY_TEXT})"
        case Repeat(item, low, high):
            inner = _render(item, in_terminal=in_terminal)
            return f"({inner})" + quantifier(low, high)
        case Ref(text) | Foreign(text):
            return text
        case Tokens():
            return _render_tokens(node)
        case _:
            return _render_lexeme(node)


def _render_other(node: Other) -> str:
    return f"(~({_render(node.item, in_terminal=True)}))"


def _render_tokens(node: Tokens) -> str:
    if node.name:
        return node.name
    pieces = ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in node.ranges)
    if node.ranges == ((0, 2**31 - 1),):
        pieces = "*"
    return f"<[{'^' * node.is_negated}{pieces}]>"


def _render_lexeme(node: Node) -> str:
    """One regular expression where there is one; a bracketed expression where something has none (`&`, `~`, another terminal)."""
    if isinstance(node, Lexeme):
        node = node.item
    regex = render_rust_regex(node)
    if regex is None:
        return f"({_render(node, in_terminal=True)})"
    return f"/{regex}/" if regex else '""'


def render_rust_regex(node: Node) -> str | None:
    """Write a node in Rust's syntax (https://docs.rs/regex/latest/regex/#syntax); None if it has no such form."""
    match node:
        case Text(text):
            return "".join(map(_escape, text))
        case Chars(ranges):
            pieces = (_escape(chr(low)) if low == high else f"{_escape(chr(low))}-{_escape(chr(high))}" for low, high in ranges)
            return "[" + "".join(pieces) + "]"
        case Lexeme(item):
            return render_rust_regex(item)
        case Row(items) | Either(items):
            parts = [render_rust_regex(item) for item in items]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            return "".join(known) if isinstance(node, Row) else "(?:" + "|".join(known) + ")"
        case Repeat(item, low, high):
            inner = render_rust_regex(item)
            return None if inner is None else f"(?:{inner})" + quantifier(low, high)
        case _:
            return None


def _escape(char: str) -> str:
    return char if (char.isascii() and char.isalnum()) or char in " _" else f"\\u{{{ord(char):x}}}"
