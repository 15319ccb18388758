"""Documents for a schema: drawn near what the schema says, then sorted into valid and invalid by `jsonschema-rs`.

Knows nothing of grammars and rewriting, so that it can judge both.
"""

from __future__ import annotations

import importlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

# The parser of `re` has no public name.
sre_parser = importlib.import_module("re._parser")

MAX_DEPTH = 8
MAX_VALUES = 1500
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
WORDS = ("", "a", "foo", "bar", "x y", "é", "😀", 'q"u', "back\\slash", "123", "line\n", "0" * 20)
EXTRA = ("extra", "zz", "foo", "bar", "k1")
FORMATS = {
    "date": ("2026-02-28", "2026-02-31", "2024-02-29"),
    "time": ("12:00:00Z", "12:00:00.5+01:00", "25:00:00Z"),
    "date-time": ("2026-11-29T12:00:00Z", "2026-11-29 12:00", "2026-02-31T12:00:00Z"),
    "duration": ("P1D", "PT5M", "P"),
    "email": ("a@b.co", "nobody"),
    "hostname": ("e.io", "-x-", "a.b.c"),
    "ipv4": ("127.0.0.1", "256.1.1.1"),
    "ipv6": ("::1", "1::2::3"),
    "uri": ("https://e.io/p?q#f", "no scheme"),
    "uri-reference": ("/a/b", "\\x"),
    "uuid": ("2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08"),
    "json-pointer": ("/a~1b", "a"),
    "regex": ("^a$", "("),
}


def draw_documents(schema: Any, *, seed: int, tries: int = 60) -> tuple[list[Any], list[Any]]:
    """Give valid and invalid documents, without repetition, in the schema's property order."""
    rng = random.Random(seed)
    drawn = []
    for number in range(tries):
        document = _Drawer(schema, rng, is_careful=number % 3 == 1).draw(schema, 0)
        drawn.append(mutate(document, rng) if number % 3 == 2 else document)
    return sort_documents(schema, drawn)


