"""Answers that are texts: a regular expression, a choice, a grammar; from our own engine, and from servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from middleware import (
    Choice,
    Client,
    Grammar,
    InvalidAnswerError,
    InvalidSchemaError,
    Regex,
    StructuralTag,
    UnsupportedSchemaError,
)
from middleware.output_types import Accepted, OutputType
from middleware.testing import ScriptedUpstream, reply
from middleware.text_types import can_check, check_text, check_type
from middleware.upstreams.base import ChatRequest, UpstreamTraits
from middleware.upstreams.remote import RemoteUpstream

REMOTE = UpstreamTraits(wraps_root=True, extracts_answer=True)


@pytest.fixture(scope="module")
def pocket() -> Iterator[Client]:
    with Client("local/pocket-r1") as client:
        yield client


TYPES: dict[str, tuple[Any, Any]] = {
    "B12": (Regex("[0-9]{3}"), lambda text: len(text) == 3 and text.isdigit()),
    "B2": (Choice(("yes", "no")), lambda text: text in ("yes", "no")),
    "ebnf": (Grammar('root ::= "<" [a-z]{2} ">"\n'), lambda text: len(text) == 4 and text[0] + text[-1] == "<>"),
    "lark": (Grammar('start: "<" /[a-z]{2}/ ">"\n'), lambda text: len(text) == 4 and text[0] + text[-1] == "<>"),
    "tag": (
        StructuralTag(
            {"format": {"type": "tag", "begin": "<n>", "content": {"type": "regex", "pattern": "[0-9]"}, "end": "</n>"}}
        ),
        lambda text: text[:3] == "<n>" and text[4:] == "</n>",
    ),
}


@pytest.mark.parametrize(("output_type", "is_right"), TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("thinking", [True, False])
def test_local_model_is_held_to_the_text(pocket: Client, output_type: Any, is_right: Any, thinking: bool) -> None:
    result = pocket.generate(output_type, "Two apples for Ann.", thinking=thinking, max_tokens=400)
    assert is_right(result.output), result.output
    assert result.content == result.output
    assert (result.enforcement, result.strategy) == ("masked", "mask")
    assert bool(result.reasoning) is thinking


def test_local_refusal_names_the_place(pocket: Client) -> None:
    with pytest.raises(InvalidSchemaError, match="line 2, column 7"):
        pocket.generate(Grammar('root ::= a\na ::= b "x"\n'), "hi")


def test_remote_answer_is_checked_afterwards_and_says_so() -> None:
    upstream = ScriptedUpstream([reply("Hm.", "Maybe."), reply("Hm.", "\nyes\n")], traits=REMOTE)
    result = Client("test", upstream=upstream).generate(Choice(("yes", "no")), "Well?", max_attempts=2)
    assert (result.output, result.enforcement, result.attempts) == ("yes", "validated", 2)
    note = upstream.requests[1].messages[-1]["content"]
    assert "must be one of 'yes', 'no'" in note
    assert "JSON" not in note


def test_remote_answer_that_stays_wrong_is_an_error() -> None:
    upstream = ScriptedUpstream([reply("", "12a")] * 2, traits=REMOTE)
    with pytest.raises(InvalidAnswerError, match=r"\[0-9\]\{3\}"):
        Client("test", upstream=upstream).generate(Regex("[0-9]{3}"), "A number.", max_attempts=2)


def test_empty_answer_can_be_one_of_the_texts() -> None:
    upstream = ScriptedUpstream([reply("Nothing fits.", "")])
    assert Client("test", upstream=upstream).generate(Choice(("", "a")), "Which?").output == ""


@pytest.mark.parametrize("output_type", [Grammar('start: "a"'), StructuralTag({}), Regex(r"(?a)\d")], ids=repr)
def test_server_is_not_asked_for_what_nobody_could_check(output_type: Any) -> None:
    upstream = RemoteUpstream("openai/gpt-5", base_url="http://127.0.0.1:1", api_key="x")
    with pytest.raises(UnsupportedSchemaError, match="cannot be checked"):
        next(upstream.stream(ChatRequest([{"role": "user", "content": "hi"}], text_type=output_type)))


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        (r"\w+", "straße日本", True),
        (r"[\w-]+", "ä-1", True),
        (r"\d{2}", "१२", True),
        (r"[^\d]+", "१", False),
        (r"[0-9]{3}", "123\n", False),
        (r"a|b", "ab", False),
        (r"[[]\w", "[é", True),
        (r"(a)\1", "aa", True),
    ],
)
def test_regex_is_matched_as_a_whole_in_all_of_unicode(pattern: str, text: str, is_match: bool) -> None:
    assert (check_text(Regex(pattern), text) == ()) is is_match


@pytest.mark.parametrize(
    ("pattern", "text", "other"),
    [
        (r"(?<y>\d{4})", "2024", "y"), (r"\p{Lu}\PL", "É-", "é-"), (r"a\z", "a", "a\n"), ("[[:alpha:]_]+", "a_", "a["),
        (r"\u{1F642}", "🙂", "u"), (r"[[:foo:]]", "f]", "a"),
    ],
)  # fmt: skip
def test_spelling_of_another_engine_is_checked(pattern: str, text: str, other: str) -> None:
    check_type(Regex(pattern))
    assert not check_text(Regex(pattern), text)
    assert check_text(Regex(pattern), other)


def test_catastrophic_pattern_is_checked_in_bounded_time() -> None:
    start = time.perf_counter()
    for pattern in (r"(a+)+b", r"(a|aa)+$c", r"((a+)+(?!b)\1)*c"):
        check_text(Regex(pattern), "a" * 5000)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("output_type", [Regex("("), Regex(""), Choice(()), Choice((1,)), Grammar(" ")], ids=repr)  # type: ignore[arg-type]
def test_impossible_text_is_refused_at_once(output_type: Any) -> None:
    with pytest.raises(InvalidSchemaError):
        OutputType(output_type)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('root ::= "a:"', "ebnf"),
        ('# a: comment\nroot::="x"', "ebnf"),
        ('start: "::="', "lark"),
        ('?start: "a"', "lark"),
        ('// root ::= x\nA.2: "a"\nstart: A', "lark"),
        ("%import common.INT\nx[lazy]: /a/\nstart: x", "lark"),
    ],
)
def test_syntax_of_a_grammar_is_told_by_its_first_rule(text: str, kind: str) -> None:
    assert Grammar(text).kind == kind
    assert Grammar(text, "ebnf").kind == "ebnf"


def test_text_type_is_a_text() -> None:
    output: OutputType[str] = OutputType(Choice(("a",)))
    assert output.validate("a") == Accepted("a")
    assert output.schema is None
    assert can_check(Choice(("a",)))
    assert not can_check(Grammar("x"))
