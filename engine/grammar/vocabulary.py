"""The vocabulary as grammars see it: the bytes of every token id, and which ids are no text at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .token_index import TokenIndex
from .token_reader import read_token_table

_BYTES_OF_TEXTS = (0x09, 0x0A, 0x0D, *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1), 0xF3, 0xF4)
"""White space, printable ASCII, and the bytes of all other characters; 0xF1 and 0xF2 begin planes that have none."""
_WHITE_SPACE = " \t\r\n\u2581"


# No slots: the index is made when it is first needed.
@dataclass(frozen=True)
class Vocabulary:
    """Bytes of every token.

    Attributes:
        token_bytes: Per id its raw bytes; empty for ids that are never text inside an answer (special tokens, think and tool
            markers, ids that the tokenizer does not know). Length is `vocab_size`.
        vocab_size: Columns of the logits, at least the tokenizer's size.
        stop_token_ids: Every id that ends an answer, from all places that declare one.
        special_tokens: Ids that are never text, with the names by which a grammar can ask for them.
        encode: Ids of a text as the model's tokenizer writes it, without markers added; None where there is no such function.
    """

    token_bytes: tuple[bytes, ...]
    vocab_size: int
    stop_token_ids: tuple[int, ...]
    special_tokens: tuple[tuple[int, str], ...] = ()
    encode: Callable[[str], list[int]] | None = field(default=None, compare=False, repr=False)

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of the ids that are never text."""
        return dict(self.special_tokens)

    @cached_property
    def missing_bytes(self) -> frozenset[int]:
        """Bytes of texts that no token is by itself.

        Empty for nearly every model. Where there are some, a grammar can lead to a text of which no token is the rest: it allows
        bytes, and knows nothing of tokens that are not there.
        """
        return frozenset(byte for byte in _BYTES_OF_TEXTS if self.index.find(bytes([byte])) is None)

    @cached_property
    def index(self) -> TokenIndex:
        """The tokens by their bytes."""
        return TokenIndex(self.token_bytes)


def read_vocabulary(tokenizer: Any, *, vocab_size: int, stop_token_ids: Iterable[int]) -> Vocabulary:
    """Read the bytes of every token from a tokenizer.

    Added tokens are no text inside an answer, whether they are declared special or not: Qwen3 declares `<think>` and
    `<tool_call>` as ordinary added tokens, and neither may stand inside a JSON string as one id. White space is text all the
    same, and so is one character that is not declared special: no marker is that short, and vocabularies without `{` get it so.

    Args:
        tokenizer: Of transformers, tiktoken or mistral-common; see `token_reader.py`.
        vocab_size: Columns of the logits; ids beyond it cannot be written.
        stop_token_ids: Ids that end an answer.

    Raises:
        ModelLoadError: The tokenizer is of a kind whose tokens cannot be read exactly.
    """
    table = read_token_table(tokenizer)
    token_bytes = table.token_bytes[:vocab_size]
    token_bytes += [b""] * (vocab_size - len(token_bytes))
    stop_ids = set(stop_token_ids)
    hidden = {
        token_id: name
        for token_id, name in table.added.items()
        if token_id in stop_ids or (name.strip(_WHITE_SPACE) and (len(name) > 1 or token_id in table.special))
    }
    for token_id in (hidden.keys() | stop_ids) & set(range(vocab_size)):
        token_bytes[token_id] = b""
    return Vocabulary(
        tuple(token_bytes),
        vocab_size,
        tuple(sorted(stop_ids)),
        special_tokens=tuple(sorted((token_id, name) for token_id, name in hidden.items() if token_id < vocab_size)),
        encode=lambda text: _encode(tokenizer, text),
    )


def _encode(tokenizer: Any, text: str) -> list[int]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and backend.padding is None and backend.truncation is None:
        # The same ids in a quarter of the time: forced texts and drafts are encoded between two steps.
        return list(backend.encode(text, add_special_tokens=False).ids)
    try:
        return list(tokenizer.encode(text, add_special_tokens=False))
    except TypeError:  # tiktoken knows no such argument, and adds none
        return list(tokenizer.encode(text, disallowed_special=()))
