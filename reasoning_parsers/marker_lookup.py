"""Finds a family's texts in a vocabulary: as single ids, as symbols, or as the ids that the tokenizer makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .channel_scanner import ChannelMarkers
from .channels import Channels
from .errors import MarkerError
from .family import ReasoningFamily
from .symbols import TokenSymbols

# A text that no vocabulary has: a tokenizer that knows an id for it answers every unknown text with that id.
_NO_TOKEN = "<thinkgate: no such token>"
_BLANK_TEXTS = ("\n", "\n\n", " ", "  ", " \n", " \n\n", "\r\n", "\t", "\n\n\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMarkers:
    """What was found; the fields are those of `TokenMarkers`."""

    starts: tuple[tuple[int, ...], ...] = ()
    ends: tuple[tuple[int, ...], ...] = ()
    implicit_ends: frozenset[int] = frozenset()
    implicit_sequences: tuple[tuple[int, ...], ...] = ()
    turn_boundaries: frozenset[int] = frozenset()
    user_turns: frozenset[tuple[int, ...]] = frozenset()
    blanks: frozenset[int] = frozenset()
    forced_end: tuple[int, ...] = ()
    channels: ChannelMarkers | None = None
    symbols: TokenSymbols | None = field(default=None)


def find_markers(
    family: ReasoningFamily,
    token_to_id: Callable[[str], int | None],
    encode: Callable[[str], list[int]],
    token_bytes: Callable[[int], bytes] | None,
    num_tokens: int,
    ids_of_text: Callable[[str], Sequence[int]] | None,
) -> FoundMarkers:
    """Look a family up; see `TokenMarkers.resolve`."""
    added = encode("")
    if added:
        raise MarkerError(f"encode('') gave {added}", hint="encode must not add special tokens")
    return _Lookup(family, token_to_id, encode, token_bytes, num_tokens, ids_of_text).find()


class _Lookup:
    def __init__(
        self,
        family: ReasoningFamily,
        token_to_id: Callable[[str], int | None],
        encode: Callable[[str], list[int]],
        token_bytes: Callable[[int], bytes] | None,
        num_tokens: int,
        ids_of_text: Callable[[str], Sequence[int]] | None,
    ) -> None:
        self._family = family
        self._token_to_id = token_to_id
        self._encode = encode
        self._token_bytes = token_bytes
        self._num_tokens = num_tokens
        self._ids_of_text = ids_of_text
        self._unknown_id = token_to_id(_NO_TOKEN)

    def find(self) -> FoundMarkers:
        family = self._family
        boundaries = frozenset(token_id for text in family.turn_boundaries for token_id in self._ids(text))
        user_turns = frozenset(ids for text in family.user_turns if (ids := self._sequence(text)))
        blanks = frozenset(ids[0] for text in _BLANK_TEXTS if len(ids := self._sequence(text)) == 1)
        if family.channels is not None:
            return self._find_channels(family.channels, boundaries, user_turns)
        starts = [family.start + family.start_label] * bool(family.start_label) + list(family.starts)
        if self._are_single([*family.starts, *family.ends], [*family.implicit_ends]):
            return FoundMarkers(
                starts=self._spellings(starts),
                ends=self._spellings(family.ends),
                implicit_ends=frozenset(token_id for text in family.implicit_ends for token_id in self._ids(text)),
                turn_boundaries=boundaries,
                user_turns=user_turns,
                blanks=blanks,
            )
        self._check_known([*family.starts, *family.ends])
        symbols = self._make_symbols([*family.starts, *family.ends, *family.implicit_ends])
        return FoundMarkers(
            starts=tuple(symbols.of_text(text, self._token_id) for text in starts),
            ends=tuple(symbols.of_text(text, self._token_id) for text in family.ends),
            implicit_sequences=tuple(symbols.of_text(text, self._token_id) for text in family.implicit_ends),
            turn_boundaries=boundaries,
            user_turns=user_turns,
            symbols=symbols,
        )

    def _are_single(self, markers: list[str], implicit_ends: list[str]) -> bool:
        """Whether ids tell everything: each text is a token that is no text, or nothing is known of what tokens spell."""
        if self._token_bytes is None:
            return True
        return all(self._is_not_text(text) for text in (*markers, *implicit_ends))

    def _is_not_text(self, text: str) -> bool:
        assert self._token_bytes is not None
        token_id = self._token_id(text)
        return token_id is not None and not self._token_bytes(token_id)

    def _spellings(self, texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        found: list[tuple[int, ...]] = []
        for text in texts:
            single = [(token_id,) for token_id in self._ids(text)]
            found += single or [self._marker(text)]
        return tuple(dict.fromkeys(found))

    def _marker(self, text: str) -> tuple[int, ...]:
        token_ids = self._sequence(text)
        if not token_ids:
            raise self._no_ids(text)
        return token_ids

    def _check_known(self, texts: Sequence[str]) -> None:
        """Refuse texts of which this tokenizer knows a part only: it can neither read nor write them."""
        for text in texts:
            if self._unknown_id is not None and self._token_id(text) is None and self._unknown_id in self._encode(text):
                raise self._no_ids(text)

    def _no_ids(self, text: str) -> MarkerError:
        return MarkerError(
            f"the tokenizer has no ids for the marker {text!r} of family {self._family.name!r}",
            marker=text,
            hint="is this the family of the model?",
        )

    def _sequence(self, text: str) -> tuple[int, ...]:
        """The ids of a text, () if some of it is unknown."""
        token_id = self._token_id(text)
        if token_id is not None:
            return (token_id,)
        token_ids = tuple(self._encode(text))
        return () if self._unknown_id is not None and self._unknown_id in token_ids else token_ids

    def _token_id(self, text: str) -> int | None:
        token_id = self._token_to_id(text)
        return None if token_id == self._unknown_id else token_id

    def _ids(self, text: str) -> list[int]:
        """All ids whose text this is."""
        token_id = self._token_id(text)
        others = () if self._ids_of_text is None else self._ids_of_text(text)
        if token_id is None and not others:
            token_ids = self._sequence(text)
            return list(token_ids) if len(token_ids) == 1 else []
        return list(dict.fromkeys([*([] if token_id is None else [token_id]), *others]))

    def _make_symbols(self, texts: list[str]) -> TokenSymbols:
        if self._token_bytes is not None:
            pieces = {
                text[first:last] for text in texts for first in range(len(text)) for last in range(first + 1, len(text) + 1)
            }
            twins = [self._ids(piece) for piece in sorted(pieces) if self._is_not_text(piece)]
            same_as = {other: ids[0] for ids in twins for other in ids[1:]}
            return TokenSymbols(self._token_bytes, self._num_tokens, encode=self._encode, same_as=same_as)
        raise MarkerError(
            f"the markers of family {self._family.name!r} are not one token each", hint="give token_bytes, what the tokens spell"
        )

    def _find_channels(
        self, channels: Channels, boundaries: frozenset[int], user_turns: frozenset[tuple[int, ...]]
    ) -> FoundMarkers:
        fixed = [*channels.openers, channels.header_end, *channels.closers, *channels.frames, channels.recipient]
        self._check_known(fixed)
        symbols = self._make_symbols([text for text in fixed if text])

        def of_text(text: str) -> tuple[int, ...]:
            return symbols.of_text(text, self._token_id)

        def of_texts(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
            return tuple(map(of_text, texts))

        closer = next(text for text in channels.closers if text not in channels.content_closers)
        forced_end = of_text(closer + channels.next_frame + self._family.end)
        return FoundMarkers(
            turn_boundaries=boundaries,
            user_turns=user_turns,
            forced_end=symbols.write(forced_end),
            channels=ChannelMarkers(
                openers=of_texts(channels.openers),
                header_end=of_text(channels.header_end),
                closers=of_texts(channels.closers),
                frames=of_texts(channels.frames),
                reasoning=of_texts(channels.reasoning),
                content=of_texts(channels.content),
                preamble=of_texts(channels.preamble),
                recipient=of_text(channels.recipient),
                are_openers_plain=channels.plain_openers,
            ),
            symbols=symbols,
        )
