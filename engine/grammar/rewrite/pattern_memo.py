"""Patterns as backends read them, remembered across schemas: formats and common patterns come again and again."""

from __future__ import annotations

from functools import lru_cache

from .pattern_parse import UnreadablePatternError, parse_pattern
from .pattern_print import print_language
from .regular import Languages, TooLargeError

MAX_REMEMBERED = 256


def print_patterns(pattern: str, *, as_json_text: bool) -> tuple[str, ...]:
    """Write a `pattern` of a schema as `print_language` writes languages; none where it is found in every text.

    Several, which a text must match all, where one would be too long: look-aheads are rules of their own.

    Raises:
        UnreadablePatternError: It is beyond the reader.
        TooLargeError: What would be written is too long.
    """
    found = _printed(pattern, as_json_text)
    if isinstance(found, tuple):
        return found
    raise found


@lru_cache(maxsize=MAX_REMEMBERED)
def _printed(pattern: str, as_json_text: bool) -> tuple[str, ...] | type[UnreadablePatternError | TooLargeError]:
    languages = Languages()
    try:
        language = parse_pattern(languages, pattern)
        if language is languages.everything:
            return ()
        try:
            return (print_language(languages, language, as_json_text=as_json_text),)
        except TooLargeError:
            if language.kind != "and":
                raise
            return tuple(print_language(languages, part, as_json_text=as_json_text) for part in language.parts)
    except (UnreadablePatternError, TooLargeError) as error:
        return type(error)
