"""What rows add to one pair of delimiters: spellings, labels, wrappers, suffixes, efforts, thinking that stays in the content."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoning_parsers import (
    InvalidOptionError,
    PromptState,
    ReasoningDelta,
    ReasoningFamily,
    ReasoningSplit,
    get_family,
    get_parser,
    list_families,
)
from reasoning_parsers.channel_parser import MAX_HEADER_LEN
from reasoning_parsers.content_wrappers import UnwrappingParser
from reasoning_parsers.kept_reasoning import KeptReasoningParser
from reasoning_parsers.marker_search import MAX_SUFFIX_LEN, MarkerSearch
from tests.reasoning_parsers.cases import write_message
from tests.reasoning_parsers.test_text_cases import run_pieces

STATES: tuple[PromptState, ...] = ("ended", "open", "unknown")
SUFFIX = ":6124c78e"


def check(name: str, text: str, reasoning: str | None, content: str | None, **options: Any) -> None:
    """The split, whole and in every two pieces, and character by character."""
    expected = get_parser(name, **options).split(text)
    assert (expected.reasoning, expected.content) == (reasoning, content)
    for pieces in ([text[:cut], text[cut:]] for cut in range(len(text) + 1)):
        assert run_pieces(get_parser(name, **options), pieces) == expected
    assert run_pieces(get_parser(name, **options), list(text)) == expected


# ---- one rule, one test


@pytest.mark.parametrize("here", ["Here is", "Here's"])
@pytest.mark.parametrize("there", ["Here is", "Here's"])
def test_phrases_are_markers_in_every_spelling(here: str, there: str) -> None:
    check("granite", f"{here} my thought process: r {there} my response: x", " r ", " x")
    check("granite", f"\n{here} my thought process:r Here is my", "\nr Here is my", None)


def test_text_without_the_phrase_at_the_head_is_content() -> None:
    check("granite", "So: Here is my thought process: r", None, "So: Here is my thought process: r")


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "options"),
    [
        pytest.param("<|channel>thought\nr<channel|>x", "r", "x", {}, id="A18.d"),
        pytest.param("<|channel>r<channel|>x", "r", "x", {}, id="left-out"),
        pytest.param("<|channel>thoughtful<channel|>x", "thoughtful", "x", {}, id="another-word"),
        pytest.param("<|channel>thought\n<channel|>x", None, "x", {}, id="empty-thinking"),
        pytest.param("<|channel>thou", "thou", None, {}, id="cut-off"),
        pytest.param("<|channel>thought\n", None, None, {}, id="label-alone"),
        pytest.param("thought\nr<channel|>x", "r", "x", {"prompt_state": "open"}, id="marker-in-the-prompt"),
        pytest.param("r<channel|>x", "r", "x", {"prompt_state": "open"}, id="marker-and-label-in-the-prompt"),
        pytest.param("<|channel>thought\nr", None, "r", {"thinking_enabled": False}, id="A16"),
        pytest.param("Hm <|channel>thought\nr<channel|>x", "Hm r", "x", {"thinking_enabled": True}, id="preamble"),
        pytest.param("thought\nx", None, "thought\nx", {}, id="label-without-the-marker-is-text"),
    ],
)
def test_label_after_the_start_marker_belongs_to_it(
    text: str, reasoning: str | None, content: str | None, options: dict[str, Any]
) -> None:
    check("gemma4", text, reasoning, content, **options)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        pytest.param("\n\n<response>\nx\n</response>\n", "x", id="wrapped"),
        pytest.param("<0x0A><response><0x0A>x y<0x0A></response><0x0A>", "x y", id="line-breaks-as-tokens"),
        pytest.param("<response>x", "x", id="never-closed"),
        pytest.param("<response>x\n ", "x\n ", id="white-space-stays-where-nothing-closes"),
        pytest.param("<response></response>", None, id="empty"),
        pytest.param("<response> \n", None, id="white-space-alone"),
        pytest.param("\nx</response>", "\nx</response>", id="closed-and-not-opened"),
        pytest.param("x <response>y</response>", "x <response>y</response>", id="not-at-the-head"),
        pytest.param("<response>a </response> b</response>", "a </response> b", id="closing-text-in-the-answer"),
        pytest.param("<response>a</response></response>", "a</response>", id="closed-twice"),
        pytest.param("<response>a</respon", "a</respon", id="closing-text-cut-off"),
        pytest.param("<respon", "<respon", id="opening-text-cut-off"),
        pytest.param("<response>a</response>\n<0x", "a</response>\n<0x", id="line-break-cut-off"),
        pytest.param("\n<response> <0x", " <0x", id="line-break-cut-off-at-the-head"),
        pytest.param(" ", " ", id="white-space"),
        pytest.param("<response>a < b</response>", "a < b", id="beginning-of-a-tag"),
    ],
)
def test_wrapper_is_taken_off_the_content(text: str, content: str | None) -> None:
    check("ernie45", f"r</think>{text}", "r", content)
    swapped = text.replace("response", "answer"), content and content.replace("response", "answer")
    check("hunyuan_a13b", f"<think>r</think>{swapped[0]}", "r", swapped[1])


def test_wrapper_without_thinking_goes_too() -> None:
    check("hunyuan_a13b", '<answer>\n{"a":1}\n</answer>', None, '{"a":1}', prompt_state="ended")
    check("cohere_command3", "r<|END_THINKING|><|START_TEXT|>x<|END_TEXT|>", "r", "x", prompt_state="open")


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "options"),
    [
        pytest.param(f"r</think{SUFFIX}>x", "r", "x", {}, id="end"),
        pytest.param(f"<think{SUFFIX}>r</think{SUFFIX}>x", "r", "x", {"prompt_state": "open"}, id="start-again"),
        pytest.param(
            f"r<tool_calls{SUFFIX}>[]",
            "r",
            f"<tool_calls{SUFFIX}>[]",
            {"tools_offered": True, "prompt_state": "open"},
            id="tool-call",
        ),
        pytest.param("r</think>x", "r", "x", {}, id="bare"),
        pytest.param("r</think: a>x", None, "r</think: a>x", {}, id="white-space-in-it"),
        pytest.param("r</think:</think:a>x", "r</think:", "x", {}, id="begun-again"),
        pytest.param("r</thinking></think:a>x", "r</thinking>", "x", {}, id="another-word"),
        pytest.param(f"r</think:{'y' * (MAX_SUFFIX_LEN - 1)}>x", "r", "x", {}, id="longest"),
        pytest.param(f"r</think:{'y' * MAX_SUFFIX_LEN}>x", None, f"r</think:{'y' * MAX_SUFFIX_LEN}>x", {}, id="too-long"),
        pytest.param("r</think:abc", "r</think:abc", None, {"prompt_state": "open"}, id="cut-off"),
    ],
)
def test_suffix_of_the_markers_is_read_in_the_text(
    text: str, reasoning: str | None, content: str | None, options: dict[str, Any]
) -> None:
    check("hy_v4", text, reasoning, content, **options)


def test_row_of_one_vocabulary_has_its_suffix_everywhere() -> None:
    row = get_family("hy_v4").for_vocabulary([f"{stem}{SUFFIX}>" for stem in ("<think", "</think", "<tool_calls")])
    assert (row.start, row.end, row.implicit_ends) == (f"<think{SUFFIX}>", f"</think{SUFFIX}>", (f"<tool_calls{SUFFIX}>",))
    assert get_parser(row).split(f"r</think>s</think{SUFFIX}>x") == ReasoningSplit("r</think>s", "x")
    bare = get_family("hy_v4").for_vocabulary(["<think>", "</think>"])
    assert bare.implicit_ends == ("<tool_calls>",)


@pytest.mark.parametrize(("effort", "tag"), [("high", "think"), ("medium", "think_fast"), ("low", "think_faster")])
def test_effort_chooses_the_markers(effort: str, tag: str) -> None:
    text = f"<ifm|{tag}>r</ifm|{tag}>x"
    for options in ({}, {"effort": effort}):
        check("k2_horizon", text, "r", "x", **options)
    other = "low" if effort == "high" else "high"
    assert get_parser("k2_horizon", effort=other, prompt_state="open").split(text) == ReasoningSplit(text, None)
    with pytest.raises(InvalidOptionError, match="no effort of 'k2_horizon'"):
        get_parser("k2_horizon", effort="max")


def test_efforts_may_share_markers() -> None:
    row = ReasoningFamily(
        name="mine",
        start="<t>",
        end="</t>",
        other_starts=("<s>",),
        effort_markers=(("high", "<t>", "</t>"), ("mid", "<t>", "</m>"), ("low", "<f>", "</m>")),
    )
    for text in ("<t>r</t>x", "<t>r</m>x", "<f>r</m>x", "<s>r</t>x"):
        assert get_parser(row).split(text) == ReasoningSplit("r", "x")


@pytest.mark.parametrize(
    ("text", "content", "options"),
    [
        pytest.param("r</think>x", "<think>r</think>x", {}, id="start-is-put-back"),
        pytest.param("<think>r</think>x", "<think>r</think>x", {}, id="start-is-there"),
        pytest.param("</think>x", "<think></think>x", {}, id="empty-thinking"),
        pytest.param("r", "<think>r", {"prompt_state": "open"}, id="never-closed"),
        pytest.param('{"a":1}', '{"a":1}', {}, id="A3-no-marker"),
        pytest.param("x", "x", {"prompt_state": "ended"}, id="ended"),
        pytest.param("r", "r", {"prompt_state": "open", "thinking_enabled": False}, id="A16"),
        pytest.param("", None, {}, id="empty"),
    ],
)
def test_thinking_that_stays_in_the_content_is_no_reasoning(text: str, content: str | None, options: dict[str, Any]) -> None:
    check("minimax_m2_append_think", text, None, content, **options)


def test_parsers_around_parsers_keep_the_calls() -> None:
    for name, kind in (("ernie45", UnwrappingParser), ("minimax_m2_append_think", KeptReasoningParser)):
        parser = get_parser(name, prompt_state="open")
        assert isinstance(parser, kind)
        parser.feed("r")
        assert parser.reasoning_ended is False
        assert parser.split("s</think>x").final_reached
        assert not parser.split("s").final_reached
        delta = parser.feed("</think>x")
        assert parser.reasoning_ended is bool(delta)
        assert delta.content.endswith("x")
        assert not parser.finish()
        assert not parser.finish()
        with pytest.raises(InvalidOptionError, match="finished"):
            parser.feed("y")


# ---- every row: any cut, the hold-back, bad input


ROWS = pytest.mark.parametrize("family", list_families(), ids=lambda family: family.name)


def _pieces_of(family: ReasoningFamily) -> tuple[str, ...]:
    """Markers of a row, whole and begun, and text."""
    texts = {
        *family.starts,
        *family.ends,
        *family.implicit_ends,
        family.start_label,
        *(t for p in family.content_wrappers for t in p),
    }
    for _, *pair in family.effort_markers:
        texts |= set(pair)
    if family.channels is not None:
        channels = family.channels
        texts |= {
            *channels.openers,
            *channels.closers,
            *channels.frames,
            *channels.reasoning,
            *channels.content,
            channels.header_end,
        }
    if family.marker_suffix_pattern:
        texts |= {f"{marker[:-1]}{SUFFIX}>" for marker in (family.start, family.end)}
    texts.discard("")
    begun = {text[: len(text) // 2] for text in texts if len(text) > 1}
    return (*sorted(texts), *sorted(begun), " ", "\n", "a", "<", "r x", "<0x0A>")


@ROWS
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_chunking_of_any_text_gives_the_same_split(family: ReasoningFamily, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(_pieces_of(family)), max_size=9)))
    options: dict[str, Any] = {
        "prompt_state": data.draw(st.sampled_from(STATES)),
        "thinking_enabled": data.draw(st.sampled_from((None, True, False))),
        "tools_offered": data.draw(st.booleans()),
        "structured": data.draw(st.booleans()),
    }
    expected = get_parser(family, **options).split(text)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[first:stop] for first, stop in zip([0, *places], [*places, len(text)], strict=True)]
    for cut in (pieces, list(text)):
        parser = get_parser(family, **options)
        assert run_pieces(parser, cut) == expected
        assert parser.reasoning_ended is expected.final_reached


@ROWS
def test_a19_every_cut_of_a_message_gives_the_same_split(family: ReasoningFamily) -> None:
    text = write_message(family, "is <b> it?", '{"a":1}')
    expected = get_parser(family).split(text)
    for cut in range(len(text) + 1):
        assert run_pieces(get_parser(family), [text[:cut], text[cut:]]) == expected
    # Of the cuts in three every third one for long messages: one place moves by one, so that no marker is missed.
    for first, second in list(combinations(range(len(text) + 1), 2))[:: 1 + len(text) // 20]:
        assert run_pieces(get_parser(family), [text[:first], text[first:second], text[second:]]) == expected


@ROWS
@pytest.mark.parametrize("prompt_state", ["open", "ended"])
def test_no_more_is_held_back_than_a_marker(family: ReasoningFamily, prompt_state: PromptState) -> None:
    """Where the prompt says what the text is, nothing is open but a marker that has begun, or a header."""
    pieces = _pieces_of(family)
    longest = max(len(piece) for piece in pieces) + 6 + (MAX_SUFFIX_LEN if family.marker_suffix_pattern else 0)
    if family.channels is not None:
        longest = MAX_HEADER_LEN
    rng = random.Random(1)
    for _ in range(10):
        parser = get_parser(family, prompt_state=prompt_state)
        inner: Any = getattr(parser, "_parser", parser)  # the parser of the format
        for _ in range(60):
            parser.feed(rng.choice(pieces))
            assert len(inner._buffer) <= longest
            parser.feed("so it is: ")


@ROWS
def test_text_is_given_out_at_once_inside_the_thinking(family: ReasoningFamily) -> None:
    parser = get_parser(family, prompt_state="open")
    for piece in ("so a ", "is 4, ", "and b ", "is not"):
        delta = parser.feed(piece)
        assert (delta.reasoning + delta.content).endswith(piece)


# A lone surrogate, what a cut character becomes, a NUL, a byte order mark, combining and astral characters.
BAD = ("a\ud800b\udfffc", "a\ufffdb\ufffd", "a\0b", "\ufeffa", "e\u0301 \u200b x", "\U0001f642 x")


@ROWS
def test_bad_characters_are_text(family: ReasoningFamily) -> None:
    for bad in BAD:
        text = write_message(family, bad, f"x{bad}")
        split = get_parser(family).split(text)
        kept = family.keeps_reasoning_in_content
        assert split == (ReasoningSplit(None, text) if kept else ReasoningSplit(bad, f"x{bad}"))
        assert run_pieces(get_parser(family), list(text)) == split
        # Without any marker it is no reasoning.
        assert get_parser(family).split(bad) == ReasoningSplit(None, bad)
        # A marker with a character in it that is not its own is none.
        broken = f"{family.start[:1]}\ufffd{family.start[1:]}{bad}"
        assert get_parser(family, thinking_enabled=False).split(broken).content == broken


@ROWS
def test_empty_pieces_change_nothing(family: ReasoningFamily) -> None:
    text = write_message(family, "r", "x")
    pieces = [piece for char in text for piece in ("", char, "")]
    assert run_pieces(get_parser(family), pieces) == get_parser(family).split(text)
    assert get_parser(family).split("") == ReasoningSplit(None, None)
    assert get_parser(family).finish() == ReasoningDelta()


@pytest.mark.parametrize(
    "name", ["qwen3", "ernie45", "hy_v4", "k2_horizon", "minimax_m2_append_think", "gpt_oss", "muse", "inkling"]
)
def test_huge_texts_take_linear_time(name: str) -> None:
    """What looks like markers, 200 kB of it: quadratic cost would be minutes, the real one is some hundredths of a second."""
    family = get_family(name)
    marks = (*family.starts, *family.ends) if family.channels is None else (*family.channels.openers, *family.channels.closers)
    for unit in ("".join(mark[:-1] or mark for mark in marks), "".join(marks), "<", "</", " ", "to=", "<0x0A>"):
        text = unit * (200_000 // len(unit))
        for prompt_state in STATES:
            split = get_parser(family, prompt_state=prompt_state).split(text)
            assert len(split.reasoning or "") + len(split.content or "") <= len(text) + len(family.start)


# ---- the search


def test_search_finds_what_completes_first() -> None:
    search = MarkerSearch(("abcd", "bc", "xbc"))
    assert search.find("0abcd") == (2, 4, "bc")
    assert search.find("0xbc") == (1, 4, "xbc")
    assert search.find("ab") is None
    assert search.match("xbc!") == (0, 3, "xbc")
    assert search.match("ab") is None
    assert [search.tail_len(text) for text in ("", "b", "xab", "xb", "bb", "bc?")] == [0, 1, 2, 2, 1, 0]
    assert search.may_become_marker("")
    assert search.may_become_marker("abc")
    assert not search.may_become_marker("abx")


def test_search_for_nothing_finds_nothing() -> None:
    search = MarkerSearch(())
    assert (search.find("a"), search.match("a"), search.tail_len("a"), search.heads) == (None, None, 0, frozenset())
    assert not search.may_become_marker("a")


def test_search_takes_suffixes() -> None:
    search = MarkerSearch(("<a>",), ":[0-9]+")
    assert search.find("x<a:12>y") == (1, 7, "<a>")
    assert search.find("x<a>y") == (1, 4, "<a>")
    assert search.match("<a:1>") == (0, 5, "<a>")
    assert search.match("x<a:1>") is None
    assert search.find("<a:x>") is None
    assert [search.tail_len(text) for text in ("<", "<a", "<a:", "<a:1", "<a:1>", "<a b", "<a:1<")] == [1, 2, 3, 4, 0, 0, 1]
    assert search.may_become_marker("<a:")
    assert not search.may_become_marker("<b")
