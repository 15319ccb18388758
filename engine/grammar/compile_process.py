"""Compiles that can be killed: the parent's side of `compile_worker.py`.

One worker process holds the vocabulary and forks for every job. It starts with the first job, and again after it was lost. Needs
`os.fork` (not on Windows); `is_available` says so.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Literal

from .vocabulary import Vocabulary

logger = logging.getLogger(__name__)

ReportStatus = Literal["ok", "error", "memory", "deadline", "cancelled", "crash", "lost"]
VOCABULARY = "vocabulary"
GRACE_S = 5.0
"""A worker that has not answered so long after a job's deadline is taken for stuck."""
START_S = 60.0
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileReport:
    """How a job ended.

    Attributes:
        status: `ok`; `error` (the library said no); `memory` (over the cap); `deadline`; `cancelled`; `crash` (of the library);
            `lost` (the worker itself is gone).
        seconds: Time that compiling took, for `ok`.
        message: What the library or the system said.
        result: The compiled grammar in its serialised form, if compiling took long enough for that to pay; else None.
    """

    status: ReportStatus
    seconds: float = 0.0
    message: str = ""
    result: str | None = None


@dataclass(eq=False)
class CompileTicket:
    """A job on its way; `CompileProcess.cancel` takes it."""

    number: int
    done: Event = field(default_factory=Event)
    answer: dict[str, Any] = field(default_factory=dict)
    connection: _Connection | None = None
    is_cancelled: bool = False

    def renew(self) -> None:
        """Make the handle good for another try."""
        self.done, self.answer, self.connection = Event(), {}, None


class CompileProcess:
    """Compiles grammars in a worker process; safe to call from several threads.

    Args:
        vocabulary: Sent once per worker.
        memory_bytes: Memory that one compile may take beyond what the worker holds.
    """

    is_available = hasattr(os, "fork")

    def __init__(self, vocabulary: Vocabulary, *, memory_bytes: int) -> None:
        self._vocabulary = vocabulary
        self._memory_bytes = memory_bytes
        self._lock = Lock()
        self._connection: _Connection | None = None
        self._numbers = itertools.count()
        self._is_closed = False

    def new_ticket(self) -> CompileTicket:
        """Make the handle of a job before it starts, so that it can be cancelled at any time."""
        return CompileTicket(next(self._numbers))

    def run(
        self,
        ticket: CompileTicket,
        backend: str,
        source: str,
        *,
        timeout_s: float,
        keep_over_s: float,
        niceness: int,
        is_background: bool = False,
    ) -> CompileReport:
        """Compile `source` and wait for the end; never takes much longer than `timeout_s`.

        Args:
            ticket: From `new_ticket`.
            backend: `xgrammar` or `llguidance`.
            source: What the backend's `export_source` gives.
            timeout_s: Then the work is killed.
            keep_over_s: Give the result if compiling took so long (xgrammar only; the other cannot be written down).
            niceness: How far the work steps back behind this process, whose steps must not get longer; 0 for not at all.
            is_background: Nobody waits for it, so that it may stand still while others work.
        """
        if ticket.is_cancelled:
            return CompileReport(status="cancelled")
        try:
            connection = self._connect()
            source_path = connection.folder / f"{ticket.number}.source"
            result_path = connection.folder / f"{ticket.number}.result"
            try:
                source_path.write_text(source, encoding="utf-8")
                order: dict[str, Any] = {"backend": backend, "source": str(source_path), "result": str(result_path)}
                order |= {"niceness": niceness, "is_background": is_background}
                limits = {"timeout_s": timeout_s, "memory_bytes": self._memory_bytes, "keep_over_s": keep_over_s}
                connection.submit(ticket, order | limits)
                if not ticket.done.wait(START_S + timeout_s + GRACE_S):
                    logger.error("the compile process does not answer; it is killed")
                    connection.stop()
                return _read_report(ticket, result_path)
            finally:
                source_path.unlink(missing_ok=True)
                result_path.unlink(missing_ok=True)
        except OSError as error:
            return CompileReport(status="lost", message=str(error))

    def cancel(self, ticket: CompileTicket) -> None:
        """Kill the job, wherever it stands."""
        ticket.is_cancelled = True
        if ticket.connection is not None:
            ticket.connection.cancel(ticket)

    def close(self) -> None:
        """Kill the worker and its jobs; returns when they are gone."""
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.stop()

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None while there is none."""
        return None if self._connection is None else self._connection.process.pid

    def _connect(self) -> _Connection:
        with self._lock:
            if self._is_closed:
                raise OSError("the compile process is closed")
            if self._connection is None or self._connection.is_lost:
                self._connection = _Connection(self._vocabulary)
            return self._connection


class _Connection:
    """One worker process: its pipes, its folder, and the thread that reads its answers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="thinkgate-compile-"))
        _write_vocabulary(self.folder / VOCABULARY, vocabulary)
        self.process = _start(self.folder)
        self.is_lost = False
        self._lock = Lock()
        self._tickets: dict[int, CompileTicket] = {}
        self.stop = weakref.finalize(self, _stop, self.process, self.folder, os.getpid())
        Thread(target=_read_answers, args=(weakref.ref(self), self.process), name="compile-answers", daemon=True).start()

    def submit(self, ticket: CompileTicket, order: dict[str, Any]) -> None:
        with self._lock:
            if self.is_lost:
                raise OSError("the compile process ended")
            ticket.connection = self
            self._tickets[ticket.number] = ticket
        self._say({"job": ticket.number, **order})
        if ticket.is_cancelled:
            self.cancel(ticket)

    def cancel(self, ticket: CompileTicket) -> None:
        with contextlib.suppress(OSError):  # it ended; so did the job
            self._say({"cancel": ticket.number})

    def take(self, answer: dict[str, Any]) -> None:
        with self._lock:
            ticket = self._tickets.pop(answer.get("job", -1), None)
        if ticket is not None:
            ticket.answer = answer
            ticket.done.set()

    def lose(self) -> None:
        """The worker is gone: so are its jobs."""
        with self._lock:
            self.is_lost = True
            tickets, self._tickets = list(self._tickets.values()), {}
        for ticket in tickets:
            ticket.answer = {"status": "lost", "message": "the compile process ended"}
            ticket.done.set()
        self.stop()

    def _say(self, order: dict[str, Any]) -> None:
        line = json.dumps(order).encode() + b"\n"
        with self._lock:
            assert self.process.stdin is not None
            try:
                self.process.stdin.write(line)
                self.process.stdin.flush()
            except ValueError as error:  # closed on this side
                raise OSError("the compile process is closed") from error


