from __future__ import annotations

import random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoning_parsers import (
    DelimitedParser,
    InvalidOptionError,
    PromptState,
    ReasoningDelta,
    ReasoningFamily,
    ReasoningSplit,
    get_family,
    get_parser,
)
from tests.reasoning_parsers.test_text_cases import run_pieces

# Markers that overlap themselves and each other.
ODD = ReasoningFamily(name="odd", start="aab", end="aaab", implicit_ends=("abab", "ba"), template_opens=True)
FAMILIES = (*(get_family(name) for name in ("deepseek_r1", "qwen3", "seed_oss")), ODD)
STATES: tuple[PromptState, ...] = get_args(PromptState)


# ---- one rule, one test


@pytest.mark.parametrize(
    ("prompt_state", "text", "reasoning", "content"),
    [
        pytest.param("open", "plan", "plan", None, id="open-never-closed"),
        pytest.param("open", "", None, None, id="empty"),
        pytest.param("open", "</think>x", None, "x", id="open-closed-at-once"),
        pytest.param("open", "\n<think>\nplan</think>x", "\n\nplan", "x", id="open-and-opened-again"),
        pytest.param("open", "a <think> b</think>x", "a <think> b", "x", id="start-marker-in-the-reasoning-is-text"),
        pytest.param("open", "plan</thin", "plan</thin", None, id="marker-never-completed"),
        pytest.param("open", "plan<</think>x", "plan<", "x", id="false-start-before-the-marker"),
        pytest.param("open", "<thi", "<thi", None, id="open-part-of-start-marker"),
        pytest.param("ended", "<think>x</think>", None, "<think>x</think>", id="ended-markers-are-text"),
        pytest.param("unknown", "<think>plan", "plan", None, id="opened-never-closed"),
        pytest.param("unknown", " \n<think>plan</think>x", " \nplan", "x", id="white-space-before-the-start-marker"),
        pytest.param("unknown", "Hi <think>r</think>x", None, "Hi <think>r</think>x", id="start-marker-not-at-the-head"),
        pytest.param("unknown", "<thi", None, "<thi", id="part-of-start-marker"),
        pytest.param("unknown", " \n", None, " \n", id="white-space-alone"),
        pytest.param("unknown", "<think>a</think><think>b</think>", "a", "<think>b</think>", id="one-block-only"),
    ],
)
def test_split_with_nothing_said_of_thinking(
    prompt_state: PromptState, text: str, reasoning: str | None, content: str | None
) -> None:
    assert get_parser("qwen3", prompt_state=prompt_state).split(text) == ReasoningSplit(reasoning, content)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        pytest.param("Well, <think>r</think>x", "Well, r", "x", id="preamble"),
        pytest.param("Well, <think>r", "Well, r", None, id="preamble-never-closed"),
        pytest.param("plan</think>x", "plan", "x", id="only-the-end-marker"),
        pytest.param("answer", None, "answer", id="no-marker"),
        pytest.param(" \nanswer <thi", None, " \nanswer <thi", id="no-marker-and-part-of-one"),
        pytest.param("Look: <tool_call>{}", None, "Look: <tool_call>{}", id="tool-call-after-preamble"),
        pytest.param("", None, None, id="empty"),
    ],
)
@pytest.mark.parametrize("name", ["deepseek_r1", "qwen3"])
def test_split_while_thinking_is_expected(name: str, text: str, reasoning: str | None, content: str | None) -> None:
    parser = get_parser(name, thinking_enabled=True, tools_offered=True)
    assert parser.split(text) == ReasoningSplit(reasoning, content)


def test_thinking_is_expected_where_the_template_writes_the_start_marker() -> None:
    assert get_parser("deepseek_r1").split("plan</think>x") == ReasoningSplit("plan", "x")
    assert get_parser("qwen3").split("plan</think>x") == ReasoningSplit(None, "plan</think>x")


@pytest.mark.parametrize(
    ("prompt_state", "text", "reasoning", "content"),
    [
        pytest.param("unknown", "<think>it is 4", None, "it is 4", id="unknown-leaked-block"),
        pytest.param("ended", "<think>it is 4", None, "it is 4", id="ended-leaked-block"),
        pytest.param("open", "it is 4", None, "it is 4", id="open-never-closed"),
        pytest.param("open", "<think>it is 4", None, "it is 4", id="open-and-opened-again"),
        pytest.param("unknown", "<think>r</think>x", "r", "x", id="closed-block"),
        pytest.param("ended", "<think>r</think>x", "r", "x", id="ended-closed-block"),
        pytest.param("open", "r</think>x", "r", "x", id="open-closed"),
        pytest.param("unknown", "r</think>x", None, "r</think>x", id="end-marker-alone"),
        pytest.param("ended", "use <think>", None, "use <think>", id="marker-not-at-the-head"),
        pytest.param("ended", "<thi", None, "<thi", id="part-of-start-marker"),
        pytest.param("unknown", "<think>r<tool_call>{}", "r", "<tool_call>{}", id="tool-call"),
    ],
)
def test_split_with_thinking_switched_off(
    prompt_state: PromptState, text: str, reasoning: str | None, content: str | None
) -> None:
    parser = get_parser("qwen3", prompt_state=prompt_state, thinking_enabled=False, tools_offered=True)
    assert parser.split(text) == ReasoningSplit(reasoning, content)


