"""Whether a batch of rows is filled on several threads: where that was faster lately, by the clock.

A row costs from a microsecond to milliseconds, other threads take some ten microseconds to wake, and the other cores may be busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

    from ..matcher import Matcher

WORTH_TRYING_S = 150e-6
"""Work of a batch below which other threads are not even woken."""
LOOK_AGAIN_AFTER = 64
"""Batches after which the way that lost is tried once more."""
_WEIGHT = 0.2
_Job = TypeVar("_Job")


class RowCost:
    """What a row of one grammar takes on one thread.

    Attributes:
        row_s: Seconds, a moving mean; None while nothing was measured.
    """

    def __init__(self) -> None:
        self.row_s: float | None = None

    def note(self, row_s: float) -> None:
        """Take a measurement."""
        self.row_s = row_s if self.row_s is None else self.row_s + _WEIGHT * (row_s - self.row_s)


class Lanes:
    """The choice of one backend; used by one thread at a time."""

    def __init__(self) -> None:
        # Of batches that were shared: what their rows take on one thread, and what they took; sums in which older ones fade.
        self._expected_s = 0.0
        self._taken_s = 0.0
        self._num_alike = 0
        self._was_shared = False

    def is_shared(self, costs: Sequence[RowCost]) -> bool:
        """Whether to fill a batch on several threads; `costs` has one entry per row."""
        expected_s = sum_of(costs)
        if expected_s is None or expected_s < WORTH_TRYING_S:
            return False
        is_better = self._expected_s >= self._taken_s
        self._num_alike = self._num_alike + 1 if is_better is self._was_shared else 0
        if self._num_alike >= LOOK_AGAIN_AFTER:
            self._num_alike = 0
            return not is_better
        self._was_shared = is_better
        return is_better

    def fill(
        self,
        matchers: Sequence[Matcher],
        bitmask: torch.Tensor,
        rows: Sequence[int],
        *,
        costs: Sequence[RowCost],
        share: Callable[[], None] | None,
    ) -> None:
        """Fill a batch the way that was faster lately.

        Args:
            matchers: One per row.
            bitmask: int32 `(rows, words)`.
            rows: Where each matcher's row stands.
            costs: What a row of each takes.
            share: Fills the whole batch on several threads; None where that gains nothing.
        """
        is_shared = share is not None and self.is_shared(costs)
        started = time.perf_counter()
        if share is not None and is_shared:
            share()
        else:
            for matcher, row in zip(matchers, rows, strict=True):
                matcher.fill_bitmask(bitmask, row)
        if costs:
            self.note(costs, time.perf_counter() - started, is_shared=is_shared)

    def note(self, costs: Sequence[RowCost], seconds: float, *, is_shared: bool) -> None:
        """Take the time of a batch."""
        if not is_shared:
            self._note_rows(costs, seconds)
            return
        expected_s = sum_of(costs)
        if expected_s is not None:
            self._expected_s = (1 - _WEIGHT) * self._expected_s + expected_s
            self._taken_s = (1 - _WEIGHT) * self._taken_s + seconds

    def _note_rows(self, costs: Sequence[RowCost], seconds: float) -> None:
        """Split the time among the grammars as they were expected to take it."""
        expected_s = sum_of(costs)
        for cost in set(costs):
            if expected_s and cost.row_s:
                cost.note(cost.row_s * seconds / expected_s)
            else:
                cost.note(seconds / len(costs))


def share_out(groups: Sequence[tuple[float | None, list[_Job]]], num_threads: int) -> list[list[_Job]]:
    """Give each thread groups of about the same cost together, one list per thread that gets any.

    Args:
        groups: What each costs, and what is in it.
        num_threads: Threads that there are.
    """
    shares: list[tuple[float, list[_Job]]] = [(0.0, []) for _ in range(min(num_threads, len(groups)))]
    for cost, jobs in sorted(groups, key=lambda group: group[0] or 0.0, reverse=True):
        least = min(range(len(shares)), key=lambda index: shares[index][0])
        shares[least] = shares[least][0] + (cost or 0.0), shares[least][1] + jobs
    return [jobs for _, jobs in shares]


def sum_of(costs: Sequence[RowCost]) -> float | None:
    """Give what rows cost together, in seconds; None while that of one is not known."""
    total = 0.0
    for cost in costs:
        if cost.row_s is None:
            return None
        total += cost.row_s
    return total
