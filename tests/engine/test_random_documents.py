"""Whatever the masks let through is valid: random values, written token by token, against the independent validator.

Only a keyword that the support report names as checked afterwards may be broken, and then the final check finds it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from engine import EngineError, GrammarSpec
from engine.grammar import Matcher, new_bitmask
from engine.grammar.closing import closing_tokens
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary
from middleware.validation import NotStrictJsonError, SchemaChecker, parse_strict
from tests.bench_modules import load_bench

from .grammar_backends import BACKENDS, make_backend

STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))
CLOSING = (*b'"}],:', STOP)
MAX_STEPS = 150
MAX_XGRAMMAR_CHARS = 3_000
"""Compiled in this process, without a deadline."""


def sources() -> ModuleType:
    load_bench("schema_documents")
    load_bench("schema_packages")
    return load_bench("schema_sources")


def write_value(matcher: Matcher, rng: random.Random) -> bytes | None:
    """Write a random value, brought to its end where it gets long; None where no end is found."""
    bitmask = new_bitmask(1, BYTES.vocab_size)
    row = bitmask.numpy()[0]
    written = bytearray()
    for _ in range(MAX_STEPS):
        bitmask.fill_(0)
        matcher.fill_bitmask(bitmask, 0)
        legal = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        assert len(legal), bytes(written)
        likely = [token_id for token_id in CLOSING if token_id in legal]
        token_id = int(rng.choice(likely) if likely and rng.random() < 0.4 else rng.choice(legal))
        assert matcher.accept_tokens([token_id]), bytes(written)
        if token_id == STOP:
            return bytes(written)
        written.append(token_id)
    way_out = closing_tokens(matcher, BYTES, 600, is_quick=True)
    return None if way_out is None else bytes(written) + bytes(way_out)


def read(data: bytes | None, name: str) -> str | None:
    """Decode a value; None for the three and four bytes that xgrammar 0.2.9 takes in patterns for a character of fewer."""
    is_overlong = data is not None and name == "xgrammar" and _OVERLONG.search(data)
    return None if data is None or is_overlong else data.decode()


_OVERLONG = re.compile(rb"\xe0[\x80-\x9f]|\xf0[\x80-\x8f]")


def wrong_values(schema: Any, name: str, rng: random.Random, count: int) -> Iterator[str]:
    """Give values that the masks let through and should not; `.` for each value that is right."""
    try:
        spec = GrammarSpec.from_json_schema(schema)
        if name == "xgrammar" and len(spec.source) > MAX_XGRAMMAR_CHARS:
            return
        grammar = make_backend(name, BYTES).compile(spec)
    except EngineError:
        return
    is_checked = bool(support_report(spec).checked(name))
    checker = SchemaChecker(schema)
    for _ in range(count):
        text = read(write_value(grammar.new_matcher((STOP,)), rng), name)
        if text is not None:
            is_right = is_checked or is_valid(checker, text)
            yield "." if is_right else text


def is_valid(checker: SchemaChecker, text: str) -> bool:
    try:
        return not checker.check(parse_strict(text))
    except NotStrictJsonError as error:  # no grammar of a fixed size knows which undeclared names were written already
        return "appears twice" in str(error)


def check_values(schemas: Iterator[tuple[str, Any]], name: str, seed: int, count: int) -> int:
    rng = random.Random(seed)
    found = []
    num_right = 0
    for label, schema in schemas:
        for text in wrong_values(schema, name, rng, count):
            num_right += text == "."
            if text != ".":
                found.append((label, schema, text))
    assert not found, (len(found), found[:3])
    return num_right


def combined(seed: int, count: int) -> Iterator[tuple[str, Any]]:
    rng = random.Random(seed)
    for number in range(count):
        schema = sources().combine(rng, 0)
        if jsonschema_rs.meta.is_valid(schema):
            yield f"combined {number}", schema


def official(draft: str, step: int) -> Iterator[tuple[str, Any]]:
    for number, case in enumerate(sources().suite_cases(draft)):
        if number % step == 0 and "custom metaschema" not in case.name:
            yield case.name, case.schema


@pytest.mark.parametrize("name", BACKENDS)
def test_random_values_are_valid(name: str) -> None:
    assert check_values(combined(7, 60), name, 1, 3) > 100
    assert check_values(official("draft7", 12), name, 2, 3) > 40


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", BACKENDS)
def test_many_random_values_are_valid(name: str) -> None:
    assert check_values(combined(2026, 600), name, 3, 8) > 2_000
    for draft in ("draft7", "draft2020-12"):
        assert check_values(official(draft, 1), name, 4, 6) > 1_000
    real = load_bench("real_schemas").real_cases()
    check_values(((case.name, case.schema) for case in real), name, 5, 4)
