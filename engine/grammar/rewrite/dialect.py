"""Read keywords of older drafts as those of 2020-12, one schema object at a time.

Nothing moves: a keyword keeps the pointer of the place where it was written, since references point there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

LATEST = 2020
DRAFTS = {
    LATEST: "https://json-schema.org/draft/2020-12/schema",
    2019: "https://json-schema.org/draft/2019-09/schema",
    7: "http://json-schema.org/draft-07/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    4: "http://json-schema.org/draft-04/schema#",
}
"""By draft, newest first, the URI that names it."""
_NAMES = {uri.split("://")[1].rstrip("#"): draft for draft, uri in DRAFTS.items()} | {"json-schema.org/schema": LATEST}
ID_KEYWORD = {4: "id"}

SCHEMA = frozenset(
    "additionalProperties items not if then else contains propertyNames unevaluatedItems unevaluatedProperties".split()
)
"""Keywords whose value is one schema."""
SCHEMA_LIST = frozenset("anyOf oneOf allOf prefixItems".split())
SCHEMA_MAP = frozenset("properties patternProperties $defs definitions dependentSchemas".split())
_NEW_WORDS = {
    6: "const contains propertyNames exclusiveMinimum exclusiveMaximum",
    7: "if then else",
    2019: "dependentRequired dependentSchemas unevaluatedItems unevaluatedProperties minContains maxContains $anchor",
    LATEST: "prefixItems $dynamicRef $dynamicAnchor",
}
_SINCE = {word: draft for draft, words in _NEW_WORDS.items() for word in words.split()}
_UNTIL = {"additionalItems": 2019, "$recursiveRef": 2019, "contentEncoding": 7, "contentMediaType": 7}
_CHANGED = frozenset((*_SINCE, *_UNTIL, "items", "dependencies", "minimum", "maximum"))
"""Keywords that some draft reads in another way than 2020-12."""


Keyword = tuple[str, Any, str]
"""A keyword in the words of 2020-12, its value, and the word under which it was written."""


def draft_of(schema: Any, default: int) -> int:
    """Tell the draft that a schema object names, or `default`."""
    uri = schema.get("$schema") if isinstance(schema, Mapping) else None
    return named_draft(uri, default) if isinstance(uri, str) else default


def named_draft(uri: str, default: int) -> int:
    """Tell the draft that a URI names: with `http` or `https`, with or without `#`, the one for links too; or `default`."""
    return _NAMES.get(uri.split("://")[-1].rstrip("#").replace("/hyper-schema", "/schema"), default)


def read_keywords(schema: Mapping[str, Any], draft: int) -> Iterator[Keyword]:
    """Give the keywords of one schema object, in the order of the object."""
    if draft <= 7 and "$ref" in schema:  # it stands for the whole object there
        yield "$ref", schema["$ref"], "$ref"
        yield from ((key, schema[key], key) for key in ("definitions", "$defs") if key in schema)
        return
    for key, value in schema.items():
        if key not in _CHANGED:
            yield key, value, key
        elif _SINCE.get(key, 0) <= draft <= _UNTIL.get(key, LATEST):
            yield from _read(schema, key, value, draft)


def _read(schema: Mapping[str, Any], key: str, value: Any, draft: int) -> Iterator[Keyword]:
    if key == "items" and isinstance(value, list):
        yield "prefixItems", value, key
    elif key == "additionalItems":
        if isinstance(schema.get("items"), list):
            yield "items", value, key
    elif key == "dependencies":
        yield from _read_dependencies(value)
    elif key in ("exclusiveMinimum", "exclusiveMaximum") and draft == 4:
        return
    elif key in ("minimum", "maximum") and draft == 4 and schema.get(f"exclusive{key.capitalize()}") is True:
        yield f"exclusive{key.capitalize()}", value, key
    else:
        yield key, value, key


def _read_dependencies(value: Any) -> Iterator[Keyword]:
    if isinstance(value, Mapping):
        names = {name: part for name, part in value.items() if isinstance(part, list)}
        schemas = {name: part for name, part in value.items() if not isinstance(part, list)}
        if names:
            yield "dependentRequired", names, "dependencies"
        if schemas:
            yield "dependentSchemas", schemas, "dependencies"
