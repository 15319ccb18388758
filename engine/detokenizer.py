"""Token ids to text, piece by piece, never half a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tokenizers import decoders
from transformers import PreTrainedTokenizerFast

REPLACEMENT = "\ufffd"
CONTEXT_TOKENS = 6
"""Tokens without text that are kept behind the last piece that has one."""
MAX_PENDING_TOKENS = 8
"""A character has at most 4 bytes; text that is still broken after this many tokens is broken for good and is let out."""


class TokenDecoder(Protocol):
    """The one verb of a transformers tokenizer that text needs."""

    @property
    def decode(self) -> Callable[..., Any]:
        """Turn token ids to text."""
        ...


class TokenTexts:
    """A tokenizer's decoding, and the texts of single tokens, decoded once for all sequences.

    Args:
        tokenizer: Decodes.

    Attributes:
        are_joined: Whether tokens are bytes that are joined, so that whole characters are the same text behind any others.
    """

    def __init__(self, tokenizer: TokenDecoder) -> None:
        self._tokenizer = tokenizer
        self._alone: tuple[dict[int, str], dict[int, str]] = {}, {}
        self.are_joined = isinstance(tokenizer, PreTrainedTokenizerFast) and isinstance(
            tokenizer.backend_tokenizer.decoder, decoders.ByteLevel
        )

    @property
    def decode(self) -> Callable[..., Any]:
        """As the tokenizer's."""
        return self._tokenizer.decode

    def join(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        """Give the text of some tokens."""
        if not token_ids:
            return ""
        if len(token_ids) > 1:
            return self._decode(token_ids, skip_special_tokens=skip_special_tokens)
        known = self._alone[skip_special_tokens]
        text = known.get(token_ids[0])
        if text is None:
            text = known[token_ids[0]] = self._decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text

    def _decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False))


class IncrementalDetokenizer:
    """Decode a growing list of token ids.

    The pieces joined are the decoding of all tokens. A piece that ends inside a character is held back until the character is
    whole or `flush` is called.

    Args:
        tokenizer: Decodes; `TokenTexts` where several share what they find out.
        skip_special_tokens: Whether special tokens are left out.
    """

    def __init__(self, tokenizer: TokenDecoder, *, skip_special_tokens: bool = True) -> None:
        self._texts = tokenizer if isinstance(tokenizer, TokenTexts) else TokenTexts(tokenizer)
        self._skip_special_tokens = skip_special_tokens
        self._context: list[int] = []
        self._pending: list[int] = []

    def feed(self, token_ids: Sequence[int]) -> str:
        """Add tokens and give the text that is now certain."""
        return "".join(self._feed_one(token_id) for token_id in token_ids)

    def flush(self) -> str:
        """Give what was held back; half a character becomes U+FFFD."""
        text = self._decode_pending()
        self._settle(text)
        return text

    def _feed_one(self, token_id: int) -> str:
        self._pending.append(token_id)
        text = self._decode_pending()
        if text.endswith(REPLACEMENT) and len(self._pending) < MAX_PENDING_TOKENS:
            return ""
        self._settle(text)
        return text

    def _decode_pending(self) -> str:
        if self._texts.are_joined:
            alone = self._decode(self._pending)
            if REPLACEMENT not in alone:
                return alone
        before = self._decode(self._context)
        after = self._decode(self._context + self._pending)
        return after[len(before) :]

    def _settle(self, text: str) -> None:
        # The last piece is decoded again in front of the next one, whose text depends on it (leading spaces). It is kept whole:
        # half a character in front would spoil the bytes that follow it where a tokenizer falls back to bytes.
        if text:
            self._context = self._pending
        elif len(self._context) < CONTEXT_TOKENS:
            self._context = self._context + self._pending
        self._pending = []

    def _decode(self, token_ids: list[int]) -> str:
        return self._texts.join(token_ids, skip_special_tokens=self._skip_special_tokens)
