"""A schema in the words of xgrammar 0.2.9.

It drops in silence what it does not know, so nothing is written that it would drop: no pattern next to lengths, no patterns of
names next to declared ones, no multiple next to a range, one rule for a name.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from .emit import SAFE_INTEGER, Emitter
from .emit_llguidance import LONG_FORMAT, is_open_format, note_format
from .facets import Facets, common_multiple, to_number
from .layout import Layout
from .pattern_parse import UnreadablePatternError
from .pattern_print import loses_escapes
from .regular import TooLargeError
from .share import JsonSchema
from .text import text_language

NO_ESCAPES = "xgrammar writes no text with characters that JSON escapes under a pattern"
MAX_MULTIPLE = 1024
MAX_LISTED = 256
DECIMALS = 10**6
"""Ranges of numbers are written with six decimals."""
FAR_INTEGER = 10**18
FAR_NUMBER = 10**15


class XGrammarEmitter(Emitter):
    """Writes schemas for xgrammar."""

    backend = "xgrammar"

    def write_number(self, one: Facets) -> list[JsonSchema]:
        """Write numbers; multiples within a range one by one where they are few."""
        multiple = common_multiple(one.multiples)
        if multiple is not None and one.is_integer:
            listed = one.integers(MAX_LISTED)
            if listed is not None and all(abs(value) < 2**63 for value in listed):
                return [{"enum": list(listed)}] if listed else []
            multiple = common_multiple((multiple, Fraction(1)))
        schema: dict[str, Any] = {"type": "integer" if one.is_integer else "number"}
        bounds = self._bounds(one)
        if multiple is not None:
            if one.is_integer and multiple <= MAX_MULTIPLE and not bounds:
                return [schema if multiple == 1 else {**schema, "multipleOf": int(multiple)}]
            self.miss(one.where("multipleOf"), "multiples are only masked for whole numbers, without a range, up to 1024")
        return [{**schema, **bounds}]

    def _bounds(self, one: Facets) -> dict[str, Any]:
        far = FAR_INTEGER if one.is_integer else FAR_NUMBER
        low = one.low if one.low is not None else Fraction(-far)
        high = one.high if one.high is not None else Fraction(far)
        is_coarse = (low * DECIMALS).denominator == 1 and (high * DECIMALS).denominator == 1
        if not one.is_integer and not is_coarse:
            self.miss(one.where(*_LOW, *_HIGH), "ranges are written with six decimals")
            return {}
        if one.is_integer:  # it refuses an end that is no whole number
            first, last = one.integer_range()
            one = one.copy()
            one.low, one.high = (None if end is None else Fraction(end) for end in (first, last))
            one.is_low_open = one.is_high_open = False
        bounds: dict[str, Any] = {}
        for bound, words, is_open in ((one.low, _LOW, one.is_low_open), (one.high, _HIGH, one.is_high_open)):
            if bound is None:
                continue
            if abs(bound) > SAFE_INTEGER:
                self.miss(one.where(*words), "a bound beyond 53 bits")
            else:
                bounds[words[is_open]] = to_number(bound)
        return bounds

    def write_string(self, one: Facets) -> list[JsonSchema]:
        """Write strings: either lengths, or one pattern that says everything."""
        schema: dict[str, Any] = {"type": "string"}
        excluded = any(isinstance(value, str) for value in one.excluded)
        if one.texts or excluded:
            pattern = self._pattern(one)
            if pattern is not None:
                return [{**schema, "pattern": pattern}]
        if one.min_length:
            schema["minLength"] = one.min_length
        if one.max_length is not None:
            schema["maxLength"] = one.max_length
        return [schema]

    def _pattern(self, one: Facets) -> str | None:
        for rule in one.texts:
            note_format(self, rule.kind, rule.text, rule.pointer)
            if is_open_format(rule, one):
                self.miss([rule.pointer], LONG_FORMAT)
        try:
            language = text_language(self.program.languages, one, self.program.pattern_language)
            if language is self.program.languages.everything:
                return None
            pattern = self.program.print(language, as_json_text=True)
            if loses_escapes(self.program.languages, language):
                excluded = set() if one.texts else one.where("not", "\0excluded")
                self.narrowed |= dict.fromkeys({rule.pointer for rule in one.texts} | excluded, NO_ESCAPES)
            return pattern
        except (UnreadablePatternError, TooLargeError):
            pointers = {rule.pointer for rule in one.texts} | one.where("not", "\0excluded")
            self.miss(pointers, "beyond the patterns that this backend reads, or too large")
            return None

    def write_object_layout(self, one: Facets, layout: Layout) -> JsonSchema:
        """Write one object."""
        schema = self.object_base(one, layout)
        # A property that nothing satisfies is left out, and is one of the undeclared ones then.
        closed = {name for name, child in schema.get("properties", {}).items() if child is False}
        properties = {name: child for name, child in schema.get("properties", {}).items() if name not in closed}
        if properties or "properties" in schema:
            schema["properties"] = properties
        rest: JsonSchema = False if layout.rest is None else self.refer(layout.rest)
        possible = [region for region in layout.regions if self.refer(region.child) is not False]
        if possible and not properties and not closed and rest is False and len(possible) == 1:
            pattern = self._region_pattern(possible[0])
            if pattern is not None:
                if possible[0].language and loses_escapes(self.program.languages, possible[0].language):
                    self.narrowed |= dict.fromkeys(one.where("patternProperties", "propertyNames"), NO_ESCAPES)
                schema["patternProperties"] = {pattern: self.refer(possible[0].child)}
                schema["additionalProperties"] = False
                return schema
        if layout.regions:
            self.miss(
                one.where("patternProperties", "propertyNames", "additionalProperties", "unevaluatedProperties"),
                "names by pattern are only masked where nothing stands beside them",
            )
            children = [rest, *(self.refer(region.child) for region in layout.regions)]
            unique = [child for index, child in enumerate(children) if child is not False and child not in children[:index]]
            rest = {} if {} in unique else unique[0] if len(unique) == 1 else {"anyOf": unique} if unique else False
        if closed and rest is not False:
            self.miss_closed(one, layout, closed)
        schema["additionalProperties"] = rest
        return schema

    def miss_closed(self, one: Facets, layout: Layout, names: set[str]) -> None:
        """Say that names which are forbidden come among the undeclared ones."""
        pointers = {node.pointer for name in names for node in layout.properties[name] or ()}
        for group in one.objects:
            for name in names & set(group.properties):
                node = group.properties[name]
                pointers |= {node.pointer} if node.always is False else set()
        found = {pointer for pointer in pointers if pointer} or one.where(
            "properties", "not", "propertyNames", "dependentRequired"
        )
        self.miss(found, "the name is one of the undeclared ones")

    def _region_pattern(self, region: Any) -> str | None:
        if region.language is None:
            return None
        try:
            return self.program.print(region.language, as_json_text=True)
        except TooLargeError:
            return None


_LOW = ("minimum", "exclusiveMinimum")
_HIGH = ("maximum", "exclusiveMaximum")
