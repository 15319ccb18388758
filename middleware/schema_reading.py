"""Compile a JSON schema for the check of finished answers, read as it was meant.

A schema that names no draft, or none that is known, is read as the newest one in which it is a valid schema; common spellings
that are not standard are respelled; numbers keep all their digits. Nothing is ever fetched: only the schemas of JSON Schema
itself are known. The engine reads schemas in the same way at admission (`engine/grammar/schema_reading.py`); a test holds the
two together.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import jsonschema_specifications

_DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
)
_NAMES = {uri.split("://")[1].rstrip("#"): uri for uri in _DRAFTS} | {"json-schema.org/schema": _DRAFTS[0]}
_DATA = frozenset({"const", "enum", "default", "examples", "example"})
_URI_WORDS = ("$ref", "$id", "id")
_URI_SIGNS = "!#$%&'()*+,-./:;=?@_~"
_NO_URI = re.compile(r"[^!$%&'()*+,\-./0-9:;=?@A-Z_a-z~#]")
_EXACT = 2**53
"""Floats from here on are whole numbers, and are compared as such."""


def compile_schema(schema: Any) -> jsonschema_rs.Validator:
    """Compile a schema.

    Raises:
        jsonschema_rs.ValidationError: Not a schema in any draft that may be meant, or one that refers to another document.
    """
    schema = _respell(_exact(schema))
    first_error = None
    for reading in _readings(schema):
        try:
            return jsonschema_rs.validator_for(reading, validate_formats=True, registry=_metaschemas(), offline=True)
        except jsonschema_rs.ValidationError as error:
            first_error = first_error or error
    assert first_error is not None, "there is at least one reading"
    raise first_error


@lru_cache(maxsize=1)
def _metaschemas() -> jsonschema_rs.Registry:
    registry = jsonschema_specifications.REGISTRY
    return jsonschema_rs.Registry([(uri, registry.contents(uri)) for uri in registry])


def _readings(schema: Any) -> Iterator[Any]:
    uri = schema.get("$schema") if isinstance(schema, Mapping) else _DRAFTS[0]
    if isinstance(schema, bool) or not isinstance(uri, (str, type(None))):
        yield schema
        return
    named = _NAMES.get((uri or "").split("://")[-1].rstrip("#").replace("/hyper-schema", "/schema"))
    for draft in (named,) if named else _DRAFTS:
        yield schema if uri is None and draft == _DRAFTS[0] else {**schema, "$schema": draft}


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: change(item) for key, item in value.items()}
    return [change(item) for item in value] if isinstance(value, (list, tuple)) else value


def _exact(value: Any) -> Any:
    """Write large floats as the integers that their digits name: others are compared with their nearest double."""
    if isinstance(value, float) and _EXACT <= abs(value) < float("inf"):
        return int(Decimal(repr(value)))
    return _map(value, _exact)


def _respell(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _map(value, _respell)
    changed = {key: item if key in _DATA else _respell(item) for key, item in value.items()}
    for word in _URI_WORDS:
        if isinstance(changed.get(word), str) and _NO_URI.search(changed[word]):
            changed[word] = quote(changed[word], safe=_URI_SIGNS)
    if "pattern" in changed:
        changed["pattern"] = respell_pattern(changed["pattern"])
    if isinstance(changed.get("patternProperties"), Mapping):
        changed["patternProperties"] = {respell_pattern(key): item for key, item in changed["patternProperties"].items()}
    return changed


_PIECE = re.compile(
    r"""\\u\{[0-9A-Fa-f]+\} | \\[pPkx]\{[^}]*\} | \\. | \[\^?(?:\\.|[^\]\\])*\] | \{(?:[0-9]+(?:,[0-9]*)?)\} | .""",
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(r"\\[dDwWsS](-)(?!\])|(?<![\[^])(?<!\[\^)(-)(?=\\[dDwWsS])|\\.|.", re.DOTALL)


_PLAIN = {r"\A": "^", r"\Z": "$", r"\z": "$", r"\<": "<", r"\>": ">"}
"""Anchors of Python, and escapes of plain signs that some engines take for edges of words."""
_WHOLE_DOTS = re.compile(r"\(\?([imsu]*s[imsu]*)\)")


def respell_pattern(pattern: Any) -> Any:
    r"""Write in ECMA-262 what other engines take.

    `{` that opens no repetition and `-` beside a class, as in `[\w-.]`, are escaped; `\A`, `\Z`, `\<` and the flag `s` at the
    head are written out.
    """
    if not isinstance(pattern, str) or not _ODD.search(pattern):
        return pattern
    head = _WHOLE_DOTS.match(pattern)
    others = re.sub("[su]", "", head[1]) if head else ""
    pieces = (found[0] for found in _PIECE.finditer(pattern, head.end() if head else 0))
    body = "".join(r"[\s\S]" if head and piece == "." else _respell_piece(piece) for piece in pieces)
    return f"(?{others}){body}" if others else body


_ODD = re.compile(r"[{-]|\\[AZz<>]|^\(\?[imsu]*s[imsu]*\)")


def _respell_piece(piece: str) -> str:
    if piece == "{":
        return r"\{"
    if not piece.startswith("[") or len(piece) == 1:
        return _PLAIN.get(piece, piece)
    return "".join(
        found[0][:-1] + r"\-" if found[1] or found[2] else found[0].lstrip("\\") if found[0] in (r"\<", r"\>") else found[0]
        for found in _MEMBER.finditer(piece)
    )


JSON_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_OTHER_NAMES = {
    "str": "string", "text": "string", "date": "string", "datetime": "string", "file": "string", "int": "integer",
    "long": "integer", "float": "number", "double": "number", "decimal": "number", "bool": "boolean", "dict": "object",
    "map": "object", "list": "array", "tuple": "array", "set": "array", "none": "null",
}  # fmt: skip


def type_hint(error: jsonschema_rs.ValidationError) -> str | None:
    """Say what was meant where a schema's `type` is none; the metaschema says only that no alternative fits."""
    if isinstance(error.instance, bool) and [*error.instance_path][-1:] == ["required"]:
        return "required is a list of names, beside properties"
    if isinstance(error.instance, list) and [*error.instance_path][-1:] == ["items"]:
        return "a list of schemas stands under prefixItems since draft 2020-12"
    if list(error.schema_path)[-2:] != ["type", "anyOf"]:
        return None
    words = error.instance if isinstance(error.instance, list) else [error.instance]
    wrong = next((word.lower() for word in words if isinstance(word, str) and word not in JSON_TYPES), "")
    if wrong == "any":
        return "leave type out, where anything may stand"
    near = [_OTHER_NAMES[wrong]] if wrong in _OTHER_NAMES else difflib.get_close_matches(wrong, JSON_TYPES, n=1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}types are {', '.join(JSON_TYPES[:-1])} and {JSON_TYPES[-1]}"
