"""A constraint as the caller states it, checked as far as that needs no vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidGrammarError, InvalidRequestError
from .choices import check_choices
from .object_options import close_objects
from .schema_check import check_satisfiable, strip_annotations
from .schema_reading import read_schema
from .sources import read_rules
from .spec_kinds import GrammarKind
from .structural_tag import check_structural_tag
from .whitespace import COMPACT, Whitespace

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
    """

    kind: GrammarKind
    source: str
    whitespace: Whitespace = COMPACT
    additional_properties: bool | None = None
    any_order: bool = False
    strict: bool = False
    max_number_digits: int | None = DEFAULT_MAX_NUMBER_DIGITS
    backend: str = "auto"

    @classmethod
    def from_json_schema(
        cls,
        schema: Mapping[str, Any] | bool | str | type,
        *,
        whitespace: Whitespace | None = None,
        any_whitespace: bool = False,
        whitespace_pattern: str | None = None,
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
            whitespace_pattern: Short for `whitespace=Whitespace.pattern(...)`.
            additional_properties: Default of `additionalProperties`; None is the schema language's own, True.
            any_order: Let properties come in any order. The masks then see to names and values; that the required ones are there
                is checked on the finished value.
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
        parsed = read_schema(_parse_schema(schema))
        if additional_properties is False:
            parsed = close_objects(parsed)
        source = json.dumps(strip_annotations(parsed), ensure_ascii=False, separators=(",", ":"))
        check_satisfiable(source)
        return cls(
            "json_schema",
            source,
            _pick_whitespace(whitespace, any_whitespace=any_whitespace, pattern=whitespace_pattern),
            additional_properties,
            any_order,
            strict,
            max_number_digits,
            backend,
        )

    @classmethod
    def json_object(cls, *, whitespace: Whitespace | None = None, any_whitespace: bool = False) -> GrammarSpec:
        """Make the constraint "any JSON object"."""
        return cls.from_json_schema(JSON_OBJECT_SCHEMA, whitespace=whitespace, any_whitespace=any_whitespace)

    @classmethod
    def regex(cls, pattern: str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of a regular expression in Python's syntax, which the whole answer matches (`re.fullmatch`).

        Raises:
            InvalidGrammarError: No regular expression, or one that matches no text; `column` names the place.
            UnsupportedGrammarError: A back-reference or another feature that no automaton has.
        """
        return cls._of_text("regex", pattern, backend)

    @classmethod
    def choice(cls, choices: Sequence[str], *, backend: str = "auto") -> GrammarSpec:
        """Make the constraint "exactly one of these texts".

        Raises:
            InvalidGrammarError: No list of one or more texts.
        """
        return cls("choice", check_choices(choices), backend=backend)

    @classmethod
    def ebnf(cls, grammar: str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of an EBNF grammar (`root ::= ...`, the dialect of GBNF and xgrammar).

        Raises:
            InvalidGrammarError: With `line` and `column`.
            UnsupportedGrammarError: A feature that no backend has.
        """
        return cls._of_text("ebnf", grammar, backend)

    @classmethod
    def lark(cls, grammar: str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of a Lark grammar (`start: ...`, the dialect of llguidance).

        Raises:
            InvalidGrammarError: With `line` and `column`.
            UnsupportedGrammarError: A feature that no backend has.
        """
        return cls._of_text("lark", grammar, backend)

    @classmethod
    def structural_tag(cls, tag: Mapping[str, Any] | str, *, backend: str = "auto") -> GrammarSpec:
        """Make a constraint of a structural tag (xgrammar's format), a mapping or its JSON text.

        Raises:
            InvalidGrammarError: `pointer` names the place.
            UnsupportedGrammarError: A feature that no backend has.
        """
        parsed = _parse(tag, "structural tag") if isinstance(tag, str) else tag
        return cls("structural_tag", check_structural_tag(parsed), backend=backend)

    @classmethod
    def _of_text(cls, kind: GrammarKind, text: str, backend: str) -> GrammarSpec:
        source = _text(kind, text)
        read_rules(kind, source)
        return cls(kind, source, backend=backend)

    @property
    def schema_text(self) -> str:
        """The source; its name from when every spec was a JSON schema."""
        return self.source

    @property
    def any_whitespace(self) -> bool:
        """Whether white space may vary."""
        return self.whitespace.style in ("flexible", "pattern")


def _parse_schema(schema: Mapping[str, Any] | bool | str | type) -> Any:
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


def _pick_whitespace(whitespace: Whitespace | None, *, any_whitespace: bool, pattern: str | None) -> Whitespace:
    given = [found for found in (whitespace, Whitespace.flexible() if any_whitespace else None) if found is not None]
    if pattern is not None:
        given.append(Whitespace.pattern(pattern))
    if len({found.style for found in given}) > 1:
        styles = " and ".join(found.style for found in given)
        raise InvalidRequestError(f"white space cannot be {styles} at once", param="whitespace")
    return given[0] if given else COMPACT


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidGrammarError(f"{name} must be a text, not {type(value).__name__}")
    if not value.strip():
        raise InvalidGrammarError(f"{name} is empty", line=1, column=1, hint="leave it out where anything may be answered")
    return value


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidGrammarError(f"the {name} is not JSON: {error}", pointer="#") from error
    except RecursionError:
        raise InvalidGrammarError(f"the {name} is nested too deeply", pointer="#") from None
