"""The states that answers of one grammar were seen in, what is known of each, and the memory that all grammars share for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt

from ..string_fit import StringFit
from .answer_states import STRING, AnswerState, Strings, advance, start_state
from .shapes import Shapes

_STATE_BYTES = 1000
_STEP_BYTES = 100
MOST_STEPS = 2048
"""Tokens that are remembered behind one state; a string without a bound is left by each of them to itself."""

Row = npt.NDArray[np.int32]


class Slot:
    """A mask; states share one where no token reaches as far as they differ.

    Attributes:
        row: int32 `(words,)`, not to be changed; None where it is not kept.
        address: Where it lies in memory; asking NumPy takes longer than copying.
    """

    __slots__ = ("address", "row")

    def __init__(self) -> None:
        self.row: Row | None = None
        self.address = 0

    def keep(self, row: Row) -> None:
        """Keep a copy of a mask."""
        self.row = row.copy()
        self.address = self.row.ctypes.data


class Known:
    """What is known of a state.

    Attributes:
        state: The state; None for one that cannot be followed.
        slot: Its mask.
        steps: What follows each token that the grammar was seen to take.
        forced: Forced tokens, if they were asked for.
        is_completed: Whether a value is whole there, if that was asked for.
    """

    __slots__ = ("forced", "is_completed", "slot", "state", "steps")

    def __init__(self, state: AnswerState | None, slot: Slot | None) -> None:
        self.state = state
        self.slot = slot
        self.steps: dict[int, Known] = {}
        self.forced: tuple[int, ...] | None = None
        self.is_completed: bool | None = None


LOST = Known(None, None)
"""Where nothing may be kept; shared by all, and never written to."""


class StateTable:
    """The states of one compiled grammar under one set of stop ids.

    Args:
        memo: The memory.
        shapes: What an answer may be.
        token_bytes: Bytes of every id.
        base_bytes: What the shapes take.
    """

    def __init__(self, memo: MaskMemo, shapes: Shapes, token_bytes: Sequence[bytes], base_bytes: int) -> None:
        self._memo = memo
        self._token_bytes = token_bytes
        # The longest token, in characters or more, and one for the quote behind it.
        self._fit, longest = memo.fit_of(token_bytes)
        self._reach = longest + 1
        # By string, without regard to its length, the kept mask that lets most through.
        self._widest: dict[AnswerState, tuple[Strings, Slot]] = {}
        self._states: dict[AnswerState, Known] = {}
        self._slots: dict[AnswerState, Slot] = {}
        self._kept: list[Slot] = []
        self._start = start_state(shapes)
        self.num_bytes = 0
        self._charge(base_bytes)

    @property
    def start(self) -> Known:
        """The state before an answer."""
        return self._known(self._start)

    def after(self, known: Known, token_id: int) -> Known:
        """Give the state behind a token that the grammar takes, and remember the step."""
        if known.state is None or not 0 <= token_id < len(self._token_bytes):
            return LOST
        found = self.after_bytes(known, self._token_bytes[token_id])
        if known.slot is not None:
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

    def keep(self, known: Known, row: Row) -> None:
        """Keep a copy of the mask of a state."""
        slot = known.slot
        if slot is None or slot.row is not None:
            return
        slot.keep(row)
        self._kept.append(slot)
        self._charge(row.nbytes)
        if known.state is not None and _is_at_whole_character(known.state):
            bounds = _bounds(self._near(known.state))
            string = known.state._replace(detail=None)
            widest = self._widest.get(string)
            if widest is None or _openness(bounds) > _openness(widest[0]):
                self._widest[string] = bounds, slot

    def derive(self, known: Known) -> None:
        """Find the mask of a state from that of the same string with fewer bounds, where there is one, and keep it."""
        if known.state is None or not _is_at_whole_character(known.state):
            return
        bounds, slot = self._widest.get(known.state._replace(detail=None), _NOTHING)
        need, room = _bounds(self._near(known.state))
        if slot.row is None or room is None or bounds.need > need or (bounds.room is not None and bounds.room < room):
            return
        row = slot.row.copy()
        fitting = self._fit.row(need, room)
        row[: len(fitting)] &= fitting[: len(row)]
        self.keep(known, row)

    def forget(self) -> None:
        """Let everything go; matchers that hold a state of before go on, and what they find is kept and counted anew."""
        for slot in self._kept:
            slot.row = None
        for known in self._states.values():
            known.steps.clear()
        self._kept = []
        self._widest = {}
        self._states = {}
        self._slots = {}
        self.num_bytes = 0

    def _known(self, state: AnswerState) -> Known:
        known = self._states.get(state)
        if known is None:
            if not state.is_shared:
                return Known(state, None)
            known = self._states[state] = Known(state, self._slots.setdefault(self._near(state), Slot()))
            self._charge(_STATE_BYTES)
        return known

    def _near(self, state: AnswerState) -> AnswerState:
        """Give the state that stands for all whose masks are the same: bounds that no token reaches are one."""
        if state.mode != STRING:
            return state
        need, room = _bounds(state)
        return state._replace(detail=Strings(min(need, self._reach), room if room is None else min(room, self._reach)))

    def _charge(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        self._memo.charge(self, num_bytes)


def _is_at_whole_character(state: AnswerState) -> bool:
    return state.mode == STRING and not state.text


def _bounds(state: AnswerState) -> Strings:
    assert isinstance(state.detail, Strings)
    return state.detail


def _openness(bounds: Strings) -> tuple[int, float]:
    return -bounds.need, float("inf") if bounds.room is None else bounds.room


_NOTHING = Strings(0, None), Slot()


class MaskMemo:
    """The memory of all tables of an engine; what was used longest ago is forgotten, a whole table at a time.

    Args:
        max_bytes: Cap of all tables together.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._tables: OrderedDict[StateTable, None] = OrderedDict()
        self._fit: tuple[Sequence[bytes], StringFit, int] | None = None
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

    def fit_of(self, token_bytes: Sequence[bytes]) -> tuple[StringFit, int]:
        """Give what fits into strings, and the length of the longest token in bytes; an engine has one vocabulary."""
        if self._fit is None or self._fit[0] is not token_bytes:
            self._fit = (token_bytes, StringFit(token_bytes), max(map(len, token_bytes), default=0))
        return self._fit[1:]
