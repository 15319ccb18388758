"""From logits to tokens: each request's own rules, then the grammars, then the draw, and how many drafts hold.

Where only masks and bans stand between the logits and the token, compiled kernels read it off the logits as the model gave them.
`_choose_by_all_rules` is the way that is always right.

A draft is accepted where it is the token that is chosen there. So the tokens are those that no drafts would have given, and a
wrong draft costs nothing but its row.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from functools import partial

import torch

from .errors import EngineError, EngineStepError
from .fast_path.draw import make_draw_kernel
from .grammar.kernels.likeliest import make_likeliest_kernel
from .grammar.kernels.row_table import NO_NUMBER, NOTHING
from .logit_rules import Bans
from .logprobs import TokenLogprobs, token_logprobs
from .mask import StepMasks, Window, mask_logits
from .metrics import StepClock
from .sampler import RowDraw, draw_rows, sample
from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class SequenceWindow(Window):
    """A window of a sequence of the engine."""

    sequence: Sequence

    @property
    def is_read_off(self) -> bool:
        """Whether its tokens can be read off the logits: only masks and bans change those, and nobody wants to see them."""
        params, rules = self.sequence.params, self.sequence.rules
        return params.logprobs is None and (rules is None or rules.only_bans)

    def draws(self) -> list[RowDraw]:
        """Say how the token of each row is drawn."""
        sequence = self.sequence
        position = len(sequence.token_ids)
        return [RowDraw(sequence.params, sequence.seed, position + offset) for offset in range(self.num_rows)]

    def banned(self) -> list[SequenceOf[int]]:
        """Give the ids that the request's own rules ban, row by row."""
        sequence, drafts = self.sequence, self.draft_token_ids
        if sequence.rules is None:
            return [()] * self.num_rows
        return [sequence.rules.banned(sequence.token_ids, drafts[:offset]) for offset in range(self.num_rows)]


