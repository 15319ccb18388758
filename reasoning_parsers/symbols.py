r"""Tokens as symbols: the bytes of a token that is text (0 to 255), or 256 + its id for one that is not (added, special).

Needed where a marker is not one token: a tokenizer glues its beginning and its end to the neighbours (`done</`, `think>\n`), so
that the marker is found in what tokens spell and not in their ids. Knows bytes and ids, no tokenizer library.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

FIRST_ID_SYMBOL = 256
"""Symbols from here on are ids of tokens that are no text."""

BLANKS = frozenset(b" \t\r\n")
"""Symbols of white space."""


class TokenSymbols:
    """What the tokens of one vocabulary spell.

    Args:
        token_bytes: Bytes of a token; empty for one that is not text.
        num_tokens: Ids are below it.
        encode: Ids of a text without special tokens, so that forced text is written as the model would; None writes the
            longest tokens that fit.
        same_as: Ids of tokens that are no text and have the text of another one, to that one.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        num_tokens: int,
        *,
        encode: Callable[[str], list[int]] | None = None,
        same_as: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._token_bytes = token_bytes
        self._num_tokens = num_tokens
        self._encode = encode
        self._same_as = same_as
        self._by_token: dict[int, tuple[int, ...]] = {}

    def of_token(self, token_id: int) -> tuple[int, ...]:
        """Return the symbols of a token. An id that the vocabulary has not got is a symbol that no marker has."""
        symbols = self._by_token.get(token_id)
        if symbols is None:
            data = self._token_bytes(token_id) if 0 <= token_id < self._num_tokens else b""
            symbols = tuple(data) or (self.of_id(token_id),)
            self._by_token[token_id] = symbols
        return symbols

    def bytes_of(self, token_id: int) -> bytes:
        """Return what a token spells; nothing for one that is no text."""
        symbols = self.of_token(token_id)
        return bytes(symbols) if 0 <= symbols[0] < FIRST_ID_SYMBOL else b""

    def of_id(self, token_id: int) -> int:
        """Return the symbol of a token that is no text."""
        return token_id if token_id < 0 else FIRST_ID_SYMBOL + self._same_as.get(token_id, token_id)

    def of_text(self, text: str, token_to_id: Callable[[str], int | None]) -> tuple[int, ...]:
        """Return the symbols of a text in which the texts of tokens that are no text stand for these tokens."""
        symbols: list[int] = []
        first = 0
        while first < len(text):
            for last in range(len(text), first, -1):
                token_id = token_to_id(text[first:last])
                if token_id is not None and self.of_token(token_id)[0] >= FIRST_ID_SYMBOL:
                    symbols.append(self.of_id(token_id))
                    first = last
                    break
            else:
                symbols += text[first].encode("utf-8", "surrogatepass")
                first += 1
        return tuple(symbols)

    def first_token(self, symbols: tuple[int, ...]) -> int | None:
        """Return the token to write first so that `symbols` are written; None if no token begins like that."""
        if symbols[0] >= FIRST_ID_SYMBOL:
            return symbols[0] - FIRST_ID_SYMBOL
        num_bytes = next((index for index, symbol in enumerate(symbols) if symbol >= FIRST_ID_SYMBOL), len(symbols))
        data = bytes(symbols[:num_bytes])
        if self._encode is not None:
            token_ids = self._encode(data.decode("utf-8", "replace"))
            if b"".join(map(self.bytes_of, token_ids)) == data:
                return token_ids[0]
        for length in range(num_bytes, 0, -1):
            token_ids = self._equal_to(data[:length])
            if token_ids:
                return token_ids[0]
        return None

    def write(self, symbols: tuple[int, ...]) -> tuple[int, ...]:
        """Return tokens that spell `symbols`; () if that cannot be written."""
        token_ids: list[int] = []
        while symbols:
            token_id = self.first_token(symbols)
            if token_id is None:
                return ()
            token_ids.append(token_id)
            symbols = symbols[len(self.of_token(token_id)) :]
        return tuple(token_ids)

    def beginning_with(self, symbols: tuple[int, ...]) -> list[int]:
        """Tokens that spell `symbols`, or these and more."""
        if symbols[0] >= FIRST_ID_SYMBOL:
            return self.not_text(symbols[0]) if len(symbols) == 1 else []
        if any(symbol >= FIRST_ID_SYMBOL for symbol in symbols):
            return []
        data = bytes(symbols)
        return list(itertools.takewhile(lambda token_id: self._token_bytes(token_id).startswith(data), self._from(data)))

    def beginnings_of(self, symbols: tuple[int, ...]) -> list[int]:
        """Tokens that spell the beginning of `symbols`, not all of them."""
        if symbols[0] >= FIRST_ID_SYMBOL:
            return self.not_text(symbols[0]) if len(symbols) > 1 else []
        token_ids: list[int] = []
        for length in range(1, len(symbols)):
            if symbols[length - 1] >= FIRST_ID_SYMBOL:
                break
            token_ids += self._equal_to(bytes(symbols[:length]))
        return token_ids

    def containing(self, symbols: tuple[int, ...]) -> list[int]:
        """Tokens of text that have `symbols` somewhere."""
        if any(symbol >= FIRST_ID_SYMBOL for symbol in symbols):
            return []
        data = bytes(symbols)
        return [token_id for text, token_id in self._sorted if data in text]

    def not_text(self, symbol: int) -> list[int]:
        """The tokens whose symbol this is."""
        token_id = symbol - FIRST_ID_SYMBOL
        return [token_id, *(other for other, canonical in self._same_as.items() if canonical == token_id)]

    def _equal_to(self, data: bytes) -> list[int]:
        return list(itertools.takewhile(lambda token_id: self._token_bytes(token_id) == data, self._from(data)))

    def _from(self, data: bytes) -> Iterator[int]:
        """Tokens in the order of their bytes, from `data` on."""
        for index in range(bisect_left(self._sorted, (data, -1)), len(self._sorted)):
            yield self._sorted[index][1]

    @cached_property
    def _sorted(self) -> list[tuple[bytes, int]]:
        pairs = ((self._token_bytes(token_id), token_id) for token_id in range(self._num_tokens))
        return sorted(pair for pair in pairs if pair[0])
