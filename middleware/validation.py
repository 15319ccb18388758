"""Is this text a valid answer? Strict JSON first, then the JSON schema, then the Python type.

Strict means RFC 8259 with nothing added: no NaN or Infinity, no key twice, no lone surrogates. Numbers are compared at full
precision.
Knows nothing about models; `generation.py` decides what a problem leads to.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema_rs

from .attempt import Problem
from .errors import InvalidSchemaError, UnsupportedSchemaError
from .schema_reading import compile_schema, type_hint

MAX_PROBLEMS = 10
_MAX_DIGITS = 4000


class NotStrictJsonError(ValueError):
    """The text is not strict JSON. Internal: becomes a `Problem`."""


def parse_strict(text: str) -> Any:
    """Parse strict JSON. Numbers with a fraction or an exponent become `Decimal`, so that nothing is rounded.

    Raises:
        NotStrictJsonError: The text is not strict JSON; the message says why and where.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant, parse_float=_parse_float, parse_int=_parse_int
        )
        text.encode()
        _check_surrogates(text)
    except RecursionError:
        raise NotStrictJsonError("nested too deeply") from None
    except UnicodeEncodeError:
        raise NotStrictJsonError("holds half of a character (a lone surrogate)") from None
    except (ValueError, InvalidOperation) as error:
        raise NotStrictJsonError(str(error)) from None
    return value


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise NotStrictJsonError(f"key {json.dumps(twice)} appears twice in one object")
    return value


def _refuse_constant(name: str) -> Any:
    raise NotStrictJsonError(f"{name} is not JSON")


def _parse_float(digits: str) -> Decimal:
    # What overflows to infinity, or underflows to zero, as a Python float would not be the number that was checked.
    number, rounded = Decimal(digits), float(digits)
    if math.isinf(rounded) or (rounded == 0 and number != 0):
        raise NotStrictJsonError(f"the number {digits[:40]} is out of range")
    return number


def _parse_int(digits: str) -> int:
    # Python itself reads no more than 4300, since the time for it grows with the square.
    if len(digits) > _MAX_DIGITS:
        raise NotStrictJsonError(f"the number {digits[:40]}... has more than {_MAX_DIGITS} digits")
    return int(digits)


def _check_surrogates(text: str) -> None:
    if "\\u" in text or "\\U" in text:
        json.dumps(json.loads(text, parse_int=str, parse_float=str), ensure_ascii=False).encode()


class SchemaChecker:
    """A compiled JSON schema.

    Never fetches anything: a reference to another document is refused.
    """

    def __init__(self, schema: dict[str, Any] | bool) -> None:
        """Compile.

        Raises:
            InvalidSchemaError: Not a JSON schema; `pointer` names the place.
            UnsupportedSchemaError: The schema refers to another document.
        """
        try:
            self._validator = compile_schema(schema)
        except jsonschema_rs.ValidationError as error:
            raise _schema_error(error) from error
        except (ValueError, TypeError, UnicodeEncodeError, RecursionError) as error:
            raise InvalidSchemaError(f"not a JSON schema: {error}") from error

    def check(self, value: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a parsed value, at most `MAX_PROBLEMS`, nothing if it is valid."""
        found = []
        for error in self._validator.iter_errors(value):
            found.append(Problem(to_pointer(error.instance_path), error.message))
            if len(found) == MAX_PROBLEMS:
                break
        return tuple(found)


def _schema_error(error: jsonschema_rs.ValidationError) -> InvalidSchemaError | UnsupportedSchemaError:
    if "retriev" in error.message:
        return UnsupportedSchemaError(error.message, hint="put the definition under $defs")
    pointer = to_pointer(error.instance_path)
    return InvalidSchemaError(f"not a JSON schema, at {pointer}: {error.message}", pointer=pointer, hint=type_hint(error))


def to_pointer(path: list[str | int] | tuple[str | int, ...]) -> str:
    """Write a path as a JSON pointer in URI fragment form (RFC 6901), `#` for the root."""
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
