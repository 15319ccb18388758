"""The bytes of every token, read from a tokenizer's own tables and never from decoded text, which loses parts of characters.

Kinds: byte-level BPE (GPT-2's alphabet), sentencepiece (BPE or unigram, with or without byte fallback), tiktoken, and Mistral's
(tekken and sentencepiece). In kinds that put spaces between tokens when they decode (WordPiece, end-of-word suffixes) a token has
no bytes of its own; they are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
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
        special: Those of them that the tokenizer declares special.
    """

    token_bytes: list[bytes]
    added: dict[int, str]
    special: frozenset[int] = frozenset()


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
        return TokenTable(token_bytes, added, _special_of(tokenizer))
    read = _piece_reader(tokenizer, pieces.values())
    # An added token is decoded by its normalised form, like any piece: with a space before it, and GPT-2's letters as bytes.
    pieces |= {token_id: str(tokenizer.convert_ids_to_tokens(token_id)) for token_id in added}
    token_bytes = [read(pieces[i]) if i in pieces else b"" for i in range(max(pieces, default=-1) + 1)]
    return TokenTable(token_bytes, added, _special_of(tokenizer))


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


def _special_of(tokenizer: Any) -> frozenset[int]:
    declared = getattr(tokenizer, "added_tokens_decoder", {}).items()
    of_encoding = getattr(_find_tiktoken(tokenizer), "_special_tokens", {}).values()
    special = {token_id for token_id, token in declared if getattr(token, "special", True)}
    return frozenset(special | set(getattr(tokenizer, "all_special_ids", ())) | set(of_encoding))


def _piece_reader(tokenizer: Any, pieces: Iterable[str]) -> Callable[[str], bytes]:
    """Give what reads the bytes of one piece.

    Raises:
        ModelLoadError: A piece has no bytes that are the same wherever it stands.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    steps = [] if backend is None else [*_parts_of(backend.decoder)]
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds or (backend is not None and "ByteLevel" in {p["type"] for p in _parts_of(backend.pre_tokenizer)}):
        return _byte_level_bytes
    has_bytes = "ByteFallback" in kinds or bool(getattr(getattr(backend, "model", None), "byte_fallback", False))
    if kinds & _PLAIN_STEPS and not kinds - _PLAIN_STEPS and all("String" in step.get("pattern", "String") for step in steps):
        spaces = {step["replacement"]: " " for step in steps if step["type"] == "Metaspace"}
        spaces |= {step["pattern"]["String"]: step["content"] for step in steps if step["type"] == "Replace"}
        return lambda piece: _plain_bytes(piece, spaces, has_bytes=has_bytes)
    pieces = list(pieces)
    if not kinds and _has_byte_pieces(pieces):
        return _sentencepiece_bytes
    if not kinds and set(_BYTE_OF) <= set(pieces):
        return _byte_level_bytes
    raise ModelLoadError(
        f"the vocabulary of {type(tokenizer).__name__} is of a kind that cannot be read byte by byte",
        hint="byte-level BPE, sentencepiece, tiktoken and Mistral's tokenizers can",
    )


_PLAIN_STEPS = frozenset({"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"})
"""Steps of a decoder that read each token for itself; `Strip` and `Fuse` are about the ends of a whole text."""


def _parts_of(part: Any) -> list[dict[str, Any]]:
    """Give the description of a decoder or pre-tokenizer, or those of what it is composed of."""
    if part is None:
        return []
    described: list[dict[str, Any]] = [json.loads(bytes(part.__getstate__()))]
    while any(item["type"] == "Sequence" for item in described):
        described = [
            inner
            for item in described
            for inner in (item.get("decoders") or item.get("pretokenizers") or [] if item["type"] == "Sequence" else [item])
        ]
    return described


def _plain_bytes(piece: str, spaces: Mapping[str, str], *, has_bytes: bool) -> bytes:
    byte = _BYTE_PIECE.match(piece) if has_bytes else None
    if byte:
        return bytes([int(byte[1], 16)])
    for sign, text in spaces.items():
        piece = piece.replace(sign, text)
    return piece.encode()


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
        # Its sentencepiece tokenizers do not count `<unk>` among the special ones.
        if inner.is_special(token_id) or token_id == getattr(inner, "unk_id", None):
            added[token_id] = str(inner.id_to_piece(token_id))
            token_bytes.append(added[token_id].encode())
        elif hasattr(inner, "id_to_byte_piece"):
            token_bytes.append(bytes(inner.id_to_byte_piece(token_id)))
        else:
            token_bytes.append(_sentencepiece_bytes(inner.id_to_piece(token_id)))
    return TokenTable(token_bytes, added, frozenset(added))
