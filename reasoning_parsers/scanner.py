"""Where thinking ends in a stream of symbols, as automata without state of their own.

`EndScanner` knows end markers and implicit ends; `channel_scanner.py` has the one for messages with headers. A caller keeps a
node, an integer; `ROOT` is the node of a stream in which nothing has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .aho_corasick import AhoCorasick
from .interned import Interned
from .sequence_matcher import SequenceMatcher


@dataclass(frozen=True, slots=True)
class EndMarker:
    """An end marker: `head`, or with a `tail` the head, any symbols, and the tail.

    Attributes:
        head: Ids or symbols, one or more.
        tail: What must follow somewhere after the head; () where the head is all of it.
    """

    head: tuple[int, ...]
    tail: tuple[int, ...] = ()


class Hit(NamedTuple):
    """What ended the thinking.

    Attributes:
        is_implicit: Whether it is content itself.
        num_symbols: Its length; that of the head alone for a marker with a gap.
        gap: Index of the marker with a gap, -1 for one without.
        content: An implicit end itself.
    """

    is_implicit: bool
    num_symbols: int
    gap: int = -1
    content: tuple[int, ...] = ()


class Resumption(NamedTuple):
    """How to end the thinking from here.

    Attributes:
        is_begun: Whether a part of the end is written.
        symbols: What is missing.
        takes_text: Whether more thinking may be written before it.
    """

    is_begun: bool
    symbols: tuple[int, ...]
    takes_text: bool = True


class Scanner(Protocol):
    """What the gate asks; nothing changes state."""

    @property
    def turning_symbols(self) -> frozenset[int]:
        """Symbols that lead away from the root."""
        ...

    def advance(self, node: int, symbol: int) -> int:
        """Return the node after one more symbol."""
        ...

    def hit(self, node: int) -> Hit | None:
        """Return what has just ended the thinking."""
        ...

    def is_thinking(self, before: int, after: int) -> bool:
        """Whether the symbol between two nodes is thinking, and no part of a header or of a frame."""
        ...

    def resume(self, node: int) -> Resumption:
        """Say how to end the thinking from `node`."""
        ...

    def rests(self, node: int) -> list[tuple[int, ...]]:
        """Return what may follow so that a token in which it is completed may end the thinking."""
        ...

    def wholes(self, node: int) -> list[tuple[int, ...]]:
        """Return what may end the thinking inside a token, whatever is begun."""
        ...


class EndScanner:
    """Finds the end that completes first; of those that complete together one with a gap, else the longest.

    Args:
        ends: End markers, the one to write when the thinking is to be ended first.
        implicit_ends: Sequences that end the thinking and are content.
        forced_end: What to write instead of the first end marker; () for that one.

    Attributes:
        plain_ends: The end markers without a gap.
        implicit_ends: The implicit ends.
        turning_symbols: Symbols that lead away from the root.
    """

    def __init__(
        self,
        ends: Sequence[EndMarker],
        implicit_ends: Iterable[tuple[int, ...]] = (),
        forced_end: tuple[int, ...] = (),
    ) -> None:
        self.plain_ends = tuple(end.head for end in ends if not end.tail)
        self._gapped = tuple(end for end in ends if end.tail)
        self.implicit_ends = implicit = tuple(implicit_ends)
        self._tails = tuple(SequenceMatcher(end.tail) for end in self._gapped)
        heads = tuple(end.head for end in self._gapped)
        self._automaton = AhoCorasick((*self.plain_ends, *heads, *implicit))
        self._first_head = len(self.plain_ends)
        self._first_implicit = len(self.plain_ends) + len(heads)
        self._forced_end = forced_end or ends[0].head + ends[0].tail
        self.turning_symbols = self._automaton.starts
        # Nodes are those of the automaton until the first gap opens; further ones stand for (its node, tail progress).
        self._num_plain_nodes = len(self._automaton.depths)
        self._with_gap = Interned[tuple[int, tuple[int, ...]]](self._num_plain_nodes)
        self._plain_hits = [self._plain_hit(found) for found in self._automaton.found]
        self._opens = [any(self._is_head(index) for index in found) for found in self._automaton.found]

    def advance(self, node: int, symbol: int) -> int:
        """Return the node after one more symbol."""
        if node < self._num_plain_nodes:
            node = self._automaton.advance(node, symbol)
            return self._open_gaps(node, (-1,) * len(self._gapped)) if self._opens[node] else node
        before, progress = self._with_gap.value_of(node)
        progress = tuple(
            tail.advance(matched, symbol) if matched >= 0 else -1 for tail, matched in zip(self._tails, progress, strict=True)
        )
        return self._open_gaps(self._automaton.advance(before, symbol), progress)

    def hit(self, node: int) -> Hit | None:
        """Return what has just ended the thinking."""
        if node < self._num_plain_nodes:
            return self._plain_hits[node]
        plain, progress = self._with_gap.value_of(node)
        for gap, (end, matched) in enumerate(zip(self._gapped, progress, strict=True)):
            if matched == len(end.tail):
                return Hit(False, len(end.head), gap)
        return self._plain_hits[plain]

    def is_thinking(self, before: int, after: int) -> bool:
        """Every symbol is; those of the marker are taken off when it is complete."""
        return True

    def resume(self, node: int) -> Resumption:
        """Go on with the marker that is furthest, else write the whole of the first one."""
        plain, progress = self._parts(node)
        for end, matched in zip(self._gapped, progress, strict=True):
            if matched >= 0:
                return Resumption(True, end.tail[matched:])
        for index, rest in self._automaton.rests(plain):
            length = len(self._automaton.sequences[index])
            if index < self._first_implicit and len(rest) < length:
                return Resumption(True, rest + self._gapped[index - self._first_head].tail if self._is_head(index) else rest)
        return Resumption(False, self._forced_end)

    def rests(self, node: int) -> list[tuple[int, ...]]:
        """Return what may follow so that the thinking ends, or a gap opens."""
        plain, progress = self._parts(node)
        result = [rest for _, rest in self._automaton.rests(plain)]
        for tail, matched in zip(self._tails, progress, strict=True):
            if matched >= 0:
                result += tail.rests(matched)
        return result

    def wholes(self, node: int) -> list[tuple[int, ...]]:
        """Return what ends the thinking by itself or opens a gap, whatever is begun."""
        tails = (end.tail for end, is_open in zip(self._gapped, self.open_gaps(node), strict=True) if is_open)
        return [*self._automaton.sequences, *tails]

    def num_unfinished(self, node: int) -> int:
        """Symbols at the end of the stream that may yet become a marker, the gaps aside."""
        return self._automaton.depths[self._parts(node)[0]]

    def open_gaps(self, node: int) -> tuple[bool, ...]:
        """Which of the markers with a gap have their head."""
        return tuple(matched >= 0 for matched in self._parts(node)[1])

    def head_len(self, gap: int) -> int:
        """Length of the head of a marker with a gap."""
        return len(self._gapped[gap].head)

    def _parts(self, node: int) -> tuple[int, tuple[int, ...]]:
        if node < self._num_plain_nodes:
            return node, (-1,) * len(self._gapped)
        return self._with_gap.value_of(node)

    def _is_head(self, index: int) -> bool:
        return self._first_head <= index < self._first_implicit

    def _plain_hit(self, found: tuple[int, ...]) -> Hit | None:
        ends = (index for index in found if not self._is_head(index))
        first = next(ends, None)
        if first is None:
            return None
        sequence = self._automaton.sequences[first]
        is_implicit = first >= self._first_implicit
        return Hit(is_implicit, len(sequence), content=sequence if is_implicit else ())

    def _open_gaps(self, plain: int, progress: tuple[int, ...]) -> int:
        opened = {index - self._first_head for index in self._automaton.found[plain] if self._is_head(index)}
        if opened:
            progress = tuple(0 if gap in opened and matched < 0 else matched for gap, matched in enumerate(progress))
        return self._with_gap.number_of((plain, progress))
