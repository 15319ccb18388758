"""Admission of schemas, and the list of keywords that the masks do not enforce, proved on the installed backend."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import GrammarSpec, InvalidGrammarError, InvalidRequestError, UnsupportedGrammarError
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.schema_check import MAX_DEPTH
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary

STOP = 256


# A vocabulary of single bytes: any text can be spelled.
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))


@pytest.fixture(scope="module")
def backend() -> XGrammarBackend:
    return XGrammarBackend(BYTES, num_threads=1)


def accepts(backend: XGrammarBackend, schema: Any, document: str, *, any_whitespace: bool = False) -> bool:
    spec = GrammarSpec.from_json_schema(schema, any_whitespace=any_whitespace)
    return backend.compile(spec).new_matcher((STOP,)).accept_tokens([*document.encode(), STOP])


REFUSED: list[tuple[str, Any, str]] = [
    ("E1.a", {"type": "object", "properties": {"zip": 7}}, "#/properties/zip"),
    ("E1.b", {"type": "object", "properties": {"zip": {"type": "string", "pattern": "("}}}, "#/properties/zip/pattern"),
    ("E1.c", {"type": "object", "properties": {"zip": {"type": "strnig"}}}, "#/properties/zip/type"),
    ("C12", {"type": "object", "properties": {"tone": {"enum": []}}, "required": ["tone"]}, "#/properties/tone"),
    ("no-schema", 7, "#"),
    ("not-json", "{", "#"),
    ("never", False, "#"),
    ("dangling", {"properties": {"a": {"$ref": "#/$defs/none"}}}, "#/properties/a/$ref"),
    ("crossed", {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 2}, "minItems": 1}, "#/items"),
    ("never-through-allOf", {"allOf": [{"type": "string"}, {"type": "object"}]}, "#/allOf/1"),
    (
        "never-far-down",
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "required": ["a"],
            "type": "object",
            "$defs": {"A": {"type": "object", "properties": {"b": {"enum": []}}, "required": ["b"]}},
        },
        "#/$defs/A/properties/b",
    ),
    ("enum-beside-type", {"type": "integer", "enum": ["a"]}, "#"),
    ("no-multiple-in-range", {"type": "integer", "minimum": 11, "maximum": 19, "multipleOf": 10}, "#"),
    ("never-contained", {"type": "array", "maxItems": 3, "contains": {"type": "string", "enum": [1]}}, "#/contains"),
    ("too-few-names", {"type": "object", "properties": {"a": {}}, "additionalProperties": False, "minProperties": 2}, "#"),
    (
        "too-few-names-by-pattern",
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "required": ["a", "b"], "minProperties": 3},
        "#/minProperties",
    ),
    (
        "endless",
        {"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}}},
        "#/$defs/N",
    ),
    (
        "loop",
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}},
        },
        "#/$defs/A",
    ),
    (
        "choice-loop",
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}},
        "#/$defs/A",
    ),
    ("not-a-number", {"const": float("nan")}, "#/const"),
    ("not-json", {"const": {1, 2}}, "#/const"),
    ("never-required", {"type": "object", "properties": {"a": False}, "required": ["a"]}, "#/properties/a"),
    ("slash", {"properties": {"a/b": {"type": "nope"}}}, "#/properties/a~1b/type"),
]


@pytest.mark.parametrize(("schema", "pointer"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_invalid_schema_names_the_place(schema: Any, pointer: str) -> None:
    with pytest.raises(InvalidGrammarError) as caught:
        GrammarSpec.from_json_schema(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("reference", ["https://e.io/s.json", "other.json#/a", "http://127.0.0.1:1/x"])
def test_C20_remote_reference_is_refused_without_a_fetch(reference: str) -> None:
    with pytest.raises(UnsupportedGrammarError) as caught:
        GrammarSpec.from_json_schema({"properties": {"c": {"$ref": reference}}})
    assert caught.value.pointer == "#/properties/c/$ref"


@pytest.mark.parametrize("depth", [MAX_DEPTH + 5, 20_000])
@pytest.mark.parametrize("key", ["items", "not", "const", "x-unknown"])
def test_too_deep_schema_is_refused_anywhere(depth: int, key: str) -> None:
    if depth < 20_000 and key in ("const", "x-unknown"):
        return
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {key: schema}
    with pytest.raises(InvalidGrammarError, match="deeper"):
        GrammarSpec.from_json_schema(schema)
    while isinstance(schema, dict) and key in schema:  # so that freeing it does not recurse either
        schema = schema.pop(key)


def test_too_deep_schema_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH + 5):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidGrammarError, match="deeper"):
        GrammarSpec.from_json_schema(schema)


def test_C37_annotations_are_no_part_of_the_grammar() -> None:
    plain = {"type": "object", "properties": {"title": {"type": "string"}, "default": {"enum": [{"title": 1}]}}}
    noisy = {
        "title": "T",
        "description": 'quotes " braces { } \n <tool_call>',
        "type": "object",
        "properties": {"title": {"type": "string", "description": "x"}, "default": {"examples": [1], "enum": [{"title": 1}]}},
    }
    assert GrammarSpec.from_json_schema(noisy) == GrammarSpec.from_json_schema(plain)


def test_data_inside_const_is_not_a_schema() -> None:
    spec = GrammarSpec.from_json_schema({"const": {"properties": {"a": 7}, "not": 1}})
    assert [entry.pointer for entry in support_report(spec).entries] == ["#/const"]


def test_C26_property_order_is_the_schemas(backend: XGrammarBackend) -> None:
    schema = {"type": "object", "properties": {k: {"type": "integer"} for k in "zam"}, "required": list("zam")}
    assert accepts(backend, schema, '{"z":1,"a":2,"m":3}')
    assert not accepts(backend, schema, '{"a":2,"m":3,"z":1}')
    assert list(json.loads(GrammarSpec.from_json_schema(schema).schema_text)["properties"]) == ["z", "a", "m"]


def test_compact_is_the_default_and_can_be_opened(backend: XGrammarBackend) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert accepts(backend, schema, '{"a":1}')
    assert not accepts(backend, schema, '{ "a": 1 }')
    assert accepts(backend, schema, '{ "a": 1 }', any_whitespace=True)


NUMBERS = ["0", "-1", "4.999999999", "1e-7", "9.1093837015e-31", "-1.7976931348623157e279", "9223372036854775807", "0.1"]


@pytest.mark.parametrize("text", NUMBERS)
def test_T17_numbers_are_bounded_but_doubles_can_be_written(backend: XGrammarBackend, text: str) -> None:
    assert accepts(backend, {"type": "number"}, text)
    assert accepts(backend, {}, f"[{text}]")


@pytest.mark.parametrize("text", ["1" * 40, "0." + "3" * 40, "1e309", "1e-999"])
def test_T17_endless_and_infinite_numbers_are_refused(backend: XGrammarBackend, text: str) -> None:
    assert not accepts(backend, {"type": "number"}, text)
    assert not accepts(backend, {}, f"[{text}]")


@pytest.mark.parametrize("bound", [{}, {"minimum": 259}, {"maximum": 10**12}, {"exclusiveMinimum": 5}])
@pytest.mark.parametrize("kind", ["integer", "number"])
def test_T17_half_open_ranges_have_an_end(backend: XGrammarBackend, kind: str, bound: dict[str, int]) -> None:
    schema = {"type": kind, **bound}
    assert accepts(backend, schema, "123456789")
    assert not accepts(backend, schema, "9" * 60)
    assert not accepts(backend, schema, "-" + "9" * 60)


def test_T17_cap_can_be_lifted(backend: XGrammarBackend) -> None:
    spec = GrammarSpec.from_json_schema({"type": "integer"}, max_number_digits=None)
    assert backend.compile(spec).new_matcher((STOP,)).accept_tokens([*b"9" * 60, STOP])


def test_cap_below_a_doubles_digits_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        GrammarSpec.from_json_schema({}, max_number_digits=5)
    assert caught.value.param == "max_number_digits"


def test_digits_in_patterns_are_the_callers(backend: XGrammarBackend) -> None:
    assert accepts(backend, {"type": "string", "pattern": "^[0-9]+$"}, '"' + "7" * 60 + '"')


@pytest.mark.parametrize("text", ["über", 'ßb\\xfcbe\n"', "日本e5", "🙂1f", "\u0000a\u001fbc", "ÿÿ00", "a/b\\u00fc"])
def test_any_text_survives_as_name_and_constant(backend: XGrammarBackend, text: str) -> None:
    schema = {"type": "object", "properties": {text: {"enum": [text, "x"]}}, "required": [text], "additionalProperties": False}
    right = json.dumps({text: text}, ensure_ascii=False, separators=(",", ":"))
    assert accepts(backend, schema, right)
    assert not accepts(backend, schema, right.replace(text[-1], "Q"))


# A constant's U+007F is spelled as an escape, which is the same JSON value.
TEXT = st.text(st.characters(exclude_characters="\x7f", exclude_categories=["Cs"]), max_size=8)


@settings(deadline=None)
@given(TEXT, TEXT)
def test_constants_accept_themselves_and_nothing_else(text: str, other: str) -> None:
    backend = XGrammarBackend(BYTES, num_threads=1)
    assert accepts(backend, {"const": text}, json.dumps(text, ensure_ascii=False))
    assert accepts(backend, {"const": text}, json.dumps(other, ensure_ascii=False)) is (text == other)


NOT_JSON: list[tuple[Any, str]] = [
    ({"type": "string", "pattern": 'a"b'}, '"a"b"'),
    ({"type": "string", "pattern": r"^a\\q$"}, r'"a\q"'),
    ({"type": "string", "pattern": r"^[\n]$"}, '"\n"'),
    ({"type": "string", "pattern": r"^\x22$"}, '"""'),
    ({"type": "number", "minimum": 1e-10, "maximum": 1e-9}, ""),
    ({"type": "number", "multipleOf": 0.01}, "1e400"),
    ({"type": "string"}, r'"\ud800"'),
    ({"type": "string"}, r'"\ude00\ud83d"'),
    ({"type": "object", "properties": {'a"b': {"type": "integer"}}}, '{"a"bz":1}'),
    ({"type": "object", "properties": {r"a\n": {"type": "integer"}}}, r'{"a\qz":1}'),
    ({"type": "object", "properties": {"x\ny": {"type": "integer"}}}, '{"x\ny1":1}'),
]


