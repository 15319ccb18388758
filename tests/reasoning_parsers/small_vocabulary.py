"""A vocabulary for tests: every byte, some glued tokens, and tokens that are no text."""

from __future__ import annotations

from collections.abc import Sequence

from reasoning_parsers import ReasoningFamily, TokenMarkers


class SmallVocabulary:
    """Ids 0 to 255 are bytes, then come the glued tokens, then the special ones; a special text may be there twice.

    Args:
        glued: Texts of further ordinary tokens.
        special: Texts of tokens that are no text.
    """

    def __init__(self, glued: Sequence[str], special: Sequence[str]) -> None:
        self.texts = [bytes((byte,)) for byte in range(256)] + [text.encode() for text in glued]
        self.special = {len(self.texts) + index: text for index, text in enumerate(special)}
        self.num_tokens = len(self.texts) + len(special)

    def token_bytes(self, token_id: int) -> bytes:
        return self.texts[token_id] if token_id < len(self.texts) else b""

    def token_to_id(self, text: str) -> int | None:
        return next(iter(self.ids_of_text(text)), None)

    def ids_of_text(self, text: str) -> list[int]:
        ordinary = [token_id for token_id, data in enumerate(self.texts) if data == text.encode()]
        return [token_id for token_id, name in self.special.items() if name == text] + ordinary

    def encode(self, text: str) -> list[int]:
        """Longest match; special texts are found."""
        data, token_ids, place = text.encode(), list[int](), 0
        known = [(name.encode(), token_id) for token_id, name in self.special.items()]
        known += [(piece, token_id) for token_id, piece in enumerate(self.texts)]
        while place < len(data):
            piece, token_id = max(
                ((piece, -token_id) for piece, token_id in known if data.startswith(piece, place)),
                key=lambda pair: (len(pair[0]), pair[1]),
            )
            token_ids.append(-token_id)
            place += len(piece)
        return token_ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True, **options: object) -> str:
        pieces = [
            self.token_bytes(token_id) or (b"" if skip_special_tokens else self.special[token_id].encode())
            for token_id in token_ids
        ]
        return b"".join(pieces).decode(errors="replace")

    def resolve(self, family: ReasoningFamily, **options: object) -> TokenMarkers:
        return TokenMarkers.resolve(
            family,
            self.token_to_id,
            self.encode,
            token_bytes=self.token_bytes,
            num_tokens=self.num_tokens,
            ids_of_text=self.ids_of_text,
        )
