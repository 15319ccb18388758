"""How a remote model is asked for a schema, and what has been learned about its server.

Modes, from strong to weak: `native` (`response_format` with the schema), `json_object` (any JSON object; the schema is in the
prompt), `prompted` (the schema is in the prompt only).
A server that refuses a mode is asked with the next one, each at most once per call.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..wire_schema import close_objects, is_strict, respell_unions
from .base import JsonSchema, Message

SchemaMode = Literal["native", "json_object", "prompted"]
Strategy = Literal["auto", "native", "json_object", "prompted"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

_NEXT: Mapping[SchemaMode, tuple[SchemaMode, ...]] = {
    "native": ("json_object", "prompted"),
    # https://github.com/willmiao/ComfyUI-Lora-Manager/issues/1033: some servers know json_schema only.
    "json_object": ("native", "prompted"),
    "prompted": (),
}


@dataclass(frozen=True, slots=True)
class SchemaAsk:
    """One way of asking.

    Attributes:
        mode: What the request says.
        in_prompt: Whether the schema also stands in the prompt.
    """

    mode: SchemaMode
    in_prompt: bool


class CapabilityMemory:
    """What one server was seen to do with one model. Thread-safe.

    Attributes:
        ignores_schema: It took a schema and answered with something else.
    """

    def __init__(self, first: SchemaMode) -> None:
        self._lock = threading.Lock()
        self._first: SchemaMode = first
        self.ignores_schema = False

    def asks(self) -> list[SchemaAsk]:
        """Ways of asking, to be tried in order."""
        with self._lock:
            modes = (self._first, *_NEXT[self._first])
            return [SchemaAsk(mode, mode != "native" or self.ignores_schema) for mode in modes]

    def note_accepted(self, mode: SchemaMode) -> None:
        """Begin with this mode from now on: the server took it and refused those before it."""
        with self._lock:
            self._first = mode

    def note_ignored(self) -> None:
        """Put the schema into the prompt as well from now on."""
        with self._lock:
            self.ignores_schema = True


def response_format(schema: JsonSchema, mode: SchemaMode, *, strictens: bool) -> dict[str, Any] | None:
    """Return the `response_format` of a mode, None for `prompted`.

    Args:
        schema: Schema of an object.
        mode: How to ask.
        strictens: Narrow the schema to what OpenAI's strict mode takes, where that is possible.
    """
    if mode == "prompted":
        return None
    if mode == "json_object":
        return {"type": "json_object"}
    wire = respell_unions(schema)
    if strictens and is_strict(closed := close_objects(wire)):
        wire = closed
    name = "".join(character if character.isascii() and character.isalnum() else "_" for character in wire.get("title", ""))
    named = {"name": name[:64] or "answer", "schema": wire}
    return {"type": "json_schema", "json_schema": {**named, "strict": True} if is_strict(wire) else named}


def put_in_prompt(messages: Sequence[Message], schema_text: str) -> list[Message]:
    """Return the conversation with the schema in its system message."""
    note = f"Answer with one JSON object that keeps to this JSON schema, and with nothing else:\n{schema_text}"
    first = messages[0]
    if first["role"] == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{note}"}, *messages[1:]]
    return [{"role": "system", "content": note}, *messages]
