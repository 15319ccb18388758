"""Schemas of real tools as cases: whole ones, and definitions of large ones with what they refer to.

Documents are examples that the tools ship, in the schema's property order, and drawn ones. Nothing is here for packages that
were not fetched (`python tests/bench/schema_sources.py`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from schema_documents import draw_documents, in_schema_order, mutations, sort_documents
from schema_packages import (
    CHECK_JSONSCHEMA,
    CLOUDFORMATION,
    INSPIRE,
    KUBERNETES,
    OCPP,
    PYPROJECT,
    VEGA_LITE,
    WEBHOOK_EXAMPLES,
    WEBHOOKS,
    Package,
)  # fmt: skip
from schema_sources import SchemaCase

DRAFT7 = "http://json-schema.org/draft-07/schema#"
Named = Iterator[tuple[str, Any]]


def real_cases(*, is_quick: bool = False) -> Iterator[SchemaCase]:
    """Give the cases of every package that is there; in the quick run, a tenth of them."""
    for source, (packages, read, step) in SOURCES.items():
        if all(package.is_there for package in packages):
            found = [case for number, case in enumerate(read()) if number % step == 0]
            for name, schema, examples in found[::10] if is_quick else found:
                yield with_examples(source, name, schema, examples)


def with_examples(source: str, name: str, schema: Any, examples: list[Any], *, tries: int = 24) -> SchemaCase:
    """Draw documents, and take the examples and what is close to them."""
    valid, invalid = draw_documents(schema, seed=len(name), tries=tries)
    ordered = [in_schema_order(example, schema) for example in examples]
    near = [changed for example in ordered for changed in mutations(example, seed=len(name), count=3)]
    more_valid, more_invalid = sort_documents(schema, [*ordered, *near])
    return SchemaCase(source, name, schema, (*valid, *more_valid), (*invalid, *more_invalid))


def whole_files(package: Package, *, holds: str = "") -> Iterator[tuple[str, Any, list[Any]]]:
    """Give the files of a package that are schemas."""
    for name, content in package.read():
        if holds in name:
            schema = json.loads(content)
            if isinstance(schema, dict) and not schema.keys().isdisjoint(("properties", "type", "$ref", "definitions", "anyOf")):
                yield PurePath(name).stem, schema, []


def definitions(root: Mapping[str, Any], *, key: str = "definitions") -> Named:
    """Give every definition as a schema of its own, one of each shape."""
    shapes: set[str] = set()
    for name, definition in root[key].items():
        shape = json.dumps(_shape(definition), sort_keys=True)
        if shape not in shapes:
            shapes.add(shape)
            yield name, closure(root, name, key=key)


def closure(root: Mapping[str, Any], name: str, *, key: str = "definitions") -> dict[str, Any]:
    """Give a definition with all that it refers to."""
    needed: dict[str, Any] = {}
    stack = [name]
    while stack:
        current = stack.pop()
        if current not in needed:
            needed[current] = root[key][current]
            stack += [found for found in _references(needed[current], key) if found in root[key]]
    dialect = {"$schema": root["$schema"]} if "$schema" in root else {}
    return {**dialect, "$ref": f"#/{key}/{name}", key: {other: needed[other] for other in root[key] if other in needed}}


def _references(schema: Any, key: str) -> Iterator[str]:
    stack = [schema]
    while stack:
        current = stack.pop()
        if isinstance(current, dict):
            reference = current.get("$ref")
            if isinstance(reference, str) and reference.startswith(f"#/{key}/"):
                yield reference.removeprefix(f"#/{key}/")
            stack.extend(current.values())
        elif isinstance(current, list):
            stack.extend(current)


def _shape(schema: Any) -> Any:
    """Give a schema without its names and texts."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            children = sorted(json.dumps(_shape(child), sort_keys=True) for child in schema["properties"].values())
            return {
                **{word: _shape(schema[word]) for word in schema if word not in ("properties", *_TEXTS)},
                "properties": children,
            }
        return {word: _shape(child) for word, child in schema.items() if word not in _TEXTS}
    if isinstance(schema, list):
        return [_shape(child) for child in schema]
    return schema if isinstance(schema, bool) else type(schema).__name__


_TEXTS = ("description", "title", "required", "examples", "default")


def _cloudformation() -> Iterator[tuple[str, Any, list[Any]]]:
    for name, content in CLOUDFORMATION.read(".py"):
        body = ast.parse(content).body
        if body and isinstance(body[0], ast.Assign) and not name.endswith("__init__.py"):
            schema = ast.literal_eval(body[0].value)
            if isinstance(schema, dict) and "properties" in schema:
                yield PurePath(name).stem, {"$schema": DRAFT7, **schema}, []


def _kubernetes() -> Iterator[tuple[str, Any, list[Any]]]:
    text = next(KUBERNETES.read("v1.37.0-local/_definitions.json"))[1].decode()
    root = json.loads(text.replace("/api/_definitions.json#/", "#/"))
    yield from ((name, schema, []) for name, schema in definitions(root, key="$defs"))


def _webhooks() -> Iterator[tuple[str, Any, list[Any]]]:
    root = WEBHOOKS.load("schema.json")
    for event in WEBHOOK_EXAMPLES.load("api.github.com/index.json"):
        name = f"{event['name']}_event"
        if name in root["definitions"]:
            yield name, closure(root, name), event["examples"][:4]


def _webhook_parts() -> Iterator[tuple[str, Any, list[Any]]]:
    yield from ((name, schema, []) for name, schema in definitions(WEBHOOKS.load("schema.json")) if not name.endswith("_event"))


def _vega_lite() -> Iterator[tuple[str, Any, list[Any]]]:
    for name, schema in definitions(VEGA_LITE.load("vega-lite-schema.json")):
        if len(schema["definitions"]) < 120:
            yield name, schema, []


SOURCES: dict[str, tuple[tuple[Package, ...], Callable[[], Iterator[tuple[str, Any, list[Any]]]], int]] = {
    "check-jsonschema": ((CHECK_JSONSCHEMA,), lambda: whole_files(CHECK_JSONSCHEMA, holds="/vendor/"), 1),
    "cloudformation": ((CLOUDFORMATION,), _cloudformation, 9),
    "inspire": ((INSPIRE,), lambda: whole_files(INSPIRE, holds="/records/"), 1),
    "kubernetes": ((KUBERNETES,), _kubernetes, 4),
    "ocpp": ((OCPP,), lambda: whole_files(OCPP, holds="/schemas/"), 6),
    "pyproject": ((PYPROJECT,), lambda: whole_files(PYPROJECT, holds="/resources/"), 1),
    "vega-lite": ((VEGA_LITE,), _vega_lite, 4),
    "webhooks": ((WEBHOOKS, WEBHOOK_EXAMPLES), _webhooks, 1),
    "webhook parts": ((WEBHOOKS,), _webhook_parts, 2),
}
"""By name of a source: the packages, what reads them, and of how many schemas one is taken."""
