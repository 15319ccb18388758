"""Which backend compiles a spec; what is compiled already; who waits for what.

Knows nothing of threads and processes (`compile_routes.py`). The scheduler polls futures and never waits. Equal specs share one
compile, and a compile ends when its last request goes away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from threading import Lock

from ..errors import EngineClosedError
from .byte_lru import ByteLRU
from .choice import BackendChoice
from .compile_cost import CompileCosts
from .compile_routes import Compiled, CompileRoutes, RunningCompile
from .compile_settings import CompileSettings
from .killable_compiler import PortableBackend
from .matcher import GrammarBackend
from .memo.memo_matcher import share_masks
from .memo.table import MaskMemo
from .prepared import GrammarCounts, PreparedGrammar
from .selection import BackendSelector
from .spec import GrammarSpec
from .upgrades import MaskUpgrades

MAX_CHECKED_BYTES = 32 * 2**20
_PLAN_BYTES = 1500
"""What a spec and its plan take besides the text."""


@dataclass(eq=False, slots=True)
class _InFlight:
    plan: BackendChoice
    future: Future[PreparedGrammar] = field(default_factory=Future)
    num_waiting: int = 0
    running: RunningCompile | None = None


@dataclass(eq=False, slots=True)
class _Ready:
    prepared: PreparedGrammar
    plan: BackendChoice
    num_uses: int = 1


class GrammarManager:
    """Background compiles with single flight and an LRU of results; safe to call from several threads.

    Args:
        backends: In order of preference; one or more, all for the same vocabulary.
        settings: Limits; None takes the defaults.
    """

    def __init__(self, backends: GrammarBackend | Sequence[GrammarBackend], settings: CompileSettings | None = None) -> None:
        self._settings = settings = settings or CompileSettings()
        backends = list(backends) if isinstance(backends, Sequence) else [backends]
        self._backends = {backend.name: backend for backend in backends}
        self._costs = CompileCosts(_vocab_size(backends))
        self._selector = BackendSelector(self._backends, self._costs)
        self._routes = CompileRoutes(backends, settings)
        self._upgrades = MaskUpgrades(self._backends, self._selector, self._costs, self._routes, settings)
        self._lock = Lock()
        self._in_flight: dict[GrammarSpec, _InFlight] = {}
        self._ready: ByteLRU[GrammarSpec, _Ready] = ByteLRU(settings.cache_bytes)
        # Specs that passed the check and are not ready yet: a caller's thread checks, and the engine's then finds it done.
        self._checked: ByteLRU[GrammarSpec, BackendChoice] = ByteLRU(MAX_CHECKED_BYTES)
        self._memo = _make_memo(backends, settings.memo_bytes)
        self._is_closed = False
        self.counts = GrammarCounts()

    @property
    def num_compiles(self) -> int:
        """Compiles begun for requests."""
        return self.counts.compiles

    @property
    def num_upgrading(self) -> int:
        """Faster masks that are being looked for."""
        return self._upgrades.num_running

    @property
    def num_mask_hits(self) -> int:
        """Rows of masks that were known from another time in the same state."""
        return self._memo.num_hits if self._memo else 0

    @property
    def num_mask_misses(self) -> int:
        """Rows of masks that were computed, of constraints whose states are followed."""
        return self._memo.num_misses if self._memo else 0

    @property
    def worker_pid(self) -> int | None:
        """Process id of the compile process, or None while there is none."""
        return self._routes.process.pid if self._routes.process is not None else None

    def check(self, spec: GrammarSpec) -> None:
        """Choose a backend and refuse what none can compile, before anything is queued.

        Raises:
            UnsupportedGrammarError: No backend, or not the one asked for, can compile this constraint.
        """
        with self._lock:
            is_known = spec in self._ready or spec in self._in_flight or spec in self._checked
        if not is_known:
            self._plan(spec)

    def has_room(self, spec: GrammarSpec) -> bool:
        """Whether one more compile may wait, or this spec needs none."""
        with self._lock:
            return len(self._in_flight) < self._settings.max_waiting or spec in self._ready or spec in self._in_flight

    def request(self, spec: GrammarSpec) -> Future[PreparedGrammar]:
        """Ask for a compiled grammar; the future is done at once if it is remembered.

        Pair every call with `release` when the request no longer waits.

        Raises:
            EngineClosedError: The manager was closed.
            UnsupportedGrammarError: As `check`, where that was not called before.
        """
        plan = self._plan(spec)
        with self._lock:
            if self._is_closed:
                raise EngineClosedError("the engine is closed")
            ready = self._ready.get(spec)
            if ready is not None:
                return self._use(spec, ready)
            waiting = self._in_flight.get(spec)
            if waiting is None:
                waiting = self._in_flight[spec] = _InFlight(plan)
                self.counts.compiles += 1
                if self._routes.needs_process(spec, plan.backend):
                    self._upgrades.put_off()  # to make room
                waiting.running = self._begin(spec, waiting)
            waiting.num_waiting += 1
            return waiting.future

    def release(self, spec: GrammarSpec, future: Future[PreparedGrammar]) -> None:
        """Say that a request no longer waits for `future`; a compile that nobody waits for is stopped, running or not."""
        with self._lock:
            waiting = self._in_flight.get(spec)
            if waiting is None or waiting.future is not future:
                return
            waiting.num_waiting -= 1
            if waiting.num_waiting == 0:
                del self._in_flight[spec]
                self.counts.cancelled += 1
                self._stop(waiting)

    def close(self) -> None:
        """Stop all that waits or runs, the compile process too; futures that are not done are cancelled."""
        with self._lock:
            self._is_closed = True
            for waiting in self._in_flight.values():
                self._stop(waiting)
            self._in_flight.clear()
        self._upgrades.close()
        self._routes.close()

    def _plan(self, spec: GrammarSpec) -> BackendChoice:
        with self._lock:
            ready, waiting, plan = self._ready.get(spec), self._in_flight.get(spec), self._checked.get(spec)
        if ready is not None:
            return ready.plan
        if waiting is not None:
            return waiting.plan
        if plan is None:
            plan = self._selector.choose(spec)
            with self._lock:
                self._checked.put(spec, plan, _text_bytes(spec) + _PLAN_BYTES)
        return plan

    def _begin(self, spec: GrammarSpec, waiting: _InFlight) -> RunningCompile:
        def done(result: Compiled | Exception) -> None:
            self._finish(spec, waiting, result)

        return self._routes.begin(spec, waiting.plan.backend, done, timeout_s=self._settings.timeout_s)

    def _stop(self, waiting: _InFlight) -> None:
        waiting.future.cancel()
        if waiting.running is not None:
            self._routes.stop(waiting.running)

    def _finish(self, spec: GrammarSpec, waiting: _InFlight, result: Compiled | Exception) -> None:
        prepared = None if isinstance(result, Exception) else self._prepare(spec, waiting.plan, result)
        with self._lock:
            if self._in_flight.get(spec) is waiting:
                del self._in_flight[spec]
            if prepared is not None:
                self._costs.learn(prepared.backend, spec, prepared.compile_s)
                ready = _Ready(prepared, waiting.plan, max(1, waiting.num_waiting))
                self._remember(spec, ready)
                if spec in self._ready:
                    self._checked.discard(spec)
                self._upgrade_if_worth(spec, ready)
            elif not waiting.future.cancelled():
                self.counts.failed += 1
                self._costs.learn(waiting.plan.backend, spec, math.inf)
                self._checked.discard(spec)  # the next request may get another backend
        # Only a future that was not cancelled is told.
        if waiting.future.set_running_or_notify_cancel():
            if isinstance(result, Exception):
                waiting.future.set_exception(result)
            elif prepared is not None:
                waiting.future.set_result(prepared)

    def _use(self, spec: GrammarSpec, ready: _Ready) -> Future[PreparedGrammar]:
        """Give what is ready; holds the lock."""
        self.counts.memory_hits += 1
        ready.num_uses += 1
        self._upgrade_if_worth(spec, ready)
        done: Future[PreparedGrammar] = Future()
        done.set_result(replace(ready.prepared, cache="memory"))
        return done

    def _remember(self, spec: GrammarSpec, ready: _Ready) -> None:
        self.counts.disk_hits += ready.prepared.cache == "disk"
        self._ready.put(spec, ready, ready.prepared.compiled.memory_size_bytes + _text_bytes(spec))

    def _upgrade_if_worth(self, spec: GrammarSpec, ready: _Ready) -> None:
        """Make a faster backend ready for later requests; holds the lock."""

        def done(plan: BackendChoice, result: Compiled) -> None:
            with self._lock:
                if not self._is_closed:
                    self._remember(spec, _Ready(self._prepare(spec, plan, result), plan, ready.num_uses))

        if not self._is_closed:
            self.counts.upgrades += self._upgrades.consider(spec, ready.plan, ready.prepared.compiled, ready.num_uses, done)

    def _prepare(self, spec: GrammarSpec, plan: BackendChoice, result: Compiled) -> PreparedGrammar:
        return PreparedGrammar(
            compiled=result.grammar,
            backend=plan.backend,
            reason=plan.reason,
            unenforced=plan.unenforced,
            compile_s=result.compile_s,
            cache=result.cache,
            shared=share_masks(result.grammar, self._backends[plan.backend], spec, self._memo) if self._memo else None,
        )


def _text_bytes(spec: GrammarSpec) -> int:
    return len(spec.source.encode("utf-8", "surrogatepass"))


def _vocab_size(backends: list[GrammarBackend]) -> int:
    return max((backend.vocabulary.vocab_size for backend in backends if isinstance(backend, PortableBackend)), default=1)


def _make_memo(backends: list[GrammarBackend], max_bytes: int | None) -> MaskMemo | None:
    vocabulary = next((backend.vocabulary for backend in backends if isinstance(backend, PortableBackend)), None)
    return MaskMemo(max_bytes, vocabulary.token_bytes) if vocabulary is not None and max_bytes else None
