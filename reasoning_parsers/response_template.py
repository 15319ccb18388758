"""A row from the response template that a tokenizer ships: the names `hf`, `beam` and `response_template` of other servers.

Knows the template's shape only (version 1 of https://huggingface.co/docs/transformers/main/chat_response_parsing): fields, with
the texts that open and close them. A row needs texts; a pattern that is more than a text between white space is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from .channels import Channels
from .errors import MarkerError
from .family import ReasoningFamily

THINKING_FIELDS = ("thinking", "reasoning_content", "reasoning")
"""Names of the field that holds the thinking."""

_SOURCE = "https://huggingface.co/docs/transformers/main/chat_response_parsing"
_CONTENT = "content"
_TOOLS = "tool_calls"
_VERSION = 1

# What a pattern may have around a text: white space, in any number.
_SPACE = r"(?:(?:\\[snrt]|\[(?:\\[snrt]|\s)+\]|\s)[*+?]?)*"
_TEXT_PATTERN = re.compile(rf"{_SPACE}(?P<text>(?:\\[^A-Za-z0-9]|[^\\.^$*+?{{}}\[\]|()\s])+?){_SPACE}")


def family_from_response_template(template: Mapping[str, Any], *, name: str = "response_template") -> ReasoningFamily:
    """Return the row that a response template describes.

    Where the answer has a text that opens it, the row has channels and the texts are its headers; else it is delimited.

    Args:
        template: The tokenizer's `response_template`.
        name: Name of the row.

    Raises:
        MarkerError: The template has no field for thinking, another version or shape, or a pattern that is more than a text.
    """
    fields = template.get("fields")
    if template.get("version", _VERSION) != _VERSION or not isinstance(fields, Mapping):
        _refuse(name, "version", f"only version {_VERSION} with fields is known")
    field = next((field for field in THINKING_FIELDS if field in fields), None)
    if field is None:
        _refuse(name, "fields", f"there is no field for thinking; there are {', '.join(map(str, fields)) or 'none'}")
    starts, ends = (_texts(name, fields, field, key) for key in ("open", "close"))
    if not starts or not ends:
        _refuse(name, f"fields.{field}", "the thinking is not both opened and closed by a text")
    answer_opens, answer_closes = (_texts(name, fields, _CONTENT, key) for key in ("open", "close"))
    tools = _texts(name, fields, _TOOLS, "open")
    anchors = _anchors(name, template)
    if not answer_opens:
        start, label = _split_label(starts[0])
        return ReasoningFamily(
            name=name,
            start=start,
            start_label=label,
            other_starts=tuple(other for other in starts[1:] if not other.startswith(start)),
            end=ends[0],
            other_ends=ends[1:],
            implicit_ends=tools,
            turn_boundaries=anchors,
            source=_SOURCE,
        )
    frames = _frames(anchors, (*starts, *answer_opens, *tools))
    channels = Channels(
        openers=tuple(dict.fromkeys((*starts, *answer_opens, *tools))),
        closers=tuple(dict.fromkeys((*ends, *answer_closes))),
        reasoning=starts,
        content=answer_opens,
        frames=frames,
        next_frame=frames[0] if frames else "",
    )
    return ReasoningFamily(
        name=name,
        format="channels",
        start=starts[0],
        end=answer_opens[0],
        channels=channels,
        turn_boundaries=anchors,
        source=_SOURCE,
    )


def _texts(name: str, fields: Mapping[str, Any], field: str, key: str) -> tuple[str, ...]:
    """The texts that open or close a field, white space around them aside; none if the field has no such thing."""
    spec = fields.get(field, {})
    if not isinstance(spec, Mapping):
        _refuse(name, f"fields.{field}", "no mapping")
    pattern = spec.get(f"{key}_pattern")
    if pattern is not None:
        match = _TEXT_PATTERN.fullmatch(pattern) if isinstance(pattern, str) else None
        if match is None:
            _refuse(name, f"fields.{field}.{key}_pattern", f"{pattern!r} is more than a text")
        return (re.sub(r"\\(.)", r"\1", match["text"]),)
    texts = spec.get(key, ())
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, Iterable) or not all(isinstance(text, str) and text.strip() for text in texts):
        _refuse(name, f"fields.{field}.{key}", f"{texts!r} is no text and no list of texts")
    return tuple(dict.fromkeys(text.strip() for text in texts))


def _split_label(start: str) -> tuple[str, str]:
    """A start marker and the label after it: `<|channel>thought` is a token and a word."""
    cut = start.rfind(">") + 1
    return (start[:cut], f"{start[cut:]}\n") if 0 < cut < len(start) else (start, "")


def _anchors(name: str, template: Mapping[str, Any]) -> tuple[str, ...]:
    """Texts that begin the model's turn, or its message, as far as they are texts."""
    anchor = template.get("start_anchor", ())
    anchors = (anchor,) if isinstance(anchor, str) else tuple(anchor)
    return tuple(dict.fromkeys(text.strip() for text in anchors if isinstance(text, str) and text.strip()))


def _frames(anchors: tuple[str, ...], openers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(anchor for anchor in anchors if not any(opener.startswith(anchor) for opener in openers))


def _refuse(name: str, field: str, message: str) -> NoReturn:
    raise MarkerError(f"response template of {name!r}: {field}: {message}", family=name, field=field)
