"""What admission must not do twice, or for nothing: work is counted here, seconds are measured in the bench."""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from typing import Any

import jsonschema_rs
import pytest

from engine import GrammarSpec, InvalidGrammarError
from engine.grammar import CompileSettings, GrammarManager
from engine.grammar.rewrite import Program, memo, rewrite
from engine.grammar.rewrite.expand import MAX_OVERWORK, MAX_WORK
from engine.grammar.rewrite.facets import Facets
from tests.engine.grammar_backends import make_backend

VALUES = ("a", "b", "c", 1, 1.0, 2, True, None, [1], {"a": 1})


def test_choice_of_listed_values_is_one_alternative() -> None:
    names = [f"v{number}" for number in range(300)]
    schema = {"anyOf": [{"const": name, "title": name, "x-vendor": 1} for name in names]}
    program = Program({"allOf": [schema, {"pattern": "7$"}]})
    assert [one.values for one in program.alternatives[program.root]] == [tuple(name for name in names if name.endswith("7"))]
    # Each branch of the choice alone, beside the pattern, would be one piece of work.
    assert program.expander._work < 10


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_choice_of_listed_values_keeps_its_meaning(keyword: str) -> None:
    rng = random.Random(5)
    for _ in range(200):
        branches = [
            {"const": rng.choice(VALUES)} if rng.random() < 0.5 else {"enum": rng.sample(VALUES, rng.randint(1, 3))}
            for _ in range(rng.randint(1, 4))
        ]
        schema: dict[str, Any] = {keyword: branches}
        schema |= rng.choice(({}, {"type": "string"}, {"minimum": 2}, {"not": {"const": "a"}}, {"enum": ["a", 2, [1]]}))
        is_valid = jsonschema_rs.validator_for(schema).is_valid
        rewriting = rewrite(Program(schema), backend="llguidance")
        assert rewriting.checked == {}
        after = jsonschema_rs.validator_for(rewriting.schema).is_valid
        assert [value for value in (*VALUES, "d", 3) if is_valid(value)] == [v for v in (*VALUES, "d", 3) if after(v)], schema


def test_words_that_nobody_knows_cost_nothing() -> None:
    branch = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    plain = {"anyOf": [branch, {"type": "integer"}], "description": "either"}
    noisy = {**plain, "x-vendor": [1, 2], "discriminator": {"propertyName": "a"}, "": 0}
    programs = [Program({"type": "array", "items": schema}) for schema in (plain, noisy)]
    assert programs[0].expander._work == programs[1].expander._work
    assert rewrite(programs[0], backend="llguidance") == rewrite(programs[1], backend="llguidance")


def test_integers_between_bounds_match_counting() -> None:
    steps = [(), (Fraction(3),), (Fraction(1, 2),), (Fraction(3, 2),), (Fraction(4), Fraction(6))]
    for low, high, multiples in itertools.product(range(-7, 8), range(-7, 8), steps):
        one = Facets(is_integer=True, low=Fraction(low), high=Fraction(high), multiples=multiples)
        expected = [n for n in range(low, high + 1) if all((Fraction(n) / step).denominator == 1 for step in multiples)]
        found = one.integers(100)
        assert found is not None
        assert list(found) == expected
        assert one.is_number_empty() is (not expected)
    far = Facets(is_integer=True, low=Fraction(1), high=Fraction(10**300), multiples=(Fraction(10**200 + 1),))
    assert not far.is_number_empty()
    assert far.integers(100) is None


def test_rewriting_is_the_same_in_every_run() -> None:
    schema = {"type": "string", "not": {"enum": ["b", "a", "dd"]}, "pattern": "^(?:x|yy|[a-d]{1,3})$", "maxLength": 9}
    kept = [object() for _ in range(1000)]
    texts = set()
    for number in range(6):
        texts.add(json.dumps([rewrite(Program(schema), backend=name).schema for name in ("llguidance", "xgrammar")]))
        del kept[:: number + 2]  # so that addresses come in another order
    assert len(texts) == 1


def test_admission_rewrites_for_the_backend_in_use_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(program: Program, *, backend: str) -> Any:
        asked.append(backend)
        return rewrite(program, backend=backend)

    monkeypatch.setattr(memo, "rewrite", count)
    manager = GrammarManager([make_backend("xgrammar"), make_backend("llguidance")], CompileSettings(upgrade_after=1))
    # Too long for xgrammar to be quick, also on a small vocabulary.
    schema = {"type": "object", "properties": {f"only-{number}": {"type": "string"} for number in range(800)}}
    spec = GrammarSpec.from_json_schema(schema)
    assert asked == []
    manager.check(spec)
    manager.check(spec)
    manager.close()
    assert asked == ["llguidance"]


def doubled(depth: int, **more: Any) -> dict[str, Any]:
    """Every definition holds the next one twice."""
    definitions: dict[str, Any] = {
        f"d{number}": {"allOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}], **more}
        for number in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{depth}": {"type": "string", "maxLength": 3}}}


@pytest.mark.parametrize("more", [{}, {"minLength": 2}], ids=["bare", "beside-a-rule"])
def test_what_is_said_twice_is_taken_in_once(more: dict[str, Any]) -> None:
    program = Program(doubled(60, **more))
    assert program.expander._work < 300
    assert rewrite(program, backend="llguidance").schema == {"type": "string", **more, "maxLength": 3}


def test_rule_that_was_applied_outside_still_counts_as_evaluated_inside() -> None:
    schema = {
        "$defs": {"named": {"allOf": [{"properties": {"a": {"type": "string"}}}]}},
        "allOf": [{"$ref": "#/$defs/named"}, {"$ref": "#/$defs/named", "unevaluatedProperties": False}],
        "type": "object",
    }
    is_valid = jsonschema_rs.validator_for(rewrite(Program(schema), backend="llguidance").schema).is_valid
    assert is_valid({"a": "x"})
    assert not is_valid({"a": 1})
    assert not is_valid({"b": 1})


def test_choices_beyond_the_budget_are_left_to_the_check() -> None:
    pairs = [[{"properties": {name: {"type": "string"}}, "required": [name]} for name in (f"a{i}", f"b{i}")] for i in range(40)]
    program = Program({"type": "object", "allOf": [{"anyOf": pair} for pair in pairs]})
    assert program.expander._work < 2 * (MAX_WORK + MAX_OVERWORK)
    rewriting = rewrite(program, backend="llguidance")
    assert "#/allOf/39/anyOf" in rewriting.checked
    assert jsonschema_rs.validator_for(rewriting.schema).is_valid(dict.fromkeys((f"a{i}" for i in range(40)), "x"))


def test_branches_with_numbers_for_tags_are_told_apart_without_comparing_them() -> None:
    branches = [{"properties": {"kind": {"const": number}}, "required": ["kind"], "type": "object"} for number in range(300)]
    program = Program({"oneOf": branches})
    assert program.expander._work < 1000  # not 300 times 300
    assert rewrite(program, backend="llguidance").checked == {}
    equal = Program({"oneOf": [branches[1], {**branches[1], "properties": {"kind": {"const": 1.0}}}]})
    assert equal.find_impossible() is not None  # 1.0 is 1, so each value is in both


def test_schema_that_is_large_when_it_is_written_down_is_refused_by_counting() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(60):
        schema = {"anyOf": [schema, schema]}
    with pytest.raises(InvalidGrammarError, match="more than 500000 values"):
        GrammarSpec.from_json_schema(schema)
