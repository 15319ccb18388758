"""A constraint as the caller states it, checked as far as that needs no vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidGrammarError
from .schema_check import check_schema, strip_annotations, unenforced_keywords

JSON_OBJECT_SCHEMA: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A JSON-schema constraint and its options.

    Make one with `from_json_schema` or `json_object`. Equal specs share one compiled grammar.

    Attributes:
        schema_text: The schema as JSON text without annotations, properties in the schema's order.
        any_whitespace: Allow white space between JSON tokens; False is compact JSON.
        unenforced: JSON pointers of keywords that the masks do not enforce; check these on the finished value.
    """

    schema_text: str
    any_whitespace: bool = False
    unenforced: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_json_schema(cls, schema: Mapping[str, Any] | bool | str, *, any_whitespace: bool = False) -> GrammarSpec:
        """Check a JSON schema (2020-12 unless it says otherwise) and make a spec of it.

        Args:
            schema: The schema, or its JSON text. Order of `properties` is the order of the answer.
            any_whitespace: Allow white space between JSON tokens. Free white space lets a model write it for ever; the default
                is compact.

        Raises:
            InvalidGrammarError: No JSON, not a valid schema, or one that no value satisfies; `pointer` names the place.
            UnsupportedGrammarError: A reference that leaves the schema: nothing is ever fetched.
        """
        parsed = _parse(schema) if isinstance(schema, str) else schema
        check_schema(parsed)
        unenforced = unenforced_keywords(parsed)
        parsed = strip_annotations(parsed)
        return cls(json.dumps(parsed, ensure_ascii=False, separators=(",", ":")), any_whitespace, unenforced)

    @classmethod
    def json_object(cls, *, any_whitespace: bool = False) -> GrammarSpec:
        """Make the constraint "any JSON object"."""
        return cls.from_json_schema(JSON_OBJECT_SCHEMA, any_whitespace=any_whitespace)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidGrammarError(f"the schema is not JSON: {error}", pointer="#") from error
