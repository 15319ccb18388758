"""The vocabulary as grammars see it: the bytes of every token id, and which ids are no text at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import xgrammar

from .token_index import TokenIndex

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
    def index(self) -> TokenIndex:
        """The tokens by their bytes."""
        return TokenIndex(self.token_bytes)


def read_vocabulary(tokenizer: PreTrainedTokenizerBase, *, vocab_size: int, stop_token_ids: Iterable[int]) -> Vocabulary:
    """Read the bytes of every token from a tokenizer.

    Added tokens that are more than white space are no text inside an answer, whether they are declared special or not: Qwen3
    declares `<think>` and `<tool_call>` as ordinary added tokens, and neither may stand inside a JSON string as one id.

    Args:
        tokenizer: A transformers tokenizer (byte-level BPE, byte fallback or tiktoken).
        vocab_size: Columns of the logits.
        stop_token_ids: Ids that end an answer.
    """
    width = max(vocab_size, len(tokenizer))
    decoded = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=width).decoded_vocab
    token_bytes = [bytes(piece) for piece in decoded] + [b""] * (width - len(decoded))
    hidden = set(tokenizer.all_special_ids) | set(stop_token_ids) | set(range(len(tokenizer), width))
    hidden |= {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}
    for token_id in hidden:
        token_bytes[token_id] = b""
    return Vocabulary(tuple(token_bytes[:vocab_size]), vocab_size, tuple(sorted(set(stop_token_ids))))
