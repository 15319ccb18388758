"""Tokens that fit into a bounded string, beside the rows that each backend finds by itself."""

from __future__ import annotations

import numpy as np
import pytest

from engine.grammar import Matcher, new_bitmask
from engine.grammar.string_fit import Row, StringFit
from engine.grammar.vocabulary import Vocabulary
from tests.engine.grammar_backends import BACKENDS, SECOND_STOP, SMALL, STOP, make_backend, new_matcher, schema_spec

PIECES = (
    b"ab", b"abc", b"abcd" * 4, b'ab"', b'"ab', b'abc"}', b'abc\\"', b'abc\\"def"', b"\\\\", b'\\\\"', b"\\\\\\",
    b"\\u00e9", b"a\\u00", b'\\u00e9b"', b"\\t\\t\\t", "éé".encode(), 'é"'.encode(), "東京東".encode(), "東京".encode()[:5],
    b"\\ud83d\\ude42", b'\\uD83D\\uDE42"', b"\\ud83d\\ude42\\ud83d\\u",
    '🙂🙂"'.encode(), "a🙂".encode()[:3], "é".encode()[1:], b"a, b", b'", "', b"   ",
)  # fmt: skip
VOCABULARY = Vocabulary((*SMALL.token_bytes, *PIECES), SMALL.vocab_size + len(PIECES), (STOP, SECOND_STOP))
FIT = StringFit(VOCABULARY.token_bytes)
LONGEST = 20


def matcher_in_string(backend: str, least: int, most: int) -> Matcher:
    spec = schema_spec({"type": "array", "items": {"type": "string", "minLength": least, "maxLength": most}})
    matcher = new_matcher(make_backend(backend, VOCABULARY), spec)
    assert matcher.accept_tokens([*b'["'])
    return matcher


def row_of(matcher: Matcher) -> Row:
    bitmask = new_bitmask(1, VOCABULARY.vocab_size)
    matcher.fill_bitmask(bitmask, 0)
    row: Row = bitmask.numpy()[0].copy()
    return row


@pytest.mark.parametrize("text", ["aaaaaa", 'é東🙂"\\\n'], ids=["letters", "others"])
@pytest.mark.parametrize(("least", "most"), [(0, 6), (3, 6), (6, 6), (2, LONGEST)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_row_of_a_bounded_string_is_the_free_row_with_what_fits(backend: str, least: int, most: int, text: str) -> None:
    free = row_of(matcher_in_string(backend, 0, 2 * LONGEST))
    matcher = matcher_in_string(backend, least, most)
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
    for count, char in enumerate(("", *text)):
        assert matcher.accept_tokens([*escapes.get(char, char).encode()])
        expected = row_of(matcher)
        assert not np.array_equal(free, expected) or most == LONGEST
        assert np.array_equal(free & FIT.row(max(0, least - count), most - count), expected)


def test_row_with_room_for_everything_keeps_everything() -> None:
    row = FIT.row(0, LONGEST)
    ids = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert ids[: VOCABULARY.vocab_size].all()
    assert not ids[VOCABULARY.vocab_size :].any()
    assert FIT.row(0, LONGEST) is row
