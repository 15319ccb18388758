"""The support report, proved on the installed backends in both directions.

A keyword that is listed as masked really rejects its probe; one that is listed as checked really lets it through. A new version
of a backend that changes either makes a test fail.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs
import pytest

from engine import GrammarSpec, UnsupportedGrammarError
from engine.grammar import GrammarBackend
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.rewrite import BACKENDS
from engine.grammar.support import Enforcement, refuse_unenforced, support_report
from engine.grammar.vocabulary import Vocabulary
from engine.grammar.whitespace import Whitespace

STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))


@lru_cache
def make_backend(name: str) -> GrammarBackend:
    return XGrammarBackend(BYTES, num_threads=1) if name == "xgrammar" else LLGuidanceBackend(BYTES, num_threads=1)


def accepts(name: str, schema: Any, document: str) -> bool:
    spec = GrammarSpec.from_json_schema(schema)
    return make_backend(name).compile(spec).new_matcher((STOP,)).accept_tokens([*document.encode(), STOP])


INT = {"type": "integer"}
AB = {"type": "object", "properties": {"a": INT, "b": INT}}
BOTH, LLG, NONE = frozenset(BACKENDS), frozenset({"llguidance"}), frozenset[str]()

# (name, schema, a document that breaks it, pointer of the keyword, backends that mask it)
PROBES: list[tuple[str, Any, str, str, frozenset[str]]] = [
    ("type", INT, '"x"', "#/type", BOTH),
    ("not-const", {"type": "string", "not": {"const": "x"}}, '"x"', "#/not", BOTH),
    ("not-pattern", {"type": "string", "not": {"pattern": "^a"}}, '"ab"', "#/not", BOTH),
    ("not-number", {"type": "integer", "not": {"enum": [3, 5]}}, "5", "#/not", BOTH),
    ("not-type", {"not": {"type": "string"}}, '"x"', "#/not", BOTH),
    ("not-required", {"type": "object", "not": {"required": ["a"]}}, '{"a":1}', "#/not", LLG),
    ("not-array", {"type": "array", "not": {"const": [1]}}, "[1]", "#/not", NONE),
    ("contains", {"type": "array", "items": INT, "contains": {"const": 7}}, "[1]", "#/contains", NONE),
    ("contains-short", {"type": "array", "items": INT, "contains": {"const": 7}, "maxItems": 3}, "[1]", "#/contains", BOTH),
    ("uniqueItems", {"type": "array", "items": INT, "uniqueItems": True}, "[1,1]", "#/uniqueItems", NONE),
    ("uniqueItems-few", {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}, '["a","a"]',
     "#/uniqueItems", BOTH),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, "15", "#/multipleOf", BOTH),
    ("multipleOf-number", {"type": "number", "multipleOf": 0.5}, "1.25", "#/multipleOf", LLG),
    ("multipleOf-range", {"type": "integer", "multipleOf": 2, "minimum": 3}, "5", "#/multipleOf", LLG),
    ("multipleOf-few", {"type": "integer", "multipleOf": 5, "minimum": 3, "maximum": 40}, "6", "#/multipleOf", BOTH),
    ("multipleOf-large", {"type": "integer", "multipleOf": 970_003}, "15", "#/multipleOf", NONE),
    ("untyped-minimum", {"minimum": 3}, "1", "#/minimum", BOTH),
    ("untyped-maxItems", {"maxItems": 1}, "[1,2]", "#/maxItems", BOTH),
    ("exclusiveMinimum", {"type": "number", "exclusiveMinimum": 0}, "0", "#/exclusiveMinimum", BOTH),
    ("wide-bound", {"type": "integer", "minimum": 10**20}, "7", "#/minimum", NONE),
    ("wide-const", {"const": 10**29 + 1}, "7", "#/const", NONE),
    ("narrow-range", {"type": "number", "minimum": 1e-10, "maximum": 1e-9}, "1", "#/maximum", LLG),
    ("if", {"type": "integer", "if": {"minimum": 5}, "then": {"maximum": 7}}, "9", "#/if", BOTH),
    ("if-property", AB | {"if": {"properties": {"a": {"const": 1}}, "required": ["a"]}, "then": {"required": ["b"]}},
     '{"a":1}', "#/if", LLG),
    ("dependentRequired", AB | {"dependentRequired": {"a": ["b"]}}, '{"a":1}', "#/dependentRequired", LLG),
    ("dependentSchemas", AB | {"dependentSchemas": {"a": {"required": ["b"]}}}, '{"a":1}', "#/dependentSchemas", LLG),
    ("pattern-and-length", {"type": "string", "pattern": "^[0-9a-f]+$", "maxLength": 4}, '"beef0"', "#/maxLength", BOTH),
    ("pattern-unanchored", {"type": "string", "pattern": "b"}, '"acd"', "#/pattern", BOTH),
    ("two-patterns", {"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}]}, '"ac"', "#/allOf", BOTH),
    ("look-ahead", {"type": "string", "pattern": "^(?!a).*$"}, '"abc"', "#/pattern", BOTH),
    ("look-behind", {"type": "string", "pattern": "(?<!a)b"}, '"ab"', "#/pattern", BOTH),
    ("look-behind-long", {"type": "string", "pattern": "(?<!ab)c"}, '"abc"', "#/pattern", NONE),
    ("pattern-with-quote", {"type": "string", "pattern": '^[^"]+$'}, r'"a\""', "#/pattern", BOTH),
    ("format-date", {"type": "string", "format": "date"}, '"2026-02-31"', "#/format", BOTH),
    ("format-time", {"type": "string", "format": "time"}, '"15:45:60Z"', "#/format", BOTH),
    ("format-ipv4", {"type": "string", "format": "ipv4"}, '"131.0.28.098"', "#/format", BOTH),
    ("format-uri", {"type": "string", "format": "uri", "minLength": 9}, '"no scheme at all"', "#/format", LLG),
    ("format-regex", {"type": "string", "format": "regex"}, '"("', "#/format", NONE),
    ("allOf", {"allOf": [AB | {"required": ["a"]}, {"required": ["b"]}]}, '{"a":1}', "#/allOf", BOTH),
    ("oneOf", {"oneOf": [{"type": "integer", "minimum": 2}, {"type": "integer", "maximum": 3}]}, "2", "#/oneOf", BOTH),
    ("oneOf-inexact", {"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]}, "6",
     "#/oneOf", NONE),
    ("beside-anyOf", {"anyOf": [INT, {"type": "string"}], "maximum": 3}, "9", "#/maximum", BOTH),
    ("beside-ref", {"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": INT}}, "9", "#/maximum", BOTH),
    ("type-beside-enum", {"type": "string", "enum": [1, "a"]}, "1", "#/type", BOTH),
    ("anchor", {"$ref": "#n", "$defs": {"n": {"$anchor": "n", "type": "integer"}}}, '"x"', "#/$ref", BOTH),
    ("ref-to-no-subschema", {"$ref": "#/n", "n": {"type": "integer", "not": {"const": 1}}}, "1", "#/$ref", BOTH),
    ("dynamicRef", {"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": "integer"}}}, '"x"',
     "#/$dynamicRef", BOTH),
    ("required-undeclared", AB | {"required": ["a", "z"]}, '{"a":1}', "#/required", BOTH),
    ("patternProperties", AB | {"patternProperties": {"^x": INT}}, '{"xb":"s"}', "#/patternProperties", LLG),
    ("patternProperties-alone", {"type": "object", "patternProperties": {"^x": INT}, "additionalProperties": False}, '{"xb":"s"}',
     "#/patternProperties", BOTH),
    ("patternProperties-overlap", {"type": "object", "patternProperties": {"^x": INT, "y$": {"minimum": 3}}}, '{"xy":1}',
     "#/patternProperties", LLG),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, '{"A":1}', "#/propertyNames", BOTH),
    ("propertyNames-of-declared", AB | {"propertyNames": {"enum": ["a"]}}, '{"b":1}', "#/propertyNames", BOTH),
    ("additionalProperties", AB | {"additionalProperties": False}, '{"c":1}', "#/additionalProperties", BOTH),
    ("unevaluatedProperties", {"allOf": [AB], "unevaluatedProperties": False}, '{"c":1}', "#/unevaluatedProperties", BOTH),
    ("unevaluatedItems", {"prefixItems": [INT], "unevaluatedItems": False}, "[1,2]", "#/unevaluatedItems", BOTH),
    ("minProperties", AB | {"minProperties": 1, "additionalProperties": False}, "{}", "#/minProperties", BOTH),
    ("maxProperties", AB | {"maxProperties": 1, "additionalProperties": False}, '{"a":1,"b":1}', "#/maxProperties", BOTH),
    ("minProperties-open", {"type": "object", "minProperties": 2}, '{"a":1}', "#/minProperties", LLG),
    ("false-property", AB | {"properties": {"a": False}}, '{"a":1}', "#/properties/a", LLG),
    ("prefixItems", {"type": "array", "prefixItems": [INT]}, '["x"]', "#/prefixItems", BOTH),
    ("draft-7-items", {"$schema": "http://json-schema.org/draft-07/schema#", "items": [INT], "additionalItems": False}, "[1,2]",
     "#/additionalItems", BOTH),
    ("draft-7-dependencies", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
     "dependencies": {"a": ["b"]}},
     '{"a":1}', "#/dependencies", LLG),
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("schema", "document", "pointer", "masking"), [probe[1:] for probe in PROBES], ids=[probe[0] for probe in PROBES]
)
def test_report_is_what_the_backend_does(backend: str, schema: Any, document: str, pointer: str, masking: frozenset[str]) -> None:
    assert not jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(document))
    checked = support_report(GrammarSpec.from_json_schema(schema)).checked(backend)
    assert (pointer in checked) is (backend not in masking)
    assert bool(checked) is (backend not in masking)
    assert accepts(backend, schema, document) is (backend not in masking)


NARROW = [
    ("dots", {"type": "string", "pattern": "^.+$"}, r'"a\"b"'),
    ("negated-class", {"type": "string", "pattern": "^[^a]$"}, r'"\n"'),
    ("look-ahead", {"type": "string", "pattern": "^(?!a)"}, r'"\\"'),
    ("pattern-and-length", {"type": "string", "pattern": "b", "maxLength": 3}, r'"\tb"'),
    ("json-pointer", {"type": "string", "format": "json-pointer"}, r'"/\""'),
    ("names", {"type": "object", "patternProperties": {"^.x$": INT}, "additionalProperties": False}, r'{"\"x":1}'),
    ("plain-class", {"type": "string", "pattern": "^[a-z ]+$"}, None),
    ("date", {"type": "string", "format": "date"}, None),
    ("no-pattern", {"type": "string", "maxLength": 3}, None),
]


@pytest.mark.parametrize(("schema", "text"), [case[1:] for case in NARROW], ids=[case[0] for case in NARROW])
def test_report_says_where_texts_with_escapes_are_not_written(schema: Any, text: str | None) -> None:
    spec = GrammarSpec.from_json_schema(schema)
    report = support_report(spec)
    assert any("escapes" in entry.note for entry in report.entries) is (text is not None)
    assert bool(Enforcement(spec).narrowed("xgrammar")) is (text is not None)
    assert Enforcement(spec).narrowed("llguidance") == ()
    assert report.checked("xgrammar") == ()
    if text is not None:
        assert jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(json.loads(text))
        assert accepts("llguidance", schema, text)
        assert not accepts("xgrammar", schema, text)


REPEATS = [
    ("open", {"type": "object"}, '{"a":1,"a":1}', True),
    ("undeclared", AB, '{"c":1,"c":2}', True),
    ("by-pattern", {"type": "object", "patternProperties": {"^c": INT}, "additionalProperties": False}, '{"c":1,"c":2}', True),
    ("anything", {}, '{"a":1,"a":1}', True),
    ("inside", {"type": "array", "items": {"type": ["object", "null"]}}, '[{"a":1,"a":1}]', True),
    ("closed", AB | {"additionalProperties": False}, '{"a":1,"a":2}', False),
    ("list", {"enum": [{"a": 1}]}, '{"a":1,"a":1}', False),
    ("string", {"type": "string"}, '{"a":1,"a":1}', False),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("schema", "document", "may_repeat"), [case[1:] for case in REPEATS], ids=[case[0] for case in REPEATS])
def test_report_says_where_names_may_repeat(backend: str, schema: Any, document: str, may_repeat: bool) -> None:
    report = support_report(GrammarSpec.from_json_schema(schema))
    assert report.may_repeat_names is may_repeat
    assert accepts(backend, schema, document) is may_repeat


def test_report_lists_every_keyword_with_its_place() -> None:
    schema = {
        "type": "object",
        "properties": {"a/b": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}},
        "title": "x",
    }
    report = support_report(GrammarSpec.from_json_schema(schema))
    assert [entry.pointer for entry in report.entries] == [
        "#/type", "#/properties", "#/properties/a~1b/type", "#/properties/a~1b/items", "#/properties/a~1b/uniqueItems",
        "#/properties/a~1b/items/type",
    ]  # fmt: skip
    entry = next(entry for entry in report.entries if entry.keyword == "uniqueItems")
    assert set(entry.status.values()) == {"checked"}
    assert entry.note


def test_strict_refuses_what_would_only_be_checked() -> None:
    schema = {"type": "array", "items": INT, "uniqueItems": True}
    spec = GrammarSpec.from_json_schema(schema, strict=True)
    with pytest.raises(UnsupportedGrammarError) as caught:
        refuse_unenforced(spec, support_report(spec), "llguidance")
    assert caught.value.pointer == "#/uniqueItems"
    refuse_unenforced(GrammarSpec.from_json_schema(schema), support_report(spec), "llguidance")


def test_options_are_in_the_report() -> None:
    spec = GrammarSpec.from_json_schema(AB | {"required": ["a"]}, any_order=True)
    assert support_report(spec).checked("xgrammar") == ("#/required",)
    assert support_report(spec).refused("llguidance") == ("#",)
    spec = GrammarSpec.from_json_schema(AB, whitespace=Whitespace.indented(2))
    assert support_report(spec).refused("llguidance") == ("#",)


def test_other_kinds_are_masked_or_refused() -> None:
    assert support_report(GrammarSpec.choice(["a", "b"])).checked("xgrammar") == ()
    assert support_report(GrammarSpec.ebnf('root ::= "a"')).refused("xgrammar") == ()


def test_nullable_of_openapi_is_named_where_it_looks_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "nullable": True}, "nullable": {"type": "null"}}}
    report = support_report(GrammarSpec.from_json_schema(schema))
    entry = next(entry for entry in report.entries if entry.keyword == "nullable" and entry.note)
    assert entry.pointer == "#/properties/a/nullable"
    assert "OpenAPI" in entry.note
    assert [found.pointer for found in report.entries if found.note] == [entry.pointer]
