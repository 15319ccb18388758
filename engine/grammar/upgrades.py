"""Faster masks for later requests: another backend compiles behind them, both fill rows of a sample, and the clock decides.

Requests that run keep their matcher: backends differ in what they write of a number or of white space, and the rest of one answer
would cost some microseconds a token less.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from threading import Lock

from .choice import BackendChoice
from .compile_cost import CompileCosts
from .compile_routes import Compiled, CompileRoutes, RunningCompile
from .compile_settings import CompileSettings
from .killable_compiler import PortableBackend
from .mask_trial import token_costs
from .matcher import CompiledGrammar, GrammarBackend
from .selection import BackendSelector
from .spec import GrammarSpec

logger = logging.getLogger(__name__)

MAX_REMEMBERED = 4096

Upgraded = Callable[[BackendChoice, Compiled], None]
"""Takes the choice of later requests, and what they get."""


class MaskUpgrades:
    """Looks for faster masks of grammars that are used again; safe to call from several threads.

    Args:
        backends: By name, all for one vocabulary.
        selector: Says which backend might be faster, and whether it enforces as much.
        costs: Learns what was measured.
        routes: Where compiles run.
        settings: From which use on, and for how long.
    """

    def __init__(
        self,
        backends: dict[str, GrammarBackend],
        selector: BackendSelector,
        costs: CompileCosts,
        routes: CompileRoutes,
        settings: CompileSettings,
    ) -> None:
        self._backends = backends
        self._selector = selector
        self._costs = costs
        self._routes = routes
        self._settings = settings
        self._lock = Lock()
        self._running: dict[GrammarSpec, RunningCompile] = {}
        self._settled: OrderedDict[int, None] = OrderedDict()
        self._is_closed = False

    @property
    def num_running(self) -> int:
        """Compiles and comparisons under way."""
        return len(self._running)

    def consider(self, spec: GrammarSpec, plan: BackendChoice, current: CompiledGrammar, num_uses: int, done: Upgraded) -> bool:
        """Begin to make a faster backend ready, where that may pay and was not tried before; `done` is called if it is faster.

        Returns:
            Whether something was begun.
        """
        after = self._settings.upgrade_after
        with self._lock:
            if after is None or self._is_closed or spec in self._running or hash(spec) in self._settled:
                return False
            backend = self._selector.faster(spec, plan.backend)
            if backend is None or not self._routes.is_killable(backend):
                return False
            if self._costs.compile_s(backend, spec) > self._settings.upgrade_timeout_s:
                return False  # not to be done in time, and parsing it is work too
            if num_uses < after and not self._routes.is_on_disk(spec, backend):
                return False
            self._begin(spec, plan, backend, current, done)
            return True

    def put_off(self) -> None:
        """Stop what runs; the next use of a grammar begins anew."""
        with self._lock:
            running, self._running = self._running, {}
        for upgrade in running.values():
            self._routes.stop(upgrade)

    def close(self) -> None:
        """Stop what runs, and begin nothing any more."""
        with self._lock:
            self._is_closed = True
        self.put_off()

    def _begin(self, spec: GrammarSpec, plan: BackendChoice, backend: str, current: CompiledGrammar, done: Upgraded) -> None:
        unenforced = plan.unenforced

        def check() -> None:
            nonlocal unenforced
            unenforced = self._selector.check_replacement(spec, plan, backend)

        def compiled(result: Compiled | Exception) -> None:
            reason = None if isinstance(result, Exception) else self._compare(spec, plan.backend, current, backend, result)
            with self._lock:
                if self._running.get(spec) is not upgrade:
                    return  # it was put off
                del self._running[spec]
                if reason is None:
                    self._settled[hash(spec)] = None
                    while len(self._settled) > MAX_REMEMBERED:
                        self._settled.popitem(last=False)
            if reason is not None and not isinstance(result, Exception):
                done(replace(plan, backend=backend, reason=reason, unenforced=unenforced), result)

        upgrade = self._running[spec] = self._routes.begin(
            spec, backend, compiled, timeout_s=self._settings.upgrade_timeout_s, is_background=True, check=check
        )

    def _compare(self, spec: GrammarSpec, name: str, current: CompiledGrammar, backend: str, result: Compiled) -> str | None:
        """Let both fill rows of a sample, and say why the other backend is better; None if it is not."""
        maker = self._backends[backend]
        assert isinstance(maker, PortableBackend)
        stop_ids = maker.vocabulary.stop_token_ids
        try:
            costs = token_costs(current.new_matcher(stop_ids), result.grammar.new_matcher(stop_ids), maker.vocabulary)
        except Exception:  # a bug of a backend: later requests stay where they are
            logger.exception("comparing masks failed")
            return None
        if costs is None:
            return None
        self._costs.learn(backend, spec, result.compile_s)
        for learned, row_s in zip((name, backend), costs, strict=True):
            self._costs.learn_mask(learned, spec, row_s)
        if self._selector.faster(spec, name) != backend:
            return None
        return f"a token took {1e6 * costs[1]:.1f} us on a sample, with {name} {1e6 * costs[0]:.1f} us"
