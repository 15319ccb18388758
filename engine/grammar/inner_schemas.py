"""JSON schemas inside other constraints (structural tags, `%json` in Lark): read, checked and rewritten as if they stood alone.

Nobody checks such a part of a text afterwards, so what the masks of the backend do not enforce is refused.
"""

from __future__ import annotations

import json
from typing import Any

from ..errors import UnsupportedGrammarError
from .rewrite import JsonSchema, rewriting_of
from .schema_check import check_satisfiable, strip_annotations
from .schema_reading import read_schema


def read_inner_schema(schema: Any) -> Any:
    """Check a schema, and give it as it was meant, without annotations.

    Raises:
        InvalidGrammarError: Not a schema, or one that no value satisfies; `pointer` names the place inside it.
        UnsupportedGrammarError: A remote reference.
    """
    read = strip_annotations(read_schema(schema))
    check_satisfiable(_source(read))
    return read


def unmasked(schema: Any, backend: str) -> dict[str, str]:
    """Give the pointers of keywords of a schema that was read, which the masks of a backend do not enforce, with the reason."""
    return rewriting_of(_source(schema), backend).checked


def rewritten_inner_schema(schema: Any, backend: str) -> JsonSchema:
    """Give a schema that was read in the words of a backend, not to be changed.

    Raises:
        UnsupportedGrammarError: It asks for more than the masks enforce; `pointer` names the first place inside it.
    """
    rewriting = rewriting_of(_source(schema), backend)
    for pointer, reason in rewriting.checked.items():
        keyword = pointer.rsplit("/", 1)[-1]
        raise UnsupportedGrammarError(
            f"{keyword} cannot be enforced while the text is written, and inside a text nobody checks it afterwards: {reason}",
            pointer=pointer,
            hint="leave it out here, or make the schema the whole constraint",
        )
    return rewriting.schema


def _source(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
