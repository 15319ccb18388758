"""A constraint as the caller states it, checked as far as that needs no vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidGrammarError, InvalidRequestError
from .schema_check import check_schema, strip_annotations, unenforced_keywords

JSON_OBJECT_SCHEMA: dict[str, Any] = {"type": "object"}
DEFAULT_MAX_NUMBER_DIGITS = 20
"""Every int64 (19 digits) can be written, and every double below 1e299 (17 significant digits and an exponent)."""
MIN_NUMBER_DIGITS = 17


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A JSON-schema constraint and its options.

    Make one with `from_json_schema` or `json_object`. Equal specs share one compiled grammar.

    Attributes:
        schema_text: The schema as JSON text without annotations, properties in the schema's order.
        any_whitespace: Allow white space between JSON tokens; False is compact JSON.
        max_number_digits: Digits that a number may have before and after the point; None lets a model write them for ever.
        unenforced: JSON pointers of keywords that the masks do not enforce; check these on the finished value.
    """

    schema_text: str
    any_whitespace: bool = False
    max_number_digits: int | None = DEFAULT_MAX_NUMBER_DIGITS
    unenforced: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_json_schema(
        cls,
        schema: Mapping[str, Any] | bool | str,
        *,
        any_whitespace: bool = False,
        max_number_digits: int | None = DEFAULT_MAX_NUMBER_DIGITS,
    ) -> GrammarSpec:
        """Check a JSON schema (2020-12 unless it says otherwise) and make a spec of it.

        Args:
            schema: The schema, or its JSON text. Order of `properties` is the order of the answer.
            any_whitespace: Allow white space between JSON tokens. Free white space lets a model write it for ever; the default
                is compact.
            max_number_digits: Digits before and after the point, at least 17 so that every double can be written; None is no cap.

        Raises:
            InvalidGrammarError: No JSON, not a valid schema, or one that no value satisfies; `pointer` names the place.
            InvalidRequestError: `max_number_digits` is too small.
            UnsupportedGrammarError: A reference that leaves the schema: nothing is ever fetched.
        """
        if max_number_digits is not None and max_number_digits < MIN_NUMBER_DIGITS:
            raise InvalidRequestError(f"max_number_digits must be at least {MIN_NUMBER_DIGITS}", param="max_number_digits")
        parsed = _parse(schema) if isinstance(schema, str) else schema
        check_schema(parsed)
        unenforced = unenforced_keywords(parsed)
        parsed = strip_annotations(parsed)
        return cls(json.dumps(parsed, ensure_ascii=False, separators=(",", ":")), any_whitespace, max_number_digits, unenforced)

    @classmethod
    def json_object(cls, *, any_whitespace: bool = False) -> GrammarSpec:
        """Make the constraint "any JSON object"."""
        return cls.from_json_schema(JSON_OBJECT_SCHEMA, any_whitespace=any_whitespace)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidGrammarError(f"the schema is not JSON: {error}", pointer="#") from error
