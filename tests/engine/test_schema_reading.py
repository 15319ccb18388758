"""Schemas as people write them: drafts that are named, older, unknown or not named, and spellings that are not standard.

Masks and final check must read each of them alike.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jsonschema_rs
import pytest

from engine import GrammarSpec, InvalidGrammarError, UnsupportedGrammarError
from engine.grammar import GrammarBackend
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.schema_reading import respell_pattern
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary
from middleware.errors import InvalidSchemaError
from middleware.schema_reading import respell_pattern as respell_pattern_for_check
from middleware.validation import SchemaChecker, parse_strict

STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))
BACKENDS: dict[str, Callable[..., GrammarBackend]] = {"xgrammar": XGrammarBackend, "llguidance": LLGuidanceBackend}
DRAFT4, DRAFT6, DRAFT7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
IGLU = "http://iglucentral.com/schemas/com.snowplowanalytics.self-desc/schema/jsonschema/1-0-0#"
LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


def at(schema: Any) -> Any:
    return {"type": "object", "properties": {"x": schema}, "required": ["x"]}


CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "exclusive-of-draft-4": ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, [4], [3]),
    "not-exclusive-of-draft-4": ({"type": "integer", "minimum": 3, "exclusiveMinimum": False}, [3], [2]),
    "list-of-items": ({"type": "array", "items": [TEXT, WHOLE], "additionalItems": False}, [["a", 1]], [[1], ["a", 1, 2]]),
    "id-of-draft-4": (
        {"id": "http://x.y/root.json", **at({"$ref": "root.json#/definitions/a"}), "definitions": {"a": TEXT}},
        [{"x": "a"}],
        [{"x": 1}],
    ),
    "anchor-of-draft-4": ({**at({"$ref": "#a"}), "definitions": {"a": {"id": "#a", **TEXT}}}, [{"x": "a"}], [{"x": 1}]),
    "unknown-draft": (
        {"$schema": IGLU, **at({"type": "string", "maxLength": 2}), "self": {"version": "1-0-0"}},
        [{"x": "a"}],
        [{"x": "abc"}],
    ),
    "unknown-old-draft": ({"$schema": IGLU, "type": "integer", "maximum": 3, "exclusiveMaximum": True}, [2], [3]),
    "empty-draft": ({"$schema": "", **TEXT}, ["a"], [1]),
    "draft-with-links": ({"$schema": "http://json-schema.org/draft-04/hyper-schema#", **TEXT, "links": []}, ["a"], [1]),
    "draft-by-https": ({"$schema": "https://json-schema.org/draft-07/schema", "items": [TEXT]}, [["a", 1]], [[1]]),
    "draft-3-without-its-words": ({"$schema": "http://json-schema.org/draft-03/schema#", **TEXT}, ["a"], [1]),
    "reference-with-brackets": (
        {**at({"$ref": "#/definitions/List<Pet>"}), "definitions": {"List<Pet>": TEXT}},
        [{"x": "a"}],
        [{"x": 1}],
    ),
    "reference-with-a-space": ({**at({"$ref": "#/$defs/a b"}), "$defs": {"a b": TEXT}}, [{"x": "a"}], [{"x": 1}]),
    "identifier-with-spaces": ({"$schema": DRAFT7, "$id": "my schema", **TEXT}, ["a"], [1]),
    "dash-beside-a-class": ({"type": "string", "pattern": r"^[\w-.]+$"}, ["a-b."], ["a b"]),
    "dash-before-a-class": ({"type": "string", "pattern": r"^[a-\d]+$"}, ["a-1"], ["b"]),
    "brace-that-repeats-nothing": ({"type": "string", "pattern": "^{{x}}$"}, ["{{x}}"], ["x"]),
    "anchors-of-python": ({"type": "string", "pattern": r"\A[a-z]+\Z"}, ["ab"], ["a1"]),
    "dots-that-take-line-ends": ({"type": "string", "pattern": r"(?s)^a.b[.]$"}, ["a\u2028b."], ["a\u2028bc"]),
    "name-pattern": ({"type": "object", "patternProperties": {"^${": WHOLE, "": TEXT}}, [{"a": "b"}], [{"a": 1}]),
    "definition-that-is-none": ({"$schema": DRAFT7, "$defs": {"description": "text"}, **TEXT}, ["a"], [1]),
    "metaschema": ({"$schema": DRAFT7, **at({"$ref": DRAFT7})}, [{"x": {"type": "string"}}], [{"x": {"type": "strnig"}}]),
    "metaschema-of-2020": (
        at({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
        [{"x": {"properties": {"a": {"type": "string"}}}}],
        [{"x": {"properties": {"a": {"type": "strnig"}}}}],
    ),
    "part-of-a-metaschema": (at({"$ref": f"{DRAFT6}/definitions/nonNegativeInteger"}), [{"x": 3}], [{"x": -3}]),
    "length-beyond-any": ({"type": "string", "maxLength": 10**12}, ["a"], [1]),
    "pattern-and-length-hard-to-prove": (
        {"type": "string", "pattern": r"^arn:.*(:)*:.*[\s\S]*$", "minLength": 9, "maxLength": 2048}, ["arn:aws:iam"], ["x"],
    ),
    "bounded-repeats-hard-to-prove": (
        {"type": "string", "pattern": rf"^(\.?)(?:{LABEL}\.)+[a-z0-9][a-z0-9-]{{0,61}}[a-z0-9]$", "maxLength": 253},
        ["a.bc"],
        ["a", "-.bc"],
    ),
    "patterns-hard-to-prove": (
        {"type": "string", "format": "email", "pattern": r"^\w+([\.-]?\w+)*@\w+([\.-]?\w+)*(\.\w{2,})+$", "minLength": 6},
        ["abc@de.fg"],
        ["abc", "@"],
    ),
    "integers-between-fractions": (
        {"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3, "not": {"const": 1.5}}, [1, 2], [0, 3],
    ),
    "large-bound-in-floats": ({"exclusiveMaximum": 9.727837981879871e26}, [9.7e26], [9.727837981879871e26, 10**27]),
}  # fmt: skip


@lru_cache
def backend(name: str) -> GrammarBackend:
    return BACKENDS[name](BYTES, num_threads=1)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_schema_is_read_as_it_was_meant(case: str, name: str) -> None:
    schema, valid, invalid = CASES[case]
    spec = GrammarSpec.from_json_schema(schema)
    grammar = backend(name).compile(spec)
    checker = SchemaChecker(schema)

    def is_masked_in(text: str) -> bool:
        return grammar.new_matcher((STOP,)).accept_tokens([*text.encode(), STOP])

    for text in map(write, valid):
        assert is_masked_in(text), text
        assert not checker.check(parse_strict(text)), text
    for text in map(write, invalid):
        assert checker.check(parse_strict(text)), text
        assert not is_masked_in(text) or support_report(spec).checked(name), text


def write(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$schema": "http://json-schema.org/draft-03/schema#", "items": {"divisibleBy": 3}}, "#/items/divisibleBy"),
        ({"$schema": DRAFT7, "exclusiveMinimum": True}, "#/exclusiveMinimum"),
        ({"type": "object", "properties": {"a": {"type": "string", "required": True}}}, "#/properties/a/required"),
        ({"$schema": 7, "type": "string"}, "#/$schema"),
        ({"type": "string", "pattern": "["}, "#/pattern"),
    ],
    ids=["word-of-draft-3", "draft-that-is-named", "required-of-draft-3", "draft-that-is-no-text", "pattern"],
)
def test_schema_of_no_draft_is_refused_at_its_place(schema: Any, pointer: str) -> None:
    with pytest.raises((InvalidGrammarError, UnsupportedGrammarError)) as caught:
        GrammarSpec.from_json_schema(schema)
    assert caught.value.pointer == pointer


_D4 = "http://json-schema.org/draft-04/schema#"


@pytest.mark.parametrize("word", ["definitions", "$defs"])
@pytest.mark.parametrize("draft", [_D4, None], ids=["draft4", "no-draft"])
@pytest.mark.parametrize(
    "unreached",
    [
        {"id": "#foo", "type": "string"},
        {"id": "foo", "type": "string"},
        {"id": "#foo", "properties": {"q": {"$ref": "#foo"}}},
        {"id": "#foo", "properties": {"q": {"$ref": "#bar"}}},
        {"id": "foo", "properties": {"q": {"$ref": "#/definitions/x"}}},
    ],
    ids=["anchor", "base", "own-anchor", "no-such-anchor", "pointer-from-another-base"],
)
def test_definition_that_nothing_reaches_may_name_and_refer_as_it_likes(unreached: Any, draft: str | None, word: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, word: {"x": unreached}}
    GrammarSpec.from_json_schema({"$schema": draft, **schema} if draft else schema)


def test_definition_that_is_reached_may_not_refer_to_nothing() -> None:
    definitions = {"x": {"id": "#foo", "items": [{"properties": {"q": {"$ref": "#bar"}}}]}}
    schema = {"$schema": _D4, "properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": definitions}
    with pytest.raises(InvalidGrammarError, match="points to nothing") as raised:
        GrammarSpec.from_json_schema(schema)
    assert raised.value.pointer == "#/definitions/x/items/0/properties/q/$ref"


def test_unknown_draft_is_not_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        spec = GrammarSpec.from_json_schema({"$schema": f"http://127.0.0.1:{server.getsockname()[1]}/schema", "type": "string"})
        with pytest.raises(BlockingIOError):  # nobody asks
            server.accept()
    assert spec.source == '{"type":"string"}'


PATTERNS = {
    r"^[\w-.]+$": r"^[\w\-.]+$",
    r"[\d-x-\w]": r"[\d\-x\-\w]",
    r"[\]-\w]": r"[\]\-\w]",
    "^{{.*}}$": r"^\{\{.*}}$",
    r"a{,3}": r"a\{,3}",
    r"\A\\A[\s.]\Z": r"^\\A[\s.]$",
    r"(?s)^.\.[.]": r"^[\s\S]\.[.]",
    r"(?sui)a.": r"(?i)a[\s\S]",
    r"^\<[^\<\>\\<]+\>$": r"^<[^<>\\<]+>$",
    r"a{3}b{2,}c{1,2}[{]\{\u{1F600}\p{L}[\w-][-\w][^-\w][a\-\w](\d)-{0,1}": None,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_is_respelled_as_little_as_possible(pattern: str) -> None:
    wanted = PATTERNS[pattern] or pattern
    assert respell_pattern(pattern) == respell_pattern_for_check(pattern) == wanted
    jsonschema_rs.validator_for({"pattern": wanted})


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "schema", [TEXT, {"type": "object"}, {"type": "string", "maxLength": 9}, {"type": "string", "minLength": 1}]
)
def test_half_a_character_in_utf8_is_no_text(schema: Any, name: str) -> None:
    grammar = backend(name).compile(GrammarSpec.from_json_schema(schema))
    around = (b'{"', b'":1}') if schema == {"type": "object"} else (b'"', b'"')
    for character, is_text in ((b"\xed\xa0\x80", False), (b"\xed\x9f\xbf", True), (b"\xee\x80\x80", True)):
        token_ids = [*around[0], *character, *around[1], STOP]
        assert grammar.new_matcher((STOP,)).accept_tokens(token_ids) is is_text, character


MEANT = {
    "float": ({"type": "float"}, "did you mean 'number'?"),
    "gemini": ({"properties": {"a": {"type": "STRING"}}}, "did you mean 'string'?"),
    "misspelt": ({"items": {"type": "intger"}}, "did you mean 'integer'?"),
    "any": ({"type": ["any", "null"]}, "leave type out"),
    "outlines-core-180": ({"properties": {"a": {"type": "string", "required": True}}}, "a list of names"),
    "items-list": ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{"type": "string"}]}, "prefixItems"),
    "other": ({"minItems": "2"}, None),
}


@pytest.mark.parametrize(("schema", "words"), MEANT.values(), ids=MEANT)
def test_what_was_meant_is_told_twice_alike(schema: dict[str, Any], words: str | None) -> None:
    with pytest.raises(InvalidGrammarError) as at_admission:
        GrammarSpec.from_json_schema(schema)
    with pytest.raises(InvalidSchemaError) as at_check:
        SchemaChecker(schema)
    assert at_admission.value.hint == at_check.value.hint
    assert (words is None) is (at_admission.value.hint is None)
    assert (words or "") in (at_admission.value.hint or "")
