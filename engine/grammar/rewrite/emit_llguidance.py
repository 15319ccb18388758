"""A schema in the words of llguidance 1.9.

It reads patterns as languages of the unescaped text, intersects them with lengths and with one another, and takes names by
pattern next to declared ones. It refuses what it does not know, so nothing else is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Any

import llguidance

from .emit import SAFE_INTEGER, Emitter
from .facets import Facets, TextRule, common_multiple, to_number
from .formats import format_pattern
from .layout import Layout, Region
from .pattern_memo import print_patterns
from .pattern_parse import UnreadablePatternError
from .regular import TooLargeError
from .share import JsonSchema
from .text import text_language

SHORT_ENOUGH = 64
"""Within this length no text is too long for a format."""
FINEST_DECIMALS = 15
"""Digits that every double shows as they were written."""
MAX_COEFFICIENT = 10_000
"""Digits of a multiple, without the point, as a number; larger ones run into the limits of the lexer."""
_UNREADABLE = re.compile(r"\(\?(?!:)|\\[dDwWsSbB0-9kAzZGKXRhH]|(?<!\\)(?:\\\\)*\.|[*+?}]\+|\[\[|&&|~~|--")
"""What this engine and the check afterwards may read in two ways, besides look-arounds and back references."""
_PROPERTY = re.compile(r"\\[pP]\{[^}]*\}")


class LLGuidanceEmitter(Emitter):
    """Writes schemas for llguidance."""

    backend = "llguidance"
    counts_open_objects = True

    def write_number(self, one: Facets) -> list[JsonSchema]:
        """Write numbers; bounds that a double rounds are left to the check."""
        one = one if one.is_integer else _without_open_ends(one)
        schema: dict[str, Any] = {"type": "integer" if one.is_integer else "number"}
        for bound, words, is_open in ((one.low, _LOW, one.is_low_open), (one.high, _HIGH, one.is_high_open)):
            if bound is None:
                continue
            if abs(bound) > SAFE_INTEGER or Fraction(str(to_number(bound))) != bound:
                self.miss(one.where(*words), "a bound that doubles round")
            else:
                schema[words[is_open]] = to_number(bound)
        multiple = common_multiple(one.multiples)
        steps: list[Fraction] = []
        if multiple is not None:
            multiple = common_multiple((multiple, Fraction(1))) or multiple if one.is_integer else multiple
            if _coefficient(multiple) <= MAX_COEFFICIENT and Fraction(str(to_number(multiple))) == multiple:
                steps = list(_steps(multiple))
            else:
                self.miss(one.where("multipleOf"), "a multiple that does not fit into a double")
        found: list[JsonSchema] = [{**schema, "multipleOf": to_number(step)} for step in steps] or [schema]
        cut = [] if one.is_integer else [value for value in _cut_bounds(one) if not steps or (value / steps[0]).denominator == 1]
        return [*found, {"enum": list(map(to_number, cut))}] if cut else found

    def write_string(self, one: Facets) -> list[JsonSchema]:
        """Write strings as a pattern with lengths; several patterns as `allOf`."""
        lengths: dict[str, Any] = {"minLength": one.min_length} if one.min_length else {}
        if one.max_length is not None:
            lengths["maxLength"] = one.max_length
        excluded = any(isinstance(value, str) for value in one.excluded)
        if not one.texts and not excluded:
            return [{"type": "string", **lengths}]
        if not excluded and not any(rule.is_negated for rule in one.texts):
            patterns = [pattern for rule in one.texts for pattern in self._patterns(rule, one)]
            return [self._first_provable(one, patterns, lengths)]
        return self._whole_language(one, lengths)

    def _first_provable(self, one: Facets, patterns: list[str], lengths: dict[str, Any]) -> JsonSchema:
        """Write as many of the rules as llguidance can prove to have a text in common."""
        shorter = {key: value for key, value in lengths.items() if key != "minLength"}
        for kept, bounds in (
            (patterns, lengths),
            (patterns, shorter),
            (patterns, {}),
            (patterns[:1], lengths),
            (patterns[:1], {}),
        ):
            schema = _string_schema(kept, bounds)
            if not _may_be_hard(kept, bounds) or is_provable(json.dumps(schema)):
                break
        if (kept, bounds) != (patterns, lengths):
            words = lengths.keys() - bounds.keys()
            pointers = {rule.pointer for rule in one.texts[1:]} if len(kept) < len(patterns) else set()
            self.miss(one.where(*words) | pointers, "llguidance cannot tell whether some text has this length and this pattern")
        return schema

    def _whole_language(self, one: Facets, lengths: dict[str, Any]) -> list[JsonSchema]:
        for rule in one.texts:
            note_format(self, rule.kind, rule.text, rule.pointer)
            self._note_long_format(rule, one)
        bare = one.copy()
        bare.min_length, bare.max_length = 0, None
        try:
            language = text_language(self.program.languages, bare, self.program.pattern_language)
            pattern = self.program.print(language, as_json_text=False)
            return [self._first_provable(one, [pattern], lengths)]
        except (UnreadablePatternError, TooLargeError):
            self.miss(
                one.where("not", "\0excluded", "\0not-pattern", "\0not-format"), "its complement is too large for a pattern"
            )
            rest = one.copy()
            rest.texts = tuple(rule for rule in one.texts if not rule.is_negated)
            rest.excluded = ()
            return self.write_string(rest)

    def _patterns(self, rule: TextRule, one: Facets) -> list[str]:
        """Give the patterns to write for a rule; none when it says nothing or cannot be written."""
        note_format(self, rule.kind, rule.text, rule.pointer)
        texts = [rule.text]
        if rule.kind == "format":
            known = format_pattern(rule.text)
            texts = [] if known is None else list(known.patterns[:1])
            is_alone = len(one.texts) == 1 and not one.min_length and one.max_length is None
            if known is not None and is_alone:
                texts = list(known.patterns)
            else:  # lengths beside other rules need more states than llguidance looks at
                self._note_long_format(rule, one)
        return [pattern for text in texts for pattern in self._pattern(text, rule.pointer)]

    def _note_long_format(self, rule: TextRule, one: Facets) -> None:
        if is_open_format(rule, one):  # and xgrammar takes one pattern at a time anyhow
            self.leave_out([rule.pointer], LONG_FORMAT)

    def _pattern(self, text: str, pointer: str) -> tuple[str, ...]:
        try:
            return print_patterns(text, as_json_text=False)
        except UnreadablePatternError:
            if _is_read_alike(text):
                return (text,)
            self.miss([pointer], "the pattern is not regular")
        except TooLargeError:
            self.miss([pointer], "the pattern is too large")
        return ()

    def write_object_layout(self, one: Facets, layout: Layout) -> JsonSchema:
        """Write one object."""
        schema = self.object_base(one, layout)
        patterns: dict[str, JsonSchema] = {}
        rest = False if layout.rest is None else self.refer(layout.rest)
        for region in layout.regions:
            pattern = self._region_pattern(region)
            if pattern is None:
                self.miss(one.where("patternProperties", "propertyNames"), "the names are too many for a pattern")
                patterns, rest = {}, {}
                break
            child = self.refer(region.child)
            if child is not False or rest is not False:
                patterns[pattern] = child
        if patterns:
            schema["patternProperties"] = patterns
        schema["additionalProperties"] = rest
        if one.min_properties:
            schema["minProperties"] = one.min_properties
        if one.max_properties is not None:
            schema["maxProperties"] = one.max_properties
        return schema

    def _region_pattern(self, region: Region) -> str | None:
        if region.language is None:
            return region.pattern if region.pattern and _is_read_alike(region.pattern) else None
        try:
            return self.program.print(region.language, as_json_text=False)
        except TooLargeError:
            return None


def _is_read_alike(pattern: str) -> bool:
    return not _UNREADABLE.search(_PROPERTY.sub("p", pattern))


def _string_schema(patterns: list[str], lengths: dict[str, Any]) -> dict[str, Any]:
    if len(patterns) <= 1:
        return {"type": "string", **({"pattern": patterns[0]} if patterns else {}), **lengths}
    parts = [{"type": "string", "pattern": pattern} for pattern in patterns]
    return {"allOf": [{**parts[0], **lengths}, *parts[1:]]}


def _may_be_hard(patterns: list[str], lengths: dict[str, Any]) -> bool:
    """Whether llguidance has something to prove, and it may take more steps than it takes."""
    if len(patterns) + bool(lengths) < 2:
        return False
    return sum(len(_REPEAT.findall(pattern)) for pattern in patterns) > 2 or sum(map(len, patterns)) > 300


_REPEAT = re.compile(r"(?<!\\)[*+]|,[0-9]{2,}\}|,\}")


@lru_cache(maxsize=1024)
def is_provable(schema: str) -> bool:
    """Ask the installed llguidance whether it takes a schema: it looks for a common text of its rules in 10,000 steps."""
    return not llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_lark(f"start: %json {schema}"))


def note_format(emitter: Emitter, kind: str, text: str, pointer: str) -> None:
    """Say that a format, or a word boundary, is masked loosely."""
    if kind == "pattern" and _BOUNDARY.search(text):
        emitter.leave_out([pointer], "the check takes letters beyond ASCII for parts of words, a mask does not")
    known = format_pattern(text) if kind == "format" else None
    if known is not None and not known.is_sound:
        emitter.leave_out([pointer], "the pattern for this format is looser than the format")


_BOUNDARY = re.compile(r"(?<!\\)(?:\\\\)*\\[bB]")


def is_open_format(rule: TextRule, one: Facets) -> bool:
    """Whether a format bounds lengths that nothing else bounds."""
    known = format_pattern(rule.text) if rule.kind == "format" else None
    return known is not None and len(known.patterns) > 1 and (one.max_length is None or one.max_length > SHORT_ENOUGH)


LONG_FORMAT = "texts beyond the longest of this format are let through"


_LOW = ("minimum", "exclusiveMinimum")
_HIGH = ("maximum", "exclusiveMaximum")


def _without_open_ends(one: Facets) -> Facets:
    """Close a range that begins beside a whole number and ends before the next one.

    llguidance 1.9.1 takes 0 for a number between 0 and 0.5, the ends left out.
    """
    low, high = one.low, one.high
    if low is None or high is None or high - low >= 1 or low >= high:
        return one
    closed = one.copy()
    if one.is_low_open and low >= 0 and low.denominator == 1 and low + _gap(low) < high:
        closed.low, closed.is_low_open = low + _gap(low), False
    if one.is_high_open and high <= 0 and high.denominator == 1 and high - _gap(high) > low:
        closed.high, closed.is_high_open = high - _gap(high), False
    return closed


def _gap(whole: Fraction) -> Fraction:
    """Give the least step from a whole number that a double still shows."""
    return Fraction(1, 10 ** max(0, FINEST_DECIMALS - len(str(abs(whole)))))


def _cut_bounds(one: Facets) -> Iterator[Fraction]:
    """Give numbers within a range that begin the digits of its outer end: llguidance 1.9.1 writes no 1.8 up to 1.89."""
    highest, lowest = one.high or Fraction(0), one.low or Fraction(0)
    for end in ([highest] if highest > 0 else []) + ([lowest] if lowest < 0 else []):
        unit, last = Fraction(1, 10), end
        while (end / unit).denominator != 1 and unit > Fraction(1, 10**FINEST_DECIMALS):
            value = int(end / unit) * unit
            if value.denominator != 1 and value != last and _is_within(one, value):
                yield value
            unit, last = unit / 10, value


def _is_within(one: Facets, value: Fraction) -> bool:
    is_high_enough = one.low is None or value > one.low or (value == one.low and not one.is_low_open)
    return is_high_enough and (one.high is None or value < one.high or (value == one.high and not one.is_high_open))


def _steps(multiple: Fraction) -> Iterator[Fraction]:
    """Give a multiple, and those of it that need fewer decimals: llguidance 1.9.1 knows 4.5 for none of 0.25, but of 0.5."""
    yield multiple
    last, unit = multiple, Fraction(1, 10)
    while (multiple / unit).denominator != 1:
        step = common_multiple((multiple, unit)) or multiple
        if step != last:
            yield step
        last, unit = step, unit / 10


def _coefficient(multiple: Fraction) -> Fraction:
    while multiple.denominator != 1 and multiple.denominator <= 10**9:
        multiple *= 10
    return multiple if multiple.denominator == 1 else Fraction(10**12)
