"""What a constraint is, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pydantic
import pytest

from engine import GrammarError, GrammarSpec, InvalidGrammarError, InvalidRequestError, Whitespace

EMPTY: dict[str, Callable[[], Any]] = {
    "regex": lambda: GrammarSpec.regex(""),
    "choice": lambda: GrammarSpec.choice([]),
    "ebnf": lambda: GrammarSpec.ebnf(" \n"),
    "lark": lambda: GrammarSpec.lark(""),
    "structural-tag": lambda: GrammarSpec.structural_tag(""),
    "schema": lambda: GrammarSpec.from_json_schema(""),
}


@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
def test_empty_constraint_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidGrammarError):
        make()


def test_pydantic_class_is_its_schema() -> None:
    class Order(pydantic.BaseModel):
        """Something to order."""

        name: str
        count: int

    spec = GrammarSpec.from_json_schema(Order)
    assert spec == GrammarSpec.from_json_schema(Order.model_json_schema())
    with pytest.raises(InvalidGrammarError, match="class without a JSON schema"):
        GrammarSpec.from_json_schema(int)


def test_equal_specs_share_a_key_and_options_count() -> None:
    schema = {"type": "object"}
    plain = GrammarSpec.from_json_schema(schema)
    assert hash(plain) == hash(GrammarSpec.json_object())
    others = (
        GrammarSpec.from_json_schema(schema, backend="xgrammar"),
        GrammarSpec.from_json_schema(schema, whitespace=Whitespace.indented(2)),
        GrammarSpec.from_json_schema(schema, additional_properties=False),
        GrammarSpec.from_json_schema(schema, any_order=True),
        GrammarSpec.from_json_schema(schema, strict=True),
    )
    assert len({plain, *others}) == 6


def test_choices_are_the_list_without_repeats() -> None:
    assert GrammarSpec.choice(["b", "a", "b"]) == GrammarSpec.choice(("b", "a"))
    assert GrammarSpec.choice(["b", "a"]) != GrammarSpec.choice(["a", "b"])
    with pytest.raises(InvalidGrammarError):
        GrammarSpec.choice("yes")


@pytest.mark.parametrize(
    "make", [lambda: Whitespace.flexible(0), lambda: Whitespace.indented(-1), lambda: Whitespace.indented(99)]
)
def test_impossible_white_space_is_refused(make: Callable[[], Whitespace]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        make()
    assert caught.value.param == "whitespace"


def test_contradictory_white_space_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        GrammarSpec.from_json_schema({}, any_whitespace=True, whitespace=Whitespace.indented(2))
    assert caught.value.param == "whitespace"


def test_any_whitespace_is_flexible_white_space() -> None:
    spec = GrammarSpec.json_object(any_whitespace=True)
    assert spec.whitespace == Whitespace.flexible()
    assert spec.whitespace.max_run is not None


def test_deep_json_text_is_a_typed_error() -> None:
    with pytest.raises(GrammarError):
        GrammarSpec.from_json_schema('{"items":' * 20_000 + "{}" + "}" * 20_000)
    with pytest.raises(GrammarError):
        GrammarSpec.structural_tag("[" * 20_000)
