"""Whether a draft model is run, and how far: its passes cost time too, whatever becomes of its guesses.

`DraftGain` knows what drafts bring and what wider steps cost; here the passes of the draft model are timed. A draft model that
does not pay rests for more and more steps, and is then tried anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .draft_model import DraftedSequence, DraftModel
from .drafter import Drafter
from .gain import DraftGain, Seconds, bucket

logger = logging.getLogger(__name__)

TRY_TOKENS = 2
"""Tokens that are guessed where the time of a pass is not known, or was measured long ago."""
NUM_TIMED_FIRST = 2
"""Runs that are timed before their cost counts."""
FIRST_REST, MAX_REST = 16, 1024
"""Steps without the draft model after one in which it would not have paid; they double each time."""
PROVEN_AFTER = 64
"""Runs in a row after which the next rest is a short one again."""
MOST_BEHIND = 32
"""Tokens that the draft model reads beside its first guess; more are a prompt, or a rest, and are weighed."""
CATCH_UP_TOKENS = 256
"""Tokens that it reads in one step: a long prompt must not hold up the others here either."""
USUAL_TOKENS = 256
"""Tokens that an answer is expected to have left, at most: `max_tokens` says little of where it ends."""


class AheadSequence(DraftedSequence, Protocol):
    """A sequence that can be told what a draft model expects."""

    @property
    def drafter(self) -> Drafter | None:
        """Takes the guesses; None where nothing is drafted."""
        ...

    @property
    def num_tokens_left(self) -> int:
        """Tokens that it may still get."""
        ...


@dataclass(slots=True)
class _Passes:
    """The draft model with batches of about one size."""

    pass_s: Seconds = field(default_factory=Seconds)
    num_left: int = 0
    rest: int = FIRST_REST
    num_runs: int = 0


class AheadGain:
    """Decides how far the draft model of one engine runs ahead.

    Args:
        gain: What is known of drafts in this engine.
    """

    def __init__(self, gain: DraftGain) -> None:
        self._gain = gain
        self._passes: dict[int, _Passes] = {}
        self._read_s = Seconds()

    def num_tokens(self, num_sequences: int, limit: int) -> int:
        """Give the tokens to guess for each of the sequences that decode in the next step: 0 to `limit`."""
        if not self._gain.is_adaptive or limit <= 0:
            return max(0, limit)
        if self._gain.is_plain_due(num_sequences):
            return 0
        passes = self._here(num_sequences)
        if passes.pass_s.count < NUM_TIMED_FIRST:
            return min(limit, TRY_TOKENS)
        if passes.num_left:
            passes.num_left -= 1
            if passes.num_left:
                return 0
            self._gain.forget_model()
            return min(limit, TRY_TOKENS)
        num_tokens = self._gain.num_ahead(num_sequences, limit, passes.pass_s.value)
        passes.num_runs = passes.num_runs + 1 if num_tokens else 0
        if passes.num_runs > PROVEN_AFTER:
            passes.rest = FIRST_REST
        if not num_tokens:
            passes.num_left, passes.rest = passes.rest, min(MAX_REST, 2 * passes.rest)
        return num_tokens

    def is_worth_reading(self, num_behind: int, *, num_left: int, num_sequences: int, limit: int) -> bool:
        """Whether what a draft model gains on a sequence pays for reading what it has not read of it.

        Args:
            num_behind: Tokens to read.
            num_left: Tokens that the sequence may still get.
            num_sequences: Those that decode in the next step.
            limit: Tokens to guess for each of them, at most.
        """
        if not self._gain.is_adaptive or not self._read_s.count:
            return True
        # A pass that was never timed counts as free: else it would never be.
        num_ahead, gain_s = self._gain.best_ahead(num_sequences, limit, self._here(num_sequences).pass_s.value)
        num_steps = min(num_left, USUAL_TOKENS) / (1 + num_ahead)
        return gain_s / num_sequences * num_steps > num_behind * self._read_s.value

    def note_reading(self, seconds: float, *, num_tokens: int) -> None:
        """Take the time of reading tokens of sequences."""
        self._read_s.add(seconds / num_tokens)

    def note_run(self, seconds: float, *, num_sequences: int, num_tokens: int) -> None:
        """Take the time of a run: passes of the draft model, one for each token."""
        self._here(num_sequences).pass_s.add(seconds / num_tokens)

    def _here(self, num_sequences: int) -> _Passes:
        return self._passes.setdefault(bucket(num_sequences), _Passes())


class RunAhead:
    """Lets a draft model guess for the sequences that decode, where that pays.

    Args:
        model: The draft model.
        gain: What is known of drafts in this engine.
        is_on_cpu: Whether it computes in this thread, whose own time is then what a run takes.
    """

    def __init__(self, model: DraftModel, gain: DraftGain, *, is_on_cpu: bool) -> None:
        self.model = model
        self._gain = AheadGain(gain)
        self._clock = time.thread_time if is_on_cpu else time.perf_counter
        self._is_broken = False

    def guess(self, sequences: Sequence[AheadSequence], limit: int, *, live_ids: Iterable[str]) -> float:
        """Tell each drafter what the draft model expects, which may be nothing.

        Args:
            sequences: Those that decode in the next step.
            limit: Tokens to guess for each of them, at most.
            live_ids: Requests that are not finished; what is held for others is let go.

        Returns:
            Seconds that the draft model took.
        """
        self.model.keep_only(live_ids)
        wanted = [sequence for sequence in sequences if sequence.drafter is not None]
        num_tokens = self._gain.num_tokens(len(wanted), limit) if wanted and not self._is_broken else 0
        guesses: dict[str, list[int]] = {}
        began = self._clock()
        if num_tokens:
            try:
                ready = self._read(wanted, limit)
                guesses = self._propose(ready, num_tokens) if ready else {}
            except Exception:  # whatever a model raises; the answers do not depend on it
                logger.exception("the draft model failed and is not asked any more")
                self._is_broken = True
        seconds = self._clock() - began
        for sequence in wanted:
            assert sequence.drafter is not None
            sequence.drafter.suggest(guesses.get(sequence.request_id, ()))
        return seconds

    def _read(self, sequences: Sequence[AheadSequence], limit: int) -> list[AheadSequence]:
        """Read on in sequences that are worth it, a piece; give those of which nearly everything was read before."""
        behind = [(sequence, self.model.num_behind(sequence)) for sequence in sequences]
        late = [
            sequence
            for sequence, num_behind in behind
            if num_behind > MOST_BEHIND
            and self._gain.is_worth_reading(
                num_behind, num_left=sequence.num_tokens_left, num_sequences=len(sequences), limit=limit
            )
        ]
        if late:
            began = self._clock()
            num_tokens = self.model.catch_up(late, CATCH_UP_TOKENS)
            if num_tokens:
                self._gain.note_reading(self._clock() - began, num_tokens=num_tokens)
        return [sequence for sequence, num_behind in behind if num_behind <= MOST_BEHIND]

    def _propose(self, sequences: Sequence[AheadSequence], num_tokens: int) -> dict[str, list[int]]:
        began = self._clock()
        guesses = self.model.propose(sequences, num_tokens)
        self._gain.note_run(self._clock() - began, num_sequences=len(sequences), num_tokens=num_tokens)
        return guesses