@pytest.mark.parametrize(("schema", "document"), NOT_JSON)
def test_nothing_but_json_is_accepted(backend: XGrammarBackend, schema: Any, document: str) -> None:
    assert not accepts(backend, schema, document)


@pytest.mark.parametrize("name", [r"\u0061", r"b\u0063", r"d\/e", r"f\"g"])
def test_declared_property_has_its_rule_however_it_is_spelled(backend: XGrammarBackend, name: str) -> None:
    schema = {"type": "object", "properties": {key: {"type": "integer"} for key in ("a", "bc", "d/e", 'f"g')}}
    assert accepts(backend, schema, '{"a":1,"bd\\n":"free"}')
    assert not accepts(backend, schema, f'{{"{name}":"x"}}')


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 1), (2, 2), (0, 3), (1, None)])
def test_C38_no_length_bound_lets_control_characters_in(backend: XGrammarBackend, least: int, most: int | None) -> None:
    schema = {"type": "string", "minLength": least} | ({} if most is None else {"maxLength": most})
    text = "x" * (max(least, 1) - 1)
    for code in (*range(0x20), 0x22, 0x5C):
        assert not accepts(backend, schema, f'"{text}{chr(code)}"'), code
        assert accepts(backend, schema, json.dumps(text + chr(code))), code
    assert accepts(backend, schema, f'"{text}y"')


