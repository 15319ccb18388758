"""Token bytes of every kind of tokenizer, on small ones that can be read by eye."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine import ModelLoadError
from engine.grammar.token_reader import read_token_table
from engine.grammar.vocabulary import read_vocabulary


def byte_level() -> Any:
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġa", "ĠĠ", "Ã©", "ĊĊ"]
    tokenizer = Tokenizer(models.BPE({piece: token_id for token_id, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")
    fast.add_tokens(["<think>", "    ", "Grüße"])
    return fast


def byte_fallback() -> Any:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "▁▁", "é", "<0x4>", "a"]
    tokenizer = Tokenizer(
        models.BPE({piece: token_id for token_id, piece in enumerate(pieces)}, [], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


class Tiktoken:
    """As `tiktoken.Encoding`; id 2 is a gap."""

    n_vocab = 5

    def __init__(self) -> None:
        self._special_tokens = {"<|end|>": 4}

    def decode_single_token_bytes(self, token_id: int) -> bytes:
        return {0: b"a", 1: b"\xe2\x80", 3: b" the", 4: b"<|end|>"}[token_id]

    def encode(self, text: str, *, disallowed_special: Any = None) -> list[int]:
        return [0] * len(text)


class SlowTokenizer:
    """A slow tokenizer of transformers around an encoding, as Qwen and Kimi had them."""

    def __init__(self) -> None:
        self.tokenizer = Tiktoken()
        self.all_special_ids = [4]

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return "<|end|>"


class MistralPieces:
    """As the sentencepiece tokenizer of mistral-common."""

    n_words = 7
    _pieces = ("<unk>", "[THINK]", "<0xE2>", "<0x80>", "▁the", "▁", "—")

    def is_special(self, token_id: int) -> bool:
        return token_id < 2

    def id_to_piece(self, token_id: int) -> str:
        return self._pieces[token_id]


class Holder:
    def __init__(self, **names: Any) -> None:
        self.__dict__.update(names)


def test_byte_level_alphabet_is_read_back() -> None:
    table = read_token_table(byte_level())
    assert sorted(table.token_bytes[:256]) == [bytes([byte]) for byte in range(256)]
    assert table.token_bytes[256:260] == [b" a", b"  ", "é".encode(), b"\n\n"]
    assert table.added == {260: "<eos>", 261: "<think>", 262: "    ", 263: "Grüße"}
    # GPT-2's letters are bytes in added tokens too: the tokenizer itself decodes this one to broken text.
    assert table.token_bytes[260:] == [b"<eos>", b"<think>", b"    ", b"Gr\xfc\xdfe"]


def test_added_tokens_are_hidden_but_white_space_and_have_names() -> None:
    vocabulary = read_vocabulary(byte_level(), vocab_size=300, stop_token_ids=[260, 299])
    assert vocabulary.token_bytes[260:264] == (b"", b"", b"    ", b"")
    assert vocabulary.special_tokens == ((260, "<eos>"), (261, "<think>"), (263, "Grüße"))
    assert vocabulary.stop_token_ids == (260, 299)
    assert len(vocabulary.token_bytes) == 300


def test_head_that_is_narrower_than_the_tokenizer_cuts() -> None:
    vocabulary = read_vocabulary(byte_level(), vocab_size=261, stop_token_ids=[260])
    assert len(vocabulary.token_bytes) == 261
    assert vocabulary.special_tokens == ((260, "<eos>"),)


def test_byte_fallback_pieces_are_bytes_and_low_lines_are_spaces() -> None:
    table = read_token_table(byte_fallback())
    assert table.token_bytes[1:257] == [bytes([byte]) for byte in range(256)]
    assert table.token_bytes[257:262] == [b" a", b"  ", "é".encode(), b"<0x4>", b"a"]
    assert table.added[0] == "<unk>"


@pytest.mark.parametrize("tokenizer", [Tiktoken(), SlowTokenizer()], ids=["encoding", "F5-slow"])
def test_tiktoken_bytes_are_its_own_and_gaps_are_empty(tokenizer: Any) -> None:
    table = read_token_table(tokenizer)
    assert table.token_bytes == [b"a", b"\xe2\x80", b"", b" the", b"<|end|>"]
    assert table.added == {4: "<|end|>"}


def test_encoding_writes_without_special_tokens() -> None:
    vocabulary = read_vocabulary(Tiktoken(), vocab_size=8, stop_token_ids=[4])
    assert vocabulary.encode is not None
    assert vocabulary.encode("aa") == [0, 0]
    assert vocabulary.token_bytes == (b"a", b"\xe2\x80", b"", b" the", b"", b"", b"", b"")


@pytest.mark.parametrize("wrapped", [False, True], ids=["inner", "through-transformers"])
def test_mistral_sentencepiece_is_rebuilt_in_id_order(wrapped: bool) -> None:
    inner = MistralPieces()
    tokenizer = Holder(tokenizer=Holder(instruct_tokenizer=Holder(tokenizer=inner))) if wrapped else inner
    table = read_token_table(tokenizer)
    assert table.token_bytes[2:] == [b"\xe2", b"\x80", b" the", b" ", "—".encode()]
    assert table.added == {0: "<unk>", 1: "[THINK]"}


def test_kind_that_cannot_be_read_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ModelLoadError, match="cannot be read"):
        read_token_table(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]"))
