"""The strings of an alternative as a regular language."""

from __future__ import annotations

from collections.abc import Callable

from .facets import Facets, TextRule
from .formats import format_pattern
from .pattern_parse import UnreadablePatternError
from .regular import Language, Languages

MAX_EXCLUDED = 40


def text_language(languages: Languages, one: Facets, pattern_language: Callable[[str], Language]) -> Language:
    """Give the strings that an alternative allows.

    Raises:
        UnreadablePatternError: A rule is not readable as a regular language.
    """
    parts = [rule_language(languages, rule, pattern_language) for rule in one.texts]
    if one.values is not None:
        parts.append(languages.union(languages.text(value) for value in one.values if isinstance(value, str)))
    parts += [languages.complement(languages.text(value)) for value in excluded_texts(one)]
    if one.min_length or one.max_length is not None:
        parts.append(languages.length(one.min_length, one.max_length))
    return languages.intersection(parts)


def excluded_texts(one: Facets) -> list[str]:
    """List the strings that are excluded one by one.

    Raises:
        UnreadablePatternError: They are too many.
    """
    texts = [value for value in one.excluded if isinstance(value, str)]
    if len(texts) > MAX_EXCLUDED:
        raise UnreadablePatternError
    return texts


def rule_language(languages: Languages, rule: TextRule, pattern_language: Callable[[str], Language]) -> Language:
    """Give the strings that one rule allows."""
    if rule.kind == "format":
        known = format_pattern(rule.text)
        if known is None or (rule.is_negated and not known.is_exact):
            if known is None and not rule.is_negated:
                return languages.everything
            raise UnreadablePatternError
        # The first says the form; others bound lengths, which is the emitters' business.
        language = pattern_language(known.patterns[0])
    else:
        language = pattern_language(rule.text)
    return languages.complement(language) if rule.is_negated else language
