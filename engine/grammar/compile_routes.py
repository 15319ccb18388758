"""Where a compile runs.

Those that are known to be quick run in a thread. All others run in the compile process, where they can be stopped, and a thread
waits for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import GrammarCompileError
from .closing import check_way_out
from .compile_process import CompileProcess, CompileTicket
from .compile_settings import CompileSettings
from .compile_threads import CompileThreads, ThreadJob
from .disk_cache import DiskCache
from .fingerprint import vocabulary_fingerprint
from .killable_compiler import KillableCompiler, PortableBackend
from .matcher import CompiledGrammar, GrammarBackend
from .prepared import CacheUse
from .spec import GrammarSpec


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compile brought."""

    grammar: CompiledGrammar
    compile_s: float
    cache: CacheUse


@dataclass(eq=False, slots=True)
class RunningCompile:
    """A compile that waits or runs; `CompileRoutes.stop` takes it."""

    threads: CompileThreads
    job: ThreadJob
    ticket: CompileTicket | None


class CompileRoutes:
    """The threads and the process that compile; safe to call from several threads.

    Args:
        backends: All for one vocabulary.
        settings: Limits.
    """

    def __init__(self, backends: Sequence[GrammarBackend], settings: CompileSettings) -> None:
        self._settings = settings
        self._backends = {backend.name: backend for backend in backends}
        num_workers = settings.num_workers or max(1, (os.cpu_count() or 2) // 2)
        self._quick = CompileThreads(num_workers, name="grammar")
        self._slow = CompileThreads(num_workers, name="grammar-process")
        self._process: CompileProcess | None = None
        self._killable: dict[str, KillableCompiler] = {}
        portable = [backend for backend in backends if isinstance(backend, PortableBackend)]
        if portable and CompileProcess.is_available:
            self._process = CompileProcess(portable[0].vocabulary, memory_bytes=settings.memory_bytes)
            fingerprint = vocabulary_fingerprint(portable[0].vocabulary)
            for backend in portable:
                cache = _make_disk_cache(backend, fingerprint, settings)
                self._killable[backend.name] = KillableCompiler(backend, self._process, cache)

    @property
    def process(self) -> CompileProcess | None:
        """The compile process, or None where the platform or the backends have no use for one."""
        return self._process

    def is_killable(self, backend: str) -> bool:
        """Whether compiles of this backend can be stopped."""
        return backend in self._killable

    def needs_process(self, spec: GrammarSpec, backend: str) -> bool:
        """Whether this compile goes to the compile process."""
        return backend in self._killable and not self._killable[backend].is_surely_quick(spec)

    def is_on_disk(self, spec: GrammarSpec, backend: str) -> bool:
        """Whether the disk cache holds the grammar; cheap."""
        return backend in self._killable and self._killable[backend].is_on_disk(spec)

    def begin(
        self,
        spec: GrammarSpec,
        backend: str,
        done: Callable[[Compiled | Exception], None],
        *,
        timeout_s: float,
        is_background: bool = False,
        check: Callable[[], None] | None = None,
    ) -> RunningCompile:
        """Queue a compile; `done` is called once, from another thread, unless the compile is stopped before it runs.

        Args:
            spec: What to compile.
            backend: By what.
            done: Takes what it brought, or the error.
            timeout_s: After so long it is stopped, if it runs in the process.
            is_background: Whether nobody waits for it.
            check: Is called first in that thread; what it raises is the error.
        """
        if not self.needs_process(spec, backend):

            def here() -> Compiled:
                if check is not None:
                    check()
                return self._checked(self._compile(spec, backend), backend)

            return RunningCompile(self._quick, self._quick.submit(lambda: done(_try(here))), None)
        assert self._process is not None
        ticket = self._process.new_ticket()
        killable = self._killable[backend]

        def work() -> Compiled:
            if check is not None:
                check()
            compiled = Compiled(*killable.compile(spec, ticket, timeout_s=timeout_s, is_background=is_background))
            return self._checked(compiled, backend)

        return RunningCompile(self._slow, self._slow.submit(lambda: done(_try(work))), ticket)

    def stop(self, running: RunningCompile) -> None:
        """End a compile, waiting or running. Where it runs in a thread only, that thread is given up and replaced."""
        if running.ticket is not None:
            assert self._process is not None
            self._process.cancel(running.ticket)
            running.threads.withdraw(running.job)
        else:
            running.threads.drop(running.job)

    def close(self) -> None:
        """End the process, forget what waits, and give threads a moment to end."""
        if self._process is not None:
            self._process.close()
        self._slow.close()
        self._quick.close()

    def _compile(self, spec: GrammarSpec, backend: str) -> Compiled:
        started = time.monotonic()
        grammar = self._backends[backend].compile(spec)
        return Compiled(grammar, time.monotonic() - started, "none")

    def _checked(self, compiled: Compiled, backend: str) -> Compiled:
        """Refuse what the tokenizer cannot write, here in the background and not in a step."""
        maker = self._backends[backend]
        if isinstance(maker, PortableBackend):
            check_way_out(compiled.grammar.new_matcher(maker.vocabulary.stop_token_ids), maker.vocabulary)
        return compiled


def _try(work: Callable[[], Compiled]) -> Compiled | Exception:
    try:
        return work()
    except Exception as error:  # whatever a backend raises ends this compile only
        return error
    except BaseException as error:  # so does a panic of a native library, which is no Exception
        return GrammarCompileError(f"compiling the grammar failed: {error!r}")


def _make_disk_cache(backend: PortableBackend, fingerprint: str, settings: CompileSettings) -> DiskCache | None:
    if settings.disk_cache is None:
        return None
    identity = f"{backend.name} {backend.version} {fingerprint}"
    return DiskCache(settings.disk_cache, max_bytes=settings.disk_cache_bytes, identity=identity)
