"""What the caller wants back, and the JSON schema that says so.

Takes pydantic models, dataclasses, TypedDicts, `Literal`, unions, lists, primitives (whatever pydantic's `TypeAdapter` takes), a
raw JSON schema as a dict, `str` or None for free text, and the kinds of text in `text_types.py`. Property order is kept; keys are
never sorted. The shape that a provider wants is made in `wire_schema.py`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, core_schema

from .attempt import Problem
from .errors import InvalidRequestError, InvalidSchemaError
from .text_types import Choice, Grammar, Regex, StructuralTag, TextType, check_text, check_type
from .validation import MAX_PROBLEMS, NotStrictJsonError, SchemaChecker, parse_strict, to_pointer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """An answer that is valid."""

    value: T


class OutputType(Generic[T]):
    """An output type, its schema and its checks.

    Attributes:
        name: Short name, for messages and for providers that want one.
        schema: JSON schema, None for text.
        text_type: What a text is bound to, None for free text and JSON.
    """

    def __init__(self, output_type: Any) -> None:
        """Build the schema and compile it.

        Raises:
            InvalidSchemaError: The type has no JSON schema, or the dict is not one.
            UnsupportedSchemaError: The schema refers to another document.
        """
        self._adapter: pydantic.TypeAdapter[T] | None = None
        self._checker: SchemaChecker | None = None
        self.schema: dict[str, Any] | None = None
        self.text_type: TextType | None = None
        if isinstance(output_type, (Regex, Choice, Grammar, StructuralTag)):
            check_type(output_type)
            self.text_type = output_type
            self.name = "text"
        elif output_type is None or output_type is str:
            self.name = "text"
        elif isinstance(output_type, Mapping):
            self.schema = _copy_schema(output_type)
            self.name = str(self.schema.get("title", "answer"))
        else:
            self._adapter = _adapter(output_type)
            self.schema = _schema_of(self._adapter, output_type)
            self.name = getattr(output_type, "__name__", None) or "answer"
        if self.schema is not None:
            self._checker = SchemaChecker(self.schema)

    def validate(self, text: str, *, is_wrapped: bool = False) -> Accepted[T] | tuple[Problem, ...]:
        """Return the object that `text` holds, or the problems with it.

        Args:
            text: The answer, without anything around it.
            is_wrapped: The answer is `{"value": ...}` and only the value is wanted.
        """
        if self.text_type is not None and (found := check_text(self.text_type, text)):
            return found
        if self._checker is None:
            return Accepted(cast(T, text))
        try:
            value = parse_strict(text)
        except NotStrictJsonError as error:
            return (Problem("#", f"not valid JSON: {error}", "json"),)
        if is_wrapped:
            if not isinstance(value, dict) or list(value) != ["value"]:
                return (Problem("#", 'must be an object with the one key "value"'),)
            value = value["value"]
            text = dump_exact(value)
        if problems := self._checker.check(value):
            return problems
        return self._convert(text)

    def _convert(self, text: str) -> Accepted[T] | tuple[Problem, ...]:
        if self._adapter is None:
            return Accepted(cast(T, json.loads(text)))
        try:
            return Accepted(self._adapter.validate_json(text))
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)
            return tuple(Problem(to_pointer(item["loc"]), item["msg"], "type") for item in found[:MAX_PROBLEMS])


class _OrderedSchema(GenerateJsonSchema):
    """Pydantic's schema with keys in the order of the class, sets without `uniqueItems`, and no defaults that are not JSON.

    A Python set collapses duplicates by itself, so an answer that repeats an element is right.
    """

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        return value

    def set_schema(self, schema: core_schema.SetSchema) -> JsonSchemaValue:
        return _without_unique_items(super().set_schema(schema))

    def frozenset_schema(self, schema: core_schema.FrozenSetSchema) -> JsonSchemaValue:
        return _without_unique_items(super().frozenset_schema(schema))

    def encode_default(self, dft: Any) -> Any:
        value = super().encode_default(dft)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:  # pydantic leaves the default out then, and warns
            raise PydanticSerializationError(str(error)) from None
        return value


def _without_unique_items(schema: JsonSchemaValue) -> JsonSchemaValue:
    return {key: value for key, value in schema.items() if key != "uniqueItems"}


def _adapter(output_type: Any) -> pydantic.TypeAdapter[Any]:
    if isinstance(output_type, pydantic.TypeAdapter):
        return output_type
    try:
        if inspect.isroutine(output_type):
            raise TypeError("it is a function, which pydantic would call with the answer")
        return pydantic.TypeAdapter(output_type)
    except (pydantic.errors.PydanticUserError, NameError, TypeError, SyntaxError, RecursionError) as error:
        raise InvalidSchemaError(
            f"{output_type!r} cannot be an output type: {_first_line(error)}",
            hint="use a pydantic model, a dataclass, a type annotation, a JSON schema as a dict, or None for text",
        ) from error


def _schema_of(adapter: pydantic.TypeAdapter[Any], output_type: Any) -> dict[str, Any]:
    try:
        return adapter.json_schema(schema_generator=_OrderedSchema)
    except pydantic.errors.PydanticUserError as error:
        raise InvalidSchemaError(f"{output_type!r} has no JSON schema: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _copy_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(schema, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"the schema is not JSON: {error}") from error


def dump_exact(value: Any) -> str:
    """Write what `parse_strict` read, `Decimal` numbers digit for digit."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump_exact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump_exact, value)) + "]"
    if value is None or isinstance(value, (bool, str, int)):
        return json.dumps(value)
    return str(value)


def check_messages(messages: Any) -> tuple[Mapping[str, Any], ...]:
    """Turn what the caller gave into a list of messages.

    Raises:
        InvalidRequestError: An empty text, not a list of messages with `role` and `content`, or an empty list.
    """
    if isinstance(messages, str):
        if not messages.strip():
            raise InvalidRequestError("the message is empty", param="messages", hint="a model answers nothing with an invention")
        return ({"role": "user", "content": messages},)
    if not isinstance(messages, (list, tuple)):
        found = type(messages).__name__
        raise InvalidRequestError(f"messages must be a text or a list of messages, not {found}", param="messages")
    if not messages:
        raise InvalidRequestError("messages is an empty list", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidRequestError(f"messages[{index}] must be a mapping with a role", param="messages")
        if "content" not in message and message["role"] != "assistant":
            raise InvalidRequestError(f"messages[{index}] has no content", param="messages")
    return tuple(messages)