def test_split_takes_the_marker_that_completes_first() -> None:
    parser = get_parser(
        ReasoningFamily(name="x", start="<s>", end="[end]", implicit_ends=("nd", "d]more")),
        prompt_state="open",
        tools_offered=True,
    )
    assert parser.split("r[end]more") == ReasoningSplit("r[e", "nd]more")
    # Both complete together: the longer one.
    both = ReasoningFamily(name="x", start="<s>", end="[end]", implicit_ends=("d]",))
    assert get_parser(both, prompt_state="open", tools_offered=True).split("r[end]x") == ReasoningSplit("r", "x")


# ---- the calls


def test_deltas_come_as_soon_as_they_are_certain() -> None:
    parser = get_parser("qwen3", prompt_state="open")
    assert parser.feed("plan") == ReasoningDelta("plan")
    assert parser.feed(" b</thi") == ReasoningDelta(" b")
    assert parser.feed("s") == ReasoningDelta("</this")
    assert parser.feed("</think>{") == ReasoningDelta("", "{")
    assert parser.reasoning_ended
    assert parser.feed("}") == ReasoningDelta("", "}")
    assert not parser.feed("")
    assert not parser.finish()


def test_held_back_text_comes_with_finish_once() -> None:
    parser = get_parser("qwen3", prompt_state="open")
    assert not parser.feed("</think")
    assert parser.finish() == ReasoningDelta("</think")
    assert parser.finish() == ReasoningDelta()
    assert not parser.reasoning_ended


def test_feed_after_finish_is_refused() -> None:
    parser = get_parser("qwen3")
    parser.finish()
    with pytest.raises(InvalidOptionError, match="finished"):
        parser.feed("x")


def test_split_leaves_the_parser_as_it_was() -> None:
    parser = get_parser("qwen3", prompt_state="open")
    parser.feed("plan</th")
    assert parser.split("r</think>x") == ReasoningSplit("r", "x")
    assert parser.feed("ink>y") == ReasoningDelta("", "y")


def test_reasoning_ended_is_true_from_the_start_after_an_ended_prompt() -> None:
    assert get_parser("qwen3", prompt_state="ended").reasoning_ended
    assert not get_parser("qwen3").reasoning_ended


def test_parser_refuses_an_unknown_prompt_state() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        get_parser("qwen3", prompt_state="none")  # type: ignore[arg-type]
    assert caught.value.param == "prompt_state"


# ---- properties


def _texts(family: ReasoningFamily) -> st.SearchStrategy[str]:
    markers = (family.start, family.end, *family.implicit_ends)
    parts = [marker[:size] for marker in markers for size in range(1, len(marker) + 1)]
    return st.lists(
        st.one_of(st.sampled_from(markers), st.sampled_from(parts), st.text(alphabet=" \nab<x", max_size=3)), max_size=8
    ).map("".join)


@st.composite
def _parsers_and_texts(draw: st.DrawFn) -> tuple[DelimitedParser, str]:
    family = draw(st.sampled_from(FAMILIES))
    parser = DelimitedParser(
        family,
        prompt_state=draw(st.sampled_from(STATES)),
        thinking_enabled=draw(st.sampled_from((None, True, False))),
        tools_offered=draw(st.booleans()),
    )
    return parser, draw(_texts(family))


