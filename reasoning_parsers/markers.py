"""The markers of a family as token ids of one tokenizer, or as symbols where a marker is not one token.

Knows families and a few functions of a tokenizer, no tokenizer library. How they are found is in `marker_lookup.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .channel_scanner import ChannelMarkers, ChannelScanner
from .errors import MarkerError
from .family import ReasoningFamily
from .marker_lookup import find_markers
from .scanner import EndMarker, EndScanner
from .symbols import BLANKS, FIRST_ID_SYMBOL, TokenSymbols
from .transition import Transition


@dataclass(frozen=True, slots=True)
class TokenMarkers:
    """Markers as token ids; with `symbols`, as symbols: bytes, and 256 + id for tokens that are no text.

    `start` and `end` are enough for one marker of each kind. Two ids with one text are two spellings.

    Attributes:
        start: The usual start marker. () in the format of channels only.
        end: The usual end marker.
        implicit_ends: Single ids that end the thinking and are content themselves.
        turn_boundaries: Ids that begin or close a turn of the conversation.
        user_turns: Ids, each beginning with a turn boundary, that open a turn which is not the model's.
        starts: All spellings of the start marker, the usual one first.
        ends: All end markers, the usual one first.
        implicit_sequences: Implicit ends that are not one token.
        blanks: Ids of white space, which may stand before a start marker.
        forced_end: Ids that end the thinking, for a budget that is used up: the usual end marker, or for channels a legal way
            from a message of thinking into the answer. () if the vocabulary cannot write one; then no budget can be kept.
        channels: The headers, in the format of channels; the answer then begins after one, and not without.
        symbols: What the tokens spell, where markers are symbols.
        family: The row that the markers come from.

    Raises:
        MarkerError: A marker is empty, a start and an end are equal, or an implicit end is part of a marker.
    """

    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    implicit_ends: frozenset[int] = frozenset()
    turn_boundaries: frozenset[int] = frozenset()
    user_turns: frozenset[tuple[int, ...]] = frozenset()
    starts: tuple[tuple[int, ...], ...] = ()
    ends: tuple[EndMarker, ...] = ()
    implicit_sequences: tuple[tuple[int, ...], ...] = ()
    blanks: frozenset[int] = frozenset()
    forced_end: tuple[int, ...] = ()
    channels: ChannelMarkers | None = None
    symbols: TokenSymbols | None = field(default=None, compare=False, repr=False)
    family: ReasoningFamily | None = field(default=None, compare=False, repr=False)
    _transitions: dict[bool, Transition] = field(init=False, default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.channels is None:
            self._complete_delimited()
        else:
            self._complete_channels(self.channels)
        self._check()

    @classmethod
    def resolve(
        cls,
        family: ReasoningFamily,
        token_to_id: Callable[[str], int | None],
        encode: Callable[[str], list[int]],
        *,
        token_bytes: Callable[[int], bytes] | None = None,
        num_tokens: int = 0,
        ids_of_text: Callable[[str], Sequence[int]] | None = None,
    ) -> TokenMarkers:
        """Look the family's markers up in a tokenizer.

        A marker is its own token where the vocabulary has one. Where it has none, what the tokens spell decides, if
        `token_bytes` says what they spell; else the ids that the tokenizer makes of the marker's text stand for it, which finds
        it only where its ends are not glued to their neighbours. Turn boundaries count only where they are one token; those
        that the vocabulary lacks cannot occur, and are left out.

        Args:
            family: The row.
            token_to_id: Id of a token by its exact text. None, or the id of the unknown token, where there is none.
            encode: Ids of a text, without the special tokens that begin or end a sequence.
            token_bytes: Bytes of a token; empty for added and special ones, which are no text.
            num_tokens: Ids are below it; with `token_bytes`.
            ids_of_text: All ids that have a text, where a vocabulary has one twice.

        Raises:
            MarkerError: A marker gives no ids or unknown ones, two give the same ids, or `encode` adds special tokens.
        """
        found = find_markers(family, token_to_id, encode, token_bytes, num_tokens, ids_of_text)
        return cls(
            implicit_ends=found.implicit_ends,
            turn_boundaries=found.turn_boundaries,
            user_turns=found.user_turns,
            starts=found.starts,
            ends=tuple(EndMarker(end) for end in found.ends),
            implicit_sequences=found.implicit_sequences,
            blanks=found.blanks,
            forced_end=found.forced_end,
            channels=found.channels,
            symbols=found.symbols,
            family=family,
        )

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Ids that end markers are made of, as far as they are no text; they must not end the output."""
        symbols = {symbol for end in self.ends for symbol in end.head + end.tail}
        if self.symbols is None:
            return frozenset(symbols)
        return frozenset(symbol - FIRST_ID_SYMBOL for symbol in symbols if symbol >= FIRST_ID_SYMBOL)

    def transition(self, *, tools_offered: bool) -> Transition:
        """Return the transition of these markers. Shared by all callers."""
        transition = self._transitions.get(tools_offered)
        if transition is None:
            transition = self._transitions.setdefault(tools_offered, self._make_transition(tools_offered))
        return transition

    def of_tokens(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """Return what tokens are to these markers: their symbols, or the ids themselves."""
        if self.symbols is None:
            return tuple(token_ids)
        return tuple(symbol for token_id in token_ids for symbol in self.symbols.of_token(token_id))

    def _complete_delimited(self) -> None:
        starts = self.starts or ((self.start,) if self.start else ())
        ends = self.ends or ((EndMarker(self.end),) if self.end else ())
        if not starts or not all(starts):
            raise MarkerError("the start marker has no token ids")
        if not ends or not all(end.head for end in ends):
            raise MarkerError("the end marker has no token ids")
        self._set("starts", starts if self.start in ((), starts[0]) else (self.start, *starts))
        first = ends[0].head + ends[0].tail
        self._set("ends", ends if self.end in ((), first) else (EndMarker(self.end), *ends))
        self._set("start", self.starts[0])
        self._set("end", self.ends[0].head + self.ends[0].tail)
        if not self.forced_end:
            self._set("forced_end", self.end if self.symbols is None else self.symbols.write(self.end))
        elif self.of_tokens(self.forced_end) not in {end.head + end.tail for end in self.ends}:
            raise MarkerError(f"the forced end {self.forced_end} is none of the end markers")

    def _complete_channels(self, channels: ChannelMarkers) -> None:
        if channels.header_end:
            heads = [opener + label for opener in channels.openers for label in channels.content]
            self._set("ends", tuple(EndMarker(head, channels.header_end) for head in heads))
        else:
            self._set("ends", tuple(EndMarker(opener) for opener in channels.content))
        if not self.ends:
            raise MarkerError("no header of an answer")
        self._set("end", self.ends[0].head + self.ends[0].tail)

    def _check(self) -> None:
        ends = {end.head for end in self.ends if not end.tail}
        for marker in self.starts:
            if marker in ends:
                raise MarkerError(f"start and end marker have the same token ids {marker}")
        in_markers = {symbol for start in self.starts for symbol in start}
        in_markers |= {symbol for end in self.ends for symbol in end.head + end.tail}
        shared = [token_id for token_id in self.implicit_ends if in_markers.issuperset(self.of_tokens((token_id,)))]
        if shared:
            raise MarkerError(f"token ids {sorted(shared)} are an implicit end and part of a marker")
        for sequence in self.implicit_sequences:
            if not sequence or sequence in ends or sequence in self.starts:
                raise MarkerError(f"the implicit end {sequence} is empty or a marker")
        if not self.forced_end and self.channels is not None:
            raise MarkerError("the vocabulary has no tokens to write a header with")

    def _make_transition(self, tools_offered: bool) -> Transition:
        forced_end = self.of_tokens(self.forced_end)
        if self.channels is not None:
            scanner = ChannelScanner(self.channels, forced_end, tools_offered=tools_offered)
            return Transition((), (), scanner, self.symbols, counts=True)
        implicit: list[tuple[int, ...]] = []
        if tools_offered:
            implicit += [self.of_tokens((token_id,)) for token_id in sorted(self.implicit_ends)]
            implicit += self.implicit_sequences
        blanks = self.blanks if self.symbols is None else BLANKS
        return Transition(self.starts, blanks, EndScanner(self.ends, implicit, forced_end), self.symbols)

    def _set(self, name: str, value: object) -> None:
        # A frozen dataclass completes itself while it is made, and only then.
        object.__setattr__(self, name, value)
