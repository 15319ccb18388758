"""What masks of two compiled grammars cost: both write the same sample texts, token by token, and the clock decides.

The texts are written along the masks of one of them: words in free strings, short numbers, and elsewhere whatever is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

import numpy as np
import torch

from .bitmask import get_bit, new_bitmask
from .matcher import Matcher
from .vocabulary import Vocabulary

NUM_ROWS = 64
MAX_TEXTS = 6
ROUNDS = 3
BUDGET_S = 0.25
"""For all; what was measured by then counts, so that dear rows do not cost long."""
_SEED = 20
_END_OF_STRING = 0.2
_WORDS = (
    b" the",
    b" of",
    b" a",
    b" new",
    b" rules",
    b" city",
    b"name",
    b"in",
    b"on",
    b"er",
    b"s",
    b"The",
    b"A",
    b"e",
    b"n",
    b"b",
)
_QUOTES = (b'"', b'","', b'",', b'"}')
_DIGITS = tuple(b"%d" % digit for digit in range(10))
# Digits count as one, so that numbers are some digits long.
_OTHERS = (*_DIGITS, *(10 * (b",", b"}", b"]")), *(5 * (b'"', b"[", b"{", b'{"', b"true", b"null")))


def token_costs(first: Matcher, second: Matcher, vocabulary: Vocabulary) -> tuple[float, float] | None:
    """Give the mean seconds of a token, its row and its acceptance, of each of two matchers.

    Args:
        first: At the start of its grammar, as is `second`; both are left there. It writes the texts.
        second: Of another backend, for the same constraint.
        vocabulary: The tokens.

    Returns:
        The seconds, of every place the best of some rounds; None if nothing was measured.
    """
    bitmask = new_bitmask(1, vocabulary.vocab_size)
    deadline = time.perf_counter() + BUDGET_S
    sums, num_places = [0.0, 0.0], 0
    for text in sample_texts(first, vocabulary):
        walks = [_best_walk(matcher, text, bitmask, deadline) for matcher in (first, second)]
        # Behind a token that one of them refuses, or the end of the time, there is nothing to compare.
        length = min(map(len, walks))
        num_places += length
        sums = [total + sum(walk[:length]) for total, walk in zip(sums, walks, strict=True)]
    return (sums[0] / num_places, sums[1] / num_places) if num_places else None


def sample_texts(matcher: Matcher, vocabulary: Vocabulary) -> list[list[int]]:
    """Write texts that the grammar allows, token ids; the last one may not be whole. The matcher is left at its start."""
    rng = Random(_SEED)
    likely = [_ids(group, vocabulary) for group in (_WORDS, _QUOTES, _OTHERS)]
    bitmask = new_bitmask(1, vocabulary.vocab_size)
    texts: list[list[int]] = []
    num_left = NUM_ROWS
    while num_left > 0 and len(texts) < MAX_TEXTS:
        text: list[int] = []
        while len(text) < num_left:
            token_id = _choose(matcher, bitmask, likely, vocabulary, rng)
            if token_id is None or not matcher.accept_tokens([token_id]):
                break
            text.append(token_id)
        matcher.reset()
        texts.append(text)
        num_left -= len(text)
    return texts


def _ids(group: Sequence[bytes], vocabulary: Vocabulary) -> list[int]:
    return [token_id for token_id in map(vocabulary.index.find, group) if token_id is not None]


def _choose(matcher: Matcher, bitmask: torch.Tensor, likely: list[list[int]], vocabulary: Vocabulary, rng: Random) -> int | None:
    """Choose a text token that the row allows; None if there is none."""
    matcher.fill_bitmask(bitmask, 0)
    row = bitmask.numpy()[0]
    words, quotes, others = ([token_id for token_id in group if get_bit(row, token_id)] for group in likely)
    if words:  # inside a string
        return rng.choice(quotes if quotes and rng.random() < _END_OF_STRING else words)
    if others:
        return rng.choice(others)
    (allowed,) = np.nonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    texts = [token_id for token_id in allowed.tolist() if vocabulary.token_bytes[token_id]]
    return rng.choice(texts) if texts else None


def _best_walk(matcher: Matcher, text: Sequence[int], bitmask: torch.Tensor, deadline: float) -> list[float]:
    """Give the least seconds of every token, up to one that is refused, or the deadline."""
    best: list[float] = []
    clock = time.perf_counter
    for _ in range(ROUNDS):
        for place, token_id in enumerate(text):
            started = clock()
            matcher.fill_bitmask(bitmask, 0)
            is_taken = matcher.accept_tokens([token_id])
            ended = clock()
            if not is_taken or ended > deadline:
                break
            if place == len(best):
                best.append(ended - started)
            else:
                best[place] = min(best[place], ended - started)
        matcher.reset()
    return best
