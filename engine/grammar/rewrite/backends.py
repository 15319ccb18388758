"""The schema that each backend is given."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from .emit_llguidance import LLGuidanceEmitter
from .emit_xgrammar import XGrammarEmitter
from .program import Program
from .share import JsonSchema

_EMITTERS = {"xgrammar": XGrammarEmitter, "llguidance": LLGuidanceEmitter}
BACKENDS = tuple(_EMITTERS)
"""Backends whose words are known."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A schema for one backend.

    Attributes:
        schema: Allows every value that the original allows unless `narrowed` names a keyword, and no other unless `checked` does.
        checked: Pointers of keywords of the original that `schema` does not say, with the reason.
        left_out: Those of them that no backend is told.
        narrowed: Pointers of keywords that allow values which `schema` does not, with the reason.
        text: `schema` as JSON.
    """

    schema: JsonSchema
    checked: dict[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    narrowed: dict[str, str] = field(default_factory=dict)
    text: str = ""


def rewrite(program: Program, *, backend: str) -> Rewriting:
    """Write a schema in the words of a backend."""
    emitter = _EMITTERS[backend](program)
    schema = emitter.emit()
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return Rewriting(schema, dict(emitter.checked), frozenset(emitter.left_out), dict(emitter.narrowed), text)


def rewrite_schema(schema: Any, *, backend: str) -> JsonSchema:
    """Give a schema for `backend` that means the same as `schema`, or less: see `Rewriting.checked`."""
    return rewrite(Program(schema), backend=backend).schema
