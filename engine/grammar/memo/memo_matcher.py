"""A matcher that asks another one only where an answer comes into a state that was not met before.

Masks of known states are copied, and tokens that a known mask or step allows are not even told to the matcher behind, until it
is asked again: then it takes them all at once.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import torch

from ...errors import GrammarError, GrammarLimitError
from ..bitmask import get_bit
from ..killable_compiler import PortableBackend
from ..matcher import CompiledGrammar, GrammarBackend, Matcher, RowFiller, Stepper
from .shapes import ShapeReader, Shapes
from .table import LOST, Known, MaskMemo, Row, StateTable

if TYPE_CHECKING:
    from ..spec import GrammarSpec

MOST_UNTOLD = 64
"""Tokens that the matcher behind is not told at once, so that no step has many to catch up on."""
_MOST_TABLES = 4
_SHAPE_BYTES = 20


def share_masks(compiled: CompiledGrammar, backend: GrammarBackend, spec: GrammarSpec, memo: MaskMemo) -> CompiledGrammar | None:
    """Give a grammar whose sequences share what they find out; None where nothing could be shared.

    Args:
        compiled: The grammar.
        backend: What compiled it.
        spec: Of what; only states of JSON schemas are followed.
        memo: Where it is kept, of the backend's vocabulary.
    """
    if spec.kind != "json_schema" or not isinstance(backend, PortableBackend):
        return None
    if spec.any_order:  # what may follow depends on all names so far
        return None
    if backend.vocabulary.token_bytes is not memo.token_bytes:
        return None
    shapes = ShapeReader(json.loads(spec.source)).root
    if not shapes:
        return None
    return _MemoCompiled(compiled, MemoFiller(backend, memo), shapes, _SHAPE_BYTES * len(spec.source), memo)


class _MemoCompiled:
    """A compiled grammar whose sequences share what they find out; see the protocol `CompiledGrammar`."""

    def __init__(self, compiled: CompiledGrammar, filler: MemoFiller, shapes: Shapes, base_bytes: int, memo: MaskMemo) -> None:
        self._compiled = compiled
        self._filler = filler
        self._shapes = shapes
        self._base_bytes = base_bytes
        self._memo = memo
        # By stop ids, which are in the masks.
        self._tables: dict[tuple[int, ...], StateTable] = {}

    @property
    def memory_size_bytes(self) -> int:
        return self._compiled.memory_size_bytes

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        key = tuple(sorted(stop_token_ids))
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) >= _MOST_TABLES:
                self._tables.clear()
            table = self._tables[key] = StateTable(self._memo, self._shapes, self._base_bytes)
        self._memo.use(table)
        return MemoMatcher(self._filler, self._compiled.new_matcher(stop_token_ids), table, frozenset(key))


class Target:
    """Where single rows were written last, kept open: to ask a tensor for its memory takes longer than all else.

    Attributes:
        bitmask: The tensor.
        address: Where its memory was.
        num_words: Words of a row.
        rows: Its rows.
    """

    __slots__ = ("address", "bitmask", "num_words", "rows")

    def __init__(self, bitmask: torch.Tensor) -> None:
        self.bitmask = bitmask
        self.address = bitmask.data_ptr()
        self.num_words = bitmask.shape[1]
        self.rows = [memoryview(row) for row in bitmask.numpy()]


class MemoFiller:
    """Fills rows of known states itself, and has a backend fill the others; see the protocol `RowFiller`."""

    def __init__(self, backend: RowFiller, memo: MaskMemo) -> None:
        self._backend = backend
        self._memo = memo
        self.target = Target(torch.empty((0, 0), dtype=torch.int32))

    def fill_bitmasks(self, matchers: Sequence[Matcher], bitmask: torch.Tensor, rows: Sequence[int]) -> None:
        """Fill rows; see the protocol."""
        words = bitmask.numpy()
        missing: dict[Known, list[tuple[MemoMatcher, int]]] = {}
        for matcher, row in zip(matchers, rows, strict=True):
            assert isinstance(matcher, MemoMatcher)
            if not matcher.copy_row(words, row):
                missing.setdefault(matcher.known, []).append((matcher, row))
        self._memo.num_hits += len(rows)
        # Of sequences in one state the first one finds out for all, if it is a state that is kept.
        self._ask([group[0] for group in missing.values()], bitmask)
        others = [one for group in missing.values() for one in group[1:]]
        self._ask([(matcher, row) for matcher, row in others if not matcher.copy_row(words, row)], bitmask)

    def _ask(self, missing: Sequence[tuple[MemoMatcher, int]], bitmask: torch.Tensor) -> None:
        if missing:
            self._memo.num_misses += len(missing)
            self._memo.num_hits -= len(missing)
            self._backend.fill_bitmasks([matcher.told() for matcher, _ in missing], bitmask, [row for _, row in missing])
            words = bitmask.numpy()
            for matcher, row in missing:
                matcher.keep_row(words[row])


class MemoMatcher(Stepper):
    """See the protocol `Matcher`.

    Args:
        filler: What its batches go to.
        inner: The matcher behind, at the start.
        table: What is known of the grammar.
        stop_token_ids: Ids that end the answer.
    """

    def __init__(self, filler: MemoFiller, inner: Matcher, table: StateTable, stop_token_ids: frozenset[int]) -> None:
        self.backend = filler
        self._inner = inner
        self._table = table
        self._stop_token_ids = stop_token_ids
        # The state after each step, and the tokens of the last steps that the matcher behind was not told.
        self._path: list[Known] = [table.start]
        self._untold: list[int] = []
        self._error: GrammarError | None = None

    @property
    def error(self) -> GrammarError | None:
        return self._error or self._inner.error

    @property
    def state(self) -> Hashable:
        known = self._path[-1]
        return known.state if known.is_kept else None

    def accept_bytes(self, data: bytes) -> bool:
        if not data:
            return True
        told = self.told()
        if self._error is not None or not told.accept_bytes(data):
            return False
        self._path.append(self._table.after_bytes(self._path[-1], data))
        return True

    def rollback(self, num_steps: int) -> None:
        if num_steps >= len(self._path):
            raise ValueError(f"cannot undo {num_steps} of {len(self._path) - 1} steps")
        if not num_steps:
            return
        del self._path[-num_steps:]
        num_untold = min(num_steps, len(self._untold))
        if num_untold:
            del self._untold[-num_untold:]
        self._inner.rollback(num_steps - num_untold)
        self._error = None

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        known = self._path[-1]
        view = known.view
        if view is None and self._table.row(known) is not None:
            view = known.view
        if view is not None and self._error is None:
            target = self.backend.target
            if target.bitmask is not bitmask or target.address != bitmask.data_ptr():
                target = self.backend.target = Target(bitmask)
            if len(view) == target.num_words and 0 <= row < len(target.rows):
                target.rows[row][:] = view
                return
        self.told().fill_bitmask(bitmask, row)
        self.keep_row(bitmask.numpy()[row])

    @property
    def known(self) -> Known:
        """What is known of this state."""
        return self._path[-1]

    def copy_row(self, table: Row, row: int) -> bool:
        """Write the mask of this state to a row of a table, if it is known and as wide; whether it was."""
        kept = self._table.row(self._path[-1]) if self._error is None else None
        if kept is None or len(kept) != table.shape[1]:
            return False
        table[row] = kept
        return True

    def keep_row(self, words: Row) -> None:
        """Keep the mask that the matcher behind wrote for this state."""
        if self.error is not None:
            words[:] = 0
        else:
            self._table.keep(self._path[-1], words)

    def forced_tokens(self) -> list[int]:
        known = self._path[-1]
        if known.forced is not None:
            return list(known.forced)
        forced = self.told().forced_tokens()
        if known.is_kept and self.error is None:
            known.forced = tuple(forced)
        return forced

    def is_completed(self) -> bool:
        known = self._path[-1]
        if known.is_completed is not None:
            return known.is_completed
        is_completed = self.told().is_completed()
        if known.is_kept and self.error is None:
            known.is_completed = is_completed
        return is_completed

    def is_terminated(self) -> bool:
        # A stop id is always told.
        return not self._untold and self._inner.is_terminated()

    def _part(self) -> None:
        self._inner = self._inner.fork()
        self._path = self._path.copy()
        self._untold = self._untold.copy()

    def reset(self) -> None:
        self.rollback(len(self._path) - 1)

    def told(self) -> Matcher:
        """Give the matcher behind, in this state."""
        if self._untold and self._error is None:
            if self._inner.accept_tokens(self._untold):
                self._untold.clear()
            else:
                self._error = self._why_refused()
        return self._inner

    def _why_refused(self) -> GrammarError:
        """Give the error that the matcher behind meets at an untold token; it is left in front of all of them."""
        # One by one, since to undo those before it takes the error away.
        refused = (i for i, token_id in enumerate(self._untold) if not self._inner.accept_tokens([token_id]))
        count = next(refused, len(self._untold))
        error = self._inner.error
        self._inner.rollback(count)
        return error or GrammarLimitError("the grammar refused a token that its mask allowed")

    def _advance(self, token_ids: Sequence[int]) -> int:
        """Accept the longest prefix that the grammar takes, and give its length."""
        for count, token_id in enumerate(token_ids):
            if not self._accept(token_id):
                return count
        return len(token_ids)

    def _accept(self, token_id: int) -> bool:
        known = self._path[-1]
        after = known.steps.get(token_id)
        if after is None:
            row = self._table.row(known)
            is_stop = token_id in self._stop_token_ids
            if row is None or is_stop:
                told = self.told()
                if self._error is not None or not told.accept_tokens([token_id]):
                    return False
                self._path.append(LOST if is_stop else self._table.after(known, token_id))
                return True
            if token_id < 0 or not get_bit(row, token_id):
                return False
            after = self._table.after(known, token_id)
        if self._error is not None:
            return False
        self._path.append(after)
        self._untold.append(token_id)
        if len(self._untold) >= MOST_UNTOLD:
            self.told()
            if self._untold:  # refused
                self._path.pop()
                self._untold.pop()
                return False
        return True
