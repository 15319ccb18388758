"""Schemas by class, with documents to walk along: what the rows of a mask cost depends on both."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from schema_documents import draw_documents, in_schema_order
from schema_packages import CHECK_JSONSCHEMA

MAX_DOCUMENT = 1500
"""Characters; the longest drawn documents repeat themselves."""


@dataclass(frozen=True, slots=True)
class FillCase:
    """A schema and valid documents in its property order.

    Attributes:
        kind: The class of schemas that it stands for.
        name: Its own name.
    """

    kind: str
    name: str
    schema: Any
    documents: tuple[Any, ...]

    @property
    def texts(self) -> list[str]:
        """The documents as compact JSON."""
        return [json.dumps(document, ensure_ascii=False, separators=(",", ":")) for document in self.documents]


def closed(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Give an object schema in which all properties are required and no others are allowed."""
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False, **more,
    }  # fmt: skip


TEXT = {"type": "string"}
WORDS = "The committee met on Monday to discuss the new rules for the library."
FLAT = closed({"name": TEXT, "city": TEXT, "age": {"type": "integer"}, "member": {"type": "boolean"}, "note": TEXT})
BOUNDED = closed({
    "first_name": {"type": "string", "maxLength": 20}, "last_name": {"type": "string", "minLength": 1, "maxLength": 24},
    "summary": {"type": "string", "minLength": 10, "maxLength": 200},
})  # fmt: skip
ENUMS = closed({
    "currency": {"enum": ["EUR", "USD", "GBP", "CHF", "JPY", "SEK"]}, "status": {"enum": ["paid", "unpaid", "overdue", "draft"]},
    "country": {"enum": [f"{a}{b}" for a in "ABCDEFGHIJKL" for b in "KLMNOPQRSTUV"]}, "kind": {"const": "invoice"},
})  # fmt: skip
NUMBERS = closed({
    "count": {"type": "integer"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "price": {"type": "number"},
    "score": {"type": "number", "minimum": 0, "maximum": 1}, "total": {"type": "integer", "minimum": 1, "maximum": 999999},
})  # fmt: skip
PATTERNS = closed({
    "number": {"type": "string", "pattern": "^INV-[0-9]{6}$"}, "date": {"type": "string", "format": "date"},
    "when": {"type": "string", "format": "date-time"}, "mail": {"type": "string", "format": "email"},
    "id": {"type": "string", "format": "uuid"}, "slug": {"type": "string", "pattern": "^[a-z][a-z0-9-]{2,30}$"},
})  # fmt: skip
LINE = closed({"description": TEXT, "quantity": {"type": "integer"}, "tags": {"type": "array", "items": TEXT}})
ARRAYS = closed({
    "lines": {"type": "array", "items": LINE, "minItems": 1},
    "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
})  # fmt: skip
RECURSIVE = {
    "$defs": {"node": closed({"label": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}})},
    "$ref": "#/$defs/node",
}
TREE = {"label": "root", "children": [
    {"label": "left side", "children": []},
    {"label": "right side", "children": [{"label": "a leaf of the tree", "children": []}, {"label": "b", "children": []}]},
]}  # fmt: skip

WRITTEN = (
    FillCase("flat object", "person", FLAT, (
        {"name": "Ada Lovelace", "city": "London", "age": 36, "member": True, "note": WORDS},
        {"name": "Zoë Müller", "city": "Zürich", "age": 7, "member": False, "note": ""},
    )),
    FillCase("bounded strings", "profile", BOUNDED, (
        {"first_name": "Maria", "last_name": "Keller", "summary": WORDS},
        {"first_name": "Bartholomew", "last_name": "van den Heuvel", "summary": f"{WORDS} {WORDS}"},
    )),
    FillCase("enums", "codes", ENUMS, (
        {"currency": "EUR", "status": "overdue", "country": "CL", "kind": "invoice"},
        {"currency": "SEK", "status": "draft", "country": "AK", "kind": "invoice"},
    )),
    FillCase("numbers", "figures", NUMBERS, (
        {"count": 1204518, "age": 36, "price": 1234.5678, "score": 0.125, "total": 99999},
        {"count": -7, "age": 0, "price": -1.5e10, "score": 1, "total": 1},
    )),
    FillCase("patterns and formats", "record", PATTERNS, (
        {"number": "INV-204518", "date": "2024-03-17", "when": "2024-03-17T12:30:00Z", "mail": "ada@example.org",
         "id": "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "slug": "new-rules-2024"},
    )),
    FillCase("nested arrays", "order", ARRAYS, (
        {"lines": [{"description": "desk lamp", "quantity": 12, "tags": ["light", "office"]},
                   {"description": "oak shelf", "quantity": 3, "tags": []}], "matrix": [[1, 2.5], [3, -4], []]},
    )),
    FillCase("recursive", "tree", RECURSIVE, (TREE,)),
)  # fmt: skip
LARGE = (
    "dependabot",
    "github-workflows",
    "gitlab-ci",
    "buildkite",
    "readthedocs",
    "renovate",
    "compose-spec",
    "bitbucket-pipelines",
)


def fill_cases(*, with_large: bool = True) -> list[FillCase]:
    """Give all cases; the large real ones only where they were fetched."""
    cases = list(WRITTEN)
    for name, content in CHECK_JSONSCHEMA.read() if with_large and CHECK_JSONSCHEMA.is_there else ():
        if PurePath(name).name.startswith(LARGE):
            schema = json.loads(content)
            drawn = [each for each in draw_documents(schema, seed=7)[0] if 80 <= len(json.dumps(each)) <= MAX_DOCUMENT]
            # Properties behind `allOf` are drawn after those beside it.
            documents = [in_schema_order(each, schema) for each in drawn]
            documents.sort(key=lambda each: -len(json.dumps(each)))
            if documents:
                cases.append(FillCase("large real", PurePath(name).stem, schema, tuple(documents[:3])))
    return cases
