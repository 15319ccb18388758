"""A family's markers in the vocabulary of a transformers tokenizer."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from transformers import PreTrainedTokenizerBase

from reasoning_parsers import ReasoningFamily, ReasoningParserError, TokenMarkers

from .errors import ModelLoadError
from .grammar.vocabulary import read_vocabulary

_NUM_SHOWN = 30


def resolve_markers(tokenizer: PreTrainedTokenizerBase, family: ReasoningFamily) -> TokenMarkers:
    """Look a family's markers up: as ids where they are tokens of their own, else in what the tokens spell.

    Raises:
        ModelLoadError: The markers are not in this vocabulary.
    """
    spelling = _Spelling(tokenizer)

    def token_to_id(text: str) -> int | None:
        # The unknown token's id is wanted too: it tells which texts have no ids.
        token_id: Any = tokenizer.convert_tokens_to_ids(text)
        return token_id if token_id is None else int(token_id)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    try:
        return TokenMarkers.resolve(
            family,
            token_to_id,
            encode,
            token_bytes=spelling.token_bytes,
            num_tokens=len(tokenizer),
            ids_of_text=spelling.ids_of_text,
        )
    except ReasoningParserError as error:
        added = [str(token) for token in tokenizer.get_added_vocab()]
        known = f"its added tokens are {', '.join(added[:_NUM_SHOWN])}" if added else "it has no added tokens"
        more = f" and {len(added) - _NUM_SHOWN} more" if len(added) > _NUM_SHOWN else ""
        raise ModelLoadError(
            f"the markers of {family.name} are not in this vocabulary: {error}; {known}{more}", hint="set family='none'"
        ) from error


def check_markers(markers: TokenMarkers | None, vocab_size: int) -> None:
    """Refuse markers that the model cannot write: a tokenizer may have more tokens than the model.

    Raises:
        ModelLoadError: A marker's id is none of the model's.
    """
    if markers is None:
        return
    ids = set(markers.end_token_ids)
    if markers.symbols is None:
        ids.update(markers.forced_end, *markers.starts)
    if ids and max(ids) >= vocab_size:
        raise ModelLoadError(
            f"token {max(ids)}, which marks the thinking, is none of the model's {vocab_size}: the tokenizer has more tokens",
            hint="set family='none', or take the tokenizer that the weights were made with",
        )


class _Spelling:
    """What tokens spell. The whole vocabulary is read only for a marker that is no added token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._added = {token_id: str(token) for token_id, token in tokenizer.added_tokens_decoder.items()}

    def token_bytes(self, token_id: int) -> bytes:
        if self._added.get(token_id, "").replace("\u2581", " ").strip():
            return b""
        return self._all_bytes[token_id]

    def ids_of_text(self, text: str) -> list[int]:
        return [token_id for token_id, added in self._added.items() if added == text]

    @cached_property
    def _all_bytes(self) -> tuple[bytes, ...]:
        return read_vocabulary(self._tokenizer, vocab_size=len(self._tokenizer), stop_token_ids=()).token_bytes
