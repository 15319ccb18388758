"""A constraint as the caller states it, checked as far as that needs no vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import InvalidGrammarError, InvalidRequestError
from .schema_check import check_schema, strip_annotations, unenforced_keywords
from .whitespace import COMPACT, Whitespace

GrammarKind = Literal["json_schema", "regex", "choice", "ebnf", "lark", "structural_tag"]
JSON_OBJECT_SCHEMA: dict[str, Any] = {"type": "object"}
DEFAULT_MAX_NUMBER_DIGITS = 20
"""Every int64 (19 digits) can be written, and every double below 1e299 (17 significant digits and an exponent)."""
MIN_NUMBER_DIGITS = 17


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A constraint and its options. Equal specs share one compiled grammar.

    Make one with a constructor: `from_json_schema`, `json_object`, `regex`, `choice`, `ebnf`, `lark` or `structural_tag`.

    Attributes:
        kind: What `source` is.
        source: Canonical text: a schema as JSON without annotations, properties in the schema's order; a choice as a JSON list;
            a structural tag as JSON; the text itself for the others.
        whitespace: White space between JSON tokens.
        additional_properties: Whether objects may hold undeclared properties where the schema does not say; None is the schema
            language's own default, yes.
        any_order: Properties may come in any order; False is the schema's order.
        strict: Refuse what the masks do not enforce, instead of checking it afterwards.
        max_number_digits: Digits that a number may have before and after the point; None lets a model write them for ever.
        backend: Name of the grammar backend, or `auto`.
        unenforced: JSON pointers of keywords that the masks do not enforce; check these on the finished value.
    """

    kind: GrammarKind
    source: str
    whitespace: Whitespace = COMPACT
    additional_properties: bool | None = None
    any_order: bool = False
    strict: bool = False
    max_number_digits: int | None = DEFAULT_MAX_NUMBER_DIGITS
    backend: str = "auto"
    unenforced: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def from_json_schema(
        cls,
        schema: Mapping[str, Any] | bool | str | type,
        *,
        whitespace: Whitespace | None = None,
        any_whitespace: bool = False,
        additional_properties: bool | None = None,
        any_order: bool = False,
        strict: bool = False,
        max_number_digits: int | None = DEFAULT_MAX_NUMBER_DIGITS,
        backend: str = "auto",
    ) -> GrammarSpec:
        """Check a JSON schema (2020-12 unless it says otherwise) and make a spec of it.

        Args:
            schema: The schema, its JSON text, or a pydantic model class. Order of `properties` is the order of the answer.
            whitespace: White space between JSON tokens; None is compact.
            any_whitespace: Short for `whitespace=Whitespace.flexible()`.
            additional_properties: Default of `additionalProperties`; None is the schema language's own, True.
            any_order: Let properties come in any order.
            strict: Refuse what the masks do not enforce.
            max_number_digits: Digits before and after the point, at least 17 so that every double can be written; None is no cap.
            backend: Name of the grammar backend, or `auto`.

        Raises:
            InvalidGrammarError: No JSON, not a valid schema, or one that no value satisfies; `pointer` names the place.
            InvalidRequestError: `max_number_digits` is too small, or options contradict each other.
            UnsupportedGrammarError: A reference that leaves the schema: nothing is ever fetched.
        """
        if max_number_digits is not None and max_number_digits < MIN_NUMBER_DIGITS:
            raise InvalidRequestError(f"max_number_digits must be at least {MIN_NUMBER_DIGITS}", param="max_number_digits")
        parsed = _read_schema(schema)
        check_schema(parsed)
        unenforced = unenforced_keywords(parsed)
        return cls(
            "json_schema",
            json.dumps(strip_annotations(parsed), ensure_ascii=False, separators=(",", ":")),
            _pick_whitespace(whitespace, any_whitespace=any_whitespace),
            additional_properties,
            any_order,
            strict,
            max_number_digits,
            backend,
            unenforced,
        )

    @classmethod
    def json_object(cls, *, whitespace: Whitespace | None = None, any_whitespace: bool = False) -> GrammarSpec:
        """Make the constraint "any JSON object"."""
        return cls.from_json_schema(JSON_OBJECT_SCHEMA, whitespace=whitespace, any_whitespace=any_whitespace)

    @classmethod
    def regex(cls, pattern: str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of a regular expression in Python's syntax, which the whole answer matches (`re.fullmatch`)."""
        return cls("regex", _text("regex", pattern), backend=backend)

    @classmethod
    def choice(cls, choices: Sequence[str], *, backend: str = "auto") -> GrammarSpec:
        """Make the constraint "exactly one of these texts"."""
        if isinstance(choices, str) or not choices or not all(isinstance(choice, str) for choice in choices):
            raise InvalidGrammarError("a choice is a list of one or more texts")
        return cls("choice", json.dumps(list(dict.fromkeys(choices)), ensure_ascii=False), backend=backend)

    @classmethod
    def ebnf(cls, grammar: str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of an EBNF grammar (`root ::= ...`, the dialect of GBNF and xgrammar)."""
        return cls("ebnf", _text("ebnf", grammar), backend=backend)

    @classmethod
    def lark(cls, grammar: str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of a Lark grammar (`start: ...`)."""
        return cls("lark", _text("lark", grammar), backend=backend)

    @classmethod
    def structural_tag(cls, tag: Mapping[str, Any] | str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of a structural tag (xgrammar's format), a mapping or its JSON text."""
        parsed = _parse(tag, "structural tag") if isinstance(tag, str) else tag
        return cls("structural_tag", json.dumps(parsed, ensure_ascii=False, separators=(",", ":")), backend=backend)

    @property
    def schema_text(self) -> str:
        """The source; its name from when every spec was a JSON schema."""
        return self.source

    @property
    def any_whitespace(self) -> bool:
        """Whether white space may vary."""
        return self.whitespace.style in ("flexible", "pattern")


def _read_schema(schema: Mapping[str, Any] | bool | str | type) -> Any:
    if isinstance(schema, str):
        return _parse(schema, "schema")
    if isinstance(schema, type):
        # A pydantic model class; pydantic itself is not needed for that.
        make_schema = getattr(schema, "model_json_schema", None)
        if make_schema is None:
            raise InvalidGrammarError(
                f"{schema.__name__} is a class without a JSON schema", hint="use a pydantic model", pointer="#"
            )
        return make_schema()
    return schema


def _pick_whitespace(whitespace: Whitespace | None, *, any_whitespace: bool) -> Whitespace:
    if not any_whitespace:
        return whitespace or COMPACT
    if whitespace is not None and whitespace.style != "flexible":
        raise InvalidRequestError(f"any_whitespace contradicts {whitespace.style} white space", param="whitespace")
    return whitespace or Whitespace.flexible()


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidGrammarError(f"{name} must be a text, not {type(value).__name__}")
    if not value.strip():
        raise InvalidGrammarError(f"{name} is empty")
    return value


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidGrammarError(f"the {name} is not JSON: {error}", pointer="#") from error
    except RecursionError:
        raise InvalidGrammarError(f"the {name} is nested too deeply", pointer="#") from None