def sort_documents(schema: Any, documents: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Part documents into valid and invalid ones, without repetition; none where the schema refers to other documents."""
    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True, offline=True)
    except (jsonschema_rs.ValidationError, ValueError):
        return [], []
    valid: dict[str, Any] = {}
    invalid: dict[str, Any] = {}
    for document in documents:
        (valid if validator.is_valid(document) else invalid).setdefault(json.dumps(document), document)
    return list(valid.values()), list(invalid.values())


def mutations(value: Any, *, seed: int, count: int) -> list[Any]:
    """Give documents that differ from one in one place each."""
    rng = random.Random(seed)
    return [mutate(value, rng) for _ in range(count)]


def in_schema_order(value: Any, schema: Any) -> Any:
    """Arrange the properties of a document as the schema names them: references followed, branches that do not hold left out."""
    return _Arranger(schema).arrange(value, [schema])


class _Arranger:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._validators: dict[int, Any] = {}

    def arrange(self, value: Any, schemas: list[Any]) -> Any:
        if not isinstance(value, (dict, list)):
            return value
        parts = [part for schema in schemas for part in self._parts(schema, value, 0)]
        if isinstance(value, list):
            return [self.arrange(item, list(_item_schemas(parts, index))) for index, item in enumerate(value)]
        names = dict.fromkeys(name for part in parts for name in part.get("properties", {}))
        names.update(dict.fromkeys(name for part in parts for name in part.get("required", ()) if isinstance(name, str)))
        order = [name for name in names if name in value] + [name for name in value if name not in names]
        return {name: self.arrange(value[name], list(_property_schemas(parts, name))) for name in order}

    def _parts(self, schema: Any, value: Any, depth: int) -> Iterator[dict[str, Any]]:
        """Give a schema object and those that hold at the same place, in the order in which they are written."""
        if not isinstance(schema, dict) or depth > 12:
            return
        has_own = False
        for key, child in schema.items():
            if key == "$ref" and isinstance(child, str):
                yield from self._parts(resolve(self._root, child), value, depth + 1)
            elif key == "allOf" and isinstance(child, list):
                for part in child:
                    yield from self._parts(part, value, depth + 1)
            elif key in ("anyOf", "oneOf", "then", "else"):
                for part in child if isinstance(child, list) else [child]:
                    if self._holds(part, value):
                        yield from self._parts(part, value, depth + 1)
            elif key in _PLACES and not has_own:
                has_own = True
                yield {word: schema[word] for word in _PLACES if word in schema}

    def _holds(self, schema: Any, value: Any) -> bool:
        if id(schema) not in self._validators:
            root = self._root if isinstance(self._root, dict) else {}
            around = {key: root[key] for key in ("$schema", "definitions", "$defs") if key in root}
            try:
                validator = jsonschema_rs.validator_for({**around, "allOf": [schema]}, validate_formats=True, offline=True)
            except Exception:  # it refers to a place that is not here
                validator = None
            self._validators[id(schema)] = validator
        validator = self._validators[id(schema)]
        return validator is None or bool(validator.is_valid(value))


_PLACES = ("properties", "required", "items", "prefixItems", "additionalItems", "additionalProperties", "patternProperties")


def _item_schemas(parts: list[dict[str, Any]], index: int) -> Iterator[Any]:
    for part in parts:
        items = part.get("items", {})
        prefix = items if isinstance(items, list) else part.get("prefixItems", [])
        yield prefix[index] if index < len(prefix) else part.get("additionalItems", {}) if isinstance(items, list) else items


def _property_schemas(parts: list[dict[str, Any]], name: str) -> Iterator[Any]:
    for part in parts:
        own = [part["properties"][name]] if name in part.get("properties", {}) else []
        own += [child for pattern, child in part.get("patternProperties", {}).items() if _finds(pattern, name)]
        yield from own or [part.get("additionalProperties", {})]


def _finds(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


def mutate(value: Any, rng: random.Random) -> Any:
    """Change one place of a document."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = rng.choice(list(value))
        if rng.random() < 0.4:
            return {key: item for key, item in value.items() if key != name}
        return {key: mutate(item, rng) if key == name else item for key, item in value.items()}
    if isinstance(value, list) and value and rng.random() < 0.8:
        index = rng.randrange(len(value))
        if rng.random() < 0.3:
            return [*value, value[index]]
        return [mutate(item, rng) if number == index else item for number, item in enumerate(value)]
    if isinstance(value, str) and rng.random() < 0.5:
        return value + rng.choice(("x", "0", "é")) if rng.random() < 0.5 else value[:-1]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 1000))
    return rng.choice((None, True, 0, 1.5, "foo", [], {}, {"zz": 1}, -3))


def resolve(root: Any, reference: str) -> Any:
    """Follow a reference into the same document; an empty schema where it leads elsewhere."""
    if not reference.startswith("#"):
        return {}
    target = root
    for part in reference[1:].split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(key)] if isinstance(target, list) else target[key]
        except (KeyError, ValueError, IndexError, TypeError):
            return {}
    return target


