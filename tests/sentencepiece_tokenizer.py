"""Mistral's sentencepiece tokenizers from the model files that mistral-common ships, without the sentencepiece library.

Format: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

MISTRAL_MODELS = {
    "mistral_v1": "tokenizer.model.v1",
    "mistral_v2": "mistral_instruct_tokenizer_240216.model.v2",
    "mistral_v3": "mistral_instruct_tokenizer_240323.model.v3",
    "mistral_v7": "mistral_instruct_tokenizer_241114.model.v7",
}
_SPACE = "\u2581"
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


class Piece(NamedTuple):
    """A piece, its score (higher merges first), and what it is."""

    text: str
    score: float
    kind: int

    @property
    def own_bytes(self) -> bytes:
        """What it stands for; empty for control pieces and the unknown one."""
        if self.kind == _BYTE:
            return bytes([int(self.text[3:5], 16)])
        return b"" if self.kind in (_UNKNOWN, _CONTROL) else self.text.replace(_SPACE, " ").encode()


@lru_cache
def read_pieces(name: str) -> tuple[Piece, ...]:
    """Read the pieces of one of `MISTRAL_MODELS` by id."""
    spec = importlib.util.find_spec("mistral_common")
    assert spec is not None
    assert spec.origin is not None
    data = (Path(spec.origin).parent / "data" / MISTRAL_MODELS[name]).read_bytes()
    pieces = []
    for number, value in _fields(data):
        if number == 1:
            own = dict(_fields(value))
            pieces.append(Piece(own[1].decode(), struct.unpack("<f", own[2])[0], own.get(3, _NORMAL)))
    return tuple(pieces)


class InnerTokenizer:
    """Has the verbs of mistral-common's sentencepiece tokenizer, with its habit of not counting `<unk>` as special."""

    unk_id = 0

    def __init__(self, name: str) -> None:
        self._pieces = read_pieces(name)
        self.n_words = len(self._pieces)

    def is_special(self, token_id: int) -> bool:
        """Whether it is a control piece."""
        return self._pieces[token_id].kind == _CONTROL

    def id_to_piece(self, token_id: int) -> str:
        """Give the piece."""
        return self._pieces[token_id].text


@lru_cache
def load_mistral(name: str) -> Any:
    """Make the tokenizer of transformers that such a model file is converted to."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = read_pieces(name)
    vocab = {piece.text: token_id for token_id, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab, _merges(pieces), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)])
    spaces = decoders.Replace(_SPACE, " ")
    tokenizer.decoder = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    control = [piece.text for piece in pieces if piece.kind == _CONTROL]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.add_special_tokens({"additional_special_tokens": control})
    return fast


def _merges(pieces: tuple[Piece, ...]) -> list[tuple[str, str]]:
    """Give the pairs that make a piece, the best piece first, and of one piece the pair with the earlier parts first."""
    ids = {piece.text: token_id for token_id, piece in enumerate(pieces) if piece.kind == _NORMAL}
    merges = []
    for text, token_id in ids.items():
        cuts = ((text[:at], text[at:]) for at in range(1, len(text)))
        pairs = [pair for pair in cuts if pair[0] in ids and pair[1] in ids]
        merges += [(-pieces[token_id].score, token_id, ids[left], ids[right], (left, right)) for left, right in pairs]
    return [merge[-1] for merge in sorted(merges)]


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Give the fields of a protobuf message: number and value, bytes where it has a length or is a fixed number."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        match key & 7:
            case 0:
                value, position = _varint(data, position)
                yield key >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, position = _varint(data, position)
            case _:
                length = 4
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