@dataclass(slots=True)
class Chosen:
    """What one sequence gets from a step.

    Attributes:
        token_ids: The drafts that hold and the token after them; empty where there is an error.
        logprobs: One for each of them, where the request asked for them.
        error: Why there is no token.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    error: EngineError | None = None


def choose_tokens(
    logits: torch.Tensor, windows: SequenceOf[SequenceWindow], masks: StepMasks, clock: StepClock | None = None
) -> list[Chosen]:
    """Choose the tokens of a step.

    Args:
        logits: float `(sum of num_rows, vocab_size)`, as the model gave them, one window after the other; may be changed.
        windows: One per sequence.
        masks: Filled for `windows`.
        clock: Takes the time of applying them.
    """
    clock = clock or StepClock()
    chosen = _read_off(logits, windows, masks, clock)
    others = [position for position in range(len(windows)) if position not in chosen]
    if others:
        if chosen:
            rows, masks = masks.take(windows, others)
            logits = logits[rows]
        found = _choose_by_all_rules(logits.float(), [windows[position] for position in others], masks, clock)
        chosen.update(zip(others, found, strict=True))
    return [chosen[position] for position in range(len(windows))]


def _read_off(logits: torch.Tensor, windows: SequenceOf[SequenceWindow], masks: StepMasks, clock: StepClock) -> dict[int, Chosen]:
    """Choose where compiled kernels find the token in the logits as they are, by position; no logit is changed.

    Sequences are left out of which bans leave nothing, since the grammar wins over them; all are where no kernel looks.
    """
    likeliest, draw = make_likeliest_kernel(), make_draw_kernel()
    greedy: list[int] = []
    sampled: list[int] = []
    for position, window in enumerate(windows):
        if window.is_read_off:
            (sampled if window.sequence.params.temperature > 0 else greedy).append(position)
    chosen: dict[int, Chosen] = {}
    if greedy and likeliest is not None and likeliest.takes(logits):
        chosen |= _read_windows(partial(likeliest, logits), greedy, windows, masks, clock)
    if sampled and draw is not None and draw.takes(logits):
        draws = [one for position in sampled for one in windows[position].draws()]
        chosen |= _read_windows(partial(draw_rows, draw, draws, logits), sampled, windows, masks, clock)
    return chosen


def _read_windows(
    read: Callable[..., list[int]],
    positions: list[int],
    windows: SequenceOf[SequenceWindow],
    masks: StepMasks,
    clock: StepClock,
) -> dict[int, Chosen]:
    """Choose for some of the windows; `read` takes rows, masks, the mask of each row and its bans."""
    spans = [(windows[position], masks.first_rows[position]) for position in positions]
    rows = [row for window, first_row in spans for row in range(first_row, first_row + window.num_rows)]
    bans = [ids for window, _ in spans for ids in window.banned()]
    with clock.part("apply") if masks.rows else contextlib.nullcontext():
        found = read(rows, masks.bitmask, masks.mask_rows(rows), masks.with_denied(rows, bans))
    chosen = {}
    start = 0
    dead_ends = masks.dead_ends(windows) if min(found, default=0) < 0 else {}
    for position, (window, _) in zip(positions, spans, strict=True):
        own = slice(start, start + window.num_rows)
        start = own.stop
        error = dead_ends.get(window.sequence.request_id)
        if error is None and NO_NUMBER in found[own]:
            error = _no_number(window)
        if error is not None:
            chosen[position] = Chosen(error=error)
        elif NOTHING not in found[own] or not any(bans[own]):
            chosen[position] = _hold(window, found[own])
    return chosen


def _choose_by_all_rules(
    logits: torch.Tensor, windows: SequenceOf[SequenceWindow], masks: StepMasks, clock: StepClock
) -> list[Chosen]:
    """Choose step by step, as written; `logits` are float32 and changed in place."""
    first_rows = masks.first_rows
    raw = _keep_raw(logits, windows, first_rows)
    errors = _find_nan_rows(logits, windows, first_rows)
    bans = _apply_rules(logits, windows, first_rows)
    with clock.part("apply"):
        masks.apply(logits)
    errors |= masks.dead_ends(windows)
    has_token = logits.amax(dim=-1) > -torch.inf
    if bans and not has_token.all():
        errors |= _lift_bans(logits, windows, first_rows, bans, has_token.tolist(), errors)
        has_token = logits.amax(dim=-1) > -torch.inf
    # Rows without a token must not break the others' draw.
    logits[~has_token] = 0.0
    draws = [one for window in windows for one in window.draws()]
    drawn = sample(logits.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf) if errors else logits, draws)
    drawn = [token_id if has_it else NOTHING for token_id, has_it in zip(drawn, has_token.tolist(), strict=True)]
    chosen = []
    for window, first_row in zip(windows, first_rows, strict=True):
        error = errors.get(window.sequence.request_id)
        if error is not None:
            chosen.append(Chosen(error=error))
            continue
        own = _hold(window, drawn[first_row : first_row + window.num_rows])
        own.logprobs = _logprobs(window, own.token_ids, raw, logits, first_row)
        chosen.append(own)
    return chosen


def _hold(window: SequenceWindow, drawn: list[int]) -> Chosen:
    """Give the drafts that hold and the token after them.

    Where there is `NOTHING` after them the last draft is that token, and the next step says why: what comes of a request that has
    no token left does not depend on its drafts. Rows behind refused drafts are never read.
    """
    token_ids = _accept(window, drawn)
    if token_ids[-1] == NOTHING:
        token_ids = token_ids[:-1]
    if not token_ids:
        message = "the model gives no chance to any token that may come next"
        return Chosen(error=EngineStepError(message, request_id=window.sequence.request_id))
    return Chosen(token_ids)


def _accept(window: SequenceWindow, drawn: list[int]) -> list[int]:
    forced = window.sequence.gate.forced_token_id()
    if forced is not None:
        drawn = [forced, *drawn[1:]]
        window.sequence.note_limit(window.sequence.budget.limit)
    num_accepted = 0
    while num_accepted < len(window.draft_token_ids) and drawn[num_accepted] == window.draft_token_ids[num_accepted]:
        num_accepted += 1
    return drawn[: num_accepted + 1]


def _keep_raw(logits: torch.Tensor, windows: SequenceOf[SequenceWindow], first_rows: list[int]) -> dict[int, torch.Tensor]:
    """Rows as the model computed them, for requests that want log-probabilities of those."""
    return {
        row: logits[row].clone()
        for window, first_row in zip(windows, first_rows, strict=True)
        for row in range(first_row, first_row + window.num_rows)
        if window.sequence.params.logprobs is not None and window.sequence.params.logprobs_mode == "raw"
    }


def _logprobs(
    window: SequenceWindow, token_ids: list[int], raw: dict[int, torch.Tensor], logits: torch.Tensor, first_row: int
) -> list[TokenLogprobs]:
    params = window.sequence.params
    if params.logprobs is None:
        return []
    # The largest is taken off first: divided by a tiny temperature it would be infinite.
    rows = [
        raw[row] if row in raw else (logits[row] - logits[row].max()).double() / (params.temperature or 1.0)
        for row in range(first_row, first_row + len(token_ids))
    ]
    return [token_logprobs(row, token_id, params.logprobs) for row, token_id in zip(rows, token_ids, strict=True)]


def _apply_rules(logits: torch.Tensor, windows: SequenceOf[SequenceWindow], first_rows: list[int]) -> dict[int, Bans]:
    """Apply each request's own rules; gives what they banned, by row."""
    bans = {}
    for window, first_row in zip(windows, first_rows, strict=True):
        sequence = window.sequence
        if sequence.rules is None:
            continue
        for offset in range(window.num_rows):
            row = first_row + offset
            banned = sequence.rules.apply(logits[row], sequence.token_ids, window.draft_token_ids[:offset])
            if banned is not None:
                bans[row] = banned
    return bans


def _lift_bans(
    logits: torch.Tensor,
    windows: SequenceOf[SequenceWindow],
    first_rows: list[int],
    bans: Mapping[int, Bans],
    has_token: list[bool],
    errors: Mapping[str, EngineError],
) -> dict[str, EngineError]:
    """Let the grammars win where bans leave nothing of what they allow; gives new errors by request id."""
    new_errors: dict[str, EngineError] = {}
    for window, first_row in zip(windows, first_rows, strict=True):
        stuck = [row for row in range(first_row, first_row + window.num_rows) if row in bans and not has_token[row]]
        if not stuck or window.sequence.request_id in errors:
            continue
        rows = logits[first_row : first_row + window.num_rows]
        freed = rows.clone()
        for row in stuck:
            bans[row].lift(freed[row - first_row])
        new_errors |= mask_logits(freed, [window])
        offsets = [row - first_row for row in stuck]
        rows[offsets] = freed[offsets]
    return new_errors


def _find_nan_rows(logits: torch.Tensor, windows: SequenceOf[SequenceWindow], first_rows: list[int]) -> dict[str, EngineError]:
    """Errors by request id: a row that is not a number would be sampled into nonsense."""
    # One pass: the largest of numbers and NaN is NaN.
    flags = logits.amax(dim=-1).isnan().tolist()
    return {
        window.sequence.request_id: _no_number(window)
        for window, first_row in zip(windows, first_rows, strict=True)
        if any(flags[first_row : first_row + window.num_rows])
    }


def _no_number(window: SequenceWindow) -> EngineError:
    return EngineStepError("the model computed no number", request_id=window.sequence.request_id)
