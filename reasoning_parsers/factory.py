"""Makes the parser of a family: the format's own, and around it what a row wants stripped or kept."""

from __future__ import annotations

from dataclasses import replace

from .base import PromptState, ReasoningParser
from .buffered import BufferedParser
from .channel_parser import ChannelParser
from .content_wrappers import UnwrappingParser
from .default_registry import get_family
from .delimited import DelimitedParser
from .family import ReasoningFamily
from .kept_reasoning import KeptReasoningParser


def get_parser(
    name_or_family: str | ReasoningFamily,
    *,
    prompt_state: PromptState = "unknown",
    thinking_enabled: bool | None = None,
    tools_offered: bool = False,
    structured: bool = False,
    effort: str | None = None,
) -> ReasoningParser:
    """Return a parser for one message.

    Args:
        name_or_family: Name in the default registry, or a row.
        prompt_state: What the prompt says; take it from the gate where there is one (`ReasoningGate.text_prompt_state`).
        thinking_enabled: The request's switch; None if it was not given.
        tools_offered: Whether the family's implicit ends, and messages to tools, count.
        structured: Whether the answer is under a constraint: a preamble to the user then goes with the reasoning.
        effort: The request's reasoning effort, for families whose markers depend on it; None takes the markers of any effort.

    Raises:
        UnknownFamilyError: The default registry has no such name.
        InvalidOptionError: `prompt_state` is none of the three, or the family has no such effort.
    """
    family = get_family(name_or_family) if isinstance(name_or_family, str) else name_or_family
    family = _with_all_efforts(family) if effort is None else family.for_effort(effort)
    parser_class: type[BufferedParser] = DelimitedParser if family.channels is None else ChannelParser
    parser = parser_class(
        family,
        prompt_state=prompt_state,
        thinking_enabled=thinking_enabled,
        tools_offered=tools_offered,
        structured=structured,
    )
    if family.content_wrappers:
        return UnwrappingParser(parser)
    if family.keeps_reasoning_in_content:
        return KeptReasoningParser(parser)
    return parser


def _with_all_efforts(family: ReasoningFamily) -> ReasoningFamily:
    if not family.effort_markers:
        return family
    _, starts, ends = zip(*family.effort_markers, strict=True)
    return replace(
        family,
        other_starts=_others(family.starts, starts),
        other_ends=_others(family.ends, ends),
        effort_markers=(),
    )


def _others(usual: tuple[str, ...], markers: tuple[str, ...]) -> tuple[str, ...]:
    """Further spellings of a marker, each once."""
    return tuple(dict.fromkeys((*usual, *markers)))[1:]
