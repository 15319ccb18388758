from __future__ import annotations

from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from pydantic import BaseModel, Field

from middleware.output_types import OutputType
from middleware.wire_schema import close_objects, flatten_root, is_object_schema, is_strict, respell_unions, wrap_root


class Node(BaseModel):
    name: str
    kids: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def schema_of(kind: Any) -> dict[str, Any]:
    schema = OutputType[Any](kind).schema
    assert schema is not None
    return schema


def test_recursive_model_is_an_object_after_flattening_d23() -> None:
    schema = schema_of(Node)
    assert "$ref" in schema
    flat = flatten_root(schema)
    assert flat["type"] == "object"
    assert jsonschema_rs.is_valid(flat, {"name": "a", "kids": [{"name": "b", "kids": []}]})
    assert not jsonschema_rs.is_valid(flat, {"name": "a", "kids": [{"kids": []}]})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/A", "required": ["b"], "$defs": {"A": {"type": "object", "required": ["a"]}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": True}},
        {"$ref": "#/properties/a", "properties": {"a": {}}},
    ],
    ids=["both-constrain", "endless", "true", "not-a-definition"],
)
def test_root_reference_that_cannot_be_flattened_is_wrapped(schema: dict[str, Any]) -> None:
    assert not is_object_schema(schema)
    assert wrap_root(schema)["type"] == "object"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Node, True),
        (list[int], False),
        (int, False),
        (Literal["a", "b"], False),
        (Cat | Dog, False),
        ({"type": "object"}, True),
        ({}, False),
    ],
    ids=["recursive", "list", "int", "literal", "union", "raw-object", "empty"],
)
def test_is_object_schema(kind: Any, expected: bool) -> None:
    assert is_object_schema(schema_of(kind)) is expected


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        pytest.param(schema_of(list[Node]), [{"name": "a", "kids": [{"name": "b"}]}], [{"kids": []}], id="defs"),
        pytest.param({"type": "array", "items": {"$ref": "#"}}, [[], [[]]], [1], id="root-reference"),
        pytest.param(
            {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}]}, [1], ["a"], id="pointer"
        ),
        pytest.param({"enum": [{"$ref": "#"}, 1]}, {"$ref": "#"}, {"$ref": "#/properties/value"}, id="reference-is-data"),
    ],
)
def test_wrapped_schema_means_the_same_d25(schema: dict[str, Any], good: Any, bad: Any) -> None:
    wrapped = wrap_root(schema)
    assert wrapped["type"] == "object"
    assert jsonschema_rs.is_valid(wrapped, {"value": good})
    assert not jsonschema_rs.is_valid(wrapped, {"value": bad})
    assert not jsonschema_rs.is_valid(wrapped, good if isinstance(good, dict) else {})


def test_tagged_union_is_sent_as_any_of_d15() -> None:
    class Zoo(BaseModel):
        animals: list[Annotated[Cat | Dog, Field(discriminator="kind")]]

    items = respell_unions(schema_of(Zoo))["properties"]["animals"]["items"]
    assert list(items) == ["anyOf"]


def test_property_called_like_a_keyword_is_left_alone() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}, "properties": {"type": "integer"}}}
    assert close_objects(schema)["required"] == ["$ref", "properties"]
    assert wrap_root(schema)["properties"]["value"] == schema


def test_close_objects_leaves_maps_open() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert close_objects(schema) == schema


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, False),
        ({"type": "object"}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, False),
    ],
    ids=["strict", "optional", "open", "map", "anything"],
)
def test_is_strict(schema: dict[str, Any], expected: bool) -> None:
    assert is_strict(schema) is expected
