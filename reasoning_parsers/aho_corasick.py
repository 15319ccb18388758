"""Finds several sequences of symbols in one stream of them (Aho, Corasick 1975, https://doi.org/10.1145/360825.360855).

The automaton has no state of its own: the caller keeps one number, the node, so that going back is as easy as going on. A
symbol is any integer: a token id, or what `symbols.py` makes of a token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

ROOT = 0
"""The node of a stream that ends with no beginning of any sequence."""


class AhoCorasick:
    """Advances over a stream; a node stands for the longest beginning of a sequence that the stream ends with.

    Args:
        sequences: What to find; none of them empty, equal ones allowed.

    Attributes:
        depths: Per node the length of that beginning.
        found: Per node the indices of the sequences that are complete there, the longest first.
        starts: Symbols that begin a sequence.
    """

    __slots__ = ("_children", "_fails", "_table", "depths", "found", "sequences", "starts")

    def __init__(self, sequences: Sequence[tuple[int, ...]]) -> None:
        self.sequences = tuple(sequences)
        self._children: list[dict[int, int]] = [{}]
        self.depths = [0]
        self.found: list[tuple[int, ...]] = [()]
        for index, sequence in enumerate(self.sequences):
            self._insert(index, sequence)
        self._fails = [ROOT] * len(self._children)
        # Per node the next one by symbol; a symbol that is not listed leads to the root.
        self._table = [dict(self._children[ROOT])] + [{} for _ in self._children[1:]]
        self._link()
        self.starts = frozenset(self._children[ROOT])

    def advance(self, node: int, symbol: int) -> int:
        """Return the node after one more symbol. Does not change state."""
        return self._table[node].get(symbol, ROOT)

    def child(self, node: int, symbol: int) -> int | None:
        """Return the node of a beginning that is one symbol longer, or None: no falling back to shorter ones."""
        return self._children[node].get(symbol)

    def has_children(self, node: int) -> bool:
        """Whether the node stands for a beginning that some sequence goes on from."""
        return bool(self._children[node])

    def is_whole(self, node: int) -> bool:
        """Whether the node stands for a whole sequence, and not only ends with one."""
        return node != ROOT and self.longest(node) == self.depths[node]

    def longest(self, node: int) -> int:
        """Return the length of the longest sequence that is complete at a node, 0 for none."""
        return len(self.sequences[self.found[node][0]]) if self.found[node] else 0

    def suffix_nodes(self, node: int) -> list[int]:
        """The nodes of all beginnings that the stream ends with, the longest first, without the root."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self._fails[node]
        return nodes

    def rests(self, node: int) -> list[tuple[int, tuple[int, ...]]]:
        """What would complete a sequence: its index and the symbols that are missing, longest beginnings first, root last."""
        result = []
        for suffix in [*self.suffix_nodes(node), ROOT]:
            depth = self.depths[suffix]
            result += [(index, self.sequences[index][depth:]) for index in self._beginning_with(suffix)]
        return result

    def going_on(self, node: int) -> list[tuple[int, ...]]:
        """What is missing of the sequences that begin with what the node stands for."""
        return [self.sequences[index][self.depths[node] :] for index in self._beginning_with(node)]

    def _beginning_with(self, node: int) -> list[int]:
        depth = self.depths[node]
        long = (index for index, sequence in enumerate(self.sequences) if len(sequence) > depth)
        return [index for index in long if self._node_of(self.sequences[index][:depth]) == node]

    def _node_of(self, sequence: tuple[int, ...]) -> int:
        node = ROOT
        for symbol in sequence:
            node = self._children[node][symbol]
        return node

    def _insert(self, index: int, sequence: tuple[int, ...]) -> None:
        node = ROOT
        for symbol in sequence:
            following = self._children[node].get(symbol)
            if following is None:
                following = len(self._children)
                self._children[node][symbol] = following
                self._children.append({})
                self.depths.append(self.depths[node] + 1)
                self.found.append(())
            node = following
        self.found[node] += (index,)

    def _link(self) -> None:
        queue = deque(self._children[ROOT].values())
        while queue:
            node = queue.popleft()
            fail = self._fails[node]
            self.found[node] += self.found[fail]
            self._table[node] = self._table[fail] | self._children[node]
            for symbol, child in self._children[node].items():
                self._fails[child] = self._table[fail].get(symbol, ROOT)
                queue.append(child)
