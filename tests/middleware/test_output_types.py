from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr, TypeAdapter
from pydantic.json_schema import PydanticJsonSchemaWarning
from typing_extensions import TypedDict

from middleware import InvalidRequestError, InvalidSchemaError, Problem, UnsupportedSchemaError
from middleware.output_types import Accepted, OutputType, check_messages


class Item(BaseModel):
    z: int
    a: str
    m: float = 1.0


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Row(TypedDict):
    b: int
    a: int


class Files(BaseModel):
    p: Path
    b: bytes
    s: SecretStr


class Bag(BaseModel):
    s: set[int]
    f: frozenset[str] = frozenset()


def validate(kind: Any, text: str, **options: Any) -> Any:
    answer = OutputType[Any](kind).validate(text, **options)
    return answer.value if isinstance(answer, Accepted) else answer


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Item, '{"z":1,"a":"x","m":2}', Item(z=1, a="x", m=2)),
        (Point, '{"x":1,"y":2}', Point(1, 2)),
        (Row, '{"b":1,"a":2}', {"b": 1, "a": 2}),
        (Literal["red", "green"], '"red"', "red"),
        (int | str, '"1"', "1"),
        (Item | Point, '{"x":1,"y":2}', Point(1, 2)),
        (list[Item], '[{"z":1,"a":"x"}]', [Item(z=1, a="x")]),
        (int, "12345678901234567890123", 12345678901234567890123),
        (bool, "true", True),
        (type(None) | int, "null", None),
        (TypeAdapter(list[int]), "[1]", [1]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a":1}', {"a": 1}),
        (None, "free text", "free text"),
        (str, "free text", "free text"),
    ],
    ids=["model", "dataclass", "typed-dict", "literal", "union", "model-union", "list", "int", "bool", "optional", "adapter",
         "raw", "none", "str"],
)  # fmt: skip
def test_output_type_gives_the_object(kind: Any, text: str, value: Any) -> None:
    assert validate(kind, text) == value


def test_output_type_keeps_property_order_c26() -> None:
    schema = OutputType[Any](Item).schema
    assert schema is not None
    assert list(schema["properties"]) == ["z", "a", "m"]
    raw = {"type": "object", "properties": {"z": {}, "a": {}, "m": {}}, "additionalProperties": False}
    assert json.dumps(OutputType[Any](raw).schema) == json.dumps(raw)
    assert list(validate(raw, '{"z":1,"a":2,"m":3}')) == ["z", "a", "m"]


def test_output_type_keeps_the_order_of_free_keys_c26() -> None:
    class Shown(BaseModel):
        a: int = Field(json_schema_extra={"x-z": {"z": 1, "a": 2}, "x-a": 3})

    schema = OutputType[Any](Shown).schema
    assert schema is not None
    shown = schema["properties"]["a"]
    assert [key for key in shown if key.startswith("x-")] == ["x-z", "x-a"]
    assert list(shown["x-z"]) == ["z", "a"]


def test_output_type_takes_formats_as_annotations_c33() -> None:
    value = validate(Files, '{"p":"/tmp/x","b":"abc","s":"secret"}')
    assert (value.p, value.b, value.s.get_secret_value()) == (Path("/tmp/x"), b"abc", "secret")


def test_output_type_collapses_duplicates_of_a_set_c34_ruling_4() -> None:
    assert "uniqueItems" not in json.dumps(OutputType[Any](Bag).schema)
    assert validate(Bag, '{"s":[1,1,2],"f":["a","a"]}') == Bag(s={1, 2}, f=frozenset({"a"}))
    assert validate(set[int], "[3,3]") == {3}


def test_output_type_rejects_duplicates_where_the_schema_asks_ruling_4() -> None:
    (problem,) = validate({"type": "array", "uniqueItems": True}, "[1,1.0]")
    assert problem.pointer == "#"

    class Listed(BaseModel):
        s: list[int] = Field(json_schema_extra={"uniqueItems": True})

    assert isinstance(validate(Listed, '{"s":[1,1]}'), tuple)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        pytest.param('{"x":NaN}', "NaN", id="nan"),
        pytest.param('{"x":Infinity}', "Infinity", id="infinity"),
        pytest.param('{"x":-Infinity}', "Infinity", id="minus-infinity"),
        pytest.param('{"x":1,"x":1}', '"x" appears twice', id="duplicate-key"),
        pytest.param('{"x":1,"y":{"a":1,"a":2}}', '"a" appears twice', id="inner-duplicate-key"),
        pytest.param('{"x":1e400}', "out of range", id="overflow"),
        pytest.param('{"x":1e-400}', "out of range", id="underflow"),
        pytest.param('{"x":1e99999999999}', "out of range", id="huge-exponent"),
        pytest.param('{"x":' + "1" * 5000 + "}", "digits", id="endless-digits"),
        pytest.param('{"x":1,}', "JSON", id="trailing-comma"),
        pytest.param('{"x":01}', "JSON", id="leading-zero"),
        pytest.param('{"x":1} {"x":1}', "JSON", id="two-values"),
        pytest.param('{"x":1,"y":"\\ud800"}', "surrogate", id="lone-surrogate"),
        pytest.param('{"x":1,"y":"\ud800"}', "surrogate", id="raw-surrogate"),
        pytest.param("[" * 100_000, "deep", id="deep"),
        pytest.param("", "JSON", id="empty"),
    ],
)
def test_answer_must_be_strict_json_ruling_8(text: str, word: str) -> None:
    (problem,) = validate({"type": "object"}, text)
    assert problem.kind == "json"
    assert problem.pointer == "#"
    assert word in problem.message


