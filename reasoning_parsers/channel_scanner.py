"""Where thinking ends in a stream of messages with headers (`channels.py`): at the end of the answer's header.

The rules, which are those of `channel_parser.py`: a message has a frame (who speaks), a header (from an opener to the header's
end), and a body up to a closer. Where the opener is the whole header, it says what the body is. In a body an opener or a frame
counts only if it is a token that is no text. A label is compared from its first symbol that is no white space, as a whole word. A
frame without an opener is the answer's. A message for somebody else is a tool call; where tools are offered it ends the thinking
too, and is content from its frame on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from .aho_corasick import ROOT, AhoCorasick
from .interned import Interned
from .scanner import Hit, Resumption
from .sequence_matcher import SequenceMatcher
from .symbols import BLANKS, FIRST_ID_SYMBOL

Symbols = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMarkers:
    """The texts of `Channels` as symbols.

    Attributes:
        openers: Begin a header.
        header_end: Ends it; () where the opener is the whole header.
        closers: End a body.
        frames: Begin a frame.
        reasoning: Labels of thinking; where the opener is the whole header, openers.
        content: Labels of the answer, likewise.
        preamble: Labels of messages by the way, likewise.
        recipient: In a frame or a header: it is for somebody else; () for nothing.
        are_openers_plain: Whether openers are text: then a label is followed by the header's end at once.
    """

    openers: tuple[Symbols, ...]
    header_end: Symbols = ()
    closers: tuple[Symbols, ...] = ()
    frames: tuple[Symbols, ...] = ()
    reasoning: tuple[Symbols, ...] = ()
    content: tuple[Symbols, ...] = ()
    preamble: tuple[Symbols, ...] = ()
    recipient: Symbols = ()
    are_openers_plain: bool = False


class Mode(IntEnum):
    """What is being written."""

    BETWEEN = 0
    FRAME = 1
    HEADER = 2
    THINKING = 3
    PREAMBLE = 4
    CALL = 5
    ANSWER = 6


_NO_LABEL = -1
_LABELLED = {Mode.THINKING: -2, Mode.PREAMBLE: -3, Mode.ANSWER: -4}
_MODE_OF_LABEL = {label: mode for mode, label in _LABELLED.items()}
_WORD = frozenset(b"-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") | frozenset(range(128, FIRST_ID_SYMBOL))


class _Place(NamedTuple):
    """Where a stream stands.

    Attributes:
        mode: What is being written.
        node: What of the fixed texts is begun.
        label: Node of the labels, or below 0 what the label is.
        is_addressed: Whether frame or header are for somebody else.
        num_closing: Symbols of the whole forced end, from the closer on, that the stream ends with.
        num_framing: The same for the part from the frame on.
        num_heading: The same for the header.
    """

    mode: Mode = Mode.BETWEEN
    node: int = ROOT
    label: int = ROOT
    is_addressed: bool = False
    num_closing: int = 0
    num_framing: int = 0
    num_heading: int = 0


_OPENER, _CLOSER, _FRAME, _HEADER_END, _RECIPIENT = range(5)


class ChannelScanner:
    """Finds the end of the answer's header.

    Args:
        channels: The texts.
        forced_end: A legal way from a body of thinking into the answer: a closer, a frame, the answer's header.
        tools_offered: Whether a tool call ends the thinking.
    """

    def __init__(self, channels: ChannelMarkers, forced_end: Symbols, *, tools_offered: bool) -> None:
        kinds = (
            (_OPENER, channels.openers),
            (_CLOSER, channels.closers),
            (_FRAME, channels.frames),
            (_HEADER_END, (channels.header_end,) if channels.header_end else ()),
            (_RECIPIENT, (channels.recipient,) if channels.recipient else ()),
        )
        self._fixed = AhoCorasick([text for _, texts in kinds for text in texts])
        self._kinds = tuple(kind for kind, texts in kinds for _ in texts)
        self._channels = channels
        self._tools_offered = tools_offered
        labels = {Mode.THINKING: channels.reasoning, Mode.PREAMBLE: channels.preamble, Mode.ANSWER: channels.content}
        self._labels = AhoCorasick([text for texts in labels.values() for text in texts])
        self._label_modes = tuple(mode for mode, texts in labels.items() for _ in texts)
        self._forced_end = forced_end
        self._closing = SequenceMatcher(forced_end)
        closer = next((text for text in channels.closers if forced_end[: len(text)] == text), ())
        self._framing = SequenceMatcher(forced_end[len(closer) :])
        self._heading = SequenceMatcher(_last_header(forced_end, channels.openers))
        self._places = Interned[_Place]()
        self._places.number_of(_Place())  # the root
        # What stands where after which symbol: filled as it is met.
        self._table: dict[tuple[int, int], int] = {}
        self.turning_symbols = frozenset[int]()

    def advance(self, node: int, symbol: int) -> int:
        """Return the node after one more symbol."""
        after = self._table.get((node, symbol))
        if after is None:
            after = self._places.number_of(self._advance(self._places.value_of(node), symbol))
            if symbol < FIRST_ID_SYMBOL or symbol in self._fixed.starts:
                self._table[node, symbol] = after
        return after

    def hit(self, node: int) -> Hit | None:
        """The answer has begun, or a tool call."""
        mode = self._places.value_of(node).mode
        if mode is Mode.ANSWER:
            return Hit(False, 0)
        return Hit(True, 0) if mode is Mode.CALL and self._tools_offered else None

    def is_ended(self, node: int) -> bool:
        """Whether the stream stands in the body of the answer, or of a tool call where tools are offered."""
        return self.hit(node) is not None

    def is_header(self, node: int) -> bool:
        """Whether the stream stands in a frame or a header."""
        return self._places.value_of(node).mode in (Mode.FRAME, Mode.HEADER)

    def is_opened(self, node: int) -> bool:
        """Whether a header is opened and not ended."""
        return self._places.value_of(node).mode is Mode.HEADER

    def is_body(self, node: int) -> bool:
        """Whether the stream stands inside a message."""
        return self._places.value_of(node).mode > Mode.HEADER

    def is_thinking(self, before: int, after: int) -> bool:
        """Whether the symbol between two nodes stands in thinking, and begins no fixed text; a call to nobody is thinking."""
        place = self._places.value_of(after)
        is_inside = place.mode in (Mode.THINKING, Mode.CALL, Mode.BETWEEN)
        return is_inside and place.node == ROOT and self._places.value_of(before).mode is place.mode

    def resume(self, node: int) -> Resumption:
        """Go on with the frame and the header that are begun, else close the body and write both."""
        place = self._places.value_of(node)
        if place.num_closing:
            return Resumption(True, self._forced_end[place.num_closing :], False)
        if place.mode > Mode.HEADER:
            return Resumption(False, self._forced_end, place.mode is Mode.THINKING)
        if place.num_framing:
            return Resumption(True, self._framing.sequence[place.num_framing :], False)
        if place.num_heading:
            return Resumption(True, self._heading.sequence[place.num_heading :], False)
        if place.mode is not Mode.HEADER:
            return Resumption(False, self._heading.sequence, False)
        if self._mode_after(place) is Mode.ANSWER:
            return Resumption(True, self._channels.header_end, False)
        return Resumption(False, self._channels.header_end + self._forced_end, False)

    def rests(self, node: int) -> list[Symbols]:
        """Return what may follow so that the answer begins."""
        place = self._places.value_of(node)
        return [rest for index, rest in self._fixed.rests(place.node) if self._kinds[index] in (_OPENER, _HEADER_END)]

    def wholes(self, node: int) -> list[Symbols]:
        """Return what ends the thinking by itself, whatever is begun."""
        texts = zip(self._kinds, self._fixed.sequences, strict=True)
        return [text for kind, text in texts if kind in (_OPENER, _HEADER_END)]

    def _advance(self, place: _Place, symbol: int) -> _Place:
        node = self._fixed.advance(place.node, symbol)
        place = place._replace(
            node=node,
            num_closing=_advance(self._closing, place.num_closing, symbol),
            num_framing=_advance(self._framing, place.num_framing, symbol),
            num_heading=_advance(self._heading, place.num_heading, symbol),
        )
        for index in self._fixed.found[node]:
            after = self._after(place, self._kinds[index], self._fixed.sequences[index])
            if after is not None:
                return after
        return place._replace(label=self._next_label(place.label, symbol)) if place.mode is Mode.HEADER else place

    def _after(self, place: _Place, kind: int, text: Symbols) -> _Place | None:
        """The place after a fixed text; None if the text says nothing here."""
        if kind == _CLOSER:
            return place._replace(mode=Mode.BETWEEN, label=ROOT, is_addressed=False)
        is_body = place.mode > Mode.HEADER
        if is_body and (kind in (_HEADER_END, _RECIPIENT) or all(symbol < FIRST_ID_SYMBOL for symbol in text)):
            return None
        if kind == _FRAME:
            return place._replace(mode=Mode.FRAME, label=ROOT, is_addressed=False)
        if kind == _RECIPIENT:
            return place._replace(is_addressed=True, label=self._next_label(place.label, text[-1]))
        if kind == _HEADER_END:
            return place._replace(mode=self._mode_after(place), node=ROOT, label=ROOT)
        if not self._channels.header_end:
            mode = self._label_modes[self._labels.sequences.index(text)] if text in self._labels.sequences else Mode.CALL
            return place._replace(mode=mode, node=ROOT)
        is_answer = place.mode is Mode.HEADER and self._label_mode(place.label) is Mode.ANSWER
        label = _LABELLED[Mode.ANSWER] if is_answer else ROOT
        return place._replace(mode=Mode.HEADER, label=label, is_addressed=place.is_addressed and not is_body)

    def _next_label(self, label: int, symbol: int) -> int:
        is_plain = self._channels.are_openers_plain
        if label < 0 or (label == ROOT and symbol in BLANKS and not is_plain):
            return label
        child = self._labels.child(label, symbol)
        if child is not None:
            return child
        mode = self._label_mode(label)
        return _NO_LABEL if mode is None or symbol in _WORD or is_plain else _LABELLED[mode]

    def _label_mode(self, label: int) -> Mode | None:
        if label < 0:
            return _MODE_OF_LABEL.get(label)
        return self._label_modes[self._labels.found[label][0]] if self._labels.is_whole(label) else None

    def _mode_after(self, place: _Place) -> Mode:
        """What a message is whose header ends here."""
        mode = self._label_mode(place.label) if place.mode is Mode.HEADER else Mode.ANSWER
        if mode is Mode.ANSWER and place.mode is Mode.HEADER:
            return mode
        return Mode.CALL if place.is_addressed or mode is None else mode


def _last_header(forced_end: Symbols, openers: tuple[Symbols, ...]) -> Symbols:
    starts = [index for index in range(len(forced_end)) if any(forced_end[index:][: len(text)] == text for text in openers)]
    return forced_end[starts[-1] :]


def _advance(matcher: SequenceMatcher, matched: int, symbol: int) -> int:
    """One more symbol; a whole match is over."""
    return matcher.advance(0 if matched == len(matcher.sequence) else matched, symbol)
