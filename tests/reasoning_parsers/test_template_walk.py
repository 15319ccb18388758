"""Following a template without running it: expressions against jinja2, and what is unknown stays unknown."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from reasoning_parsers.template_expression import UNDEFINED, UNKNOWN, Scope, Value, evaluate, is_true
from reasoning_parsers.template_source import Output, read_source
from reasoning_parsers.template_switches import prompt_states
from reasoning_parsers.template_walk import Choice, walk_template

GIVEN: dict[str, Any] = {"t": True, "f": False, "n": None, "word": "Low", "empty": "", "three": 3}


def code_of(expression: str) -> Any:
    (node,) = read_source("{{ " + expression + " }}")
    assert isinstance(node, Output)
    return node.code


def scope_of(**variables: object) -> Scope:
    return Scope({name: Value(value) for name, value in {**GIVEN, **variables}.items()})


@pytest.mark.parametrize(
    "expression",
    [
        "t and f", "t or f", "not f", "not t and f", "f and missing.a", "t or missing.a", "'x' or 'y'", "'' or 'y'",
        "'x' and 'y'",
        "t if f else 'other'", "'one' if t", "'a' + 'b' ~ 'c'", "'a' == 'a'", "'a' != 'b'", "three == 3", "n is none",
        "word in ['Low', 'High']", "word not in ['Low']", "word in ('Low',)", "word | lower", "word | upper", "' a ' | trim",
        "word | string", "missing | default('d')", "missing | d('d')", "empty | default('d')",
        "empty | default('d', true)", "empty | default('d', boolean=true)", "n | default('d')", "missing is defined",
        "t is defined",
        "missing is undefined", "missing is not defined", "t is true", "t is not false", "f is false", "t is boolean",
        "word is string", "three is number", "word is mapping", "not missing", "missing == 'a'", "missing != 'a'", "-three",
        "1_000", "1.5", "(t)", "none", "True", "None", "t is true and word == 'Low' or f", "not word is string",
        "not missing | default(false)", "'a' in ['b'] or 'a' in ['a']", "[1, 2] == [1, 2]", "missing | default",
        "'' | default('d', true)", "-1.5",
    ],
)  # fmt: skip
def test_known_expression_is_what_jinja2_makes_of_it(expression: str) -> None:
    value = evaluate(code_of(expression), scope_of()).value
    expected = jinja2.Environment().compile_expression(expression, undefined_to_none=False)(**GIVEN)
    if value is UNDEFINED:
        assert isinstance(expected, jinja2.Undefined)
    else:
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize(
    "expression",
    [
        "messages", "messages[0].role", "messages | length", "t and messages", "f or messages", "messages and t", "not messages",
        "messages == 'a'", "messages in ['a']", "'a' in messages", "'a' not in messages", "'a' in [messages]", "3 > 2", "3 < 2",
        "'a' + messages", "1 + 2", "2 ** 3", "word.lower()", "word[0]", "word[1:]", "call(1, a=2)", "namespace(a=1).a",
        "{'a': 1}", "namespace(**messages)",
        "messages | trim", "messages | default('x')", "'a' if messages else 'b'", "messages is string", "word is divisibleby(2)",
        "three | round", "", "1 2", "not", "t if", "word not word", "namespace(1)", ")", "messages | tojson(indent=2)",
    ],
)  # fmt: skip
def test_unknown_expression_stays_unknown(expression: str) -> None:
    assert evaluate(code_of(expression), scope_of(messages=UNKNOWN)).value is UNKNOWN


@pytest.mark.parametrize(
    ("expression", "value"),
    [("messages or t", True), ("messages and f", False), ("'a' if messages else 'a'", "a"), ("messages is defined or t", True)],
)
def test_unknown_parts_that_change_nothing_do_not_matter(expression: str, value: object) -> None:
    assert evaluate(code_of(expression), scope_of(messages=UNKNOWN)).value == value


def test_truth() -> None:
    assert [is_true(value) for value in (UNKNOWN, UNDEFINED, "", "a", None, [1])] == [None, False, False, True, False, True]


def texts(source: str, **variables: object) -> tuple[object, ...]:
    return walk_template(read_source(source), variables).written


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("a{{ b }}", ("a", str(UNDEFINED))),
        ("{{ 1 }}{{ messages }}", ("1", None)),
        ("{% if x %}1{% elif true %}2{% else %}3{% endif %}", ("2",)),
        ("{% if x %}1{% endif %}", ()),
        ("{% if messages %}1{% else %}2{% endif %}", (Choice((("1",), ("2",))),)),
        ("{% if messages %}1{% endif %}", (Choice((("1",), ())),)),
        ("{% for m in messages %}1{{ m }}{% endfor %}", (Choice((("1", None), ())),)),
        ("{% set a = 'x' %}{% if messages %}{% set a = 'y' %}{% endif %}{{ a }}", (Choice(((), ())), None)),
        ("{% set a = 'x' %}{% if messages %}{% set b = 'y' %}{% endif %}{{ a }}", (Choice(((), ())), "x")),
        ("{% set a %}x{% endset %}{{ a }}", ("x",)),
        ("{% set a %}{{ messages }}{% endset %}{{ a }}", (None,)),
        ("{% set a = 'x' %}{% for m in messages %}{% set a = 'y' %}{% endfor %}{{ a }}", (Choice(((), ())), "x")),
        ("{% set n = namespace(a='x', b='z') %}{{ n.a }}{{ n.c }}", ("x", str(UNDEFINED))),
        ("{% set n = namespace(a='x') %}{% set n.a = 'y' %}{{ n.a }}", ("y",)),
        (
            "{% set n = namespace(a='x') %}{% for m in messages %}{% set n.a = 'y' %}{% endfor %}{{ n.a }}",
            (Choice(((), ())), None),
        ),
        ("{% set a, b = messages %}{{ a }}", (str(UNDEFINED),)),
    ],
)
def test_walk(source: str, written: tuple[object, ...]) -> None:
    found = tuple("" if part == str(UNDEFINED) else part for part in texts(source))
    assert found == tuple("" if part == str(UNDEFINED) else part for part in written)


def test_generation_prompt_is_followed_though_the_last_message_is_unknown() -> None:
    source = "{% for m in messages %}a{% if loop.last and add_generation_prompt %}b{% endif %}{% endfor %}"
    walk = walk_template(read_source(source), {})
    assert (walk.generation, walk.asks_for_generation_prompt) == (("b",), True)
    nothing = walk_template(read_source("{% if not add_generation_prompt %}b{% endif %}"), {})
    assert (nothing.generation, nothing.asks_for_generation_prompt) == ((), False)


def test_inputs_are_what_is_read_and_not_set() -> None:
    source = (
        "{% set a = b %}{{ a }}{{ c | default('x') }}{{ call(d) }}{% for m in messages %}{{ m }}{{ loop }}{% endfor %}"
        "{{ bos_token }}{{ call(keyword=d) }}"
        "{% if e is defined %}{{ e }}{% endif %}{{ m.f }}"
    )
    assert walk_template(read_source(source), {}).inputs == ("b", "c", "d", "e", "m")
    assert walk_template(read_source("{{ given }}"), {"given": True}).inputs == ("given",)


def test_comparisons_are_noted_through_copies() -> None:
    source = (
        "{% set effort = reasoning_effort | default('high') | lower %}{{ effort == 'none' }}{{ 'low' == effort }}"
        "{{ effort in ['a', 'b'] }}{{ budget == 0 }}{{ effort == other }}"
    )
    walk = walk_template(read_source(source), {})
    assert walk.compared == {"reasoning_effort": ("none", "low", "a", "b"), "budget": (0,)}
    assert walk.defaults == {"reasoning_effort": "high"}


@pytest.mark.parametrize(
    ("parts", "states"),
    [
        ((), {"unknown"}),
        (("x",), {"unknown"}),
        (("<t>x",), {"open"}),
        (("<t>", "x</t>"), {"ended"}),
        (("<", "t", ">"), {"open"}),
        (("</t>", "<t>"), {"open"}),
        ((None,), {"open", "ended", "unknown"}),
        ((None, "<t>"), {"open"}),
        ((Choice((("<t>",), ())),), {"open", "unknown"}),
        (("<t>", Choice((("</t>",), ()))), {"open", "ended"}),
        ((Choice((("a",), ("b",))), "c"), {"unknown"}),
    ],
)
def test_states_of_a_prompt(parts: tuple[Any, ...], states: set[str]) -> None:
    assert prompt_states(parts, ("<t>",), ("</t>",)) == states


def test_longer_one_of_two_markers_that_end_together_is_meant() -> None:
    assert prompt_states(("a</t>",), ("</t>",), ("a</t>",)) == {"ended"}
