"""Incremental text equals whole text, and never shows half a character."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.detokenizer import CONTEXT_TOKENS, MAX_PENDING_TOKENS, REPLACEMENT, IncrementalDetokenizer, TokenTexts

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


def two_decodings(tokenizer: Any, token_ids: list[int], *, skip: bool) -> list[str]:
    """What each token adds, from the decodings of the last piece with and without what came behind it, and nothing remembered."""

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))

    context: list[int] = []
    pending: list[int] = []
    pieces = []
    for token_id in token_ids:
        pending.append(token_id)
        text = decode(context + pending)[len(decode(context)) :]
        is_half = text.endswith(REPLACEMENT) and len(pending) < MAX_PENDING_TOKENS
        pieces.append("" if is_half else text)
        if not is_half:
            context = pending if text else (context + pending if len(context) < CONTEXT_TOKENS else context)
            pending = []
    return pieces


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte, two bytes of a character, words with and without a space, a sign of its own, and a special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["Ġword", "word", "âĤ", "Ċ", "ï¿½", "Ġé"]
    vocab = {text: token_id for token_id, text in enumerate(dict.fromkeys([*alphabet, *words]))}
    inner = Tokenizer(models.BPE(vocab, []))
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<s>"])
    inner.add_tokens(["<tool>", "日本"])
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def fallback_tokenizer() -> PreTrainedTokenizerFast:
    """Words with a sign for spaces, of which the first of a text is stripped, and bytes."""
    words = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁word", "word", "▁", "é", "<s>"]
    inner = Tokenizer(models.WordLevel({text: token_id for token_id, text in enumerate(words)}))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    inner.add_special_tokens(["<s>"])
    return PreTrainedTokenizerFast(tokenizer_object=inner)


@pytest.mark.parametrize("make", [byte_level_tokenizer, fallback_tokenizer, None], ids=["byte-level", "byte-fallback", "pocket"])
def test_pieces_are_those_of_two_decodings(make: Any, pocket_tokenizer: Any) -> None:
    tokenizer = pocket_tokenizer if make is None else make()
    texts = TokenTexts(tokenizer)
    assert texts.are_joined == (make is not fallback_tokenizer)
    rng = random.Random(4)
    size = len(tokenizer)
    for number in range(300):
        skip = number % 4 < 2
        # Ids of all kinds, ids of words only, which are text by themselves, and one beyond the vocabulary.
        first = rng.choice([0, 200, size - 8])
        token_ids = [rng.randrange(first, size + 1) for _ in range(25)]
        detokenizer = IncrementalDetokenizer(texts if number % 2 else tokenizer, skip_special_tokens=skip)
        assert [detokenizer.feed([token_id]) for token_id in token_ids] == two_decodings(tokenizer, token_ids, skip=skip)
