"""Read a schema as it was meant: which draft it is written in, and spellings that are common but not standard.

The check of finished answers reads schemas in the same way (`middleware/schema_reading.py`, which must not import the engine).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import GrammarError, UnsupportedGrammarError
from .rewrite.dialect import DRAFTS, LATEST, named_draft
from .schema_check import check_form, check_meaning, each_subschema, map_subschemas, walk_schemas

_DRAFT3_WORDS = ("extends", "disallow", "divisibleBy")
_URI_WORDS = ("$ref", "$id", "id")
_SPELT = frozenset((*_URI_WORDS, "pattern", "patternProperties"))
_URI_SIGNS = "!#$%&'()*+,-./:;=?@_~"
_NO_URI = re.compile(r"[^!$%&'()*+,\-./0-9:;=?@A-Z_a-z~#]")


def read_schema(schema: Any) -> Any:
    """Check a schema, and give it with its draft named, references written as URIs, and patterns as ECMA-262 has them.

    One that names no draft, or none that is known, is read as the newest draft in which it is a valid schema.

    Raises:
        InvalidGrammarError: With the JSON pointer of the place.
        UnsupportedGrammarError: A remote reference, or a draft of before 2013.
    """
    check_form(schema)
    _refuse_draft3(schema)
    if any(map(_is_misspelled, each_subschema(schema))):
        schema = _respell(schema)
    first_error = None
    for reading in _readings(schema):
        try:
            check_meaning(reading)
            return reading
        except GrammarError as error:
            first_error = first_error or error
    assert first_error is not None, "there is at least one reading"
    raise first_error


def _readings(schema: Any) -> Iterator[Any]:
    """Give the schema as each draft that may be meant, newest first."""
    uri = schema.get("$schema") if isinstance(schema, Mapping) else DRAFTS[LATEST]
    if isinstance(schema, bool) or not isinstance(uri, (str, type(None))):
        yield schema
        return
    named = named_draft(uri or "", 0)
    for draft in (named,) if named else DRAFTS:
        yield schema if uri is None and draft == LATEST else {**schema, "$schema": DRAFTS[draft]}


def _refuse_draft3(schema: Any) -> None:
    if not isinstance(schema, Mapping) or "draft-03" not in str(schema.get("$schema", "")):
        return
    for place in walk_schemas(schema):
        for word in _DRAFT3_WORDS:
            if isinstance(place.schema, Mapping) and word in place.schema:
                raise UnsupportedGrammarError(
                    f"{word} is a word of draft 3", pointer=f"{place.pointer}/{word}", hint="write the schema in a newer draft"
                )


def _is_misspelled(schema: Any) -> bool:
    if not isinstance(schema, (dict, Mapping)) or _SPELT.isdisjoint(schema):
        return False
    patterns = schema.get("patternProperties")
    return (
        any(isinstance(schema.get(word), str) and _NO_URI.search(schema[word]) for word in _URI_WORDS)
        or respell_pattern(schema.get("pattern", "")) != schema.get("pattern", "")
        or (isinstance(patterns, Mapping) and any(respell_pattern(pattern) != pattern for pattern in patterns))
    )


def _respell(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    changed = map_subschemas(schema, _respell)
    for word in _URI_WORDS:
        if isinstance(changed.get(word), str) and _NO_URI.search(changed[word]):
            changed[word] = quote(changed[word], safe=_URI_SIGNS)
    if "pattern" in changed:
        changed["pattern"] = respell_pattern(changed["pattern"])
    if isinstance(changed.get("patternProperties"), Mapping):
        changed["patternProperties"] = {respell_pattern(key): child for key, child in changed["patternProperties"].items()}
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
