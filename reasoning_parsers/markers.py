"""The markers of a family as token ids of one tokenizer.

Knows families and two functions of a tokenizer, no tokenizer library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .errors import MarkerError
from .family import ReasoningFamily

# A text that no vocabulary has: a tokenizer that knows an id for it answers every unknown text with that id.
_NO_TOKEN = "<thinkgate: no such token>"


@dataclass(frozen=True, slots=True)
class TokenMarkers:
    """Markers as token ids.

    Attributes:
        start: Ids of the start marker, one or more.
        end: Ids of the end marker, one or more.
        implicit_ends: Single ids that end the thinking and are content themselves. Several ids may have one text.
        turn_boundaries: Ids that begin or close a turn of the conversation.
        user_turns: Ids, each beginning with a turn boundary, that open a turn which is not the model's.

    Raises:
        MarkerError: A marker is empty, both are equal, or an implicit end is part of one.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    implicit_ends: frozenset[int] = frozenset()
    turn_boundaries: frozenset[int] = frozenset()
    user_turns: frozenset[tuple[int, ...]] = frozenset()

    def __post_init__(self) -> None:
        if not self.start or not self.end:
            raise MarkerError(f"the {'end' if self.start else 'start'} marker has no token ids")
        if self.start == self.end:
            raise MarkerError(f"start and end marker have the same token ids {self.start}")
        shared = self.implicit_ends.intersection(self.start + self.end)
        if shared:
            raise MarkerError(f"token ids {sorted(shared)} are an implicit end and part of a marker")

    @classmethod
    def resolve(
        cls,
        family: ReasoningFamily,
        token_to_id: Callable[[str], int | None],
        encode: Callable[[str], list[int]],
    ) -> TokenMarkers:
        """Look the family's markers up in a tokenizer.

        A marker is its own token where the vocabulary has one, else what the tokenizer makes of its text. Implicit ends and
        turn boundaries count only where they are one token; those that the vocabulary lacks cannot occur, and are left out.

        Args:
            family: The row.
            token_to_id: Id of a token by its exact text. None, or the id of the unknown token, where there is none.
            encode: Ids of a text, without the special tokens that begin or end a sequence.

        Raises:
            MarkerError: A marker gives no ids or unknown ones, both give the same ids, or `encode` adds special tokens.
        """
        added = encode("")
        if added:
            raise MarkerError(f"encode('') gave {added}", hint="encode must not add special tokens")
        unknown_id = token_to_id(_NO_TOKEN)

        def find(text: str) -> tuple[int, ...]:
            token_id = token_to_id(text)
            if token_id is not None and token_id != unknown_id:
                return (token_id,)
            token_ids = tuple(encode(text))
            return () if unknown_id is not None and unknown_id in token_ids else token_ids

        def find_marker(text: str) -> tuple[int, ...]:
            token_ids = find(text)
            if not token_ids:
                raise MarkerError(
                    f"the tokenizer has no ids for the marker {text!r} of family {family.name!r}",
                    marker=text,
                    hint="is this the family of the model?",
                )
            return token_ids

        def find_single(texts: tuple[str, ...]) -> frozenset[int]:
            return frozenset(token_ids[0] for text in texts if len(token_ids := find(text)) == 1)

        return cls(
            start=find_marker(family.start),
            end=find_marker(family.end),
            implicit_ends=find_single(family.implicit_ends),
            turn_boundaries=find_single(family.turn_boundaries),
            user_turns=frozenset(token_ids for text in family.user_turns if (token_ids := find(text))),
        )