def _cut(text: str, markers: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Text before the marker, the marker, text after it. Prefixes from the shortest: what completes first is found first."""
    for stop in range(len(text) + 1):
        ends = [marker for marker in markers if text[:stop].endswith(marker)]
        if ends:
            marker = max(ends, key=len)
            return text[: stop - len(marker)], marker, text[stop:]
    return None


def _close(parser: DelimitedParser, lead: str, body: str) -> ReasoningSplit:
    """Split a text that is inside the thinking."""
    implicit_ends = parser.family.implicit_ends if parser._options.tools_offered else ()
    found = _cut(body, (parser.family.end, *implicit_ends))
    if found is not None:
        before, marker, after = found
        return ReasoningSplit((lead + before) or None, (marker if marker in implicit_ends else "") + after or None)
    if parser._options.thinking_enabled is False:
        return ReasoningSplit(None, (lead + body) or None)
    return ReasoningSplit((lead + body) or None, None)


def reference_split(parser: DelimitedParser, text: str) -> ReasoningSplit:
    """The rules, over the whole text at once."""
    family, state, enabled = parser.family, parser._options.prompt_state, parser._options.thinking_enabled
    if state == "ended" and enabled is not False:
        return ReasoningSplit(None, text or None)
    body = text.lstrip()
    lead = text[: len(text) - len(body)]
    if body.startswith(family.start):
        return _close(parser, lead, body[len(family.start) :])
    if state == "open":
        return _close(parser, lead, body)
    found = _cut(body, (family.start, family.end))
    is_expected = state == "unknown" and (enabled or (enabled is None and family.template_opens))
    if not is_expected or found is None:
        return ReasoningSplit(None, text or None)
    if found[1] == family.start:
        return _close(parser, lead + found[0], found[2])
    return ReasoningSplit((lead + found[0]) or None, found[2] or None)


@settings(max_examples=60, deadline=None)
@given(_parsers_and_texts())
def test_split_equals_the_rules_over_the_whole_text(parser_and_text: tuple[DelimitedParser, str]) -> None:
    parser, text = parser_and_text
    assert parser.split(text) == reference_split(parser, text)


@settings(max_examples=60, deadline=None)
@given(_parsers_and_texts(), st.data())
def test_any_chunking_gives_the_same_split(parser_and_text: tuple[DelimitedParser, str], data: st.DataObject) -> None:
    parser, text = parser_and_text
    expected = parser.split(text)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[first:stop] for first, stop in zip([0, *places], [*places, len(text)], strict=True)]
    assert run_pieces(parser, pieces) == expected


def test_many_random_texts_and_chunkings_give_the_split_of_the_rules() -> None:
    """The two properties again without hypothesis' overhead, so many more texts."""
    for seed in range(4_000):
        rng = random.Random(seed)
        family = rng.choice(FAMILIES)
        parser = DelimitedParser(
            family,
            prompt_state=rng.choice(STATES),
            thinking_enabled=rng.choice((None, True, False)),
            tools_offered=rng.random() < 0.5,
        )
        markers = (family.start, family.end, *family.implicit_ends)
        parts = [rng.choice((*markers, rng.choice(markers)[: rng.randint(0, 7)], rng.choice(" \nab<x"))) for _ in range(8)]
        text = "".join(parts[: rng.randint(0, 8)])
        expected = reference_split(parser, text)
        assert parser.split(text) == expected, f"seed {seed}"
        places = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, 6)))
        pieces = [text[first:stop] for first, stop in zip([0, *places], [*places, len(text)], strict=True)]
        assert run_pieces(parser, pieces) == expected, f"seed {seed}"


@settings(max_examples=60, deadline=None)
@given(_texts(get_family("qwen3")), st.sampled_from(STATES), st.booleans())
def test_only_a_tail_that_can_become_a_marker_is_held_back(text: str, prompt_state: PromptState, tools_offered: bool) -> None:
    parser = get_parser("qwen3", prompt_state=prompt_state, tools_offered=tools_offered)
    markers = ("<think>", "</think>", *(("<tool_call>",) if tools_offered else ()))
    given_out = ""
    for place, char in enumerate(text, start=1):
        was_ended = parser.reasoning_ended
        delta = parser.feed(char)
        given_out += delta.reasoning + delta.content
        fed = text[:place]
        if was_ended:
            assert delta == ReasoningDelta("", char)
        elif not any(marker in fed for marker in markers):
            tail = max(size for marker in markers for size in range(len(marker)) if fed.endswith(marker[:size]))
            # A start marker may follow, and decide whose white space it is.
            is_head = prompt_state == "unknown" and markers[0].startswith(fed.lstrip())
            assert len(fed) - len(given_out) <= (len(fed) if is_head else tail)


@pytest.mark.parametrize("piece", [" ", "<", "<thi", "x", "</thin"])
@pytest.mark.parametrize("prompt_state", STATES)
def test_cost_stays_linear_since_the_buffer_stays_short(piece: str, prompt_state: PromptState) -> None:
    parser = DelimitedParser(get_family("deepseek_r1"), prompt_state=prompt_state, tools_offered=True)
    for _ in range(200):
        parser.feed(piece)
        assert len(parser._buffer) < len("</think>")
