from __future__ import annotations

import dataclasses

import pytest

from reasoning_parsers import (
    DuplicateFamilyError,
    FamilyRegistry,
    MarkerError,
    ReasoningFamily,
    ReasoningParserError,
    ReasoningSplit,
    UnknownFamilyError,
    get_family,
    get_parser,
    list_families,
    register_family,
)
from tests.reasoning_parsers.cases import write_message


@pytest.mark.parametrize("name", ["deepseek_r1", "deepseek-r1", "DeepSeek-R1", " deepseek_r1 ", "qwq", "QwQ"])
def test_family_is_found_by_name_and_alias(name: str) -> None:
    assert get_family(name).name == "deepseek_r1"


def test_rows_are_complete() -> None:
    for family in list_families():
        assert family.source
        assert family.checked
        assert get_family(family.name) is family
        for alias in family.aliases:
            assert get_family(alias) is family
        if not family.keeps_reasoning_in_content:
            # The parser of every row splits its own markers.
            assert get_parser(family).split(write_message(family, "r", "x")) == ReasoningSplit("r", "x")
        boundaries = tuple(family.turn_boundaries)
        assert all(turn.startswith(boundaries) for turn in family.user_turns)


def test_rows_of_the_first_families() -> None:
    qwen3, pocket = get_family("qwen3"), get_family("pocket-r1")
    assert (qwen3.thinking_switch, qwen3.thinking_default, qwen3.implicit_ends) == ("enable_thinking", True, ("<tool_call>",))
    assert (pocket.start, pocket.end, pocket.template_opens) == ("<think>", "</think>", True)
    assert (pocket.thinking_switch, pocket.thinking_default) == ("enable_thinking", True)
    assert pocket.turn_boundaries == ("<|user|>", "<|assistant|>", "<|system|>")


def test_unknown_family_lists_near_names() -> None:
    with pytest.raises(UnknownFamilyError) as caught:
        get_family("qwen-33")
    assert caught.value.near == ("qwen3",)
    assert caught.value.name == "qwen-33"
    assert "did you mean qwen3?" in str(caught.value)
    assert isinstance(caught.value, ReasoningParserError)
    assert isinstance(caught.value, LookupError)
    assert not caught.value.retryable


def test_unknown_family_without_near_names_lists_all() -> None:
    with pytest.raises(UnknownFamilyError, match="known: deepseek_r1, qwen3") as caught:
        get_parser("zzz")
    assert caught.value.near == ()


def test_register_gives_a_new_registry_and_leaves_the_default_alone() -> None:
    mine = ReasoningFamily(name="mine", aliases=("my-own",), start="<m>", end="</m>")
    registry = register_family(mine)
    assert registry.get_family("MY_OWN") is mine
    assert registry.list_families() == (*list_families(), mine)
    assert mine not in list_families()
    with pytest.raises(UnknownFamilyError):
        get_family("mine")


@pytest.mark.parametrize(("name", "aliases"), [("QWQ", ()), ("mine", ("deepseek-r1",)), ("Deepseek-R1", ())])
def test_register_refuses_a_name_that_is_taken(name: str, aliases: tuple[str, ...]) -> None:
    with pytest.raises(DuplicateFamilyError) as caught:
        register_family(ReasoningFamily(name=name, aliases=aliases, start="<m>", end="</m>"))
    assert (caught.value.existing, caught.value.new) == ("deepseek_r1", name)
    assert "'deepseek_r1'" in str(caught.value)
    assert repr(name) in str(caught.value)


def test_registry_refuses_two_rows_of_one_name() -> None:
    row = ReasoningFamily(name="a", start="<m>", end="</m>")
    with pytest.raises(DuplicateFamilyError):
        FamilyRegistry((row, dataclasses.replace(row)))
    assert FamilyRegistry().list_families() == ()


@pytest.mark.parametrize(
    ("start", "end", "implicit_ends", "message"),
    [
        pytest.param("", "</m>", (), "empty marker", id="empty-start"),
        pytest.param("<m>", " ", (), "empty marker", id="blank-end"),
        pytest.param("<m>", "</m>", ("",), "empty marker", id="empty-implicit-end"),
        pytest.param("\n<m>", "</m>", (), "white space", id="white-space-first"),
        pytest.param("<m>", "<m>", (), "inside the start marker", id="equal"),
        pytest.param("<m>", "m>", (), "inside the start marker", id="end-inside-start"),
        pytest.param("<m>", "</m>", ("<",), "inside the start marker", id="implicit-end-inside-start"),
    ],
)
def test_family_refuses_markers_that_cannot_work(start: str, end: str, implicit_ends: tuple[str, ...], message: str) -> None:
    with pytest.raises(MarkerError, match=message) as caught:
        ReasoningFamily(name="x", start=start, end=end, implicit_ends=implicit_ends)
    assert caught.value.marker in (start, end, *implicit_ends)
