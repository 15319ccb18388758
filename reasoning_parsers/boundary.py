"""Where in the committed tokens the thinking ended, to the symbol; asked when it did, and seldom otherwise."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .channel_scanner import ChannelScanner
from .scanner import EndScanner
from .transition import Phase, State, Transition


@dataclass(frozen=True, slots=True)
class History:
    """Tokens and the state after each, in two parts so that a window is looked at without a copy of what is before it.

    Attributes:
        transition: The transition that made the states.
        initial: The state before the first token.
        states: The states of the committed tokens.
        token_ids: The committed tokens.
        more_states: Those of a window.
        more_token_ids: The window.
    """

    transition: Transition
    initial: State
    states: Sequence[State]
    token_ids: Sequence[int]
    more_states: Sequence[State] = ()
    more_token_ids: Sequence[int] = ()

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.states) + len(self.more_states)

    def state(self, index: int) -> State:
        """The state after the token at `index`; -1 is before the first."""
        if index < 0:
            return self.initial
        num_committed = len(self.states)
        return self.states[index] if index < num_committed else self.more_states[index - num_committed]

    def symbols(self, index: int) -> tuple[int, ...]:
        """The symbols of the token at `index`."""
        num_committed = len(self.states)
        token_id = self.token_ids[index] if index < num_committed else self.more_token_ids[index - num_committed]
        return self.transition.of_token(token_id)


class Boundary(NamedTuple):
    """Where the thinking ended.

    Attributes:
        content_index: The first token that is content only.
        leftover: What the token before it has of the content.
        num_thinking: Tokens that are thinking or hold some.
        certain_stop: The first token that is not thinking only.
    """

    content_index: int
    leftover: bytes
    num_thinking: int
    certain_stop: int


class _Position(NamedTuple):
    token: int
    offset: int


def find_boundary(history: History) -> Boundary:
    """Find where the thinking ended, with the last token of `history`."""
    last = history.size - 1
    state = history.state(last)
    scanner = history.transition.scanner
    if isinstance(scanner, ChannelScanner):
        return _find_header(history, scanner)
    hit = scanner.hit(state.node)
    assert hit is not None
    symbols = history.symbols(last)
    used = history.transition.walk(history.state(last - 1), symbols)[1]
    stop = _gap_start(history, hit.gap) if hit.gap >= 0 else _back(history, last, used, hit.num_symbols)
    first = _Position(state.num_head, state.head_offset)
    num_thinking = stop.token + (stop.offset > 0) - first.token if stop > first else 0
    if state.phase is Phase.ENDED_IMPLICITLY:
        leftover = bytes(history.symbols(stop.token)[stop.offset :]) if stop.offset else b""
        return Boundary(stop.token + (stop.offset > 0), leftover, num_thinking, stop.token)
    return Boundary(last + 1, bytes(symbols[used:]), num_thinking, stop.token)


def _find_header(history: History, scanner: ChannelScanner) -> Boundary:
    """Messages with headers: the answer begins after its header, a tool call with its frame."""
    last = history.size - 1
    state = history.state(last)
    if state.phase is Phase.ENDED_IMPLICITLY:
        first = last
        while first > 0 and scanner.is_header(history.state(first - 1).node):
            first -= 1
        return Boundary(first, b"", state.num_thinking, 0)
    symbols = history.symbols(last)
    used = history.transition.walk(history.state(last - 1), symbols)[1]
    return Boundary(last + 1, bytes(symbols[used:]), state.num_thinking, 0)


def find_certain_stop(history: History) -> int:
    """Return the first token that may yet turn out to belong to an end, or to an implicit one; the number of tokens if none."""
    scanner = history.transition.scanner
    assert isinstance(scanner, EndScanner)
    size = history.size
    state = history.state(size - 1)
    stop = size
    num_unfinished = scanner.num_unfinished(state.node)
    if num_unfinished:
        stop = _back(history, size - 1, len(history.symbols(size - 1)), num_unfinished).token
    for gap, is_open in enumerate(scanner.open_gaps(state.node)):
        if is_open:
            stop = min(stop, _gap_start(history, gap).token)
    return stop


def _gap_start(history: History, gap: int) -> _Position:
    """Where the head of an end marker begins whose gap is open."""
    scanner = history.transition.scanner
    assert isinstance(scanner, EndScanner)

    def is_open(index: int) -> bool:
        return scanner.open_gaps(history.state(index).node)[gap]

    # A gap stays open, but for a start marker that completes: what it is made of is no end.
    state = history.state(history.size - 1)
    if state.num_head == state.head_offset == 0 and is_open(-1):
        return _Position(0, 0)
    index = bisect_left(range(history.size), True, lo=state.num_head, key=is_open)
    before, symbols = history.state(index - 1), history.symbols(index)
    # What a gap opened in before the start marker was complete is no end either.
    lengths = range(1 + (state.head_offset if index == state.num_head else 0), len(symbols) + 1)
    used = next(used for used in lengths if _opens(history, before, symbols[:used], gap))
    return _back(history, index, used, scanner.head_len(gap))


def _opens(history: History, before: State, symbols: tuple[int, ...], gap: int) -> bool:
    scanner = history.transition.scanner
    assert isinstance(scanner, EndScanner)
    state = history.transition.walk(before, symbols)[0]
    return state.phase is not Phase.NEVER_THOUGHT and scanner.open_gaps(state.node)[gap]


def _back(history: History, index: int, used: int, length: int) -> _Position:
    """The place `length` symbols before the symbol `used` of a token; the beginning if it is before the first token."""
    if length <= used:
        return _Position(index, used - length)
    missing = length - used
    while missing > 0:
        index -= 1
        if index < 0:
            return _Position(0, 0)
        missing -= len(history.symbols(index))
    return _Position(index, -missing)
