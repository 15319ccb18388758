"""The rules of the channel format, one by one, and against a reference that sees the whole text at once."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from reasoning_parsers import (
    ChannelParser,
    Channels,
    InvalidOptionError,
    MarkerError,
    PromptState,
    ReasoningDelta,
    ReasoningFamily,
    ReasoningSplit,
    get_family,
    get_parser,
    list_families,
)
from reasoning_parsers.channel_parser import MAX_HEADER_LEN
from tests.reasoning_parsers.reference_channels import reference_split
from tests.reasoning_parsers.test_text_cases import run_pieces

STATES: tuple[PromptState, ...] = get_args(PromptState)
ANALYSIS, FINAL, COMMENTARY = (f"<|channel|>{name}<|message|>" for name in ("analysis", "final", "commentary"))
NEXT = "<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.w <|constrain|>json<|message|>{"a":1}<|call|>'

# Markers that overlap, an opener that is plain text, every field in use.
ODD = ReasoningFamily(
    name="odd",
    format="channels",
    start="=t#",
    end="=a#",
    template_opens=True,
    channels=Channels(
        openers=("=",),
        header_end="#",
        closers=("ab", "ba"),
        content_closers=("ba",),
        reasoning=("t",),
        content=("a",),
        preamble=("p",),
        recipient="@",
        frames=("<",),
    ),
)
PLAIN = ReasoningFamily(
    name="plain",
    format="channels",
    start="=t#",
    end="=a#",
    channels=Channels(
        openers=("=",), header_end="#", closers=("ab", "ba"), reasoning=("t",), content=("a",), frames=("<",), plain_openers=True
    ),
)
TYPED = ReasoningFamily(
    name="typed",
    format="channels",
    start="=",
    end="#",
    channels=Channels(
        openers=("=", "#", "@", "!"), closers=("ab", "ba"), reasoning=("=",), content=("#",), preamble=("@",), frames=("<",)
    ),
)
CHANNEL_ROWS = [family for family in list_families() if family.channels is not None]
FAMILIES = (*CHANNEL_ROWS, ODD, PLAIN, TYPED)


# ---- one rule, one test


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "final"),
    [
        pytest.param(f"{ANALYSIS}r{NEXT}{FINAL}x<|return|>", "r", "x", True, id="thinking-then-answer"),
        pytest.param(f"{FINAL}x", None, "x", True, id="answer-alone"),
        pytest.param(f"{ANALYSIS}r", "r", None, False, id="A21-never-closed"),
        pytest.param(f"{ANALYSIS}r<|end|>", "r", None, False, id="A21-closed"),
        pytest.param(f"{ANALYSIS}r{NEXT}", "r<|start|>assistant", None, False, id="A21-header-cut-off"),
        pytest.param(f"{ANALYSIS}r<|end|><|sta", "r<|sta", None, False, id="A21-marker-cut-off"),
        pytest.param(f"{ANALYSIS}r<|end|>\n", "r", None, False, id="A21-white-space-after-the-closer"),
        pytest.param(ANALYSIS, None, None, False, id="A21-nothing-thought"),
        pytest.param("<|channel|>ana", "<|channel|>ana", None, False, id="A21-first-header-cut-off"),
        pytest.param(f"{COMMENTARY}One moment.<|end|>", None, "One moment.", False, id="A21-preamble-alone"),
        pytest.param(f"{COMMENTARY}One mo<|e", None, "One mo<|e", False, id="A21-preamble-never-closed"),
        pytest.param(f"{COMMENTARY}One moment.{NEXT}{FINAL}x", None, "One moment.\nx", True, id="preamble"),
        pytest.param(f"{ANALYSIS}r{NEXT}{ANALYSIS}s{NEXT}{FINAL}x", "r\ns", "x", True, id="two-thoughts"),
        pytest.param(f"{ANALYSIS}{NEXT}{ANALYSIS}s{NEXT}{FINAL}x", "s", "x", True, id="empty-thought"),
        pytest.param(f"{ANALYSIS}r{FINAL}x", "r", "x", True, id="thought-not-closed-before-the-answer"),
        pytest.param(f"{ANALYSIS}r<|start|>assistant{FINAL}x", "r", "x", True, id="thought-ended-by-a-frame"),
        pytest.param("<|channel|>final <|constrain|>json<|message|>{}", None, "{}", True, id="header-with-a-format"),
        pytest.param("<|channel|> final<|message|>x", None, "x", True, id="header-with-white-space"),
        pytest.param("<|channel|>finality<|message|>x", "<|channel|>finality<|message|>x", None, False, id="another-word"),
        pytest.param(f"<|start|>assistant{FINAL}x", None, "x", True, id="frame-at-the-head"),
        pytest.param("<|start|>assistant<|message|>x", None, "x", True, id="frame-without-a-channel"),
        pytest.param("<|message|>x", None, "x", True, id="header-without-a-beginning"),
        pytest.param(f"\n{ANALYSIS}r{NEXT}{FINAL}x", "r", "x", True, id="white-space-before-the-header"),
        pytest.param("4", None, "4", True, id="no-header"),
        pytest.param(" \n", None, " \n", True, id="white-space-alone"),
        pytest.param("", None, None, True, id="empty"),
        pytest.param("<|chan", None, "<|chan", True, id="part-of-a-marker"),
        pytest.param(f"Hi {ANALYSIS}r", None, f"Hi {ANALYSIS}r", True, id="header-not-at-the-head"),
        pytest.param("<|end|>x", None, "x", True, id="closer-at-the-head"),
        pytest.param(f"{ANALYSIS}r<|end|>\nx", "r", "\nx", True, id="no-header-after-the-thought"),
        pytest.param(f"{FINAL}use <|end|> and {ANALYSIS}", None, f"use <|end|> and {ANALYSIS}", True, id="markers-in-the-answer"),
        pytest.param(f"{FINAL}a{NEXT}{FINAL}b<|return|>", None, f"a{NEXT}{FINAL}b", True, id="second-answer-is-data"),
        pytest.param(f"{FINAL}x<|end|> <|return|>\n", None, "x", True, id="several-closers-at-the-end"),
        pytest.param(f"{FINAL}x<|end|> <|ret", None, "x<|end|> <|ret", True, id="closer-cut-off-at-the-end"),
        pytest.param(
            f"{ANALYSIS}the <|channel|> token<|end|>", "the <|channel|> token", None, False, id="marker-that-is-no-header"
        ),
        pytest.param(f"{ANALYSIS}a <|channel|> b<|end|>{FINAL}x", "a <|channel|> b", "x", True, id="closer-inside-a-header"),
        pytest.param("to=5 apples", None, "to=5 apples", True, id="recipient-that-is-none"),
        pytest.param(CALL, CALL.removesuffix("<|call|>"), None, False, id="call-without-tools"),
        pytest.param(f" to=functions.w{CALL}", f"to=functions.w{CALL[:-8]}", None, False, id="recipient-before-the-channel"),
        pytest.param(
            "<|channel|>analysis to=python<|message|>1",
            "<|channel|>analysis to=python<|message|>1",
            None,
            False,
            id="call-in-thought",
        ),
    ],
)
def test_split_of_channels(text: str, reasoning: str | None, content: str | None, final: bool) -> None:
    split = get_parser("gpt_oss").split(text)
    assert (split.reasoning, split.content, split.final_reached) == (reasoning, content, final)
    parser = get_parser("gpt_oss")
    assert run_pieces(parser, list(text)) == split
    assert parser.reasoning_ended is final


@pytest.mark.parametrize("structured", [False, True])
def test_preamble_goes_with_the_reasoning_under_a_constraint(structured: bool) -> None:
    text = f"{ANALYSIS}r{NEXT}{COMMENTARY}One moment.{NEXT}{FINAL}{{}}"
    split = get_parser("gpt_oss", structured=structured).split(text)
    assert split == (ReasoningSplit("r\nOne moment.", "{}") if structured else ReasoningSplit("r", "One moment.\n{}"))


def test_call_is_content_as_it_stands_where_tools_are_offered() -> None:
    for lead, content in (("", CALL), (f"{ANALYSIS}r<|end|>", CALL), (f"{COMMENTARY}Look.<|end|>", f"Look.\n{CALL}")):
        split = get_parser("gpt_oss", tools_offered=True).split(lead + CALL + NEXT)
        assert split == ReasoningSplit("r" if "r<" in lead else None, content + NEXT)
        assert split.final_reached
    text = '<|open|>tools<|sep|><|open|>call tool="w"<|sep|><|close|>call<|sep|>'
    assert get_parser("kimi_k3", prompt_state="open", tools_offered=True).split(f"r{text}") == ReasoningSplit("r", text)


@pytest.mark.parametrize(
    ("prompt_state", "text", "reasoning", "content"),
    [
        pytest.param("open", "r<|close|>think<|sep|><|open|>response<|sep|>x<|close|>response<|sep|>", "r", "x", id="open"),
        pytest.param("open", "r<|open|>response<|sep|>x", "r", "x", id="open-and-not-closed"),
        pytest.param("open", "<|open|>think<|sep|>r<|close|>think<|sep|>x", "r", "x", id="opened-again-and-no-header"),
        pytest.param("ended", "x<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>", None, "x", id="ended"),
        pytest.param("unknown", "x<|close|>response<|sep|><|close|>message<|sep|>", None, "x", id="thinking-was-skipped"),
        pytest.param("unknown", "x<|close|>response<|sep|>y", None, "x<|close|>response<|sep|>y", id="closer-is-data"),
        pytest.param("unknown", "r<|close|>think<|sep|><|open|>response<|sep|>x", "r", "x", id="start-in-the-prompt"),
        pytest.param("unknown", "Well, <|open|>think<|sep|>r<|close|>think<|sep|>x", "Well, \nr", "x", id="preamble"),
        pytest.param("unknown", "answer", None, "answer", id="no-marker"),
        pytest.param("unknown", "a <|open|>b", None, "a <|open|>b", id="header-never-ends"),
        pytest.param("open", "x<|close|>response<|sep|>", "x", None, id="open-and-skipped-is-no-answer"),
        pytest.param("open", "<|close|>think<|sep|>x", None, "x", id="open-and-closed-at-once"),
        pytest.param("open", "", None, None, id="open-and-empty"),
        pytest.param("open", " \n", " \n", None, id="open-and-white-space"),
        pytest.param("open", "<|op", "<|op", None, id="open-and-part-of-a-marker"),
    ],
)
def test_split_where_the_template_opens(prompt_state: PromptState, text: str, reasoning: str | None, content: str | None) -> None:
    split = get_parser("kimi_k3", prompt_state=prompt_state).split(text)
    assert split == ReasoningSplit(reasoning, content)
    assert split.final_reached is (content is not None)
    assert run_pieces(get_parser("kimi_k3", prompt_state=prompt_state), list(text)) == split


@pytest.mark.parametrize(
    ("prompt_state", "text", "reasoning", "content"),
    [
        pytest.param("unknown", f"{ANALYSIS}it is 4", None, "it is 4", id="A16-leaked-thought"),
        pytest.param("ended", f"{ANALYSIS}it is 4", None, "it is 4", id="A16-leaked-after-an-ended-prompt"),
        pytest.param("open", "it is 4", None, "it is 4", id="A16-open-never-closed"),
        pytest.param("unknown", f"{ANALYSIS}r{NEXT}{FINAL}x", "r", "x", id="closed-thought"),
        pytest.param("open", f"r{NEXT}{FINAL}x", "r", "x", id="open-closed"),
        pytest.param("unknown", "it is 4", None, "it is 4", id="no-thought"),
        pytest.param("unknown", CALL[:-8], None, CALL[:-8], id="call-without-tools"),
    ],
)
def test_split_with_thinking_switched_off(
    prompt_state: PromptState, text: str, reasoning: str | None, content: str | None
) -> None:
    parser = get_parser("gpt_oss", prompt_state=prompt_state, thinking_enabled=False)
    assert parser.split(text) == ReasoningSplit(reasoning, content)


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        pytest.param(
            " to=self<|message|>set to=5<|eom|><|start|>assistant to=user<|message|>x<|eot|>", "set to=5", "x", id="plain"
        ),
        pytest.param("to=self<|message|>to=user<|message|>x", "to=user<|message|>x", None, id="opener-in-the-thought-is-text"),
        pytest.param("to=user you know", None, "to=user you know", id="white-space-is-no-header"),
        pytest.param("to=5", None, "to=5", id="text-at-the-head"),
        pytest.param(
            "<|start|>assistant to=a b<|message|>x", None, "<|start|>assistant to=a b<|message|>x", id="frame-that-is-none"
        ),
    ],
)
def test_openers_that_are_plain_text_count_where_a_header_is_due(text: str, reasoning: str | None, content: str | None) -> None:
    split = get_parser("muse").split(text)
    assert split == ReasoningSplit(reasoning, content)
    assert run_pieces(get_parser("muse"), list(text)) == split


@pytest.mark.parametrize("lead", ["", " "])
def test_output_may_begin_with_a_header_where_the_prompt_opened_the_thinking(lead: str) -> None:
    for name, text in (("muse", "to=self<|message|>r<|eom|>to=user<|message|>x"), ("gpt_oss", f"{ANALYSIS}r<|end|>{FINAL}x")):
        assert get_parser(name, prompt_state="open").split(lead + text) == ReasoningSplit("r", "x")
        assert run_pieces(get_parser(name, prompt_state="open"), list(lead + text)) == ReasoningSplit("r", "x")
    assert get_parser("muse", prompt_state="open").split("to=5") == ReasoningSplit("to=5", None)


def test_typed_blocks_have_a_frame_with_a_name() -> None:
    text = "<|content_thinking|>r<|end_message|><|message_model|>name<|content_text|>x<|content_model_end_sampling|>"
    assert get_parser("inkling").split(text) == ReasoningSplit("r", "x")
    cut_off = get_parser("inkling").split("<|content_thinking|>r<|end_message|><|message_model|>na")
    assert cut_off == ReasoningSplit("r<|message_model|>na", None)


@pytest.mark.parametrize("num_more", [-1, 0])
def test_header_has_a_length(num_more: int) -> None:
    fill = "x" * (MAX_HEADER_LEN - len("<|channel|>final <|message|>") - num_more)
    text = f"<|channel|>final {fill}<|message|>y"
    expected = ReasoningSplit(None, text if num_more < 0 else "y")
    assert get_parser("gpt_oss").split(text) == expected
    assert run_pieces(get_parser("gpt_oss"), list(text)) == expected


# ---- the calls


def test_deltas_come_as_soon_as_they_are_certain() -> None:
    parser = get_parser("gpt_oss")
    assert not parser.feed("<|channel|>analysis")
    assert parser.feed("<|message|>plan") == ReasoningDelta("plan")
    assert parser.feed(" b<|en") == ReasoningDelta(" b")
    assert parser.feed("x") == ReasoningDelta("<|enx")
    assert not parser.feed("<|end|>")
    assert parser.reasoning_ended is False
    assert parser.feed(f"<|start|>assistant{FINAL}{{") == ReasoningDelta("", "{")
    assert parser.reasoning_ended is bool("now")
    assert parser.feed("}") == ReasoningDelta("", "}")
    assert not parser.feed("<|return|>")
    assert not parser.feed("")
    assert not parser.finish()
    assert not parser.finish()
    with pytest.raises(InvalidOptionError, match="finished"):
        parser.feed("x")


def test_options_may_be_left_out() -> None:
    text = f"{COMMENTARY}One moment.{NEXT}{FINAL}x"
    assert (
        ChannelParser(get_family("gpt_oss")).split(text)
        == get_parser("gpt_oss").split(text)
        == ReasoningSplit(None, "One moment.\nx")
    )


def test_plain_openers_need_no_frame() -> None:
    channels = Channels(
        openers=("to=",), header_end="|", closers=("##",), reasoning=("self",), content=("user",), plain_openers=True
    )
    row = ReasoningFamily(name="bare", format="channels", start="to=self|", end="to=user|", channels=channels)
    text = "to=self|see to=user|now##to=user|x##"
    assert get_parser(row).split(text) == ReasoningSplit("see to=user|now", "x")
    assert run_pieces(get_parser(row), list(text)) == ReasoningSplit("see to=user|now", "x")


def test_parser_needs_channels() -> None:
    with pytest.raises(MarkerError, match="has no channels") as caught:
        ChannelParser(get_family("qwen3"))
    assert caught.value.field == "channels"


# ---- against the reference


def _random_text(rng: random.Random, family: ReasoningFamily) -> str:
    channels = family.channels
    assert channels is not None
    markers = [*channels.openers, channels.header_end or "x", *channels.closers, *channels.frames, channels.recipient or " "]
    names = (*channels.reasoning, *channels.content, *channels.preamble, "other")
    headers = [f"{rng.choice(channels.openers)}{name}{channels.header_end}" for name in names] if channels.header_end else names
    parts: list[str] = []
    for _ in range(rng.randint(0, 8)):
        kind = rng.random()
        if kind < 0.3:
            parts.append(rng.choice(markers))
        elif kind < 0.5:
            parts.append(rng.choice(headers))
        elif kind < 0.65:
            marker = rng.choice(markers)
            parts.append(marker[: rng.randint(1, len(marker))])
        else:
            parts.append(rng.choice((" ", "\n", "a", "b", "ab", "assistant", "t", "x y")))
    return "".join(parts)


def _check(seed: int) -> None:
    rng = random.Random(seed)
    family = rng.choice(FAMILIES)
    prompt_state, thinking, tools, structured = (
        rng.choice(STATES),
        rng.choice((None, True, False)),
        rng.random() < 0.5,
        rng.random() < 0.3,
    )
    text = _random_text(rng, family)

    def make() -> ChannelParser:
        return ChannelParser(
            family, prompt_state=prompt_state, thinking_enabled=thinking, tools_offered=tools, structured=structured
        )

    what = f"seed {seed}: {family.name} {prompt_state} {thinking} {tools} {structured} {text!r}"
    expected = reference_split(
        family, text, prompt_state=prompt_state, thinking_enabled=thinking, tools_offered=tools, structured=structured
    )
    split = make().split(text)
    assert split == expected, f"{what}\n{split}\n{expected}"
    assert split.final_reached is expected.final_reached, what
    places = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 6)))
    pieces = [text[first:stop] for first, stop in zip([0, *places], [*places, len(text)], strict=True)]
    for cut in (pieces, list(text)):
        parser = make()
        assert run_pieces(parser, cut) == split, what
        assert parser.reasoning_ended is split.final_reached, what


def test_random_texts_and_chunkings_give_the_split_of_the_rules() -> None:
    for seed in range(4_000):
        _check(seed)


@pytest.mark.slow
def test_very_many_random_texts_and_chunkings_give_the_split_of_the_rules() -> None:
    for seed in range(4_000, 200_000):
        _check(seed)
