"""Reading the source of a chat template: pieces, tags, strings, and the places of what cannot be read."""

from __future__ import annotations

import pytest

from reasoning_parsers import TemplateReadError
from reasoning_parsers.template_source import Assignment, Condition, Loop, Output, Text, Token, read_source


def name(text: str) -> Token:
    return Token("name", text)


def string(text: str) -> Token:
    return Token("string", text)


def operator(text: str) -> Token:
    return Token("operator", text)


@pytest.mark.parametrize(
    ("source", "nodes"),
    [
        ("", ()),
        ("a {# {{ b }} #}c", (Text("a "), Text("c"))),
        ("{{- x -}}y", (Output((name("x"),)), Text("y"))),
        ("{{ '}}' }}", (Output((string("}}"),)),)),
        ("{{ \"it's\" + '\\n' }}", (Output((string("it's"), operator("+"), string("\n"))),)),
        ("{{ '\\u00e9é' }}", (Output((string("éé"),)),)),
        ("{{ '\\x' }}", (Output((string("\\x"),)),)),
        ("{{ {'a': {}} }}", (Output((operator("{"), string("a"), operator(":"), *map(operator, "{}}"))),)),
        ("{% raw %}{{ x }}{% endraw %}y", (Text("{{ x }}"), Text("y"))),
        ("{% set a = 1 %}", (Assignment("a", (Token("number", "1"),)),)),
        ("{% set n.a = b %}", (Assignment("n.a", (name("b"),)),)),
        ("{% set a, b = c %}", (Assignment("", (name("c"),)),)),
        ("{% set a %}x{% endset %}", (Assignment("a", (), (Text("x"),)),)),
        ("{% macro m(a) %}x{% if a %}{% endif %}{% endmacro %}y", (Text("y"),)),
        ("{% generation %}x{% endgeneration %}", (Text("x"),)),
        ("{% do a.b() %}{%- break -%}x", (Text("x"),)),
        (
            "{% if a %}1{% elif b %}2{% else %}3{% endif %}",
            (Condition((((name("a"),), (Text("1"),)), ((name("b"),), (Text("2"),)), (None, (Text("3"),)))),),
        ),
        (
            "{% for k, v in d.items() if k %}x{% else %}y{% endfor %}",
            (Loop(("k", "v"), (name("d"), operator("."), name("items"), *map(operator, "()"), name("if"), name("k")),
                  (Text("x"), Text("y"))),),
        ),
        ("{% for a %}{% endfor %}", (Loop(("a",), (), ()),)),
    ],
)  # fmt: skip
def test_source_is_read(source: str, nodes: tuple[object, ...]) -> None:
    assert read_source(source) == nodes


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% if a %}", "no elif or else or endif before the end"),
        ("{% endif %}", "not known here: endif"),
        ("{% %}", "not known here: an empty one"),
        ("{% trans %}", "not known here: trans"),
        ("{% raw %}x", "no endraw"),
        ("a\n\n{# b", "line 3 of the chat template: no #}"),
        ("a\n{{ b", "line 2 of the chat template cannot be read"),
        ("{{ 'b }}", "line 1 of the chat template cannot be read"),
        ("{{ a ? b }}", "line 1 of the chat template cannot be read"),
    ],
)
def test_source_that_cannot_be_read_names_the_place(source: str, said: str) -> None:
    with pytest.raises(TemplateReadError, match=said):
        read_source(source)
