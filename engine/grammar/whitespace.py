"""White space between the tokens of a JSON answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import InvalidRequestError

WhitespaceStyle = Literal["compact", "flexible", "indented", "pattern"]
DEFAULT_MAX_RUN = 32
"""Longest run of flexible white space: a line break and the indentation of ten levels; without a cap models write it for ever."""
MAX_INDENT = 16


@dataclass(frozen=True, slots=True)
class Whitespace:
    """What may stand between two JSON tokens; make one with a constructor.

    Attributes:
        style: `compact`: nothing. `flexible`: up to `max_run` characters of white space. `indented`: a new line and `indent`
            spaces a level, as `json.dumps(..., indent=...)` writes. `pattern`: whatever matches `regex`.
        max_run: Longest run under `flexible`; None is no cap.
        indent: Spaces a level under `indented`.
        regex: The pattern under `pattern`.
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
        r"""Allow what matches `regex`, such as ` ?` or `[ \n]{0,4}`."""
        return cls("pattern", regex=regex)


COMPACT = Whitespace()
