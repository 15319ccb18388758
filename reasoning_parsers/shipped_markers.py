"""The row that a tokenizer ships in its response template, or the warning why it cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .errors import MarkerError
from .family import ReasoningFamily
from .response_template import THINKING_FIELDS, family_from_response_template


class ShippedMarkers(NamedTuple):
    """A row made of a response template, or why there is none."""

    family: ReasoningFamily | None
    warnings: tuple[str, ...] = ()


def read_response_template(template: Mapping[str, object] | None) -> ShippedMarkers:
    """Make a row of a tokenizer's `response_template`; nothing where it has no field for the thinking."""
    fields = None if template is None else template.get("fields")
    if template is None or not isinstance(fields, Mapping) or not any(name in fields for name in THINKING_FIELDS):
        return ShippedMarkers(None)
    try:
        return ShippedMarkers(family_from_response_template(template))
    except MarkerError as error:
        return ShippedMarkers(None, (f"the tokenizer's response template cannot be used: {error}",))