class _Drawer:
    """Draws documents near what a schema says; a careful one does not leave its way on purpose."""

    def __init__(self, root: Any, rng: random.Random, *, is_careful: bool) -> None:
        self._root = root
        self._rng = rng
        self._is_careful = is_careful
        self._left = MAX_VALUES

    def _obeys(self, share: float) -> bool:
        return self._is_careful or self._rng.random() < share

    def draw(self, schema: Any, depth: int) -> Any:
        rng = self._rng
        self._left -= 1
        if not isinstance(schema, Mapping) or not schema or depth > MAX_DEPTH or self._left < 0:
            return rng.choice((None, True, 1, "foo", [], {}, [1], {"k": 1}))
        schema = self._flatten(schema, 0)
        if "const" in schema and self._obeys(0.9):
            return schema["const"]
        if schema.get("enum") and self._obeys(0.9):
            return rng.choice(schema["enum"])
        kinds = schema.get("type", self._guess(schema))
        kind = rng.choice(kinds) if isinstance(kinds, list) and kinds else kinds
        if not self._obeys(0.96):
            kind = rng.choice(TYPES)
        return getattr(self, f"_draw_{kind}", self._draw_null)(schema, depth)

    def _flatten(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Merge references, `allOf`, and one branch of the choices, roughly: what comes out is only a hint."""
        merged: dict[str, Any] = {}
        parts: list[Any] = [{key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}]
        if depth < 6:
            if isinstance(schema.get("$ref"), str):
                parts.append(resolve(self._root, schema["$ref"]))
            parts += schema.get("allOf", []) if isinstance(schema.get("allOf"), list) else []
            parts += [self._rng.choice(schema[key]) for key in ("anyOf", "oneOf") if schema.get(key)]
            if "then" in schema and "if" in schema:
                parts += [schema["if"], schema["then"]] if self._rng.random() < 0.5 else [schema.get("else", {})]
        for number, part in enumerate(parts):
            if not isinstance(part, Mapping):
                continue
            flat = part if number == 0 else self._flatten(part, depth + 1)
            for key, value in flat.items():
                if key in ("properties", "patternProperties") and key in merged:
                    merged[key] = {**merged[key], **value}
                elif key == "required" and key in merged:
                    merged[key] = list(dict.fromkeys([*merged[key], *value]))
                else:
                    merged.setdefault(key, value)
        return merged

    def _guess(self, schema: Mapping[str, Any]) -> str:
        for kind, keys in (
            ("object", ("properties", "required", "patternProperties", "additionalProperties", "propertyNames", "minProperties")),
            ("array", ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems")),
            ("string", ("pattern", "format", "minLength", "maxLength")),
            ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
        ):
            if self._obeys(0.85) and any(key in schema for key in keys):
                return kind
        return self._rng.choice(TYPES)

    def _draw_null(self, schema: Mapping[str, Any], depth: int) -> Any:
        return None

    def _draw_boolean(self, schema: Mapping[str, Any], depth: int) -> Any:
        return self._rng.random() < 0.5

    def _draw_integer(self, schema: Mapping[str, Any], depth: int) -> Any:
        return self._number(schema, 1)

    def _draw_number(self, schema: Mapping[str, Any], depth: int) -> Any:
        return self._number(schema, self._rng.choice((1, 1, 0.5, 0.25, 0.1)))

    def _number(self, schema: Mapping[str, Any], step: float) -> Any:
        rng = self._rng
        ends = [schema[key] for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum") if key in schema]
        ends = [end for end in ends if isinstance(end, (int, float)) and not isinstance(end, bool)]
        value = rng.choice([*ends, 0]) if ends else rng.choice((0, 1, -1, 7, 100, 12345, 10**12))
        value += rng.choice((0, 0, 1, -1, step, -step, 3, 10))
        multiple = schema.get("multipleOf")
        if isinstance(multiple, (int, float)) and multiple and rng.random() < 0.8:
            value = round(value / multiple) * multiple
            value = int(value) if isinstance(multiple, int) else round(value, 8)
        return int(value) if step == 1 and abs(value) < 10**30 and rng.random() < 0.9 else value

    def _draw_string(self, schema: Mapping[str, Any], depth: int) -> Any:
        rng = self._rng
        text = rng.choice(WORDS)
        if schema.get("format") in FORMATS and self._obeys(0.9):
            choices = FORMATS[schema["format"]]
            text = choices[0] if self._is_careful else rng.choice(choices)
        elif isinstance(schema.get("pattern"), str) and self._obeys(0.9):
            text = draw_text(schema["pattern"], rng)
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if self._obeys(0.7) and len(text) < low <= 300:
            text += "abcdefghij"[: int(low) - len(text)].ljust(int(low) - len(text), text[-1:] or "k")
        if high is not None and self._obeys(0.7):
            text = text[: int(high)]
        return text

    def _draw_array(self, schema: Mapping[str, Any], depth: int) -> Any:
        rng = self._rng
        items = schema.get("items", {})
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", {}) if isinstance(items, list) else items
        low, high = int(schema.get("minItems", 0)), int(schema.get("maxItems", 3))
        size = min(rng.randint(low, max(low, high)) if self._obeys(0.85) else rng.randint(0, 4), 12)
        drawn = [self.draw(prefix[index] if index < len(prefix) else rest, depth + 1) for index in range(size)]
        if "contains" in schema and self._obeys(0.8):
            drawn.append(self.draw(schema["contains"], depth + 1))
        return drawn

    def _draw_object(self, schema: Mapping[str, Any], depth: int) -> Any:
        rng = self._rng
        properties, required = schema.get("properties", {}), schema.get("required", [])
        required = required if isinstance(required, list) else []
        share = rng.choice((0.0, 0.3, 0.7)) if depth < 4 else 0.0
        value = {
            name: self.draw(child, depth + 1)
            for name, child in properties.items()
            if (name in required and self._obeys(0.97)) or rng.random() < share
        }
        extra = schema.get("additionalProperties", {})
        for name in required:
            if name not in value and self._obeys(0.9):
                value[name] = self.draw(properties.get(name, extra), depth + 1)
        for pattern, child in schema.get("patternProperties", {}).items():
            if rng.random() < share:
                value[draw_text(pattern, rng)] = self.draw(child, depth + 1)
        names = schema.get("propertyNames", {})
        wanted = int(schema.get("minProperties", 0)) if self._obeys(0.9) else 0
        while (len(value) < wanted and len(value) < 8) or (extra is not False and rng.random() < 0.25):
            name = self.draw(names, depth + 1) if names and self._obeys(0.8) else rng.choice(EXTRA)
            if not isinstance(name, str) or name in value:
                break
            value[name] = self.draw(extra, depth + 1)
        return value


def draw_text(pattern: str, rng: random.Random) -> str:
    """Draw a text that the pattern probably finds something in; a plain word where the pattern is beyond this."""
    try:
        drawn = "".join(_draw_parts(sre_parser.parse(pattern), rng))[:200]
        return drawn.encode(errors="replace").decode()  # halves of surrogate pairs are no characters
    except (re.error, NotImplementedError, RecursionError, ValueError, OverflowError):
        return rng.choice(WORDS)


def _draw_parts(parsed: Any, rng: random.Random) -> Iterator[str]:
    for name, argument in parsed:
        yield from _draw_part(str(name), argument, rng)


def _draw_part(name: str, argument: Any, rng: random.Random) -> Iterator[str]:
    if name == "LITERAL":
        yield chr(argument)
    elif name in ("ANY", "NOT_LITERAL"):
        yield rng.choice("abz019 -")
    elif name == "IN":
        yield _draw_in(argument, rng)
    elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        low, high, inner = argument
        high = low + 3 if high == sre_parser.MAXREPEAT else min(high, low + 3)
        for _ in range(min(rng.randint(low, high), 60)):
            yield from _draw_parts(inner, rng)
    elif name == "SUBPATTERN":
        yield from _draw_parts(argument[-1], rng)
    elif name == "BRANCH":
        yield from _draw_parts(rng.choice(argument[1]), rng)
    elif name in ("AT", "ASSERT", "ASSERT_NOT"):
        yield ""
    else:
        raise NotImplementedError(name)


_CATEGORIES = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcXYZ_09", "CATEGORY_SPACE": " ", "CATEGORY_NOT_SPACE": "ab1-"}


def _draw_in(members: Any, rng: random.Random) -> str:
    if str(members[0][0]) == "NEGATE":
        banned = {chr(argument) for name, argument in members if str(name) == "LITERAL"}
        return rng.choice([letter for letter in "abcdefxyz0123456789-_. " if letter not in banned] or ["é"])
    name, argument = rng.choice(members)
    if str(name) == "RANGE":
        return chr(rng.randint(*argument))
    if str(name) == "CATEGORY":
        return rng.choice(_CATEGORIES.get(str(argument), "a-"))
    return chr(argument)
