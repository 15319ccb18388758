"""Which sequences run in the next step.

    add -> WAITING_FOR_GRAMMAR -> WAITING -> RUNNING -> FINISHED
           (only with a grammar)

A sequence whose grammar is not compiled yet holds no batch slot and no cache, and nobody waits behind it; it keeps its place.
"""

from __future__ import annotations

import time

from .errors import EngineBusyError, EngineError, GrammarCompileError
from .grammar import GrammarManager
from .kv_cache import KVCache
from .sequence import Sequence, SequenceStatus


class Scheduler:
    """Queues of sequences; owns their status, their cache slot and their wait for a grammar."""

    def __init__(
        self, kv_cache: KVCache, grammars: GrammarManager, *, max_num_seqs: int, max_queue: int, grammar_timeout_s: float
    ) -> None:
        self._kv_cache = kv_cache
        self._grammars = grammars
        self._max_num_seqs = max_num_seqs
        self._max_queue = max_queue
        self._grammar_timeout_s = grammar_timeout_s
        # In order of arrival; a sequence that waits for its grammar stays where it is and is passed over.
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []

    @property
    def num_waiting(self) -> int:
        """Sequences that do not run yet."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    def check_room(self) -> None:
        """Say whether one more sequence may wait.

        Raises:
            EngineBusyError: The queue is full.
        """
        if len(self._waiting) >= self._max_queue:
            raise EngineBusyError(f"{self._max_queue} requests wait already", hint="try again later")

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; its grammar starts to compile at once."""
        if sequence.spec is not None:
            sequence.grammar_future = self._grammars.request(sequence.spec)
            sequence.status = SequenceStatus.WAITING_FOR_GRAMMAR
        self._waiting.append(sequence)

    def schedule(self) -> tuple[list[Sequence], list[Sequence]]:
        """Choose the next batch; never blocks.

        Returns:
            The sequences to run, and those that ended because their grammar failed.
        """
        failed: list[Sequence] = []
        still_waiting: list[Sequence] = []
        for sequence in self._waiting:
            if sequence.status is SequenceStatus.WAITING_FOR_GRAMMAR:
                self._poll_grammar(sequence)
            if sequence.status is SequenceStatus.FINISHED:
                failed.append(sequence)
            elif sequence.status is SequenceStatus.WAITING and self._has_room_for(sequence):
                self._kv_cache.allocate(sequence)
                sequence.status = SequenceStatus.RUNNING
                self._running.append(sequence)
            else:
                still_waiting.append(sequence)
        self._waiting = still_waiting
        return list(self._running), failed

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out of its queue and give back what it holds."""
        if sequence in self._running:
            self._running.remove(sequence)
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        self._kv_cache.free(sequence)
        self._release_grammar(sequence)

    def _has_room_for(self, sequence: Sequence) -> bool:
        return len(self._running) < self._max_num_seqs and self._kv_cache.can_allocate(sequence)

    def _poll_grammar(self, sequence: Sequence) -> None:
        future = sequence.grammar_future
        assert future is not None
        if future.done():
            try:
                sequence.matcher = future.result().new_matcher(sorted(sequence.stop_token_ids))
                sequence.status = SequenceStatus.WAITING
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
        if sequence.grammar_future is not None and sequence.spec is not None:
            sequence.grammar_future = None
            self._grammars.release(sequence.spec)
