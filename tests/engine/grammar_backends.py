"""What the tests of grammar backends share: both backends over small vocabularies, and a reading of bitmask rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from engine.grammar import GrammarBackend, GrammarSpec, Matcher, new_bitmask
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.bitmask import get_bit
from engine.grammar.vocabulary import Vocabulary

STOP, SECOND_STOP, SPECIAL = 256, 257, 258
PIECES = (
    b'{"', b'":', b'":"', b'","', b'"}', b'{"', b"true", b"null", b"12", b"12.5", b"00", b" ", b'"', b"hello", b"[]", b"],[",
    "é".encode(), "東京".encode(), "🙂".encode()[:3], b"e5", b"}}", b'a"', b"\\n", b"\\u00", b"x",
)  # fmt: skip
"""Beside single bytes: JSON pieces, two ids with one text, parts of characters, runs of digits."""
SMALL = Vocabulary(
    (*(bytes([byte]) for byte in range(256)), b"", b"", b"", *PIECES),
    256 + 3 + len(PIECES),
    (STOP, SECOND_STOP),
    special_tokens=((SPECIAL, "<tool>"),),
)
PADDED = Vocabulary((*SMALL.token_bytes, *[b""] * (320 - SMALL.vocab_size)), 320, (STOP, SECOND_STOP))
"""As a model head that is wider than the tokenizer."""

BACKENDS: dict[str, Callable[[Vocabulary], GrammarBackend]] = {
    "xgrammar": lambda vocabulary: XGrammarBackend(vocabulary, num_threads=1),
    "llguidance": lambda vocabulary: LLGuidanceBackend(vocabulary, num_threads=2),
}


@lru_cache
def make_backend(name: str, vocabulary: Vocabulary = SMALL) -> GrammarBackend:
    return BACKENDS[name](vocabulary)


def new_matcher(backend: GrammarBackend, spec: GrammarSpec, stop_token_ids: tuple[int, ...] = (STOP, SECOND_STOP)) -> Matcher:
    backend.check(spec)
    return backend.compile(spec).new_matcher(stop_token_ids)


def allowed(matcher: Matcher, vocab_size: int = SMALL.vocab_size) -> list[int]:
    """The ids that a row allows, of all its columns."""
    bitmask = new_bitmask(1, vocab_size)
    bitmask.fill_(-1)
    matcher.fill_bitmask(bitmask, 0)
    row = bitmask.numpy()[0]
    return [token_id for token_id in range(len(row) * 32) if get_bit(row, token_id)]


def allowed_by_trying(matcher: Matcher, vocab_size: int = SMALL.vocab_size) -> list[int]:
    """The same by asking for each id: the independent reference."""
    return [token_id for token_id in range(vocab_size) if matcher.validate_tokens([token_id]) == 1]


def accepts(matcher: Matcher, text: str | bytes) -> bool:
    """Whether the text is a whole answer; leaves the matcher as it was."""
    data = text.encode() if isinstance(text, str) else text
    is_whole = matcher.accept_tokens([*data]) and matcher.is_completed()
    matcher.reset()
    return is_whole


def random_walk(matcher: Matcher, rng: random.Random, most: int, vocab_size: int = SMALL.vocab_size) -> list[int]:
    """Accept random legal ids until a stop id, a dead end, or `most` of them."""
    walked: list[int] = []
    while len(walked) < most and not matcher.is_terminated():
        choices = allowed(matcher, vocab_size)
        if not choices:
            break
        # Closing tokens are few among many letters.
        likely = [i for i in choices if i in CLOSING or i in (STOP, SECOND_STOP)]
        token_id = rng.choice(likely if likely and rng.random() < 0.5 else choices)
        assert matcher.accept_tokens([token_id]), token_id
        walked.append(token_id)
    return walked


CLOSING = frozenset(b'"}],:') | {SMALL.token_bytes.index(piece) for piece in (b'"}', b"}}", b'":')}


def text_of(token_ids: list[int], vocabulary: Vocabulary = SMALL) -> bytes:
    return b"".join(vocabulary.token_bytes[token_id] for token_id in token_ids)


def schema_spec(schema: Any, **options: Any) -> GrammarSpec:
    return GrammarSpec.from_json_schema(schema, **options)
