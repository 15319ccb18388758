"""What a row of `family.py` must not say: markers that cannot work and fields that contradict each other."""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING, NoReturn

from .errors import MarkerError

if TYPE_CHECKING:
    from .channels import Channels
    from .family import ReasoningFamily

# What only the format `delimited` reads.
_DELIMITED_FIELDS = (
    *("other_starts", "other_ends", "start_label", "content_wrappers", "keeps_reasoning_in_content"),
    *("effort_markers", "marker_suffix_pattern"),
)


def check_family(family: ReasoningFamily) -> None:
    """Refuse a row that contradicts itself.

    Raises:
        MarkerError: It does; the error names the row and the field.
    """
    _check_texts(family)
    _check_markers(family)
    _check_format(family)
    _check_variants(family)
    _check_switch(family)
    _check_turns(family)


def _check_texts(family: ReasoningFamily) -> None:
    texts = {
        "start": (family.start,),
        "end": (family.end,),
        "other_starts": family.other_starts,
        "other_ends": family.other_ends,
        "implicit_ends": family.implicit_ends,
        "content_wrappers": tuple(text for pair in family.content_wrappers for text in pair),
    }
    for field, values in texts.items():
        for marker in values:
            if not marker.strip():
                _refuse(family, field, "an empty marker", marker)
    for name in (family.name, *family.aliases):
        if not name.strip():
            _refuse(family, "name" if name is family.name else "aliases", "an empty name")


def _check_markers(family: ReasoningFamily) -> None:
    for start in family.starts:
        field = "start" if start == family.start else "other_starts"
        if start[0].isspace():
            hint = "white space before the start marker is skipped anyway"
            _refuse(family, field, "the marker begins with white space", start, hint=hint)
        for marker in (*family.ends, *family.implicit_ends):
            if marker in start or marker in family.start_label:
                place = "start marker" if marker in start else "start label"
                _refuse(family, "end", f"{marker!r} ends thinking and occurs inside the {place}", marker)
    for one, other in permutations(family.starts, 2):
        if other.startswith(one):
            _refuse(family, "other_starts", f"{other!r} begins with {one!r}, so it is never seen", other)
    for one, other in permutations(family.ends, 2):
        if one in other[:-1] or one == other:
            _refuse(family, "other_ends", f"{one!r} is complete before {other!r} is, so that one is never seen", other)


def _check_format(family: ReasoningFamily) -> None:
    if family.format not in ("delimited", "channels"):
        _refuse(family, "format", f"{family.format!r} is neither delimited nor channels")
    if (family.format == "channels") != (family.channels is not None):
        _refuse(family, "channels", f"the format is {family.format!r}, and channels are {'' if family.channels else 'not '}given")
    if family.channels is not None:
        for field in _DELIMITED_FIELDS:
            if getattr(family, field):
                _refuse(family, field, "only the format 'delimited' has this")
        _check_channels(family, family.channels)
    if family.keeps_reasoning_in_content and family.content_wrappers:
        _refuse(family, "content_wrappers", "content that keeps the reasoning has no wrapper at its head")


def _check_channels(family: ReasoningFamily, channels: Channels) -> None:
    for field in ("openers", "closers", "reasoning", "content"):
        if not getattr(channels, field):
            _refuse(family, f"channels.{field}", "empty")
    for field in ("openers", "closers", "reasoning", "content", "preamble", "frames"):
        if not all(text.strip() for text in getattr(channels, field)):
            _refuse(family, f"channels.{field}", "empty")
    if not set(channels.content_closers) <= set(channels.closers):
        _refuse(family, "channels.content_closers", "not among the closers")
    if set(channels.content_closers) == set(channels.closers):
        _refuse(family, "channels.closers", "none of them ends thinking: all end an answer only")
    for one, other in permutations((*channels.openers, *channels.frames, *channels.closers), 2):
        if other.startswith(one):
            _refuse(family, "channels.openers", f"{other!r} begins with {one!r}, so markers cannot be told apart", other)
    _check_kinds(family, channels)


def _check_kinds(family: ReasoningFamily, channels: Channels) -> None:
    kinds = {"reasoning": channels.reasoning, "content": channels.content, "preamble": channels.preamble}
    for (field, texts), (_, others) in permutations(kinds.items(), 2):
        for text in texts:
            if text.startswith(others):
                _refuse(family, f"channels.{field}", f"the header {text!r} is of two kinds", text)
    if not channels.header_end:
        for field, texts in kinds.items():
            for text in texts:
                if text not in channels.openers:
                    _refuse(family, f"channels.{field}", f"{text!r} is no opener, and there is no header_end", text)


def _check_variants(family: ReasoningFamily) -> None:
    pattern = family.marker_suffix_pattern
    if family.effort_markers:
        if pattern:
            _refuse(family, "marker_suffix_pattern", "markers depend on the effort or on the tokenizer, not on both")
        efforts = [effort for effort, _, _ in family.effort_markers]
        if len(set(efforts)) < len(efforts):
            _refuse(family, "effort_markers", f"an effort is there twice: {', '.join(efforts)}")
        if (family.start, family.end) not in [(start, end) for _, start, end in family.effort_markers]:
            _refuse(family, "effort_markers", "start and end are the markers of none of the efforts", family.start)
        for effort in efforts:
            family.for_effort(effort)  # its own markers are checked as any row's
    if pattern:
        for marker in (*family.starts, *family.ends):
            if marker[0] in marker[1:] or marker[-1] in marker[:-1]:
                _refuse(family, "marker_suffix_pattern", f"{marker!r} does not begin and end with characters of its own", marker)
        try:
            re.compile(pattern)
        except re.error as error:
            _refuse(family, "marker_suffix_pattern", f"{pattern!r} is no regular expression: {error}")


def _check_switch(family: ReasoningFamily) -> None:
    if family.switch_on == family.switch_off:
        _refuse(family, "switch_off", f"on and off are both {family.switch_on!r}")
    if family.thinking_switch is None:
        if family.other_switches:
            _refuse(family, "other_switches", "there is no thinking_switch that they could mean the same as")
        if (family.switch_on, family.switch_off) != (True, False):
            _refuse(family, "switch_on", "there is no thinking_switch that could have values")
    elif family.thinking_switch in family.other_switches or not family.thinking_switch.strip():
        _refuse(family, "other_switches" if family.thinking_switch.strip() else "thinking_switch", "empty, or named twice")


def _check_turns(family: ReasoningFamily) -> None:
    for turn in family.user_turns:
        if not turn.startswith(family.turn_boundaries):
            _refuse(family, "user_turns", f"{turn!r} begins with none of the turn_boundaries", turn)


def _refuse(family: ReasoningFamily, field: str, message: str, marker: str | None = None, *, hint: str | None = None) -> NoReturn:
    raise MarkerError(f"family {family.name!r}: {field}: {message}", marker=marker, family=family.name, field=field, hint=hint)
