"""The bytes of every token, read from a tokenizer's own tables and never from decoded text, which loses parts of characters.

Kinds: byte-level BPE (GPT-2's alphabet), sentencepiece with byte fallback, tiktoken, and Mistral's (tekken and sentencepiece).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ModelLoadError

_SPACE = "\u2581"
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What a tokenizer says of its ids.

    Attributes:
        token_bytes: Per id its bytes; empty where it has none.
        added: Names of ids that are no pieces of text, special or not: control tokens, markers, added tokens.
    """

    token_bytes: list[bytes]
    added: dict[int, str]


def read_token_table(tokenizer: Any) -> TokenTable:
    """Read every id of a tokenizer: a transformers one, fast or slow, a `tiktoken.Encoding`, or one of mistral-common.

    Raises:
        ModelLoadError: A kind of tokenizer that cannot be read exactly.
    """
    mistral = _find_mistral(tokenizer)
    if mistral is not None:
        return _read_mistral(mistral)
    pieces = _pieces_of(tokenizer)
    added = _added_of(tokenizer)
    encoding = _find_tiktoken(tokenizer)
    if encoding is not None:
        token_bytes = [_tiktoken_bytes(encoding, token_id) for token_id in range(max(encoding.n_vocab, len(pieces)))]
    elif _is_byte_level(tokenizer, pieces.values()):
        token_bytes = _by_id(pieces, lambda piece: _byte_level_bytes(piece))
    elif _has_byte_pieces(pieces.values()):
        token_bytes = _by_id(pieces, lambda piece: _sentencepiece_bytes(piece))
    else:
        raise ModelLoadError(
            f"the vocabulary of {type(tokenizer).__name__} is of a kind that cannot be read byte by byte",
            hint="byte-level BPE, sentencepiece with byte fallback, tiktoken and Mistral's tokenizers can",
        )
    for token_id, text in added.items():
        token_bytes += [b""] * (token_id + 1 - len(token_bytes))
        # An added token stands for its own text, whatever the alphabet of the others; sentencepiece's runs of spaces are spaces.
        if encoding is None:
            token_bytes[token_id] = text.replace(_SPACE, " ").encode() if not text.strip(_SPACE) else text.encode()
    return TokenTable(token_bytes, added)


def _by_id(pieces: Mapping[int, str], read: Any) -> list[bytes]:
    return [read(pieces[token_id]) if token_id in pieces else b"" for token_id in range(max(pieces, default=-1) + 1)]


def _pieces_of(tokenizer: Any) -> dict[int, str]:
    if not hasattr(tokenizer, "get_vocab"):
        return {}
    return {token_id: piece for piece, token_id in tokenizer.get_vocab().items()}


def _added_of(tokenizer: Any) -> dict[int, str]:
    added = {token_id: str(token) for token_id, token in getattr(tokenizer, "added_tokens_decoder", {}).items()}
    for token_id in getattr(tokenizer, "all_special_ids", ()):
        added.setdefault(token_id, str(tokenizer.convert_ids_to_tokens(token_id)))
    for text, token_id in getattr(_find_tiktoken(tokenizer), "_special_tokens", {}).items():
        added.setdefault(token_id, text)
    return added


def _is_byte_level(tokenizer: Any, pieces: Iterable[str]) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        kinds = set(_kinds_in(backend.decoder)) | set(_kinds_in(backend.pre_tokenizer))
        if "ByteLevel" in kinds:
            return True
        if kinds & {"ByteFallback", "WordPiece", "Metaspace"}:
            return False
    pieces = list(pieces)
    return not _has_byte_pieces(pieces) and set(_BYTE_OF) <= set(pieces)


def _kinds_in(part: Any) -> Iterable[str]:
    """Give the types of a decoder or pre-tokenizer and of what it is composed of."""
    if part is None:
        return []
    return re.findall(r'"type":\s*"(\w+)"', bytes(part.__getstate__()).decode())


def _has_byte_pieces(pieces: Iterable[str]) -> bool:
    return sum(1 for piece in pieces if _BYTE_PIECE.match(piece)) == 256


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: a printable character for every byte; those that are none themselves come after U+0100 in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _byte_level_bytes(piece: str) -> bytes:
    # A piece with a character outside of the alphabet is text as it stands.
    return bytes(_BYTE_OF[char] for char in piece) if all(char in _BYTE_OF for char in piece) else piece.encode()


def _sentencepiece_bytes(piece: str) -> bytes:
    byte = _BYTE_PIECE.match(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()


def _find_tiktoken(tokenizer: Any) -> Any:
    """Give the `tiktoken.Encoding` that a tokenizer is or holds, or None."""
    for candidate in (tokenizer, *(getattr(tokenizer, name, None) for name in ("tokenizer", "model", "encoder", "_tokenizer"))):
        if hasattr(candidate, "decode_single_token_bytes"):
            return candidate
    return None


def _tiktoken_bytes(encoding: Any, token_id: int) -> bytes:
    try:
        return bytes(encoding.decode_single_token_bytes(token_id))
    except KeyError:
        return b""


def _find_mistral(tokenizer: Any) -> Any:
    """Give the inner tokenizer of mistral-common, or None."""
    outer = getattr(getattr(tokenizer, "tokenizer", tokenizer), "instruct_tokenizer", None)
    inner = getattr(outer, "tokenizer", tokenizer)
    return inner if hasattr(inner, "n_words") and hasattr(inner, "id_to_piece") else None


def _read_mistral(inner: Any) -> TokenTable:
    token_bytes: list[bytes] = []
    added: dict[int, str] = {}
    for token_id in range(inner.n_words):
        if inner.is_special(token_id):
            added[token_id] = str(inner.id_to_piece(token_id))
            token_bytes.append(added[token_id].encode())
        elif hasattr(inner, "id_to_byte_piece"):
            token_bytes.append(bytes(inner.id_to_byte_piece(token_id)))
        else:
            token_bytes.append(_sentencepiece_bytes(inner.id_to_piece(token_id)))
    return TokenTable(token_bytes, added)
