"""Structural tags: what is read, what is refused and where, and what the masks then let through."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from engine import GrammarError, GrammarSpec, InvalidGrammarError, UnsupportedGrammarError
from engine.grammar.support import support_report
from tests.engine.grammar_backends import SPECIAL, STOP, accepts, allowed, make_backend, new_matcher

INTEGER = {"type": "json_schema", "json_schema": {"type": "integer"}}
TOOL = {"type": "tag", "begin": "<f=a>", "content": INTEGER, "end": "</f>"}


def tag(**fields: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": fields}


def schema(inside: Any, **fields: Any) -> dict[str, Any]:
    return tag(type="json_schema", json_schema=inside, **fields)


# (tag, accepted, refused)
TAGS: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "const": (tag(type="const_string", value="hi"), ("hi",), ("", "h")),
    "tag": ({"format": TOOL}, ("<f=a>12</f>",), ("<f=a>x</f>", "12", "<f=a>12")),
    "regex": (tag(type="regex", pattern=r"[\w-]{2}é"), ("äbé", "a-é"), ("abe",)),
    "ebnf": (tag(type="grammar", grammar='root ::= "(" root ")" | ""'), ("", "(())"), ("(",)),
    "lark": (tag(type="grammar", grammar='start: "a" /b+/', syntax="lark"), ("abb",), ("a",)),
    "sequence": (tag(type="sequence", elements=[INTEGER, {"type": "const_string", "value": "!"}]), ("1!",), ("1", "!")),
    "or": (tag(type="or", elements=[INTEGER, {"type": "regex", "pattern": "x+"}]), ("7", "xx"), ("7x",)),
    "optional": (tag(type="optional", content=INTEGER), ("", "1"), ("1 1",)),
    "repeat": (tag(type="repeat", min=1, max=2, content={"type": "const_string", "value": "ab"}), ("ab", "abab"), ("", "ababab")),
    "separated": (
        tag(type="tags_with_separator", tags=[TOOL], separator=","),
        ("", "<f=a>1</f>,<f=a>2</f>"),
        ("<f=a>1</f><f=a>2</f>",),
    ),
    "triggered": (
        tag(type="triggered_tags", triggers=["<f="], tags=[TOOL]),
        ("no tool", "so: <f=a>1</f> done"),
        ("<f=b>1</f>", "<f=a>x</f>"),
    ),
    "older": (
        {"structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f="]},
        ("x<f=a>1</f>",),
        ("<f=a>x</f>",),
    ),
    "number": (tag(**INTEGER), ("1" * 20,), ("1" * 30, "1e400")),
    "xgrammar-895": (schema({"type": "string", "pattern": "^[0-9a-f]+$", "maxLength": 4}), ('"beef"',), ('"beef0"', '"x"')),
    "xgrammar-859": (
        schema({"allOf": [{"required": ["a"], "properties": {"a": {"type": "integer"}}}, {"type": "object", "required": ["b"]}]}),
        ('{"a":1,"b":""}',),
        ('{"a":1}', '{"a":"","b":1}'),
    ),
    "sglang-37839": (schema({"type": "string", "not": {"const": "x"}}), ('"xx"', '""'), ('"x"',)),
    "allOf-in-xml": (
        schema({"allOf": [{"type": "object", "properties": {"a": {"type": "string", "maxLength": 2}}, "required": ["a"],
                           "additionalProperties": False}]}, style="qwen_xml"),
        ("<parameter=a>xy</parameter>",),
        ("<parameter=a>xyz</parameter>", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("structure", "accepted", "refused"), TAGS.values(), ids=TAGS)
def test_tag_takes_its_texts(structure: dict[str, Any], accepted: tuple[str, ...], refused: tuple[str, ...]) -> None:
    matcher = new_matcher(make_backend("xgrammar"), GrammarSpec.structural_tag(structure))
    for text in accepted:
        assert accepts(matcher, text), text
    for text in refused:
        assert not accepts(matcher, text), text


@pytest.mark.parametrize("token", [SPECIAL, "<tool>"])
def test_tag_of_a_special_token(token: int | str) -> None:
    edge = {"type": "token", "token": token}
    spec = GrammarSpec.structural_tag(tag(type="tag", begin=edge, content=INTEGER, end="!"))
    matcher = new_matcher(make_backend("xgrammar"), spec)
    assert allowed(matcher) == [SPECIAL]
    assert matcher.accept_tokens([SPECIAL, ord("1"), ord("!"), STOP])


def test_special_token_is_no_text_where_no_tag_names_it() -> None:
    spec = GrammarSpec.structural_tag(tag(type="triggered_tags", triggers=["<f="], tags=[TOOL]))
    assert SPECIAL not in allowed(new_matcher(make_backend("xgrammar"), spec))


@pytest.mark.parametrize("token", [99_999, "<none>"])
def test_F14_unknown_token_is_this_requests_error(token: int | str) -> None:
    spec = GrammarSpec.structural_tag(tag(type="token", token=token))
    with pytest.raises(UnsupportedGrammarError, match="does not have"):
        make_backend("xgrammar").check(spec)


def test_llguidance_takes_no_tags() -> None:
    with pytest.raises(UnsupportedGrammarError, match="structural tags"):
        make_backend("llguidance").check(GrammarSpec.structural_tag({"format": TOOL}))


# (tag, pointer, words)
REFUSED: dict[str, tuple[Any, str, str]] = {
    "list": ([], "#", "is an object"),
    "empty": ({}, "#", "looks like"),
    "no-format": ({"type": "structural_tag"}, "#", "looks like"),
    "other-type": ({"type": "json", "format": TOOL}, "#", "looks like"),
    "unknown": (tag(type="magic"), "#/format", "not known"),
    "no-type": ({"format": {"value": "x"}}, "#/format", "not known"),
    "missing": (tag(type="const_string"), "#/format", "wants 'value'"),
    "extra": (tag(type="const_string", value="a", valeu="b"), "#/format/valeu", "has no 'valeu'"),
    "text": (tag(type="const_string", value=7), "#/format/value", "a text"),
    "nul": (tag(type="const_string", value="\0"), "#/format/value", "NUL"),
    "schema": ({"format": TOOL | {"content": {"type": "json_schema", "json_schema": {"properties": {"a": 7}}}}},
               "#/format/content/json_schema/properties/a", "object or a boolean"),
    "style": (tag(**INTEGER, style="yaml"), "#/format/style", "the style"),
    "regex": (tag(type="or", elements=[INTEGER, {"type": "regex", "pattern": "("}]), "#/format/elements/1/pattern", "column 1"),
    "grammar": (tag(type="grammar", grammar="root ::= x"), "#/format/grammar", "line 1, column 10"),
    "syntax": (tag(type="grammar", grammar="x", syntax="peg"), "#/format/syntax", "ebnf or lark"),
    "trigger": (tag(type="triggered_tags", triggers=["<g"], tags=[TOOL]), "#/format/tags/0/begin", "exactly one"),
    "two-triggers": (tag(type="triggered_tags", triggers=["<f", "<"], tags=[TOOL]), "#/format/tags/0/begin", "exactly one"),
    "no-triggers": (tag(type="triggered_tags", triggers=[], tags=[TOOL]), "#/format/triggers", "one or more"),
    "empty-trigger": (tag(type="triggered_tags", triggers=[""], tags=[TOOL]), "#/format/triggers/0", "empty"),
    "no-tag": (tag(type="tags_with_separator", tags=[INTEGER], separator=","), "#/format/tags/0", "a tag"),
    "repeat": (tag(type="repeat", min=3, max=2, content=INTEGER), "#/format", "at least min"),
    "flag": (tag(type="triggered_tags", triggers=["<f"], tags=[TOOL], at_least_one=1), "#/format/at_least_one", "true or false"),
    "older": ({"structures": [{"begin": "x"}], "triggers": ["x"]}, "#/structures/0", "begin, schema and end"),
    "older-schema": ({"structures": [{"begin": "x", "schema": {"items": {"type": "int"}}, "end": ""}], "triggers": ["x"]},
                     "#/structures/0/schema/items/type", "not a valid JSON schema"),
    "older-begin": ({"structures": [{"begin": "x", "schema": True, "end": ""}], "triggers": ["y"]}, "#/structures/0/begin",
                    "one of"),
    "older-triggers": ({"structures": [{"begin": "x", "schema": True, "end": ""}]}, "#/triggers", "one or more"),
    "impossible": (schema({"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}),
                   "#/format/json_schema/properties/a", "no value can"),
}  # fmt: skip


@pytest.mark.parametrize(("structure", "pointer", "words"), REFUSED.values(), ids=REFUSED)
def test_invalid_tag_names_the_place(structure: Any, pointer: str, words: str) -> None:
    with pytest.raises(InvalidGrammarError) as caught:
        GrammarSpec.structural_tag(structure)
    assert caught.value.pointer == pointer
    assert words in str(caught.value)


@pytest.mark.parametrize("style", ["json", "qwen_xml"])
def test_tag_whose_schema_nobody_enforces_is_refused(style: str) -> None:
    rows = {"type": "object", "properties": {"r": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
    spec = GrammarSpec.structural_tag(tag(type="tag", begin="<", content=schema(rows, style=style)["format"], end=">"))
    pointer = "#/format/content/json_schema/properties/r/uniqueItems"
    assert support_report(spec).refused("xgrammar") == (pointer,)
    assert pointer.replace("uniqueItems", "items") in support_report(spec).masked("xgrammar")
    with pytest.raises(UnsupportedGrammarError, match="nobody checks it") as caught:
        make_backend("xgrammar").check(spec)
    assert caught.value.pointer == pointer
    assert caught.value.hint


def test_description_inside_a_tag_is_no_part_of_it() -> None:
    bare, told = ({"type": "object", "properties": {"a": {"type": "integer"} | more}} for more in ({}, {"description": "<f>"}))
    assert GrammarSpec.structural_tag(schema(bare)) == GrammarSpec.structural_tag(schema(told))


def test_20000_levels_are_a_typed_error() -> None:
    deep: dict[str, Any] = {"type": "any_text"}
    for _ in range(20_000):
        deep = {"type": "star", "content": deep}
    with pytest.raises(GrammarError):
        GrammarSpec.structural_tag({"format": deep})
    text = '{"format":' + '{"type":"star","content":' * 20_000 + '{"type":"any_text"}' + "}" * 20_001
    with pytest.raises(GrammarError):
        GrammarSpec.structural_tag(text)


def test_any_damage_is_a_typed_error() -> None:
    """Values of good tags are replaced by others: nothing but typed errors comes out."""
    rng = random.Random(2)
    values: list[Any] = [None, 0, -1, True, "", "<f=a>", [], {}, [[]], {"type": "tag"}, INTEGER, 1e9]

    def damage(value: Any) -> Any:
        if rng.random() < 0.12:
            return rng.choice(values)
        if isinstance(value, dict):
            return {key: damage(item) for key, item in value.items()}
        return [damage(item) for item in value] if isinstance(value, list) else value

    num_taken = 0
    for _ in range(600):
        structure = damage(rng.choice(list(TAGS.values()))[0])
        try:
            spec = GrammarSpec.structural_tag(structure)
            make_backend("xgrammar").check(spec)
            num_taken += 1
        except GrammarError:
            continue
        assert json.loads(spec.source)["type"] == "structural_tag"
    assert num_taken > 50
