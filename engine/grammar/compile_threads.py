"""Daemon threads for compiles: they start when needed, a stuck one is replaced, and none keeps the interpreter up for long."""

from __future__ import annotations

import atexit
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread, current_thread
from time import monotonic

logger = logging.getLogger(__name__)

MAX_STUCK = 4
"""Threads that may be given up as stuck before work waits behind them."""
JOIN_S = 2.0
JOIN_AT_EXIT_S = 20.0
"""A thread that comes out of a library's code when the interpreter is gone aborts the process, so its end waits that long."""


@dataclass(eq=False, slots=True)
class ThreadJob:
    """A call that waits or runs; `CompileThreads.drop` takes it."""

    run: Callable[[], None]
    is_running: bool = False
    is_dropped: bool = False


class CompileThreads:
    """A pool of daemon threads; safe to call from several threads.

    Args:
        num_threads: Jobs that run at the same time, at least 1.
        name: Of the threads.
    """

    def __init__(self, num_threads: int, *, name: str) -> None:
        self._num_threads = num_threads
        self._name = name
        self._changed = Condition()
        self._queue: deque[ThreadJob] = deque()
        self._threads: set[Thread] = set()
        self._num_idle = 0
        self._num_stuck = 0
        self._is_closed = False
        atexit.register(self._close_at_exit)

    def submit(self, run: Callable[[], None]) -> ThreadJob:
        """Queue a call, which must not raise."""
        job = ThreadJob(run)
        with self._changed:
            self._queue.append(job)
            self._start_thread_if_needed()
            self._changed.notify()
        return job

    def withdraw(self, job: ThreadJob) -> None:
        """Take a job out of the queue; nothing happens to one that runs."""
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)

    def drop(self, job: ThreadJob) -> None:
        """Take a job out of the queue; if it runs, another thread takes the place of the one that it holds."""
        with self._changed:
            if job.is_dropped:
                return
            job.is_dropped = True
            if not job.is_running:
                if job in self._queue:
                    self._queue.remove(job)
            elif self._num_stuck < MAX_STUCK:
                self._num_stuck += 1
                self._start_thread_if_needed()
            else:
                logger.warning("%d compiles hang; new ones wait behind them", MAX_STUCK)

    def close(self) -> None:
        """Forget what waits, and wait a moment for what runs."""
        if self._close(JOIN_S):
            atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        self._close(JOIN_AT_EXIT_S)

    def _close(self, wait_s: float) -> bool:
        """Whether all threads have ended within that time."""
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify_all()
            threads = list(self._threads)
        deadline = monotonic() + wait_s
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _start_thread_if_needed(self) -> None:
        if len(self._queue) > self._num_idle and len(self._threads) - self._num_stuck < self._num_threads:
            thread = Thread(target=self._work, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        stuck_before = False
        while not stuck_before:
            job = self._next()
            if job is None:
                return
            try:
                job.run()
            except Exception:  # a bug of the caller's; the thread lives on
                logger.exception("a compile job failed")
            stuck_before = self._finish(job)

    def _next(self) -> ThreadJob | None:
        with self._changed:
            self._num_idle += 1
            while not self._queue and not self._is_closed:
                self._changed.wait()
            self._num_idle -= 1
            if self._is_closed:
                self._leave()
                return None
            job = self._queue.popleft()
            job.is_running = True
            return job

    def _finish(self, job: ThreadJob) -> bool:
        """Whether this thread was replaced and must end."""
        with self._changed:
            job.is_running = False
            if job.is_dropped and self._num_stuck:
                self._num_stuck -= 1
                self._leave()
                return True
            return False

    def _leave(self) -> None:
        self._threads.discard(current_thread())