@pytest.mark.parametrize("text", ['a"', "\n\\", r"\ud83d\ude00\u00e9", "😀é", r"\u001f/"])
def test_bounded_string_takes_escapes_and_counts_each_as_one(backend: XGrammarBackend, text: str) -> None:
    document = f'"{text}"' if text.startswith("\\u") else json.dumps(text, ensure_ascii=False)
    assert accepts(backend, {"type": "string", "minLength": 2, "maxLength": 2}, document)
    assert not accepts(backend, {"type": "string", "maxLength": 1}, document)
    assert not accepts(backend, {"type": "string", "minLength": 3}, document)


def test_M1_optional_property_that_nothing_satisfies_is_left_out(backend: XGrammarBackend) -> None:
    schema = {
        "type": "object",
        "properties": {"x": False, "y": {"anyOf": [False, {"type": "integer"}]}},
        "additionalProperties": False,
    }
    assert support_report(GrammarSpec.from_json_schema(schema)).checked("xgrammar") == ()
    assert accepts(backend, schema, '{"y":1}')
    assert not accepts(backend, schema, '{"x":1}')
    is_open = schema | {"additionalProperties": True}
    assert support_report(GrammarSpec.from_json_schema(is_open)).checked("xgrammar") == ("#/properties/x",)


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "object"}, {"type": "object", "properties": {}}, True],
    ids=["empty", "object", "no-properties", "true"],
)
def test_C29_empty_schemas_compile(backend: XGrammarBackend, schema: Any) -> None:
    assert accepts(backend, schema, "{}")
