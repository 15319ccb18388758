"""The backend of a spec: chosen by what the report says and what compiling costs, and asked itself before it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import UnsupportedGrammarError
from .choice import AUTO, BackendChoice, choose_backend, enforces_as_much, faster_backend
from .compile_cost import CompileCosts
from .matcher import GrammarBackend
from .spec import GrammarSpec
from .support import Enforcement, refuse_unenforced, support_report


class BackendSelector:
    """Chooses among backends of one vocabulary; safe to call from several threads.

    Args:
        backends: By name, in order of preference.
        costs: What compiles and rows cost.
    """

    def __init__(self, backends: Mapping[str, GrammarBackend], costs: CompileCosts) -> None:
        self._backends = backends
        self._costs = costs

    def choose(self, spec: GrammarSpec) -> BackendChoice:
        """Choose; takes about as long as parsing does.

        Raises:
            UnsupportedGrammarError: No backend, or not the one asked for, takes this constraint.
        """
        report = Enforcement(spec)
        names = self._known(report) if spec.backend == AUTO else list(self._backends)
        refusals: list[tuple[str, UnsupportedGrammarError]] = []
        while True:
            choice = choose_backend(spec, report, self._costs, backends=names)
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

    def faster(self, spec: GrammarSpec, chosen: str) -> str | None:
        """Give another backend that seems to have faster masks, or None; cheap, so `check_replacement` is to follow."""
        return faster_backend(spec, chosen, self._costs, backends=self._known(Enforcement(spec)))

    def check_replacement(self, spec: GrammarSpec, choice: BackendChoice, backend: str) -> tuple[str, ...]:
        """Give what the masks of `backend` do not enforce; takes as long as `choose`.

        Raises:
            UnsupportedGrammarError: It does not take the constraint, or its masks enforce less than those of the choice.
        """
        report = Enforcement(spec)
        if not enforces_as_much(report, backend, choice.unenforced):
            raise UnsupportedGrammarError(f"the masks of {backend} would enforce less than those of {choice.backend}")
        self._backends[backend].check(spec)
        return report.checked(backend)

    def _known(self, report: Enforcement) -> list[str]:
        # Of a backend that the report does not know, nobody can say what it enforces: that one must be asked for.
        return [name for name in self._backends if name in report.backends] or list(self._backends)
