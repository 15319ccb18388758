"""White space between the tokens of a JSON answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import GrammarError, InvalidRequestError
from .nodes import Chars, Either, Node, Repeat, Row, Text, walk
from .regex_check import parse_regex

WhitespaceStyle = Literal["compact", "flexible", "indented", "pattern"]
DEFAULT_MAX_RUN = 32
"""Longest run of flexible white space: a line break and the indentation of ten levels; without a cap models write it for ever."""
MAX_INDENT = 16
_WHITE = {" ": r"\x20", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


@dataclass(frozen=True, slots=True)
class Whitespace:
    """What may stand between two JSON tokens; make one with a constructor.

    Attributes:
        style: `compact`: nothing. `flexible`: up to `max_run` characters of white space. `indented`: a new line and `indent`
            spaces a level, as `json.dumps(..., indent=...)` writes. `pattern`: whatever matches `regex`.
        max_run: Longest run under `flexible`; None is no cap.
        indent: Spaces a level under `indented`.
        regex: The pattern under `pattern`, without open repetitions.
    """

    style: WhitespaceStyle = "compact"
    max_run: int | None = None
    indent: int = 0
    regex: str = ""

    @classmethod
    def compact(cls) -> Whitespace:
        """Allow none."""
        return cls()

    @classmethod
    def flexible(cls, max_run: int | None = DEFAULT_MAX_RUN) -> Whitespace:
        """Allow up to `max_run` characters of white space; None is no cap."""
        if max_run is not None and max_run < 1:
            raise InvalidRequestError(
                f"max_run must be at least 1, not {max_run}", param="whitespace", hint="compact white space is the default"
            )
        return cls("flexible", max_run=max_run)

    @classmethod
    def indented(cls, indent: int = 2) -> Whitespace:
        """Demand one line an item, `indent` spaces a level, and `": "` after a key."""
        if not 0 <= indent <= MAX_INDENT:
            raise InvalidRequestError(f"indent must be 0 to {MAX_INDENT}, not {indent}", param="whitespace")
        return cls("indented", indent=indent)

    @classmethod
    def pattern(cls, regex: str) -> Whitespace:
        r"""Allow what matches `regex`, such as ` ?` or `[ \n]*`; open repetitions end at `DEFAULT_MAX_RUN`.

        Raises:
            InvalidRequestError: No regular expression, or one that matches more than white space; `param` names the option.
        """
        try:
            node = parse_regex(regex)
        except GrammarError as error:
            raise InvalidRequestError(f"whitespace_pattern: {error}", param="whitespace_pattern", hint=error.hint) from error
        if not _is_white(node):
            raise InvalidRequestError(
                f"whitespace_pattern {regex!r} matches more than white space",
                param="whitespace_pattern",
                hint=r"JSON has space, \t, \n and \r between its tokens",
            )
        return cls("pattern", regex=_render(node))


def _is_white(node: Node) -> bool:
    return all(
        all(map(_is_white_range, item.ranges))
        if isinstance(item, Chars)
        else set(item.text) <= set(_WHITE)
        if isinstance(item, Text)
        else isinstance(item, (Row, Either, Repeat))
        for item in walk(node)
    )


def _is_white_range(pair: tuple[int, int]) -> bool:
    return pair[1] < 128 and all(chr(code_point) in _WHITE for code_point in range(pair[0], pair[1] + 1))


def _render(node: Node) -> str:
    """Write the pattern in the syntax that every backend reads."""
    match node:
        case Text(text):
            return "".join(_WHITE[char] for char in text)
        case Chars(ranges):
            return "[" + "".join(_WHITE[chr(char)] for low, high in ranges for char in range(low, high + 1)) + "]"
        case Row(items):
            return "".join(map(_render, items))
        case Either(items):
            return "(?:" + "|".join(map(_render, items)) + ")"
        case Repeat(item, low, high):
            most = max(low, DEFAULT_MAX_RUN) if high is None else high
            return f"(?:{_render(item)}){{{low},{most}}}"
        case _:
            raise AssertionError(node)


COMPACT = Whitespace()
