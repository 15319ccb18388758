"""Which sequences compute what in the next step.

    add -> WAITING_FOR_GRAMMAR -> WAITING <-> RUNNING -> FINISHED
           (only with a grammar)   (preempted: back to its place)

A step has a budget of tokens. Sequences that decode are served first, what is left goes to prompts, in pieces where they are
long, so that a long prompt holds up nobody's next token. A sequence whose grammar is not compiled yet is skipped: it holds no
batch slot, no block and no budget, nobody waits behind it, and it keeps its place.
"""

from __future__ import annotations

import itertools
import logging
import time
from bisect import insort
from dataclasses import dataclass

from .attention import Chunk
from .errors import EngineBusyError, EngineError, GrammarCompileError
from .grammar import GrammarManager, GrammarSpec
from .kv_cache import KVCache
from .sequence import Sequence, SequenceStatus
from .speculative import DraftGain

logger = logging.getLogger(__name__)

PRIORITY_S = 30.0
"""A request of priority 1 stands in the queue as if it had come this much later; so nobody can be overtaken for ever."""

DRAFTS_PER_STEP = 64
"""Drafts of all sequences together: with more rows a step is bound by computing, and a guess is no longer nearly free."""


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """What the next step computes.

    Attributes:
        chunks: What each sequence of the batch computes.
        failed: Sequences that ended because their grammar failed.
    """

    chunks: list[Chunk]
    failed: list[Sequence]
    batch: list[Sequence]

    @property
    def sampled(self) -> list[tuple[Sequence, Chunk]]:
        """Sequences that get a token in this step: those of which nothing is left to compute."""
        return [(sequence, chunk) for sequence, chunk in zip(self.batch, self.chunks, strict=True) if chunk.num_logits]


