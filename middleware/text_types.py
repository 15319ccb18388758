"""Output types whose answer is a text and no JSON: a regular expression, one of several texts, a grammar, a structural tag.

A local model is held to them by the mask. Of the others, the answer to a `Regex` or a `Choice` is checked afterwards; a grammar
cannot be checked without the engine, so that a remote model refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jsonschema_rs

from .attempt import Problem
from .errors import InvalidSchemaError

_MAX_SHOWN = 5
_BACKTRACK_LIMIT = 100_000
_CLASSES = {r"\d": r"\p{Nd}", r"\w": r"\p{L}\p{N}_"}
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t\x20", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r"\x09-\x0d\x20", "upper": "A-Z", "word": "0-9A-Z_a-z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Regex:
    """A text that a regular expression in Python's syntax matches as a whole."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Exactly one of these texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    """A text of a grammar.

    Attributes:
        text: EBNF (`root ::= ...`) or Lark (`start: ...`).
        syntax: `ebnf`, `lark`, or `auto`: what the first rule looks like.
    """

    text: str
    syntax: Literal["auto", "ebnf", "lark"] = "auto"

    @property
    def kind(self) -> Literal["ebnf", "lark"]:
        """The syntax, found out if it was not given."""
        if self.syntax != "auto":
            return self.syntax
        # The head of the first rule; a comment may hold either.
        head = re.search(r"^[ \t]*[!?]?[A-Za-z_][\w.\-]*(?:\[[^\]\n]*\])?[ \t]*(::=|:)", self.text, re.MULTILINE)
        return "ebnf" if head is not None and head[1] == "::=" else "lark"


@dataclass(frozen=True, slots=True)
class StructuralTag:
    """Text with tagged parts, in xgrammar's format (https://xgrammar.mlc.ai/docs/structural_tag/structural_tag_api.html)."""

    tag: Mapping[str, Any]


TextType = Regex | Choice | Grammar | StructuralTag


def can_check(kind: TextType) -> bool:
    """Whether an answer can be checked here, without the engine's masks."""
    if isinstance(kind, Regex):
        try:
            _matches(kind.pattern, "")
        except ValueError:
            return False
    return isinstance(kind, (Regex, Choice))


def check_text(kind: TextType, text: str) -> tuple[Problem, ...]:
    """Say what is wrong with an answer; what `can_check` says no to is taken as it is, since only a mask knows."""
    if isinstance(kind, Choice) and text not in kind.texts:
        shown = ", ".join(map(repr, kind.texts[:_MAX_SHOWN])) + (", ..." if len(kind.texts) > _MAX_SHOWN else "")
        return (Problem("#", f"must be one of {shown}, and nothing else", "text"),)
    if isinstance(kind, Regex) and can_check(kind) and not _matches(kind.pattern, text):
        return (Problem("#", f"must match the regular expression {kind.pattern} as a whole", "text"),)
    return ()


def _matches(pattern: str, text: str) -> bool:
    """Match the whole text within a bounded time, whatever the pattern: Python's own matcher can take for ever.

    Raises:
        ValueError: The pattern has what only Python knows.
    """
    schema = {"pattern": f"^(?:{_spell_classes(pattern)})$"}
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT)
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=options).is_valid(text)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"{pattern} cannot be checked: {error.message}") from error


def _spell_classes(pattern: str) -> str:
    r"""Write what JSON schemas have not, or else: `\d` and `\w` are all of Unicode in Python; `[:alpha:]`; `\z`."""
    in_class = False

    def spell(match: re.Match[str]) -> str:
        nonlocal in_class
        found = match[0]
        if found == "[":
            in_class = True
        elif found == "]":
            in_class = False
        if match[1] is not None:
            return _POSIX.get(match[1], found) if in_class else found
        inner = _CLASSES.get(found)
        if inner is None:
            return "$" if found == r"\z" else found
        return inner if in_class else f"[{inner}]"

    return re.sub(r"\\.|\[:(\w+):\]|[\[\]]", spell, pattern, flags=re.DOTALL)


def check_type(kind: TextType) -> None:
    """Refuse what can be refused without the engine.

    Raises:
        InvalidSchemaError: An empty constraint, or a pattern that is none.
    """
    given = kind.texts if isinstance(kind, Choice) else kind.pattern if isinstance(kind, Regex) else None
    if given is not None and not given:
        raise InvalidSchemaError(f"an empty {type(kind).__name__}")
    if isinstance(kind, Grammar) and not kind.text.strip():
        raise InvalidSchemaError("an empty Grammar")
    if isinstance(kind, Choice) and not all(isinstance(text, str) for text in kind.texts):
        raise InvalidSchemaError("a Choice is made of texts")
    if isinstance(kind, Regex) and not can_check(kind):
        try:
            re.compile(kind.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidSchemaError(f"not a regular expression: {error}") from error
