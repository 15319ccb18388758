"""Compile grammars in the background, once each, and remember them within a byte cap.

The scheduler polls futures and never waits. Equal specs share one compile, however many requests ask for it at once.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from .matcher import CompiledGrammar, GrammarBackend
from .spec import GrammarSpec

MAX_CHECKED = 64


class GrammarManager:
    """Background compiles with single flight and an LRU of results; safe to call from several threads.

    Args:
        backend: Compiles one spec.
        num_workers: Threads; None takes half of the cores, at least one, since compiling is CPU-bound and the scheduler needs
            its share.
        cache_bytes: Cap of the remembered grammars, keys counted.
    """

    def __init__(self, backend: GrammarBackend, *, num_workers: int | None, cache_bytes: int) -> None:
        self._backend = backend
        self._cache_bytes = cache_bytes
        self._pool = ThreadPoolExecutor(num_workers or max(1, (os.cpu_count() or 2) // 2), thread_name_prefix="grammar")
        self._lock = Lock()
        self._in_flight: dict[GrammarSpec, Future[CompiledGrammar]] = {}
        self._users: dict[GrammarSpec, int] = {}
        self._ready: OrderedDict[GrammarSpec, CompiledGrammar] = OrderedDict()
        self._ready_bytes = 0
        # Specs that passed the check lately: a caller's thread checks, and the engine's then finds it done.
        self._checked: OrderedDict[GrammarSpec, None] = OrderedDict()
        self.num_compiles = 0

    def check(self, spec: GrammarSpec) -> None:
        """Refuse what the backend cannot compile, before anything is queued.

        Raises:
            UnsupportedGrammarError: The backend cannot compile this constraint.
        """
        with self._lock:
            is_known = spec in self._ready or spec in self._in_flight or spec in self._checked
        if not is_known:
            self._backend.check(spec)
            with self._lock:
                self._checked[spec] = None
                while len(self._checked) > MAX_CHECKED:
                    self._checked.popitem(last=False)

    def request(self, spec: GrammarSpec) -> Future[CompiledGrammar]:
        """Ask for a compiled grammar; the future is done at once if it is remembered.

        Pair every call with `release` when the request no longer waits.
        """
        with self._lock:
            self._users[spec] = self._users.get(spec, 0) + 1
            if spec in self._ready:
                self._ready.move_to_end(spec)
                done: Future[CompiledGrammar] = Future()
                done.set_result(self._ready[spec])
                return done
            if spec not in self._in_flight:
                self.num_compiles += 1
                self._in_flight[spec] = self._pool.submit(self._compile, spec)
            return self._in_flight[spec]

    def release(self, spec: GrammarSpec) -> None:
        """Say that a request no longer waits; a compile that nobody waits for and that has not begun is cancelled."""
        with self._lock:
            self._users[spec] -= 1
            if self._users[spec]:
                return
            del self._users[spec]
            future = self._in_flight.get(spec)
            if future is not None and future.cancel():
                del self._in_flight[spec]

    def close(self) -> None:
        """Cancel what has not begun and stop the threads; a running compile ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, spec: GrammarSpec) -> CompiledGrammar:
        try:
            compiled = self._backend.compile(spec)
        except BaseException:
            with self._lock:
                self._in_flight.pop(spec, None)
            raise
        with self._lock:
            self._in_flight.pop(spec, None)
            self._remember(spec, compiled)
        return compiled

    def _remember(self, spec: GrammarSpec, compiled: CompiledGrammar) -> None:
        size = _cost_bytes(spec, compiled)
        if size > self._cache_bytes:
            return
        self._ready[spec] = compiled
        self._ready_bytes += size
        while self._ready_bytes > self._cache_bytes:
            old_spec, old = self._ready.popitem(last=False)
            self._ready_bytes -= _cost_bytes(old_spec, old)


def _cost_bytes(spec: GrammarSpec, compiled: CompiledGrammar) -> int:
    return compiled.memory_size_bytes + len(spec.source.encode())
