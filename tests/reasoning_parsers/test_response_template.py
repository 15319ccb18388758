"""Rows from the response template that a tokenizer ships."""

from __future__ import annotations

from typing import Any

import pytest

from reasoning_parsers import MarkerError, ReasoningSplit, family_from_response_template, get_parser
from tests.reasoning_parsers.test_text_cases import run_pieces

QWEN: dict[str, Any] = {
    "version": 1,
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>\n", "close": ["\n</think>\n\n", "</think>"]},
        "content": {"close": "<|im_end|>"},
        "tool_calls": {"open": "<tool_call>\n", "close": "\n</tool_call>", "content": "json", "repeats": True},
    },
}
HARMONY: dict[str, Any] = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "reasoning_content": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
        "content": {"open": "<|channel|>final<|message|>", "close": ["<|return|>", "<|end|>"]},
        "tool_calls": {"open": "<|channel|>commentary to=", "close": "<|call|>"},
    },
}


def test_template_without_a_header_for_the_answer_is_delimited() -> None:
    row = family_from_response_template(QWEN, name="mine")
    assert (row.name, row.format, row.start, row.ends) == ("mine", "delimited", "<think>", ("</think>",))
    assert (row.implicit_ends, row.turn_boundaries) == (("<tool_call>",), ("<|im_start|>assistant",))
    assert row.source
    assert get_parser(row).split("<think>\nr\n</think>\n\nx") == ReasoningSplit("\nr\n", "\n\nx")
    called = get_parser(row, tools_offered=True).split('<think>r<tool_call>\n{"name":"w"}')
    assert called == ReasoningSplit("r", '<tool_call>\n{"name":"w"}')


def test_template_with_a_header_for_the_answer_has_channels() -> None:
    row = family_from_response_template(HARMONY)
    assert (row.name, row.format, row.end) == ("response_template", "channels", "<|channel|>final<|message|>")
    assert row.channels is not None
    assert (row.channels.frames, row.channels.next_frame) == (("<|start|>assistant",), "<|start|>assistant")
    text = "<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>x<|return|>"
    for pieces in ([text], list(text)):
        assert run_pieces(get_parser(row), pieces) == ReasoningSplit("r", "x")
    assert not get_parser(row).split(text[:40]).final_reached
    call = '<|channel|>commentary to=w<|message|>{"a":1}<|call|>'
    assert get_parser(row, tools_offered=True).split(call) == ReasoningSplit(None, call)


def test_anchor_that_is_the_beginning_of_a_header_is_no_frame() -> None:
    fields = {"thinking": {"open": "<a>t", "close": "</a>"}, "content": {"open": "<a>c", "close": "</a>"}}
    row = family_from_response_template({"start_anchor": ["<a>", 3, " "], "fields": fields})
    assert row.channels is not None
    assert (row.channels.frames, row.turn_boundaries) == ((), ("<a>",))


@pytest.mark.parametrize(
    ("pattern", "start"),
    [(r"<think>\n?", "<think>"), (r"\s*<\|t\|>\s*", "<|t|>"), (r"\[THINK\][ \t]*", "[THINK]")],
    ids=["line-break", "escaped", "class-of-white-space"],
)
def test_pattern_that_is_a_text_is_taken(pattern: str, start: str) -> None:
    fields = {"thinking": {"open_pattern": pattern, "close": "</t>"}}
    assert family_from_response_template({"fields": fields}).start == start


def test_label_and_spellings_are_taken() -> None:
    fields = {"thinking": {"open": ["<|channel>thought\n", "<|channel>", "<t>"], "close": "<channel|>"}}
    row = family_from_response_template({"fields": fields})
    assert (row.start, row.start_label, row.other_starts) == ("<|channel>", "thought\n", ("<t>",))


@pytest.mark.parametrize(
    ("template", "field"),
    [
        pytest.param({"fields": {}}, "fields", id="no-fields"),
        pytest.param({"fields": []}, "version", id="fields-are-no-mapping"),
        pytest.param({"version": 2, "fields": {"thinking": {}}}, "version", id="another-version"),
        pytest.param({"fields": {"content": {}}}, "fields", id="no-thinking"),
        pytest.param({"fields": {"thinking": {"open": "<t>"}}}, "fields.thinking", id="never-closed"),
        pytest.param({"fields": {"thinking": {"close": "</t>"}}}, "fields.thinking", id="never-opened"),
        pytest.param({"fields": {"thinking": "<t>"}}, "fields.thinking", id="no-mapping"),
        pytest.param({"fields": {"thinking": {"open": ["<t>", 1], "close": "</t>"}}}, "fields.thinking.open", id="no-text"),
        pytest.param({"fields": {"thinking": {"open": 3, "close": "</t>"}}}, "fields.thinking.open", id="number"),
        pytest.param({"fields": {"thinking": {"open": " ", "close": "</t>"}}}, "fields.thinking.open", id="blank"),
        pytest.param(
            {"fields": {"thinking": {"open_pattern": "<t[0-9]>", "close": "</t>"}}}, "fields.thinking.open_pattern", id="pattern"
        ),
        pytest.param(
            {"fields": {"thinking": {"open": "<t>", "close_pattern": 3}}},
            "fields.thinking.close_pattern",
            id="pattern-is-no-text",
        ),
        pytest.param({"fields": {"thinking": {"open": "<t>x</t>", "close": "</t>"}}}, "end", id="contradiction"),
    ],
)
def test_template_that_is_no_row_is_refused(template: dict[str, Any], field: str) -> None:
    with pytest.raises(MarkerError) as caught:
        family_from_response_template(template, name="mine")
    assert (caught.value.family, caught.value.field) == ("mine", field)
    assert "'mine'" in str(caught.value)
