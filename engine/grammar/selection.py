"""The backend of a spec: chosen by what the report says and what compiling costs, and asked itself before it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import UnsupportedGrammarError
from .choice import AUTO, BackendChoice, choose_backend
from .compile_cost import CompileCosts
from .matcher import GrammarBackend
from .spec import GrammarSpec
from .support import Enforcement, refuse_unenforced, support_report


class BackendSelector:
    """Chooses among backends of one vocabulary; safe to call from several threads.

    Args:
        backends: By name, in order of preference.
        costs: What compiles cost.
        wants_upgrade: Whether to look for backends with faster masks that take longer to compile.
    """

    def __init__(self, backends: Mapping[str, GrammarBackend], costs: CompileCosts, *, wants_upgrade: bool) -> None:
        self._backends = backends
        self._costs = costs
        self._wants_upgrade = wants_upgrade

    def choose(self, spec: GrammarSpec) -> BackendChoice:
        """Choose; takes about as long as parsing does.

        Raises:
            UnsupportedGrammarError: No backend, or not the one asked for, takes this constraint.
        """
        report = Enforcement(spec)
        names = list(self._backends)
        if spec.backend == AUTO:
            # Of a backend that the report does not know, nobody can say what it enforces: that one must be asked for.
            names = [name for name in names if name in report.backends] or names
        refusals: list[tuple[str, UnsupportedGrammarError]] = []
        while True:
            choice = choose_backend(spec, report, self._costs, backends=names, wants_upgrade=self._wants_upgrade)
            try:
                if spec.strict:
                    refuse_unenforced(spec, support_report(spec), choice.backend)
                self._backends[choice.backend].check(spec)
            except UnsupportedGrammarError as error:
                refusals.append((choice.backend, error))
                names.remove(choice.backend)
                if spec.backend != AUTO or not names:
                    raise refusals[0][1] from None
                continue
            if refusals:
                return replace(choice, reason=f"{refusals[0][0]} does not take it: {refusals[0][1]}")
            return choice
