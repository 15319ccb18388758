"""What the engine tells about itself: a record per step, one per request that ended, and totals. No text, no ids, no prompts."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from .answer_budget import Limit
from .grammar.prepared import CacheUse

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """One step.

    Attributes:
        step_s: Seconds of the whole step.
        schedule_s: Seconds of these in choosing what to compute, drafts among it.
        forward_s: Seconds in the model. On CUDA the time to launch it: the device works on while the masks are filled.
        fill_s: Seconds that filling the masks took.
        mask_wait_s: Seconds of these in which nothing else went on.
        select_s: Seconds in rules, masks and draws, the waiting for masks not counted.
        apply_s: Seconds of these in putting the masks on the logits; where the token is read off them, in reading it.
        advance_s: Seconds in committing tokens: to gates, to grammars, to the texts.
        num_running: Sequences in the batch.
        num_waiting: Sequences that wait for a grammar, a slot or blocks.
        num_scheduled_tokens: Tokens computed, drafts among them.
        num_new_tokens: Tokens that came out.
        num_draft_tokens: Drafts verified.
        num_accepted_draft_tokens: Drafts that held.
    """

    step_s: float
    schedule_s: float
    forward_s: float
    fill_s: float
    mask_wait_s: float
    select_s: float
    apply_s: float
    advance_s: float
    num_running: int
    num_waiting: int
    num_scheduled_tokens: int
    num_new_tokens: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStats:
    """One request that ended.

    Attributes:
        stop_reason: How it ended.
        total_s: Seconds from admission to the end.
        first_token_s: Seconds to its first token; None if it got none.
        grammar_wait_s: Seconds until its grammar was there; None without a grammar, or if it never was.
        compile_s: Seconds that compiling its grammar took when it was done; None as for `grammar_wait_s`.
        grammar_cache: Where its grammar was found; `none` if it was compiled for it, None as for `grammar_wait_s`.
        backend: Name of its grammar backend; None as for `grammar_wait_s`.
        num_prompt_tokens: Tokens of the prompt.
        num_tokens: Generated tokens.
        num_reasoning_tokens: Thinking tokens among them.
        limits_hit: Limits that changed what the model would have written.
    """

    stop_reason: str | None
    total_s: float
    first_token_s: float | None
    grammar_wait_s: float | None
    compile_s: float | None
    grammar_cache: CacheUse | None
    backend: str | None
    num_prompt_tokens: int
    num_tokens: int
    num_reasoning_tokens: int
    limits_hit: tuple[Limit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTotals:
    """Sums since the engine was made, and where it stands.

    Requests that were aborted are not among the finished ones. `grammar_compile_s` counts grammars that were compiled for a
    request, `num_grammar_cache_hits` requests that found theirs in memory or on disk. `num_mask_hits` are rows that were
    known from another time in the same state of the same schema, `num_mask_misses` those that had to be computed.
    """

    num_running: int
    num_waiting: int
    num_free_blocks: int
    num_blocks: int
    num_steps: int
    num_finished: int
    num_aborted: int
    num_new_tokens: int
    num_reasoning_tokens: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int
    num_prefix_hit_tokens: int
    num_preemptions: int
    num_mask_hits: int
    num_mask_misses: int
    num_grammar_compiles: int
    num_grammar_cache_hits: int
    grammar_compile_s: float
    num_limits_hit: int


Observer = Callable[[StepStats | RequestStats], None]
"""Called on the engine's thread, so it should be quick; what it raises is logged and changes nothing."""


Part = Literal["schedule", "forward", "fill", "mask_wait", "select", "apply", "advance"]


class StepClock:
    """Times the parts of one step."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._seconds: dict[Part, float] = {}
        self._thread_started = time.thread_time()

    @contextlib.contextmanager
    def part(self, name: Part) -> Iterator[None]:
        """Time a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: Part, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        self._seconds[name] = self.seconds(name) + seconds

    def seconds(self, name: Part) -> float:
        """Give the seconds of a part so far."""
        return self._seconds.get(name, 0.0)

    def elapsed_s(self) -> float:
        """Give the seconds since the step began."""
        return time.perf_counter() - self._started

    def stats(self, **counts: int) -> StepStats:
        """Give the record of this step, which is over now, with the numbers that the clock does not know."""
        return StepStats(
            step_s=self.elapsed_s(),
            schedule_s=self.seconds("schedule"),
            forward_s=self.seconds("forward"),
            fill_s=self.seconds("fill"),
            mask_wait_s=self.seconds("mask_wait"),
            select_s=self.seconds("select"),
            apply_s=self.seconds("apply"),
            advance_s=self.seconds("advance"),
            **counts,
        )

    def thread_s(self) -> float:
        """Give the seconds for which this thread had a core since the step began."""
        return time.thread_time() - self._thread_started


class MetricsRecorder:
    """Adds the records up and hands them to an observer."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
        self.num_steps = 0
        self.num_finished = 0
        self.num_new_tokens = 0
        self.num_reasoning_tokens = 0
        self.num_draft_tokens = 0
        self.num_accepted_draft_tokens = 0
        self.num_limits_hit = 0
        self.num_aborted = 0
        self.num_grammar_cache_hits = 0
        self.grammar_compile_s = 0.0

    def note_step(self, stats: StepStats) -> None:
        """Take a step."""
        self.num_steps += 1
        self.num_new_tokens += stats.num_new_tokens
        self.num_draft_tokens += stats.num_draft_tokens
        self.num_accepted_draft_tokens += stats.num_accepted_draft_tokens
        self._tell(stats)

    def note_request(self, stats: RequestStats) -> None:
        """Take a request that ended."""
        if stats.stop_reason == "abort":
            self.num_aborted += 1
        else:
            self.num_finished += 1
        self.num_grammar_cache_hits += stats.grammar_cache in ("memory", "disk")
        if stats.grammar_cache == "none":
            self.grammar_compile_s += stats.compile_s or 0.0
        self.num_reasoning_tokens += stats.num_reasoning_tokens
        self.num_limits_hit += len(stats.limits_hit)
        self._tell(stats)

    def totals(self, **standing: int) -> EngineTotals:
        """Give the sums, with the numbers that others know: where the engine stands, and what its parts counted."""
        return EngineTotals(
            num_steps=self.num_steps,
            num_finished=self.num_finished,
            num_aborted=self.num_aborted,
            num_grammar_cache_hits=self.num_grammar_cache_hits,
            grammar_compile_s=self.grammar_compile_s,
            num_new_tokens=self.num_new_tokens,
            num_reasoning_tokens=self.num_reasoning_tokens,
            num_draft_tokens=self.num_draft_tokens,
            num_accepted_draft_tokens=self.num_accepted_draft_tokens,
            num_limits_hit=self.num_limits_hit,
            **standing,
        )

    def _tell(self, stats: StepStats | RequestStats) -> None:
        if self._observer is None:
            return
        try:
            self._observer(stats)
        except Exception:  # somebody else's code must not end a step
            logger.exception("the metrics observer failed")
