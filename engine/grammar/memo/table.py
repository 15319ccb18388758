"""The states that answers of one grammar were seen in, what is known of each, and the memory that all grammars share for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt

from ..string_fit import StringFit
from .answer_states import STRING, AnswerState, Frames, Strings, advance, start_state
from .shapes import Shapes

_TABLE_BYTES = 4000
_STATE_BYTES = 1000
_STEP_BYTES = 100
MOST_STEPS = 2048
"""Tokens that are remembered behind one state; a string without a bound is left by each of them to itself."""

Row = npt.NDArray[np.int32]


class Known:
    """What is known of a state.

    Attributes:
        state: The state; None for one that cannot be followed.
        is_kept: Whether anything may be remembered of it.
        row: Its mask, int32 `(words,)`, contiguous, not to be changed; None where it is not known.
        view: The row as memory, which copies in a tenth of the time.
        steps: What follows each token that the grammar was seen to take.
        forced: Forced tokens, if they were asked for.
        is_completed: Whether a value is whole there, if that was asked for.
    """

    __slots__ = ("forced", "is_completed", "is_kept", "row", "state", "steps", "view")

    def __init__(self, state: AnswerState | None, *, is_kept: bool) -> None:
        self.state = state
        self.is_kept = is_kept
        self.row: Row | None = None
        self.view: memoryview | None = None
        self.steps: dict[int, Known] = {}
        self.forced: tuple[int, ...] | None = None
        self.is_completed: bool | None = None


LOST = Known(None, is_kept=False)
"""Where nothing is known any more; shared by all, and never written to."""


class StateTable:
    """The states of one compiled grammar under one set of stop ids.

    Args:
        memo: The memory.
        shapes: What an answer may be.
        base_bytes: What the shapes take.
    """

    def __init__(self, memo: MaskMemo, shapes: Shapes, base_bytes: int) -> None:
        self._memo = memo
        self._token_bytes = memo.token_bytes
        self._fit = memo.fit
        # By the place of a bounded string how much room there is, and the mask there, behind its least length.
        self._free: dict[Frames, tuple[int, Row]] = {}
        self._states: dict[AnswerState, Known] = {}
        self._with_row: list[Known] = []
        self._start = start_state(shapes)
        self.num_bytes = 0
        self._charge(_TABLE_BYTES + base_bytes)

    @property
    def start(self) -> Known:
        """The state before an answer."""
        return self._known(self._start)

    def after(self, known: Known, token_id: int) -> Known:
        """Give the state behind a token that the grammar takes, and remember the step."""
        if known.state is None or not 0 <= token_id < len(self._token_bytes):
            return LOST
        found = self.after_bytes(known, self._token_bytes[token_id])
        if known.is_kept:
            if len(known.steps) >= MOST_STEPS:
                self._charge(-_STEP_BYTES * len(known.steps))
                known.steps.clear()
            known.steps[token_id] = found
            self._charge(_STEP_BYTES)
        return found

    def after_bytes(self, known: Known, data: bytes) -> Known:
        """Give the state behind text that the grammar takes."""
        if known.state is None or not data:
            return LOST
        state = advance(known.state, data)
        return LOST if state is None else self._known(state)

    def row(self, known: Known) -> Row | None:
        """Give the mask of a state, if it is known or follows from one that is; not to be changed."""
        if known.row is None and known.is_kept:
            self._derive_row(known)
        return known.row

    def keep(self, known: Known, row: Row) -> None:
        """Keep a copy of the mask of a state."""
        if not known.is_kept or known.row is not None:
            return
        row = row.copy()
        self._set_row(known, row, row.nbytes)
        state = known.state
        if state is not None and (bounds := _bounds(state)) is not None and len(row) == self._fit.num_words:
            need, room = bounds
            if not need and room > self._free.get(state.frames, (-1, row))[0]:
                self._free[state.frames] = (room, row)

    def forget(self) -> None:
        """Let everything go; matchers that hold a state of before go on, and what they find is kept and counted anew."""
        for known in self._with_row:
            known.row = known.view = None
        for known in self._states.values():
            known.steps.clear()
        self._with_row = []
        self._states = {}
        self._free = {}
        self.num_bytes = 0

    def _derive_row(self, known: Known) -> None:
        """In a bounded string that is legal which is legal where there is more room, and fits."""
        state = known.state
        free = self._free.get(state.frames) if state is not None else None
        bounds = _bounds(state) if state is not None else None
        if free is None or bounds is None or bounds[1] > free[0]:
            return
        need, room = bounds
        if not need and room >= self._fit.longest:
            self._set_row(known, free[1], 0)
        else:
            row = free[1] & self._fit.row(need, room)
            self._set_row(known, row, row.nbytes)

    def _set_row(self, known: Known, row: Row, num_bytes: int) -> None:
        known.row = row
        known.view = row.data
        self._with_row.append(known)
        self._charge(num_bytes)

    def _known(self, state: AnswerState) -> Known:
        known = self._states.get(state)
        if known is None:
            known = Known(state, is_kept=state.is_shared)
            if known.is_kept:
                self._states[state] = known
                self._charge(_STATE_BYTES)
        return known

    def _charge(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        self._memo.charge(self, num_bytes)


def _bounds(state: AnswerState) -> tuple[int, int] | None:
    """Give the characters that must and may follow in a bounded string, between two characters; None elsewhere."""
    if state.mode != STRING or state.text:
        return None
    assert isinstance(state.detail, Strings)
    need, room = state.detail
    return None if room is None else (need, room)


class MaskMemo:
    """The memory of all tables of an engine; what was used longest ago is forgotten, a whole table at a time.

    Args:
        max_bytes: Cap of all tables together.
        token_bytes: Bytes of every id of the engine's vocabulary; reading them takes some hundred milliseconds, once.

    Attributes:
        fit: Which tokens fit into bounded strings.
        num_bytes: What they take, by estimate.
        num_hits: Rows that were known.
        num_misses: Rows that a backend was asked for.
    """

    def __init__(self, max_bytes: int, token_bytes: Sequence[bytes]) -> None:
        self.max_bytes = max_bytes
        self.token_bytes = token_bytes
        self.fit = StringFit(token_bytes)
        self.num_bytes = 0
        self.num_hits = 0
        self.num_misses = 0
        self._tables: OrderedDict[StateTable, None] = OrderedDict()
        self._lock = Lock()

    def use(self, table: StateTable) -> None:
        """Say that a sequence begins in a table."""
        with self._lock:
            self._tables[table] = None
            self._tables.move_to_end(table)

    def charge(self, table: StateTable, num_bytes: int) -> None:
        """Take the change of a table's size; others, or at last the table itself, make room."""
        with self._lock:
            self.num_bytes += num_bytes
            self._tables.setdefault(table)
            while self.num_bytes > self.max_bytes and self._tables:
                oldest, _ = self._tables.popitem(last=False)
                self.num_bytes -= oldest.num_bytes
                oldest.forget()
