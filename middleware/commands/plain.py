"""Write results as text without drawing: JSON, token counts for people, and how wide lines may be."""

from __future__ import annotations

import json
import shutil
from typing import Any

from pydantic import TypeAdapter

from ..result import Usage


def line_width(most: int) -> int:
    """Give the width for lines of text: the terminal's, at most `most`. Where there is no terminal, `most`."""
    return min(most, shutil.get_terminal_size((most, 0)).columns)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Write a value as JSON text; pydantic models and dataclasses become objects, with the names that their schema has."""
    plain = TypeAdapter(type(value)).dump_python(value, mode="json", by_alias=True)
    return json.dumps(plain, ensure_ascii=False, indent=indent)


def token_counts(usage: Usage) -> tuple[str, str]:
    """Give the numbers of thinking and answer tokens as text; `?` where the upstream does not tell."""
    if usage.reasoning_tokens is None:
        return "?", "?"
    return str(usage.reasoning_tokens), str(usage.completion_tokens - usage.reasoning_tokens)
