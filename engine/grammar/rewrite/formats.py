"""String formats as patterns, with the meaning that the check afterwards gives them."""

from __future__ import annotations

from typing import NamedTuple


class FormatPattern(NamedTuple):
    """A pattern for a format.

    Attributes:
        pattern: Matches at least every text in the format that a model would write (fractions of seconds up to nine digits).
        is_exact: Every text that it matches is in the format, and the other way round.
        is_sound: Every text that it matches is in the format.
    """

    pattern: str
    is_exact: bool
    is_sound: bool


def format_pattern(name: str) -> FormatPattern | None:
    """Give the pattern of a format; None where a format is only an annotation."""
    return _PATTERNS.get(name)


_PATTERNS: dict[str, FormatPattern] = {}