def _read_report(ticket: CompileTicket, result_path: Path) -> CompileReport:
    answer = ticket.answer
    status: ReportStatus = "cancelled" if ticket.is_cancelled else answer.get("status", "lost")
    result = None
    if status == "ok" and answer["is_kept"]:
        result = result_path.read_text(encoding="utf-8")
    return CompileReport(status=status, seconds=answer.get("seconds", 0.0), message=answer.get("message", ""), result=result)


def _write_vocabulary(path: Path, vocabulary: Vocabulary) -> None:
    header = {
        "lengths": [len(token) for token in vocabulary.token_bytes],
        "vocab_size": vocabulary.vocab_size,
        "stop_token_ids": vocabulary.stop_token_ids,
    }
    path.write_bytes(json.dumps(header).encode() + b"\n" + b"".join(vocabulary.token_bytes))


def _start(folder: Path) -> subprocess.Popen[bytes]:
    found = find_spec("xgrammar")
    assert found is not None
    assert found.submodule_search_locations is not None
    import_path = str(Path(next(iter(found.submodule_search_locations))).parent)
    # By path and without our folder on the search path: the program imports no module of ours, nor the caller's main module.
    program = [sys.executable, "-P", str(Path(__file__).with_name("compile_worker.py")), str(folder), import_path]
    return subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | dict.fromkeys(_THREAD_VARIABLES, "1"),  # no thread may run where it forks
        process_group=0,  # Ctrl-C in a terminal is the parent's business; and one signal ends worker and jobs
    )


def _read_answers(connection_of: weakref.ref[_Connection], process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            connection = connection_of()
            if connection is not None:
                connection.take(json.loads(line))
            del connection
    connection = connection_of()
    if connection is not None:
        connection.lose()


def _stop(process: subprocess.Popen[bytes], folder: Path, owner_pid: int) -> None:
    if os.getpid() != owner_pid:  # a fork of the owner: not its worker
        return
    # The group outlives its leader, so this ends jobs whose worker died too; no other process can have taken its number, since
    # the worker is reaped below.
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)
