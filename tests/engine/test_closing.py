"""The way out of a value: whatever is found finishes it, and is about as short as a search of everything finds."""

from __future__ import annotations

import json
import random
from collections import deque
from typing import Any

import jsonschema_rs
import pytest

from engine import GrammarLimitError
from engine.grammar import Matcher
from engine.grammar.closing import closing_tokens
from engine.grammar.vocabulary import Vocabulary
from tests.engine.grammar_backends import (
    BACKENDS,
    SMALL,
    STOP,
    allowed,
    make_backend,
    new_matcher,
    random_walk,
    schema_spec,
    text_of,
)
from tests.engine.schemas import make_schema

OBJECT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer"},
        "more": {"type": "array", "items": {"type": "number"}, "minItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
STANDS: list[tuple[str, Any, str]] = [
    ("nothing", OBJECT, ""),
    ("half a name", OBJECT, '{"na'),
    ("in a string", OBJECT, '{"name":"a'),
    ("in an escape", OBJECT, '{"name":"a\\u00'),
    ("after a number", OBJECT, '{"name":"a","age":12'),
    ("after a minus", OBJECT, '{"name":"a","age":-'),
    ("after a comma", OBJECT, '{"name":"a","age":12,'),
    ("items left", OBJECT, '{"name":"a","age":12,"more":[1.'),
    ("exponent", {"type": "number"}, "-1e"),
    ("deep", {"type": "object"}, '{"a":[[{"b":"x'),
    ("pattern", {"type": "string", "pattern": "^[a-z]{3}-[0-9]{6}$"}, '"a'),
    ("date", {"type": "string", "format": "date-time"}, '"20'),
    ("long", {"type": "string", "minLength": 30}, '"a'),
    ("many items", {"type": "array", "items": {"type": "boolean"}, "minItems": 7}, "[true"),
    (
        "required behind optional",
        {
            "type": "object",
            "properties": {**{f"o{number}": {"type": "string"} for number in range(5)}, "z": {"type": "integer"}},
            "required": ["z"],
        },
        '{"o1":"a",',
    ),
    ("choice of two", {"enum": ["abcdefghij", "abx"]}, '"ab'),
    ("part of a character", {"type": "string"}, '"\u00e9'),
]


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("schema", "text"), [stand[1:] for stand in STANDS], ids=[stand[0] for stand in STANDS])
def test_way_out_is_found_and_finishes_the_value(name: str, schema: Any, text: str) -> None:
    matcher = new_matcher(make_backend(name), schema_spec(schema))
    data = text.encode()
    # One byte less of the last character, where it has several.
    data = data[:-1] if data and data[-1] > 127 else data
    assert matcher.accept_bytes(data)
    before = allowed(matcher)
    way = closing_tokens(matcher, SMALL, 64)
    assert way is not None
    assert allowed(matcher) == before
    assert matcher.accept_tokens(way)
    assert matcher.is_completed()
    assert jsonschema_rs.is_valid(schema, json.loads(data + text_of(way)))
    matcher.rollback(len(way))
    assert closing_tokens(matcher, SMALL, len(way) - 1, max_states=50) is None or len(way) > 1


@pytest.mark.parametrize("name", BACKENDS)
def test_whole_value_needs_nothing(name: str) -> None:
    matcher = new_matcher(make_backend(name), schema_spec({"type": "integer"}))
    assert matcher.accept_bytes(b"12")
    assert closing_tokens(matcher, SMALL, 5) == []
    assert matcher.accept_tokens([STOP])
    assert closing_tokens(matcher, SMALL, 5) == []


@pytest.mark.parametrize("name", BACKENDS)
def test_way_that_is_too_long_is_none(name: str) -> None:
    matcher = new_matcher(make_backend(name), schema_spec({"const": "a rather long constant"}))
    assert closing_tokens(matcher, SMALL, 10) is None
    assert closing_tokens(matcher, SMALL, 60, max_states=1) is None
    assert closing_tokens(matcher, SMALL, 60) is not None


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("seed", range(12))
def test_way_out_of_random_stands(name: str, seed: int) -> None:
    rng = random.Random(seed)
    matcher = new_matcher(make_backend(name), schema_spec(make_schema(rng)))
    walked = random_walk(matcher, rng, rng.randrange(25))
    way = closing_tokens(matcher, SMALL, 200)
    assert way is not None, text_of(walked)
    assert matcher.accept_tokens(way)
    assert matcher.is_completed()


TINY = Vocabulary((*(bytes([byte]) for byte in b'{}[]":,a0-true'), b'",', b'":', b'"}', b"}}", b""), 19, (18,))


def shortest_by_trying_all(matcher: Matcher, vocabulary: Vocabulary, most: int) -> int | None:
    """Breadth first over every legal id: the reference. Texts that were reached before are not gone on with."""
    queue: deque[tuple[int, ...]] = deque([()])
    seen = {b""}
    while queue:
        path = queue.popleft()
        assert matcher.accept_tokens(path)
        is_whole = matcher.is_completed()
        following = [] if is_whole or len(path) == most else allowed(matcher, vocabulary.vocab_size)
        matcher.rollback(len(path))
        if is_whole:
            return len(path)
        for token_id in following:
            text = text_of([*path, token_id], vocabulary)
            if text not in seen:
                seen.add(text)
                queue.append((*path, token_id))
    return None


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3}, "[0"),
        ({"type": "object", "properties": {"a": {"type": "string"}, "r": {"type": "boolean"}}, "required": ["r"]}, "{"),
        ({"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}, "required": ["a"]}, '{"a'),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, '[["a'),
        ({"anyOf": [{"const": "aaaaa"}, {"const": "at"}]}, '"a'),
    ],
    ids=["items", "required", "minLength", "nested", "choice"],
)
def test_way_is_about_as_short_as_any(name: str, schema: Any, text: str) -> None:
    matcher = BACKENDS[name](TINY).compile(schema_spec(schema | {"additionalProperties": False})).new_matcher((18,))
    assert matcher.accept_bytes(text.encode())
    way = closing_tokens(matcher, TINY, 30)
    assert way is not None
    shortest = shortest_by_trying_all(matcher, TINY, len(way))
    assert shortest is not None
    assert len(way) <= shortest + 1


def test_limit_of_the_backend_is_its_own_error_and_can_be_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """E14: multiples of a large number need more states than the lexer has."""
    monkeypatch.setattr("engine.grammar.rewrite.emit_llguidance.MAX_COEFFICIENT", 10**6)  # else they are not written
    schema = {"type": "integer", "multipleOf": 100_003, "minimum": -(10**15), "maximum": 10**15}
    compiled = make_backend("llguidance").compile(schema_spec(schema))
    matcher = compiled.new_matcher((STOP,))
    num_digits = 0
    while allowed(matcher) and num_digits < 40:
        num_digits += matcher.accept_tokens([ord("9")])
    assert "too complex for llguidance" in error_of(matcher)
    assert not matcher.is_completed()
    assert not matcher.accept_tokens([ord("9")])
    assert closing_tokens(matcher, SMALL, 10) is None
    twin = matcher.fork()
    assert error_of(twin) == error_of(matcher)
    assert isinstance(matcher.error, GrammarLimitError)
    twin.reset()
    assert error_of(twin) == ""
    assert ord("9") in allowed(twin)
    other = compiled.new_matcher((STOP,))
    assert error_of(other) == ""
    assert ord("9") in allowed(other)


def error_of(matcher: Matcher) -> str:
    return "" if matcher.error is None else str(matcher.error)