@pytest.mark.parametrize(
    ("schema", "text", "is_valid"),
    [
        ({"maximum": 9007199254740992}, "9007199254740993", False),
        ({"maximum": 9007199254740992}, "9007199254740992.0000000001", False),
        ({"maximum": 9007199254740992}, "9007199254740992.0", True),
        ({"const": 0.1}, "0.10000000000000000001", False),
        ({"multipleOf": 0.01}, "19.99", True),
        ({"multipleOf": 0.01}, "19.999", False),
        ({"type": "integer"}, "3.0", True),
        ({"type": "integer"}, "1" * 400, True),
        ({"maximum": 5}, "1" * 400, False),
    ],
)  # fmt: skip
def test_numbers_are_checked_at_full_precision_ruling_8(schema: dict[str, Any], text: str, is_valid: bool) -> None:
    assert isinstance(validate(schema, text), tuple) is not is_valid


def test_surrogate_pairs_are_fine() -> None:
    assert validate({}, '"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_problems_name_the_place() -> None:
    problems = validate({"properties": {"a/b": {"items": {"type": "integer"}}}}, '{"a/b":[1,"x"]}')
    assert [problem.pointer for problem in problems] == ["#/a~1b/1"]


def test_problems_of_python_validators_name_the_place() -> None:
    class Even(BaseModel):
        ns: list[int]

        def model_post_init(self, _: Any) -> None:
            if any(number % 2 for number in self.ns):
                raise ValueError("must be even")

    assert validate(Even, '{"ns":[1]}') == (Problem("#", "Value error, must be even", "type"),)


def test_problems_are_bounded() -> None:
    assert len(validate({"items": {"type": "integer"}}, json.dumps(["x"] * 1000))) == 10


@pytest.mark.parametrize(
    ("text", "value"),
    [('{"value":[1,2.50]}', [1, 2.5]), ('{"value":[]}', [])],
)
def test_wrapped_answer_is_unwrapped_d25(text: str, value: Any) -> None:
    assert validate(list[float], text, is_wrapped=True) == value


@pytest.mark.parametrize("text", ["[1]", '{"value":[1],"more":1}', '{"val":[1]}', "{}"])
def test_wrapped_answer_must_be_wrapped(text: str) -> None:
    assert isinstance(validate(list[int], text, is_wrapped=True), tuple)


@pytest.mark.parametrize(
    ("schema", "kind", "pointer"),
    [
        ({"type": "foo"}, InvalidSchemaError, "#/type"),
        ({"properties": {"a": {"minLength": -1}}}, InvalidSchemaError, "#/properties/a/minLength"),
        ({"pattern": "(["}, InvalidSchemaError, "#/pattern"),
        ({"$ref": "#/$defs/none"}, InvalidSchemaError, "#"),
        ({"$ref": "http://127.0.0.1:9/a.json"}, UnsupportedSchemaError, "#"),
        ({"$ref": "file:///etc/passwd"}, UnsupportedSchemaError, "#"),
        ({"a": {1, 2}}, InvalidSchemaError, "#"),
        ({"title": "\ud800"}, InvalidSchemaError, "#"),
    ],
)
def test_bad_schema_is_refused_with_the_place(schema: dict[str, Any], kind: type[InvalidSchemaError], pointer: str) -> None:
    with pytest.raises(kind) as caught:
        OutputType[Any](schema)
    assert caught.value.pointer == pointer
    assert caught.value.param == "output_type"
    assert pointer == "#" or f"at {pointer}: " in caught.value.message


@pytest.mark.parametrize(
    "kind",
    [Callable[[], int], object(), 7, print, "not a type", type("Odd", (), {})],
    ids=["callable", "object", "int", "function", "text", "class"],
)
def test_bad_output_type_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidSchemaError):
        OutputType[Any](kind)


def test_text_is_one_user_message() -> None:
    assert check_messages("hi") == ({"role": "user", "content": "hi"},)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "empty list"),
        ([{"content": "x"}], "a mapping with a role"),
        (["x"], "a mapping with a role"),
        (None, "not NoneType"),
        (3, "not int"),
        ({"role": "user", "content": "x"}, "not dict"),
        ([{"role": 1}], "a mapping with a role"),
        ([{"role": "user", "text": "x"}], r"messages\[0\] has no content"),
    ],
)
def test_bad_messages_are_refused(messages: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        check_messages(messages)
    assert caught.value.param == "messages"


def test_key_that_appears_twice_is_found_quickly() -> None:
    keys = ",".join(f'"k{number}":1' for number in range(30_000))
    started_s = time.process_time()
    problems = OutputType[Any]({}).validate(f'{{{keys},"k29999":1}}')
    assert isinstance(problems, tuple)
    assert "k29999" in problems[0].message
    assert time.process_time() - started_s < 2


def test_default_that_is_not_json_is_left_out_of_the_schema() -> None:
    class Odd(BaseModel):
        ratio: float = float("nan")

    with pytest.warns(PydanticJsonSchemaWarning, match="not JSON serializable"):
        output = OutputType[Odd](Odd)
    assert output.schema is not None
    assert "default" not in output.schema["properties"]["ratio"]
    assert isinstance(output.validate("{}"), Accepted)
