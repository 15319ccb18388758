"""Seeded schemas of the common kinds, and nothing else."""

from __future__ import annotations

import random
from typing import Any

WORDS = ("name", "city", "count", "price", "tags", "kind", "done", "note", "unit", "size")


def make_schema(rng: random.Random) -> dict[str, Any]:
    """Draw a schema whose root is an object."""
    return _object(rng, depth=0)


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(WORDS, rng.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: _any(rng, depth + 1) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
        "additionalProperties": False,
    }


def _any(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = [_string, _integer, _number, _boolean, _enum, _optional]
    return rng.choice(kinds + ([_object, _array] if depth < 3 else []))(rng, depth)


def _string(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 3)
    return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 12)}


def _integer(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-1000, 1000)
    return {"type": "integer"} | rng.choice([{}, {"minimum": low}, {"minimum": low, "maximum": low + rng.randint(0, 500)}])


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(-50, 50)
    return {"type": "number"} | rng.choice([{}, {"minimum": low}, {"minimum": low, "maximum": low + rng.randint(1, 90)}])


def _boolean(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _enum(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"enum": rng.sample(["red", "green", "blue", 'with "quotes"', "über", 1, 2.5, None, True], rng.randint(1, 5))}


def _optional(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(rng, depth + 1), {"type": "null"}]}


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randint(0, 2)
    return {"type": "array", "items": _any(rng, depth + 1), "minItems": low, "maxItems": low + rng.randint(0, 3)}
