"""Incremental text equals whole text, and never shows half a character."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from engine.detokenizer import REPLACEMENT, IncrementalDetokenizer

TEXTS = [
    "plain words, 4.50 €",
    "Grüße — naïve café",
    "日本語 and emoji 🙂👩‍👩‍👧‍👦 end",
    "  spaces   and\nlines\n\n",
    "",
    "¡Ñandú!",
]


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text(pocket_tokenizer: Any, text: str) -> None:
    ids = pocket_tokenizer.encode(text, add_special_tokens=False)
    for chunk in (1, 2, 3, 100):
        detokenizer = IncrementalDetokenizer(pocket_tokenizer)
        pieces = [detokenizer.feed(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
        assert not any(REPLACEMENT in piece for piece in pieces)
        assert "".join(pieces) + detokenizer.flush() == text


def test_random_ids_join_to_their_decoding(pocket_tokenizer: Any) -> None:
    rng = random.Random(0)
    for _ in range(50):
        ids = [rng.randrange(988) for _ in range(30)]
        detokenizer = IncrementalDetokenizer(pocket_tokenizer)
        joined = "".join(detokenizer.feed([token_id]) for token_id in ids) + detokenizer.flush()
        whole = pocket_tokenizer.decode(ids, skip_special_tokens=True)
        assert joined.replace(REPLACEMENT, "") == whole.replace(REPLACEMENT, "")


def test_half_a_character_waits_for_the_rest_or_the_flush(pocket_tokenizer: Any) -> None:
    half = pocket_tokenizer.encode("日", add_special_tokens=False)
    assert len(half) > 1
    detokenizer = IncrementalDetokenizer(pocket_tokenizer)
    assert detokenizer.feed(half[:-1]) == ""
    assert detokenizer.flush() == REPLACEMENT


def test_special_tokens_have_no_text(pocket_tokenizer: Any) -> None:
    detokenizer = IncrementalDetokenizer(pocket_tokenizer)
    assert detokenizer.feed([pocket_tokenizer.eos_token_id]) == ""


def test_characters_in_byte_fallback_do_not_spoil_each_other() -> None:
    words = Tokenizer(models.WordLevel({f"<0x{byte:02X}>": byte for byte in range(256)}))
    words.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    text = "🙂🙃🙂🙃 日本"
    detokenizer = IncrementalDetokenizer(PreTrainedTokenizerFast(tokenizer_object=words))
    assert "".join(detokenizer.feed([byte]) for byte in text.encode()) == text
