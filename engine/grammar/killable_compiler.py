"""Compile where the work can be stopped: in the compile process, then here again if that is quick, else by loading the result.

A compile of xgrammar may take a millisecond or an hour, and nothing in its input says which. So the process goes first, under a
deadline and a cap of memory. Loading what it made takes longer than compiling for most grammars (measured: 5 to 30 times longer
below 0.3 s), so a compile that has proved to be short is done a second time in this process; only long ones are loaded.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol, runtime_checkable

from ..errors import GrammarCompileError
from .compile_process import CompileProcess, CompileReport, CompileTicket
from .disk_cache import DiskCache
from .matcher import CompiledGrammar, GrammarBackend
from .prepared import CacheUse
from .spec import GrammarSpec
from .vocabulary import Vocabulary

RECOMPILE_UNDER_S = 0.5
"""Work of this length may run in a thread, which cannot be stopped; longer results are loaded."""
REPEAT_AT_MOST_S = 10.0
"""llguidance writes nothing down, so its work is done a second time here, where it cannot be stopped: for no longer than this."""
NICENESS = 19
"""A hundredth of a core that others want; an upgrade, for which nobody waits, gets nothing of it."""


@runtime_checkable
class PortableBackend(GrammarBackend, Protocol):
    """A backend whose grammars can be compiled in another process and brought here."""

    version: str
    vocabulary: Vocabulary

    def is_surely_quick(self, spec: GrammarSpec) -> bool:
        """Whether compiling surely takes less than about half a second, so that it may run where it cannot be stopped."""
        ...

    def export_source(self, spec: GrammarSpec) -> str:
        """Give what the compile process takes, without work that has no bound."""
        ...

    def load_compiled(self, text: str) -> CompiledGrammar:
        """Load what the compile process wrote; never called for a backend whose compiles it cannot write.

        Raises:
            GrammarCompileError: The text is not a grammar of this backend and vocabulary.
        """
        ...


class KillableCompiler:
    """Compiles specs of one backend; safe to call from several threads.

    Args:
        backend: Parses, compiles again, loads.
        process: Compiles first.
        disk_cache: Keeps what took long; None keeps nothing.
    """

    def __init__(self, backend: PortableBackend, process: CompileProcess, disk_cache: DiskCache | None) -> None:
        self._backend = backend
        self._process = process
        self._disk_cache = disk_cache

    def is_surely_quick(self, spec: GrammarSpec) -> bool:
        """As the backend says."""
        return self._backend.is_surely_quick(spec)

    def is_on_disk(self, spec: GrammarSpec) -> bool:
        """Whether a compiled grammar is in the disk cache; cheap."""
        return self._disk_cache is not None and spec in self._disk_cache

    def compile(
        self, spec: GrammarSpec, ticket: CompileTicket, *, timeout_s: float, is_background: bool
    ) -> tuple[CompiledGrammar, float, CacheUse]:
        """Give the compiled grammar, the seconds that compiling took, and where it was found.

        Raises:
            GrammarCompileError: It failed, took too long or too much memory, crashed, or was cancelled.
        """
        stored = self._load_from_disk(spec)
        if stored is not None:
            return stored
        source = self._backend.export_source(spec)
        report = self._run(source, ticket, timeout_s, is_background=is_background)
        if report.status != "ok":
            raise _error(report, self._backend.name, timeout_s)
        if report.result is None:
            if report.seconds > REPEAT_AT_MOST_S:
                raise _error(replace(report, status="deadline"), self._backend.name, REPEAT_AT_MOST_S)
            return self._backend.compile(spec), report.seconds, "none"
        started = time.monotonic()
        compiled = self._backend.load_compiled(report.result)
        if self._disk_cache is not None:
            self._disk_cache.offer(spec, report.result, compile_s=report.seconds, load_s=time.monotonic() - started)
        return compiled, report.seconds, "none"

    def _run(self, source: str, ticket: CompileTicket, timeout_s: float, *, is_background: bool) -> CompileReport:
        for _ in range(2):  # once more, in a new process, where that was lost: it need not have been our job's fault
            report = self._process.run(
                ticket,
                self._backend.name,
                source,
                timeout_s=timeout_s,
                keep_over_s=RECOMPILE_UNDER_S,
                niceness=NICENESS,
                is_background=is_background,
            )
            if report.status != "lost" or ticket.is_cancelled:
                break
            ticket.renew()
        return report

    def _load_from_disk(self, spec: GrammarSpec) -> tuple[CompiledGrammar, float, CacheUse] | None:
        if self._disk_cache is None:
            return None
        text = self._disk_cache.get(spec)
        if text is None:
            return None
        started = time.monotonic()
        try:
            return self._backend.load_compiled(text), time.monotonic() - started, "disk"
        except GrammarCompileError:
            self._disk_cache.remove(spec)
            return None


def _error(report: CompileReport, backend: str, timeout_s: float) -> GrammarCompileError:
    if report.status == "error":
        return GrammarCompileError(f"{backend} failed to compile the grammar: {report.message}")
    if report.status == "lost":
        return GrammarCompileError(f"the compile process was lost: {report.message}", hint="try again", retryable=True)
    what = {
        "deadline": f"{backend} did not compile the grammar within {timeout_s:g} s and was stopped",
        "memory": f"{backend} needed more memory for the grammar than it may take",
        "crash": f"{backend} crashed on the grammar ({report.message})",
        "cancelled": "nobody waits for the grammar any more",
    }[report.status]
    return GrammarCompileError(what, hint="simplify the grammar, or take another backend")
