"""A row that contradicts itself is refused, by name and field; the rows that depend on the request or the tokenizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reasoning_parsers import Channels, InvalidOptionError, MarkerError, ReasoningFamily

PLAIN: dict[str, Any] = {"name": "mine", "start": "<m>", "end": "</m>"}
CHANNELS = Channels(openers=("<c>",), header_end="<m>", closers=("<e>",), reasoning=("think",), content=("final",))
TYPED = Channels(openers=("<t>", "<a>"), closers=("<e>",), reasoning=("<t>",), content=("<a>",))
HORIZON = (("high", "<m>", "</m>"), ("low", "<f>", "</f>"))


@pytest.mark.parametrize(
    ("field", "row", "message"),
    [
        pytest.param("name", {"name": " "}, "an empty name", id="blank-name"),
        pytest.param("aliases", {"aliases": ("",)}, "an empty name", id="blank-alias"),
        pytest.param("start", {"start": ""}, "empty marker", id="empty-start"),
        pytest.param("end", {"end": " "}, "empty marker", id="blank-end"),
        pytest.param("other_ends", {"other_ends": ("",)}, "empty marker", id="empty-other-end"),
        pytest.param("content_wrappers", {"content_wrappers": (("<r>", ""),)}, "empty marker", id="empty-wrapper"),
        pytest.param("other_starts", {"other_starts": (" <n>",)}, "white space", id="white-space-before-other-start"),
        pytest.param("end", {"other_starts": ("x</m>",)}, "inside the start marker", id="end-in-other-start"),
        pytest.param("end", {"start_label": "a</m>"}, "inside the start label", id="end-in-label"),
        pytest.param("other_starts", {"other_starts": ("<m>",)}, "never seen", id="start-twice"),
        pytest.param("other_starts", {"other_starts": ("<m>more",)}, "never seen", id="start-in-start"),
        pytest.param("other_ends", {"other_ends": ("</m>",)}, "never seen", id="end-twice"),
        pytest.param("other_ends", {"other_ends": ("</m> then",)}, "never seen", id="end-in-end"),
        pytest.param("format", {"format": "xml"}, "neither", id="unknown-format"),
        pytest.param("channels", {"format": "channels"}, "not given", id="no-channels"),
        pytest.param("channels", {"channels": CHANNELS}, "are given", id="channels-of-a-delimited-row"),
        pytest.param(
            "start_label", {"format": "channels", "channels": CHANNELS, "start_label": "x"}, "only", id="label-in-channels"
        ),
        pytest.param(
            "channels.closers",
            {"format": "channels", "channels": replace(CHANNELS, closers=())},
            "empty",
            id="no-closers",
        ),
        pytest.param(
            "channels.frames",
            {"format": "channels", "channels": replace(CHANNELS, frames=("",))},
            "empty",
            id="empty-frame",
        ),
        pytest.param(
            "channels.content_closers",
            {"format": "channels", "channels": replace(CHANNELS, content_closers=("<x>",))},
            "not among the closers",
            id="content-closer-that-is-none",
        ),
        pytest.param(
            "channels.closers",
            {"format": "channels", "channels": replace(CHANNELS, content_closers=("<e>",))},
            "none of them ends thinking",
            id="closers-of-answers-only",
        ),
        pytest.param(
            "channels.openers",
            {"format": "channels", "channels": replace(CHANNELS, closers=("<c>more",))},
            "cannot be told apart",
            id="closer-that-begins-with-an-opener",
        ),
        pytest.param(
            "channels.reasoning",
            {"format": "channels", "channels": replace(CHANNELS, reasoning=("final_thought",))},
            "two kinds",
            id="header-of-two-kinds",
        ),
        pytest.param(
            "channels.content",
            {"format": "channels", "channels": replace(TYPED, openers=("<t>",))},
            "no opener",
            id="typed-block-that-is-no-opener",
        ),
        pytest.param(
            "content_wrappers",
            {"keeps_reasoning_in_content": True, "content_wrappers": (("<r>", "</r>"),)},
            "no wrapper",
            id="wrapper-of-kept-reasoning",
        ),
        pytest.param(
            "marker_suffix_pattern",
            {"effort_markers": HORIZON, "marker_suffix_pattern": "x"},
            "not on both",
            id="suffix-and-effort",
        ),
        pytest.param("effort_markers", {"effort_markers": (*HORIZON, HORIZON[0])}, "twice", id="effort-twice"),
        pytest.param("effort_markers", {"effort_markers": HORIZON[1:]}, "none of the efforts", id="no-default-effort"),
        pytest.param("end", {"effort_markers": (*HORIZON, ("off", "<o>", "o"))}, "inside the start", id="bad-effort-pair"),
        pytest.param(
            "marker_suffix_pattern",
            {"start": "<m>>", "marker_suffix_pattern": "x"},
            "does not begin and end",
            id="suffix-with-an-end-that-repeats",
        ),
        pytest.param("marker_suffix_pattern", {"marker_suffix_pattern": "("}, "no regular expression", id="bad-pattern"),
        pytest.param("switch_off", {"thinking_switch": "t", "switch_off": True}, "both True", id="switch-without-effect"),
        pytest.param("other_switches", {"other_switches": ("t",)}, "no thinking_switch", id="other-switch-alone"),
        pytest.param("switch_on", {"switch_on": "high"}, "no thinking_switch", id="values-without-switch"),
        pytest.param("other_switches", {"thinking_switch": "t", "other_switches": ("t",)}, "named twice", id="switch-twice"),
        pytest.param("thinking_switch", {"thinking_switch": ""}, "empty", id="empty-switch"),
        pytest.param("user_turns", {"user_turns": ("<u>",)}, "none of the turn_boundaries", id="user-turn-without-boundary"),
    ],
)
def test_row_that_contradicts_itself_is_refused(field: str, row: dict[str, Any], message: str) -> None:
    with pytest.raises(MarkerError, match=message) as caught:
        ReasoningFamily(**{**PLAIN, **row})
    assert (caught.value.family, caught.value.field) == (row.get("name", "mine"), field)
    assert f"family {caught.value.family!r}: {field}: " in str(caught.value)


def test_channel_rows_are_taken() -> None:
    for channels in (CHANNELS, TYPED):
        assert ReasoningFamily(**PLAIN, format="channels", channels=channels).channels is channels


def test_all_spellings_come_with_the_usual_one_first() -> None:
    family = ReasoningFamily(**PLAIN, other_starts=("<n>",), other_ends=("</n>",))
    assert (family.starts, family.ends) == (("<m>", "<n>"), ("</m>", "</n>"))


def test_family_that_has_no_switch_cannot_be_switched_off() -> None:
    assert not ReasoningFamily(**PLAIN).can_switch_off
    assert ReasoningFamily(**PLAIN, thinking_switch="mode", switch_on="on", switch_off="off").can_switch_off


def test_switch_has_the_values_of_the_row() -> None:
    assert ReasoningFamily(**PLAIN).template_kwargs(True) == {}
    assert ReasoningFamily(**PLAIN, thinking_switch="t").template_kwargs(False) == {"t": False}
    words = ReasoningFamily(**PLAIN, thinking_switch="mode", switch_on="on", switch_off="off")
    assert [words.template_kwargs(thinking) for thinking in (True, False)] == [{"mode": "on"}, {"mode": "off"}]


def test_effort_chooses_the_markers() -> None:
    family = ReasoningFamily(**PLAIN, effort_markers=HORIZON, thinking_switch="t")
    assert family.for_effort("low") == ReasoningFamily(name="mine", start="<f>", end="</f>", thinking_switch="t")
    assert family.for_effort(None) == family.for_effort("high") == ReasoningFamily(**PLAIN, thinking_switch="t")
    with pytest.raises(InvalidOptionError, match="no effort of 'mine'; it has high, low") as caught:
        family.for_effort("max")
    assert caught.value.param == "effort"
    plain = ReasoningFamily(**PLAIN)
    assert plain.for_effort("max") is plain


@pytest.mark.parametrize(
    ("tokens", "start"),
    [
        pytest.param(("<m:7a>", "</m:7a>", "x"), "<m:7a>", id="suffix"),
        pytest.param(("<m>", "</m>"), "<m>", id="bare"),
        pytest.param(("<m:1>", "<m:2>", "</m:2>"), "<m:2>", id="only-one-pair-is-complete"),
    ],
)
def test_vocabulary_gives_the_suffix(tokens: tuple[str, ...], start: str) -> None:
    family = ReasoningFamily(**PLAIN, marker_suffix_pattern=r":\w+")
    found = family.for_vocabulary(tokens)
    assert (found.start, found.end, found.marker_suffix_pattern) == (start, f"</{start[1:]}", "")
    assert found.for_vocabulary(()) is found


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        pytest.param((), "none", id="no-marker"),
        pytest.param(("<m:1>", "</m:2>"), "none", id="no-pair"),
        pytest.param(("<m:1>", "</m:1>", "<m:2>", "</m:2>"), "<m:1>, <m:2>", id="two-pairs"),
    ],
)
def test_vocabulary_without_one_pair_is_refused(tokens: tuple[str, ...], found: str) -> None:
    with pytest.raises(MarkerError, match=f"found: {found}$") as caught:
        ReasoningFamily(**PLAIN, marker_suffix_pattern=r":\w+").for_vocabulary(tokens)
    assert caught.value.field == "marker_suffix_pattern"