class Scheduler:
    """Queues of sequences; owns their status, their blocks and their wait for a grammar.

    Args:
        kv_cache: Holds the running sequences; one sequence of the model's full length fits.
        grammars: Compiles in the background.
        max_num_seqs: Sequences in one batch.
        max_model_len: Tokens of one sequence, drafts included.
        max_num_batched_tokens: Budget of a step; more than `max_num_seqs`, so that every decoding sequence gets its token.
        max_queue: Sequences that may wait.
        grammar_timeout_s: A sequence whose grammar is not compiled by then fails.
        max_draft_tokens: Drafts of one sequence in one step; of all together not more than `DRAFTS_PER_STEP`.
        gain: Says which drafts are worth their rows; None takes all.
    """

    def __init__(
        self,
        kv_cache: KVCache,
        grammars: GrammarManager,
        *,
        max_num_seqs: int,
        max_model_len: int,
        max_num_batched_tokens: int,
        max_queue: int,
        grammar_timeout_s: float,
        max_draft_tokens: int = 0,
        gain: DraftGain | None = None,
    ) -> None:
        self._kv_cache = kv_cache
        self._grammars = grammars
        self._max_num_seqs = max_num_seqs
        self._max_model_len = max_model_len
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_queue = max_queue
        self._grammar_timeout_s = grammar_timeout_s
        self._max_draft_tokens = max_draft_tokens
        self._gain = gain or DraftGain(is_adaptive=False)
        # Both in the order of `_place`; the running ones that stand last are preempted first.
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._places: dict[str, tuple[float, int]] = {}
        self._arrivals = itertools.count()
        self.num_preemptions = 0

    @property
    def num_waiting(self) -> int:
        """Sequences that do not run yet."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def decoding(self) -> list[Sequence]:
        """Sequences of the batch that get their next token in the next step."""
        return [sequence for sequence in self._running if sequence.num_pending_tokens == 1]

    @property
    def draft_limit(self) -> int:
        """Drafts that each sequence may have in the next step, if all have as many."""
        return min(self._max_draft_tokens, DRAFTS_PER_STEP // max(1, len(self._running)))

    def check_room(self, grammar: GrammarSpec | None = None) -> None:
        """Say whether one more sequence may wait, and its grammar with it.

        Raises:
            EngineBusyError: The queue of sequences or that of grammars is full.
        """
        if self._is_full():
            raise EngineBusyError(f"{self._max_queue} requests wait already", hint="try again later")
        if not self.has_room(grammar):
            raise EngineBusyError("too many grammars wait to be compiled already", hint="try again later")

    def has_room(self, grammar: GrammarSpec | None = None) -> bool:
        """Whether `check_room` would let a sequence in."""
        return not self._is_full() and (grammar is None or self._grammars.has_room(grammar))

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; its grammar starts to compile at once."""
        if sequence.spec is not None:
            sequence.grammar_future = self._grammars.request(sequence.spec)
            sequence.status = SequenceStatus.WAITING_FOR_GRAMMAR
        place = sequence.added_at + PRIORITY_S * sequence.priority
        self._places[sequence.request_id] = (place, next(self._arrivals))
        insort(self._waiting, sequence, key=self._place)

    def schedule(self) -> ScheduledStep:
        """Choose what the next step computes, and hold the blocks for it; never blocks."""
        if not self._running:
            self._kv_cache.check_idle()
        for sequence in self._running:
            self._kv_cache.publish(sequence)
        chunks: dict[str, Chunk] = {}
        num_preempted = self._schedule_running(chunks)
        # After a preemption nobody comes in: it would take the blocks that were just made free.
        failed = self._schedule_waiting(chunks, may_start=not num_preempted)
        batch = [sequence for sequence in self._running if sequence.request_id in chunks]
        return ScheduledStep([chunks[sequence.request_id] for sequence in batch], failed, batch)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out of its queue and give back what it holds."""
        if sequence in self._running:
            self._running.remove(sequence)
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        self._places.pop(sequence.request_id, None)
        if sequence.error is None:
            # Also for a sequence that was over in its first step: its prompt may come again.
            self._kv_cache.publish(sequence)
        self._kv_cache.free(sequence, is_sound=sequence.error is None)
        self._release_grammar(sequence)

    def _place(self, sequence: Sequence) -> tuple[float, int]:
        return self._places[sequence.request_id]

    def _schedule_running(self, chunks: dict[str, Chunk]) -> int:
        """Schedule what runs already, the first ones first; give the number of sequences that had to make room."""
        num_decoding = sum(sequence.num_pending_tokens == 1 for sequence in self._running)
        spare = self._max_num_batched_tokens - num_decoding
        self._gain.begin_step(num_decoding)
        num_preempted = 0
        for sequence in list(self._running):
            if sequence.status is not SequenceStatus.RUNNING:
                break  # it made room for one before it, and so did all behind it
            is_decoding = sequence.num_pending_tokens == 1
            num_tokens = 1 if is_decoding else min(sequence.num_pending_tokens, spare)
            while num_tokens and not self._kv_cache.reserve(sequence, num_tokens):
                num_preempted += 1
                if self._preempt_last() is sequence:
                    num_tokens = 0
            if num_tokens:
                spare -= 0 if is_decoding else num_tokens
                chunks[sequence.request_id] = _chunk(sequence, num_tokens)
        self._draft(chunks, min(spare, DRAFTS_PER_STEP))
        return num_preempted

    def _draft(self, chunks: dict[str, Chunk], most: int) -> None:
        """Add drafts that are worth it to the sequences that decode, and hold the blocks for them: `most` of all together."""
        decoding = [sequence for sequence in self._running if sequence.request_id in chunks and sequence.num_pending_tokens == 1]
        proposed = [(sequence, drafts) for sequence in decoding if (drafts := self._propose(sequence, most))]
        if not proposed:
            return
        found = [sequence.drafts_found(len(drafts)) for sequence, drafts in proposed]
        for (sequence, drafts), count in zip(proposed, self._gain.num_worth(found, most), strict=True):
            # Nobody makes room for a guess: every other sequence may need one block for its next token.
            if count and self._kv_cache.reserve(sequence, 1 + count, num_spared=len(self._running)):
                chunks[sequence.request_id] = Chunk(sequence, 1, num_logits=1 + count, draft_token_ids=drafts[:count])

    def _propose(self, sequence: Sequence, most: int) -> tuple[int, ...]:
        limit = min(self._max_draft_tokens, most, self._max_model_len - sequence.num_tokens)
        try:
            return sequence.propose_drafts(limit) if limit > 0 else ()
        except Exception:  # a backend's; the mask will meet it again, where it ends this request only
            logger.exception("no drafts for request %s any more", sequence.request_id)
            sequence.drafter = None
            return ()

    def _schedule_waiting(self, chunks: dict[str, Chunk], *, may_start: bool) -> list[Sequence]:
        """Let sequences in, in order; those whose grammar compiles are skipped. Gives those whose grammar failed."""
        spare = self._max_num_batched_tokens - sum(chunk.num_query_tokens for chunk in chunks.values())
        failed: list[Sequence] = []
        skipped: list[Sequence] = []
        for sequence in self._waiting:
            if sequence.status is SequenceStatus.WAITING_FOR_GRAMMAR:
                self._poll_grammar(sequence)
            if sequence.status is SequenceStatus.FINISHED:
                failed.append(sequence)
            elif sequence.status is SequenceStatus.WAITING_FOR_GRAMMAR:
                skipped.append(sequence)
            elif may_start and spare > 0 and self._start(sequence):
                num_tokens = min(sequence.num_pending_tokens, spare)
                spare -= num_tokens
                chunks[sequence.request_id] = _chunk(sequence, num_tokens)
            else:
                may_start = False  # nobody overtakes a sequence for which there is no room, or a long prompt would starve
                skipped.append(sequence)
        self._waiting = skipped
        return failed

    def _start(self, sequence: Sequence) -> bool:
        # A block is left for every other one: it would soon take it back by preempting this sequence.
        is_room = len(self._running) < self._max_num_seqs
        if not is_room or not self._kv_cache.can_allocate(sequence, num_spared=len(self._running)):
            return False
        self._kv_cache.allocate(sequence)
        # All of its prompt at once: halves of two prompts could otherwise stand in each other's way.
        is_reserved = self._kv_cache.reserve(sequence, sequence.num_pending_tokens)
        assert is_reserved, "can_allocate said that it fits"
        sequence.status = SequenceStatus.RUNNING
        insort(self._running, sequence, key=self._place)
        return True

    def _preempt_last(self) -> Sequence:
        """Take the last one out of the batch; its tokens are computed again when there is room."""
        victim = self._running.pop()
        self._kv_cache.free(victim)
        victim.status = SequenceStatus.WAITING
        insort(self._waiting, victim, key=self._place)
        self.num_preemptions += 1
        return victim

    def _is_full(self) -> bool:
        return len(self._waiting) >= self._max_queue

    def _poll_grammar(self, sequence: Sequence) -> None:
        future = sequence.grammar_future
        assert future is not None
        if future.done():
            try:
                sequence.grammar = future.result()
                sequence.matcher = sequence.grammar.new_matcher(sorted(sequence.stop_token_ids))
                if sequence.guard is not None:
                    sequence.guard.prepare(sequence.matcher)
                sequence.status = SequenceStatus.WAITING
                sequence.grammar_ready_at = time.monotonic()
            except Exception as error:  # whatever a backend raises ends this request only
                wrapped = (
                    error if isinstance(error, EngineError) else GrammarCompileError(f"compiling the grammar failed: {error!r}")
                )
                sequence.finish("error", wrapped)
        elif time.monotonic() - sequence.added_at > self._grammar_timeout_s:
            sequence.finish(
                "error",
                GrammarCompileError(
                    f"the grammar was not compiled within {self._grammar_timeout_s:g} s",
                    hint="simplify the schema",
                    retryable=True,
                ),
            )
        if sequence.status is not SequenceStatus.WAITING_FOR_GRAMMAR:
            self._release_grammar(sequence)

    def _release_grammar(self, sequence: Sequence) -> None:
        future, sequence.grammar_future = sequence.grammar_future, None
        if future is not None and sequence.spec is not None:
            self._grammars.release(sequence.spec, future)


def _chunk(sequence: Sequence, num_tokens: int) -> Chunk:
    return Chunk(sequence, num_tokens, num_logits=1 if num_tokens == sequence.num_pending_tokens else 0)
