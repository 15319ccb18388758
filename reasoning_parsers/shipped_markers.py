"""Markers that a tokenizer ships in its response template.

Format: https://huggingface.co/docs/transformers/main/chat_response_parsing. Only literal anchors are taken, no patterns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .errors import MarkerError
from .family import ReasoningFamily

_SOURCE = "https://huggingface.co/docs/transformers/main/chat_response_parsing"
_FIELDS = ("reasoning_content", "reasoning", "thinking")


class ShippedMarkers(NamedTuple):
    """A row made of a response template, or why there is none."""

    family: ReasoningFamily | None
    warnings: tuple[str, ...] = ()


def read_response_template(template: Mapping[str, object] | None) -> ShippedMarkers:
    """Make a row of a tokenizer's `response_template`; nothing where it has no field for the thinking."""
    fields = None if template is None else template.get("fields")
    if not isinstance(fields, Mapping):
        return ShippedMarkers(None)
    field = next((fields[name] for name in _FIELDS if isinstance(fields.get(name), Mapping)), None)
    if field is None:
        return ShippedMarkers(None)
    starts, ends = _literals(field.get("open")), _literals(field.get("close"))
    if not starts or not ends:
        return ShippedMarkers(
            None, ("the tokenizer's response template describes its markers with patterns, which are not read",)
        )
    head, label = _without_label(starts[0])
    try:
        family = ReasoningFamily(
            name="response_template",
            start=head,
            end=ends[0],
            start_label=label,
            other_starts=tuple(start for start in starts[1:] if start != head),
            other_ends=tuple(ends[1:]),
            source=_SOURCE,
        )
    except MarkerError as error:
        return ShippedMarkers(None, (f"the tokenizer's response template cannot be used: {error}",))
    return ShippedMarkers(family)


def _literals(value: object) -> list[str]:
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [text.strip() for text in values if isinstance(text, str) and text.strip()]


def _without_label(start: str) -> tuple[str, str]:
    """A marker and the label after it: `<|channel>thought` is a token and a word."""
    cut = start.rfind(">") + 1
    return (start[:cut], f"{start[cut:]}\n") if 0 < cut < len(start) else (start, "")
