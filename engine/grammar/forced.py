"""Forced text as tokens, the way the model's tokenizer would most likely write it."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import torch

from .bitmask import new_bitmask
from .matcher import Matcher
from .vocabulary import Vocabulary

MAX_FORCED_BYTES = 2048
"""More are left for the next time: a long constant would otherwise be spelled anew at every step, up to its end."""
_SPECIAL = re.compile(rb"\xff\[(\d+)\]")


def spell_forced(matcher: Matcher, data: bytes, vocabulary: Vocabulary) -> list[int]:
    r"""Give ids that spell `data` from the state of `matcher`, without those at the end that could be part of a longer token.

    Args:
        matcher: Where the text begins; not changed.
        data: The forced text; `\xff[ID]` in it is a special token.
        vocabulary: The tokens.
    """
    token_ids: list[int] = []
    for index, part in enumerate(_SPECIAL.split(data[:MAX_FORCED_BYTES])):
        if index % 2:
            token_ids.append(int(part))
        elif part:
            spelled = spell_text(part, vocabulary)
            if spelled is None:
                break
            token_ids += spelled
    token_ids = token_ids[: matcher.validate_tokens(token_ids)]
    return _without_open_end(matcher, token_ids, vocabulary)


def spell_text(data: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """Give ids that spell `data` as the tokenizer would, where it can be asked; None if the vocabulary cannot write it."""
    if vocabulary.encode is not None:
        try:
            token_ids = vocabulary.encode(data.decode())
        except UnicodeDecodeError:
            return vocabulary.index.spell(data)
        # A tokenizer may have more ids than the model has columns.
        if b"".join(vocabulary.token_bytes[token_id] for token_id in token_ids if token_id < vocabulary.vocab_size) == data:
            return token_ids
    return vocabulary.index.spell(data)


def _without_open_end(matcher: Matcher, token_ids: list[int], vocabulary: Vocabulary) -> list[int]:
    """Cut where a legal token begins as the rest does, and goes on."""
    suffix = b""
    kept = len(token_ids)
    for position in range(len(token_ids) - 1, -1, -1):
        suffix = vocabulary.token_bytes[token_ids[position]] + suffix
        longer = vocabulary.index.longer_than(suffix)
        if not suffix or not len(longer):
            break
        if _allows_any(matcher, token_ids[:position], longer, vocabulary.vocab_size):
            kept = position
    return token_ids[:kept]


def _allows_any(matcher: Matcher, prefix: list[int], candidates: npt.NDArray[np.int64], vocab_size: int) -> bool:
    bitmask: torch.Tensor = new_bitmask(1, vocab_size)
    if not matcher.accept_tokens(prefix):
        return False
    matcher.fill_bitmask(bitmask, 0)
    matcher.rollback(len(prefix))
    row = bitmask.numpy()[0]
    return bool(((row[candidates >> 5] >> (candidates & 31)) & 1).any())
