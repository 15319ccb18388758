"""The gate's one transition: a state and the next token id give the next state.

Pure, so that the gate can fold it over a window that may never be committed, and go back by forgetting states. The states:

    prompt: ended ─────────────────────────────────┐     constrained from the first token
    prompt: open ─────────────┐                    │
    prompt: unknown           ▼                    ▼
      first token ──► UNDECIDED ──► THINKING ──► ended   (by its marker, or implicitly where tools are offered)
                          └──────────────────────► ended (never thought: anything but the start marker)

Ended stays ended: there is no second block of thinking.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

from .aho_corasick import ROOT, AhoCorasick
from .exits import Content, Exit
from .scanner import EndScanner, Scanner
from .symbols import FIRST_ID_SYMBOL, TokenSymbols


class Phase(Enum):
    """Where the output stands."""

    UNDECIDED = auto()
    THINKING = auto()
    ENDED_BY_MARKER = auto()
    ENDED_IMPLICITLY = auto()  # the token that ended the thinking is content
    NEVER_THOUGHT = auto()  # all tokens are content


HEAD_OVER = -1
"""The head of the output is settled: a start marker stands there, or something else does."""


class State(NamedTuple):
    """All that the meaning of the next token depends on.

    Attributes:
        phase: Where the output stands.
        head: Node of the start markers that the whole output is a beginning of, or `HEAD_OVER`.
        num_head: Tokens that a start marker at the head takes up, but for one that it shares with what follows.
        head_offset: Symbols of the token after these that the start marker has.
        num_seen: Tokens so far, counted while the head is not over; 0 afterwards.
        node: Where the scanner for the end of the thinking stands.
        num_thinking: Tokens of thinking so far, counted where messages have headers only.
    """

    phase: Phase
    head: int = HEAD_OVER
    num_head: int = 0
    head_offset: int = 0
    num_seen: int = 0
    node: int = ROOT
    num_thinking: int = 0

    @property
    def is_ended(self) -> bool:
        """Whether the next token is content."""
        return self.phase is not Phase.THINKING and self.phase is not Phase.UNDECIDED


NEVER_THOUGHT = State(Phase.NEVER_THOUGHT)
_MAX_REMEMBERED = 1 << 16


class Transition:
    """The transition for one set of markers; shared by the gates that have it.

    A start marker counts at the head of the output only, blanks before it aside. The end that completes first ends the
    thinking; its symbols cannot be symbols of the start marker before it.

    Args:
        starts: Start markers; () for a format without.
        blanks: What may stand before a start marker: ids, or symbols.
        scanner: Finds the end of the thinking.
        symbols: What tokens spell; None where a token is its own symbol.
        counts: Whether the scanner tells thinking from headers.
    """

    def __init__(
        self,
        starts: Sequence[tuple[int, ...]],
        blanks: Collection[int],
        scanner: Scanner,
        symbols: TokenSymbols | None,
        *,
        counts: bool = False,
    ) -> None:
        self.starts = AhoCorasick(starts)
        self.scanner = scanner
        self.symbols = symbols
        self._blanks = frozenset(blanks)
        self._counts = counts
        self._turning_ids = scanner.turning_symbols
        # What follows (node, token) once the head is over: most tokens come again and again.
        self._remembered: dict[tuple[int, int], tuple[int, bool]] = {}
        self._start_ids: dict[int, frozenset[int]] = {}
        self._exits: dict[int, tuple[Exit, ...]] = {}

    def of_token(self, token_id: int) -> tuple[int, ...]:
        """Return the symbols of a token."""
        return (token_id,) if self.symbols is None else self.symbols.of_token(token_id)

    def next(self, state: State, token_id: int) -> State:
        """Return the state after one more token. The same object if nothing changed, so that a history stays small.

        Args:
            state: The state before it; not an ended one, which nothing changes.
            token_id: The token.
        """
        if state.head != HEAD_OVER:
            return self.walk(state, self.of_token(token_id))[0]
        node = state.node
        if self.symbols is None:
            if node == ROOT and token_id not in self._turning_ids and not self._counts:
                # Nearly every token: no marker is under way, and this one begins none.
                return state
            return self._finish(state, *self._scan(node, (token_id,))[:2])
        found = self._remembered.get((node, token_id))
        if found is None:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[node, token_id] = self._scan(node, self.symbols.of_token(token_id))[:2]
        return self._finish(state, *found)

    @cached_property
    def marks(self) -> AhoCorasick:
        """All that a prompt is searched for, but for ends with a gap: start markers, ends, implicit ends, in this order."""
        assert isinstance(self.scanner, EndScanner)
        return AhoCorasick((*self.starts.sequences, *self.scanner.plain_ends, *self.scanner.implicit_ends))

    def is_implicit_mark(self, index: int) -> bool:
        """Whether a sequence of `marks` is an implicit end."""
        assert isinstance(self.scanner, EndScanner)
        return index >= len(self.starts.sequences) + len(self.scanner.plain_ends)

    def write(self, symbols: Sequence[int], forced_end: tuple[int, ...]) -> int:
        """Return the token to write first so that `symbols` are written; where no token fits, that of the whole forced end."""
        if self.symbols is None:
            return symbols[0]
        token_id = self.symbols.first_token(tuple(symbols))
        return forced_end[0] if token_id is None else token_id

    def usual_start_id(self, head: int) -> int:
        """Return the id that goes on with the first start marker that `head` is a beginning of."""
        rest = self.starts.going_on(head)[0]
        token_id = rest[0] if self.symbols is None else self.symbols.first_token(rest)
        return min(self.start_ids(head)) if token_id is None else token_id

    def start_ids(self, head: int) -> frozenset[int]:
        """Return all ids that go on with a start marker: with the whole rest of it, some of it, or more than it."""
        found = self._start_ids.get(head)
        if found is None:
            found = self._start_ids[head] = frozenset(self._find_start_ids(head))
        return found

    @property
    def single_starts(self) -> frozenset[int]:
        """Ids that are a start marker each."""
        single = [start[0] for start in self.starts.sequences if len(start) == 1]
        if self.symbols is None:
            return frozenset(single)
        return frozenset(token_id for symbol in single for token_id in self.symbols.not_text(symbol))

    def exits(self, node: int) -> tuple[Exit, ...]:
        """Return the tokens that end the thinking at `node` and are content, or hold some."""
        found = self._exits.get(node)
        if found is None:
            found = self._exits[node] = tuple(self._find_exits(node))
        return found

    def walk(self, state: State, symbols: Sequence[int]) -> tuple[State, int]:
        """Return the state after the symbols of one token, and how many of them it took to end the thinking, or all."""
        phase, head, num_head, head_offset, num_seen, node, _ = state
        used = 0
        while used < len(symbols) and head != HEAD_OVER:
            symbol = symbols[used]
            used += 1
            child = self.starts.child(head, symbol)
            if child is not None:
                head = child
                if self.starts.is_whole(child):
                    phase, node = Phase.THINKING, ROOT
                    is_last = used == len(symbols)
                    num_head, head_offset = (num_seen + 1, 0) if is_last else (num_seen, used)
                    if not self.starts.has_children(child):
                        head = HEAD_OVER
                    continue
            elif not (head == ROOT and symbol in self._blanks):
                if phase is Phase.UNDECIDED:
                    return NEVER_THOUGHT, len(symbols)
                head = HEAD_OVER
            if phase is Phase.THINKING:
                node = self.scanner.advance(node, symbol)
                hit = self.scanner.hit(node)
                if hit is not None:
                    return State(_PHASE_OF[hit.is_implicit], HEAD_OVER, num_head, head_offset, 0, node), used
        before = State(phase, head, num_head, head_offset, 0 if head == HEAD_OVER else num_seen + 1, node, state.num_thinking)
        if used == len(symbols):
            return before if before != state else state, used
        node, is_thinking, more = self._scan(node, symbols[used:])
        return self._finish(before, node, is_thinking), used + more

    def _scan(self, node: int, symbols: Sequence[int]) -> tuple[int, bool, int]:
        """The node after the symbols or at the end of the thinking, whether one of them is thinking, how many were taken."""
        scanner = self.scanner
        is_thinking = False
        for used, symbol in enumerate(symbols, 1):
            before, node = node, scanner.advance(node, symbol)
            is_thinking = is_thinking or scanner.is_thinking(before, node)
            if scanner.hit(node) is not None:
                return node, is_thinking, used
        return node, is_thinking, len(symbols)

    def _finish(self, state: State, node: int, is_thinking: bool) -> State:
        num_thinking = state.num_thinking + (is_thinking and self._counts)
        hit = self.scanner.hit(node)
        if hit is not None:
            return state._replace(phase=_PHASE_OF[hit.is_implicit], node=node, num_thinking=num_thinking)
        if node == state.node and num_thinking == state.num_thinking:
            return state
        return state._replace(node=node, num_thinking=num_thinking)

    def _find_start_ids(self, head: int) -> list[int]:
        rests = self.starts.going_on(head)
        if self.symbols is None:
            return [rest[0] for rest in rests]
        if head == ROOT:
            # A tokenizer that puts a space before the first word writes the marker with one.
            rests += [(*b" ", *rest) for rest in rests if rest[0] < FIRST_ID_SYMBOL]
        return [
            token_id
            for rest in rests
            for token_id in (*self.symbols.beginnings_of(rest), *self.symbols.beginning_with(rest))
            if not self._blanks.issuperset(self.of_token(token_id))
        ]

    def _find_exits(self, node: int) -> Iterator[Exit]:
        rests = self.scanner.rests(node)
        if self.symbols is None:
            candidates = [rest[0] for rest in rests if len(rest) == 1]
        else:
            candidates = [token_id for rest in rests for token_id in self.symbols.beginning_with(rest)]
            candidates += [token_id for whole in self.scanner.wholes(node) for token_id in self.symbols.containing(whole)]
        for token_id in dict.fromkeys(candidates):
            symbols = self.of_token(token_id)
            after, _, used = self._scan(node, symbols)
            hit = self.scanner.hit(after)
            if hit is None:
                continue
            if hit.is_implicit:
                yield Exit(token_id, self._content((*hit.content, *symbols[used:]), token_id))
            elif used < len(symbols):
                yield Exit(token_id, (bytes(symbols[used:]),))

    def _content(self, symbols: tuple[int, ...], last_token_id: int) -> Content:
        """Content that `last_token_id` is the end of."""
        if self.symbols is None:
            return (*symbols[:-1], last_token_id)
        pieces: list[int | bytes] = []
        for symbol in symbols:
            if symbol >= FIRST_ID_SYMBOL:
                pieces.append(symbol - FIRST_ID_SYMBOL)
            elif pieces and isinstance(pieces[-1], bytes):
                pieces[-1] += bytes((symbol,))
            else:
                pieces.append(bytes((symbol,)))
        return tuple(pieces)


_PHASE_OF = {False: Phase.ENDED_BY_MARKER, True: Phase.ENDED_IMPLICITLY}
