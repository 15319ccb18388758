"""Equal parts of a rewritten schema are written once, and it says the same."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from typing import Any

import pytest

from engine.grammar.rewrite import rewrite_schema
from engine.grammar.rewrite.pattern_memo import print_patterns
from engine.grammar.rewrite.pattern_parse import category_ranges, parse_pattern
from engine.grammar.rewrite.pattern_print import print_language
from engine.grammar.rewrite.regular import LAST, Languages, Letters
from engine.grammar.rewrite.share import MAX_INLINE_DEPTH, reference, share

LONG = {"type": "string", "pattern": "^" + "[a-z]" * 40 + "$"}


def expand(schema: Any, definitions: dict[str, Any]) -> Any:
    """Put every reference in; for definitions that are not inside themselves."""
    if not isinstance(schema, dict):
        return schema
    if schema.keys() - {"$defs"} == {"$ref"}:
        return expand(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    found: dict[str, Any] = {}
    for word, value in schema.items():
        if word == "properties":
            found[word] = {name: expand(child, definitions) for name, child in value.items()}
        elif word in ("anyOf", "prefixItems"):
            found[word] = [expand(child, definitions) for child in value]
        elif word != "$defs":
            found[word] = expand(value, definitions) if word in ("items", "additionalProperties") else value
    return found


def draw(rng: random.Random, names: list[str], depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 3 else 4)
    if kind == 0:
        return rng.choice([True, False, {}, LONG, {"enum": [{"$ref": "#/$defs/d0"}, 1]}])
    if kind < 4:
        return reference(rng.choice(names)) if names else {"type": rng.choice(["string", "null"])}
    if kind == 4:
        return {"type": "array", "items": draw(rng, names, depth + 1), "prefixItems": [draw(rng, names, depth + 1)]}
    if kind == 5:
        return {"anyOf": [draw(rng, names, depth + 1) for _ in range(rng.randint(1, 3))]}
    properties = {name: draw(rng, names, depth + 1) for name in rng.sample(["a", "items", "enum", "$ref"], 2)}
    return {"type": "object", "properties": properties, "required": ["a"], "additionalProperties": draw(rng, names, depth + 1)}


@pytest.mark.parametrize("seed", range(60))
def test_shared_schema_is_the_schema(seed: int) -> None:
    rng = random.Random(seed)
    definitions: dict[str, Any] = {}
    for number in range(rng.randint(1, 12)):
        definitions[f"p{number}"] = draw(rng, list(definitions))
    root = draw(rng, list(definitions))
    found = share(root, definitions)
    parts = found.get("$defs", {}) if isinstance(found, dict) else {}
    assert expand(found, parts) == expand(root, definitions)


def test_long_parts_are_written_once_and_short_ones_where_they_are() -> None:
    found = rewrite_schema(
        {"properties": {name: {"format": "uri"} for name in "abc"} | {"d": {"type": "integer"}, "e": {"type": "integer"}}},
        backend="llguidance",
    )
    text = json.dumps(found)
    assert text.count("pattern") == 1
    assert text.count('{"type": "integer"}') == 2


def test_equal_definitions_of_different_places_are_one() -> None:
    part = {"type": "object", "properties": {name: {"type": "string", "minLength": 1} for name in "abcd"}}
    found = rewrite_schema({"properties": {"one": part, "two": {"items": part}}}, backend="llguidance")
    assert isinstance(found, dict)
    assert len(found["$defs"]) == 1


def test_schema_inside_itself_is_referred_to() -> None:
    node = {"type": "object", "properties": {"next": reference("node")}}
    assert share(reference("node"), {"node": node}) == {
        **reference("d0"),
        "$defs": {"d0": {"type": "object", "properties": {"next": reference("d0")}}},
    }


def test_deep_nesting_is_broken_by_definitions() -> None:
    schema: Any = {"type": "null"}
    for _ in range(5 * MAX_INLINE_DEPTH):
        schema = {"type": "array", "items": schema}
    found = share(schema, {})
    assert isinstance(found, dict)
    assert max(json.dumps(part).count("items") for part in found["$defs"].values()) <= MAX_INLINE_DEPTH
    assert expand(found, found["$defs"]) == schema


@pytest.mark.parametrize("seed", range(20))
def test_letters_are_told_apart_as_the_sets_tell_them(seed: int) -> None:
    rng = random.Random(seed)
    languages = Languages()
    sets = []
    for _ in range(rng.randint(0, 4)):
        points = sorted(rng.sample([*range(0, 60), *range(0xD7F0, 0xD800), *range(0xE000, 0xE010), LAST], 8))
        pairs = [(low, high) for low, high in zip(points[::2], points[1::2], strict=True) if (low < 0xD800) == (high < 0xD800)]
        sets.append(languages.set(tuple(pairs)))
    sets = [found for found in sets if found.kind == "set"]
    letters = Letters(tuple(dict.fromkeys(sets)))
    seen: dict[tuple[bool, ...], int] = {}
    for code in [*range(0, 64), *range(0xD7E8, 0xD800), *range(0xE000, 0xE018), LAST - 1, LAST]:
        of = [number for number, (_, ranges) in enumerate(letters.classes) if any(low <= code <= high for low, high in ranges)]
        assert len(of) == 1
        signature = tuple(any(low <= code <= high for low, high in found.ranges) for found in sets)
        assert seen.setdefault(signature, of[0]) == of[0]
    assert not any(low <= 0xDFFF and high >= 0xD800 for _, ranges in letters.classes for low, high in ranges)


def test_categories_are_those_of_every_single_character() -> None:
    expected: dict[str, int] = {}
    for code in range(LAST + 1):
        category = unicodedata.category(chr(code))
        expected[category] = expected.get(category, 0) + 1
    for category, count in expected.items():
        if category not in ("Cn", "Co", "Cs"):
            ranges = category_ranges(category)
            assert sum(high - low + 1 for low, high in ranges) == count
            assert all(unicodedata.category(chr(end)) == category for pair in ranges for end in pair)


@pytest.mark.parametrize("as_json_text", [False, True])
@pytest.mark.parametrize("pattern", ["^a+$", r"\d", "", r"^\p{L}{2,9}$", "^(?!ab)[a-c]{2}$"])
def test_remembered_pattern_is_the_printed_one(pattern: str, as_json_text: bool) -> None:
    languages = Languages()
    language = parse_pattern(languages, pattern)
    for _ in range(2):
        found = print_patterns(pattern, as_json_text=as_json_text)
        if language is languages.everything:
            assert found == ()
        else:
            assert found == (print_language(languages, language, as_json_text=as_json_text),)


def test_look_ahead_beside_a_long_text_is_a_pattern_of_its_own() -> None:
    found = print_patterns("^(?!aws:)[a-z:]{1,500}$", as_json_text=False)
    assert len(found) == 2
    for text in ("aws", "a" * 500, "aws:x", "a" * 501, ""):
        assert all(re.search(part, text) for part in found) is bool(re.search("^(?!aws:)[a-z:]{1,500}$", text))
