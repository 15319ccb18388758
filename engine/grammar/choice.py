"""Which backend a request gets: by what its constraint needs, then by what compiling it costs, then by what its masks cost.

Pure: it asks a report what each backend enforces and a table of costs how long each takes, and gives a reason in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import UnsupportedGrammarError
from .spec import GrammarSpec

AUTO = "auto"
QUICK_COMPILE_S = 0.02
"""A compile that is over before anybody notices: then the cost of the masks decides."""
CLEARLY_FASTER = 0.85
"""Masks that cost so much of others are worth a change."""


class EnforcementReport(Protocol):
    """What each backend does with a spec."""

    def checked(self, backend: str) -> tuple[str, ...]:
        """Give the JSON pointers of keywords that the masks of `backend` do not enforce and that are checked afterwards."""
        ...

    def narrowed(self, backend: str) -> tuple[str, ...]:
        """Give the pointers of keywords that allow values which the masks of `backend` do not."""
        ...

    def may_do_worse(self, backend: str) -> bool:
        """Whether the masks of another backend may enforce, or write, what those of `backend` do not."""
        ...

    def refused(self, backend: str) -> tuple[str, ...]:
        """Give the pointers of what `backend` refuses, `#` for the whole; empty if it takes the spec."""
        ...


class BackendCosts(Protocol):
    """What each backend costs for a spec."""

    def compile_s(self, backend: str, spec: GrammarSpec) -> float:
        """Give the seconds that a compile takes, 0 if it is compiled already."""
        ...

    def mask_s(self, backend: str, spec: GrammarSpec) -> float:
        """Give the seconds that one row takes on average."""
        ...


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A backend and why.

    Attributes:
        backend: Its name.
        reason: In words, for people.
        unenforced: Pointers of what its masks do not enforce.
    """

    backend: str
    reason: str
    unenforced: tuple[str, ...]


def choose_backend(
    spec: GrammarSpec,
    report: EnforcementReport,
    costs: BackendCosts,
    *,
    backends: Sequence[str] = ("xgrammar", "llguidance"),
) -> BackendChoice:
    """Choose the backend of one request.

    Args:
        spec: Its constraint; `spec.backend` fixes the backend unless it is `auto`, and then nothing else is tried.
        report: What each backend enforces; asked for as few backends as possible.
        costs: What each backend costs.
        backends: Names of those that there are, in order of preference.

    Raises:
        UnsupportedGrammarError: No backend, or not the one asked for, takes the constraint.
    """
    if spec.backend != AUTO:
        return _fixed(spec, report, backends)
    able = [name for name in backends if not report.refused(name)]
    if not able:
        raise _refusal("no grammar backend takes this constraint", report.refused(backends[0]))
    name, reason = _cheapest(spec, able, costs)
    if report.may_do_worse(name):  # else no other can enforce more
        unenforced = {name: report.checked(name) for name in able}
        least = min(map(len, unenforced.values()))
        best = [name for name in able if len(unenforced[name]) == least]
        if len(best) == 1:
            return BackendChoice(best[0], _only(able, backends) or "its masks enforce more", unenforced[best[0]])
        whole = [name for name in best if not report.narrowed(name)] or best
        if len(whole) == 1:
            return BackendChoice(whole[0], "its masks allow more of what is valid", unenforced[whole[0]])
        name, reason = _cheapest(spec, best, costs)
    return BackendChoice(name, _only(able, backends) or reason, report.checked(name))


def faster_backend(spec: GrammarSpec, chosen: str, costs: BackendCosts, *, backends: Sequence[str]) -> str | None:
    """Give the backend whose masks seem clearly faster than those of the chosen one, or None; ask `enforces_as_much` then."""
    if spec.backend != AUTO:
        return None
    enough_s = CLEARLY_FASTER * costs.mask_s(chosen, spec)
    names = [name for name in backends if name != chosen and costs.mask_s(name, spec) <= enough_s]
    return min(names, key=lambda name: costs.mask_s(name, spec), default=None)


def enforces_as_much(report: EnforcementReport, name: str, unenforced: Sequence[str]) -> bool:
    """Whether a backend takes the constraint, leaves no more out than `unenforced`, and writes all that is valid."""
    return not report.refused(name) and set(report.checked(name)) <= set(unenforced) and not report.narrowed(name)


def _fixed(spec: GrammarSpec, report: EnforcementReport, backends: Sequence[str]) -> BackendChoice:
    if spec.backend not in backends:
        raise UnsupportedGrammarError(
            f"there is no grammar backend {spec.backend!r} here", hint=f"use {', '.join(backends)}, or {AUTO}"
        )
    refused = report.refused(spec.backend)
    if refused:
        raise _refusal(f"{spec.backend}, which the request asks for, does not take this constraint", refused)
    return BackendChoice(spec.backend, "asked for by the request", report.checked(spec.backend))


def _only(able: Sequence[str], backends: Sequence[str]) -> str:
    if len(backends) == 1:
        return "the only backend"
    return "the only one that takes it" if len(able) == 1 else ""


def _cheapest(spec: GrammarSpec, names: Sequence[str], costs: BackendCosts) -> tuple[str, str]:
    """Give the backend that costs least, and why it does."""
    compile_s = {name: costs.compile_s(name, spec) for name in names}
    fastest = min(names, key=lambda name: costs.mask_s(name, spec))
    if compile_s[fastest] <= QUICK_COMPILE_S:
        reason = "compiled already, and fast masks" if compile_s[fastest] == 0 else "quick to compile, and fast masks"
        return fastest, reason
    chosen = min(names, key=compile_s.__getitem__)
    return chosen, f"about {_in_words(compile_s[chosen])} to compile; {fastest} would take {_in_words(compile_s[fastest])}"


def _in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1000))} ms"


def _refusal(message: str, pointers: tuple[str, ...]) -> UnsupportedGrammarError:
    return UnsupportedGrammarError(
        f"{message}: {', '.join(pointers)}",
        pointer=pointers[0],
        hint="simplify it, or validate afterwards without a constraint",
    )
