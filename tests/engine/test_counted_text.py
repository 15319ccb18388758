"""Texts that are too long for a backend are found when a request is admitted, and never in the middle of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine import GrammarSpec, UnsupportedGrammarError
from engine.grammar import GrammarManager, Matcher
from engine.grammar.backends.counted_text import MAX_COUNTED
from tests.engine.grammar_backends import SMALL, STOP, allowed, make_backend, new_matcher, schema_spec

LONG = "ab" * 32_000
NAMES = [f"{number}-" + "q" * 700 for number in range(100)]


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


REFUSED: dict[str, tuple[Any, str]] = {
    "const": ({"const": LONG}, "#/const"),
    "enum": ({"type": "array", "items": {"enum": ["x", LONG]}}, "#/items/enum"),
    "in a definition": ({"$defs": {"a": {"const": LONG}}, **closed({"k": {"$ref": "#/$defs/a"}})}, "#/$defs/a/const"),
    "constants together": (closed({name: {"const": "q" * 700} for name in map(str, range(100))}), "#"),
    "names together": (closed({name: {"type": "null"} for name in NAMES}), "#"),
    "pattern": (closed({"k": {"type": "string", "pattern": "^[ab]{60000}$"}}), "#/properties/k/pattern"),
    "repeats in repeats": ({"type": "string", "pattern": "^(a[bc]{300}){300,}$"}, "#/pattern"),
    "least length": ({"anyOf": [{"type": "null"}, {"type": "string", "minLength": 60_000}]}, "#/anyOf/1/minLength"),
}
REFUSED_TEXTS = {
    "choice": GrammarSpec.choice(["x", LONG]),
    "regex": GrammarSpec.regex(LONG),
    "repeats": GrammarSpec.regex("(ab){40000}"),
    "ebnf": GrammarSpec.ebnf(f'root ::= "x" | rest\nrest ::= "{LONG[:30_000]}" more\nmore ::= "{LONG[:30_000]}"'),
    "lark": GrammarSpec.lark(f'start: "{LONG}"'),
}
TAKEN: dict[str, Any] = {
    "many options": {"enum": [f"option {number}" for number in range(20_000)]},
    "options again and again": {"type": "array", "items": {"enum": NAMES}},
    "greatest length": {"type": "string", "maxLength": 100_000},
    "all that may be left out": {"type": "object", "properties": {name: {"type": "null"} for name in NAMES}},
    "most repeats": {"type": "string", "pattern": "^([a-z]{1,300},){1,300}$"},
    "leads back": {
        "$defs": {"a": closed({"n" * 30_000: {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}})},
        "$ref": "#/$defs/a",
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_schema_that_spells_out_too_much_is_refused_with_its_place(name: str) -> None:
    schema, pointer = REFUSED[name]
    with pytest.raises(UnsupportedGrammarError, match=f"keeps track of {MAX_COUNTED}") as caught:
        make_backend("llguidance").check(schema_spec(schema))
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("name", REFUSED_TEXTS)
def test_text_that_spells_out_too_much_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedGrammarError, match=f"keeps track of {MAX_COUNTED}"):
        make_backend("llguidance").check(REFUSED_TEXTS[name])


@pytest.mark.parametrize("name", TAKEN)
def test_what_hardly_any_answer_reaches_is_taken(name: str) -> None:
    make_backend("llguidance").check(schema_spec(TAKEN[name]))


def write(matcher: Matcher, text: str) -> None:
    ids = SMALL.index.spell(text.encode())
    assert ids is not None
    for start in range(0, len(ids), 2000):
        assert matcher.accept_tokens(ids[start : start + 2000])
        assert allowed(matcher)
    assert matcher.is_completed()


def test_text_just_within_the_limit_is_written_whole() -> None:
    text = "ab" * ((MAX_COUNTED - 2) // 2)
    write(new_matcher(make_backend("llguidance"), schema_spec({"const": text}), (STOP,)), json.dumps(text))
    write(new_matcher(make_backend("llguidance"), GrammarSpec.regex(f"[ab]{{1,{MAX_COUNTED}}}"), (STOP,)), "ab" * 27_500)


def test_other_backend_takes_it_where_one_may_be_chosen() -> None:
    manager = GrammarManager([make_backend("xgrammar"), make_backend("llguidance")])
    try:
        prepared = manager.request(schema_spec(REFUSED["const"][0])).result(60)
        assert prepared.backend == "xgrammar"
        write(prepared.new_matcher((STOP,)), json.dumps(LONG))
        with pytest.raises(UnsupportedGrammarError) as caught:
            manager.check(schema_spec(REFUSED["least length"][0]))
        assert caught.value.pointer == "#/anyOf/1/minLength"
    finally:
        manager.close()
