"""Which logits rows the grammars mask, and the masks themselves: the three rulers in one place.

Ruler 1 is the order of the batch, ruler 2 the logits rows (`1 + drafts` per sequence), ruler 3 the rows of the compact mask
table, which exist for constrained rows only. `row_index` lines them up.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch

from reasoning_parsers import Bounds, Content, ReasoningGate

from .errors import EngineError, GrammarDeadEndError
from .grammar import Matcher, apply_token_bitmask_inplace, new_bitmask
from .grammar.bitmask import BitmaskPool, set_bits_inplace
from .grammar.matcher import fill_bitmasks


class GatedSequence(Protocol):
    """What a mask depends on: a sequence of the engine, or a row of someone else's decoding loop."""

    @property
    def request_id(self) -> str:
        """The name of the request, for errors."""
        ...

    @property
    def gate(self) -> ReasoningGate:
        """The gate, all of `token_ids` committed."""
        ...

    @property
    def matcher(self) -> Matcher | None:
        """The grammar's state, or None for free text."""
        ...

    @property
    def token_ids(self) -> list[int]:
        """Generated ids."""
        ...

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Ids that end the answer."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """Logits rows of one sequence: one for its next token, and one for the token after each draft.

    Attributes:
        sequence: Whose rows they are.
        draft_token_ids: Ids that the model saw behind the last token. Where the gate is undecided there are none.
    """

    sequence: GatedSequence
    draft_token_ids: tuple[int, ...] = ()

    @property
    def num_rows(self) -> int:
        """Logits rows."""
        return 1 + len(self.draft_token_ids)


class RowSpan(NamedTuple):
    """Logits rows of one sequence: `num_rows` rows from `first_row`, of which those from `constraint_start` on are masked."""

    first_row: int
    num_rows: int
    constraint_start: int


def row_index(spans: SequenceOf[RowSpan]) -> list[tuple[int, int]]:
    """Give (position in `spans`, logits row) of every masked row, in the order of the compact table."""
    return [
        (position, span.first_row + offset)
        for position, span in enumerate(spans)
        for offset in range(min(span.constraint_start, span.num_rows), span.num_rows)
    ]


def row_spans(windows: SequenceOf[Window], bounds: SequenceOf[Bounds]) -> list[RowSpan]:
    """Line the windows up with the logits rows, which hold one window after the other."""
    spans: list[RowSpan] = []
    first_row = 0
    for window, bound in zip(windows, bounds, strict=True):
        spans.append(RowSpan(first_row, window.num_rows, bound.constraint_start))
        first_row += window.num_rows
    return spans


@dataclass(frozen=True, slots=True)
class StepMasks:
    """The masks of one step, filled without the logits, so that a device can compute them meanwhile.

    Attributes:
        bitmask: int32 `(num_rows, words)` on the CPU, rows of the grammars only; None where no grammar rules a row.
        rows: The logits row of each.
        denied: (logits row, token id) of doors that are closed besides.
        first_rows: First logits row of each window.
    """

    bitmask: torch.Tensor | None
    rows: list[int]
    denied: list[tuple[int, int]]
    first_rows: list[int]

    def take(self, windows: SequenceOf[Window], positions: SequenceOf[int]) -> tuple[list[int], StepMasks]:
        """Give the logits rows of some windows, and the masks as those rows alone need them.

        Args:
            windows: That these are the masks of.
            positions: Of those wanted among them, ascending.
        """
        spans = [(self.first_rows[position], windows[position].num_rows) for position in positions]
        rows = [row for first_row, num_rows in spans for row in range(first_row, first_row + num_rows)]
        places = {row: place for place, row in enumerate(rows)}
        kept = [mask_row for mask_row, row in enumerate(self.rows) if row in places]
        taken = StepMasks(
            self.bitmask[kept] if self.bitmask is not None and kept else None,
            [places[self.rows[mask_row]] for mask_row in kept],
            [(places[row], token_id) for row, token_id in self.denied if row in places],
            [places[first_row] for first_row, _ in spans],
        )
        return rows, taken

    def dead_ends(self, windows: SequenceOf[Window]) -> dict[str, EngineError]:
        """Give errors by request id: of sequences whose next token the grammar rules, and leaves none.

        Args:
            windows: That these are the masks of.
        """
        if self.bitmask is None:
            return {}
        # NumPy, since PyTorch would wake threads of its own for this; bytes as truth values, which end at the first that is set.
        is_empty = ~self.bitmask.numpy().view(np.bool_).any(axis=1)
        empty = {self.rows[mask_row] for mask_row in np.flatnonzero(is_empty).tolist()}
        return {
            window.sequence.request_id: _dead_end(window.sequence)
            for window, first_row in zip(windows, self.first_rows, strict=True)
            if first_row in empty
        }

    def mask_rows(self, rows: SequenceOf[int]) -> list[int]:
        """Give the row of the table for each logits row, or -1 where no grammar rules."""
        places = {row: mask_row for mask_row, row in enumerate(self.rows)}
        return [places.get(row, -1) for row in rows]

    def with_denied(self, rows: SequenceOf[int], token_ids: SequenceOf[SequenceOf[int]]) -> SequenceOf[SequenceOf[int]]:
        """Add the doors that are closed to the ids of each logits row."""
        if not self.denied:
            return token_ids
        closed: dict[int, list[int]] = {}
        for row, token_id in self.denied:
            closed.setdefault(row, []).append(token_id)
        return [(*ids, *closed.get(row, ())) for row, ids in zip(rows, token_ids, strict=True)]

    def apply(self, logits: torch.Tensor) -> None:
        """Mask logits, float `(sum of num_rows, vocab_size)`, in place: one transfer, one kernel, other rows untouched."""
        if self.bitmask is not None and self.rows:
            rows = torch.tensor(self.rows, dtype=torch.long).to(logits.device, non_blocking=True)
            apply_token_bitmask_inplace(logits, self.bitmask.to(logits.device, non_blocking=True), rows)
        if self.denied:
            places = torch.tensor(self.denied, dtype=torch.long).to(logits.device, non_blocking=True)
            logits.index_put_((places[:, 0], places[:, 1]), torch.tensor(float("-inf"), device=logits.device))


def fill_masks(
    windows: SequenceOf[Window], vocab_size: int, *, pin_memory: bool = False, pool: BitmaskPool | None = None
) -> StepMasks:
    """Fill the masks of the rows whose token a grammar rules, and close the doors of the others.

    A thinking row of a constrained sequence loses its stop ids, since to stop while thinking is to leave without an answer, and
    the tokens that would end the thinking with something that the grammar refuses. A free one loses the start marker once a
    budget has ended its thinking. Rows behind a draft that the grammar refuses deny everything; that draft cannot be chosen, so
    they are never read.

    Args:
        windows: One after the other, in the order of the logits rows. Their gates and matchers are as before afterwards.
        vocab_size: Columns of the logits.
        pin_memory: Whether the table will be copied to a device.
        pool: Where the table is taken from; None makes a new one.
    """
    bounds = [_bounds(window) for window in windows]
    spans = row_spans(windows, bounds)
    index = row_index(spans)
    bitmask: torch.Tensor | None = None
    if index:
        is_pooled = pool is not None and pool.vocab_size == vocab_size
        bitmask = pool.take(len(index)) if pool and is_pooled else new_bitmask(len(index), vocab_size, pin_memory=pin_memory)
        _fill(bitmask, windows, bounds, index, spans)
    first_rows = [span.first_row for span in spans]
    return StepMasks(bitmask, [row for _, row in index], _denied(windows, spans), first_rows)


def mask_logits(logits: torch.Tensor, windows: SequenceOf[Window]) -> dict[str, EngineError]:
    """Fill the masks, apply them, and give the errors; see `fill_masks`."""
    masks = fill_masks(windows, logits.shape[1], pin_memory=logits.is_cuda)
    masks.apply(logits)
    return masks.dead_ends(windows)


def _bounds(window: Window) -> Bounds:
    if window.sequence.matcher is None:
        return Bounds(window.num_rows, window.num_rows)
    return window.sequence.gate.bounds(window.draft_token_ids)


def _fill(
    bitmask: torch.Tensor,
    windows: SequenceOf[Window],
    bounds: SequenceOf[Bounds],
    index: list[tuple[int, int]],
    spans: SequenceOf[RowSpan],
) -> None:
    """Fill the masked rows level by level: all first rows, all rows after one draft, and so on; then take the drafts back."""
    mask_rows = {(position, row - spans[position].first_row): mask_row for mask_row, (position, row) in enumerate(index)}
    states = {position: _FillState.begin(windows[position], bounds[position]) for position in dict(index)}
    for level in range(max(spans[position].num_rows for position in states)):
        live = [position for position, state in states.items() if state.is_live and level < spans[position].num_rows]
        due = [position for position in live if (position, level) in mask_rows]
        fill_bitmasks([states[position].matcher for position in due], bitmask, [mask_rows[position, level] for position in due])
        for position in live:
            states[position].advance(level)
    for position, state in states.items():
        if state.num_steps:
            state.matcher.rollback(state.num_steps)
        if state.start_ids:
            set_bits_inplace(bitmask.numpy()[mask_rows[position, 0]], tuple(state.start_ids))


@dataclass(slots=True)
class _FillState:
    """Where a matcher stands while the rows of its window are filled."""

    matcher: Matcher
    draft_token_ids: tuple[int, ...]
    grammar_start: int
    leftover: bytes
    start_ids: frozenset[int]
    num_steps: int = 0
    is_live: bool = True

    @classmethod
    def begin(cls, window: Window, bounds: Bounds) -> _FillState:
        sequence = window.sequence
        assert sequence.matcher is not None
        grammar_start = bounds.grammar_start
        leftover = sequence.gate.leftover_in(window.draft_token_ids) if window.draft_token_ids else b""
        state = cls(sequence.matcher, window.draft_token_ids, grammar_start, leftover, sequence.gate.next_start_ids)
        if leftover and grammar_start <= 0:
            state._accept_leftover()  # a tool opener that began inside a token before the drafts
        if state.start_ids:
            # Ids of a start marker that is not complete become the head of the answer where it breaks off.
            state._accept(sequence.token_ids)
        elif grammar_start < 0:
            # With the drafts a marker that began before them breaks off, or a tool opener is complete: the answer began there.
            state._accept(sequence.token_ids[grammar_start:])
        return state

    def advance(self, level: int) -> None:
        """Go past the draft that follows row `level`, as far as the grammar rules it."""
        if level == self.grammar_start - 1 and self.leftover:
            self._accept_leftover()
        if self.grammar_start <= level < len(self.draft_token_ids):
            self._accept([self.draft_token_ids[level]])

    def _accept_leftover(self) -> None:
        self.is_live = self.is_live and self.matcher.accept_bytes(self.leftover)
        self.num_steps += self.is_live

    def _accept(self, token_ids: list[int]) -> None:
        self.is_live = self.is_live and self.matcher.accept_tokens(token_ids)
        self.num_steps += len(token_ids) if self.is_live else 0


def _dead_end(sequence: GatedSequence) -> EngineError:
    assert sequence.matcher is not None
    if sequence.matcher.error is not None:
        return sequence.matcher.error
    return GrammarDeadEndError(
        f"the grammar of request {sequence.request_id!r} allows no token here, and the value is not whole",
        hint="please report the schema",
    )


def _denied(windows: SequenceOf[Window], spans: SequenceOf[RowSpan]) -> list[tuple[int, int]]:
    denied: list[tuple[int, int]] = []
    for window, span in zip(windows, spans, strict=True):
        gate, matcher = window.sequence.gate, window.sequence.matcher
        for row, draft in enumerate((None, *window.draft_token_ids), start=span.first_row):
            if draft is not None:
                gate.commit([draft])
            closed = gate.denied_token_ids(partial(_takes_first, matcher))
            if matcher is not None and gate.is_thinking:
                closed |= window.sequence.stop_token_ids
            denied += [(row, token_id) for token_id in closed]
        gate.rollback(len(window.draft_token_ids))
    return denied


def _takes_first(matcher: Matcher | None, content: Content) -> bool:
    """Whether an answer may begin with `content`: ids, and bytes of tokens that are the answer's in part."""
    if matcher is None:
        return True
    trial = matcher.fork()
    return all(trial.accept_bytes(part) if isinstance(part, bytes) else trial.accept_tokens([part]) for part in content)
