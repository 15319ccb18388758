"""Compiles that can be killed: deadline, memory, crash, cancellation, loss of the worker, and that no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llguidance
import pytest
import xgrammar

from engine import GrammarSpec
from engine.grammar import Whitespace, compile_cost
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.compile_process import CompileProcess, CompileReport, CompileTicket
from engine.grammar.killable_compiler import NICENESS

from .grammar_backends import SMALL, STOP, allowed, make_backend
from .processes import children_of, is_alive, num_zombies, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

SPEC = GrammarSpec.from_json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
# Takes llguidance a minute or more.
ENDLESS = str(llguidance.LLMatcher.grammar_from_json_schema({"type": "integer", "multipleOf": 9_999_991}))
HUGE = str(llguidance.LLMatcher.grammar_from_json_schema({"type": "integer", "multipleOf": 2**40 + 1}))


@pytest.fixture(scope="module")
def process() -> Iterator[CompileProcess]:
    process = CompileProcess(SMALL, memory_bytes=2**30)
    yield process
    process.close()


@pytest.fixture
def backend() -> XGrammarBackend:
    backend = make_backend("xgrammar")
    assert isinstance(backend, XGrammarBackend)
    return backend


def run(
    process: CompileProcess, backend: str, source: str, *, ticket: CompileTicket | None = None, timeout_s: float = 60.0
) -> CompileReport:
    return process.run(ticket or process.new_ticket(), backend, source, timeout_s=timeout_s, keep_over_s=0.0, niceness=0)


def start_endless(process: CompileProcess) -> tuple[threading.Thread, CompileTicket, list[CompileReport]]:
    """Begin a compile without end in a thread, and wait until its fork works."""
    ticket, reports = process.new_ticket(), []
    thread = threading.Thread(target=lambda: reports.append(run(process, "llguidance", ENDLESS, ticket=ticket)))
    thread.start()
    assert wait_until(lambda: process.pid is not None and bool(children_of(process.pid)))
    return thread, ticket, reports


def test_result_is_the_grammar_that_a_compile_here_gives(process: CompileProcess, backend: XGrammarBackend) -> None:
    report = run(process, "xgrammar", backend.export_source(SPEC))
    assert report.status == "ok"
    assert report.result is not None
    matcher = backend.load_compiled(report.result).new_matcher((STOP,))
    assert matcher.accept_tokens([*b'{"a":12}', STOP])
    assert not backend.load_compiled(report.result).new_matcher((STOP,)).accept_tokens(list(b'{"b"'))


def test_worker_has_one_thread_so_that_it_may_fork(process: CompileProcess, backend: XGrammarBackend) -> None:
    run(process, "xgrammar", backend.export_source(SPEC))
    run(process, "llguidance", "{}")
    assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1


def test_schema_is_parsed_in_the_process_only(
    process: CompileProcess, backend: XGrammarBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cost, "MAX_TINY", 0)
    parsed: list[str] = []
    parse = xgrammar.Grammar.from_json_schema

    def count(text: str, **options: Any) -> xgrammar.Grammar:
        parsed.append(text)
        return parse(text, **options)

    monkeypatch.setattr(xgrammar.Grammar, "from_json_schema", count)
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"type": "string", "maxLength": 9}}}
    for options in ({}, {"whitespace": Whitespace.indented(2)}, {"whitespace_pattern": "[ ]{0,3}"}, {"any_order": True}):
        spec = GrammarSpec.from_json_schema(schema, **options)
        backend.check(spec)
        report = run(process, "xgrammar", backend.export_source(spec))
        assert report.result is not None
        assert parsed == []
        here, there = backend.compile(spec).new_matcher((STOP,)), backend.load_compiled(report.result).new_matcher((STOP,))
        assert len(parsed) == 1
        parsed.clear()
        rng = random.Random(2)
        for _ in range(30):
            choices = allowed(here)
            assert choices == allowed(there), options
            token_id = rng.choice(choices)
            if token_id == STOP:
                break
            assert here.accept_tokens([token_id])
            assert there.accept_tokens([token_id])


@pytest.mark.parametrize(("is_background", "policy"), [(False, "SCHED_BATCH"), (True, "SCHED_IDLE")])
def test_compile_steps_back_behind_everybody(process: CompileProcess, is_background: bool, policy: str) -> None:
    ticket = process.new_ticket()

    def work() -> None:
        process.run(ticket, "llguidance", ENDLESS, timeout_s=60, keep_over_s=0, niceness=NICENESS, is_background=is_background)

    thread = threading.Thread(target=work)
    thread.start()
    assert wait_until(lambda: process.pid is not None and bool(children_of(process.pid)))
    assert process.pid is not None
    [child] = children_of(process.pid)
    assert wait_until(lambda: os.sched_getscheduler(child) == getattr(os, policy))
    assert os.getpriority(os.PRIO_PROCESS, child) == NICENESS
    assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER
    process.cancel(ticket)
    thread.join(20)


def test_llguidance_proves_that_it_ends(process: CompileProcess) -> None:
    report = run(process, "llguidance", str(llguidance.LLMatcher.grammar_from_json_schema({"type": "integer"})))
    assert (report.status, report.result) == ("ok", None)
    assert report.seconds > 0


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_error_of_the_library_is_reported(process: CompileProcess, backend: str) -> None:
    report = run(process, backend, "no grammar at all")
    assert report.status == "error"
    assert report.message


def test_work_stops_at_its_deadline(process: CompileProcess) -> None:
    run(process, "llguidance", "{}")
    started = time.monotonic()
    assert run(process, "llguidance", ENDLESS, timeout_s=0.3).status == "deadline"
    assert time.monotonic() - started < 10
    assert process.pid is not None
    assert children_of(process.pid) == []


def test_E14_work_over_the_memory_cap_ends() -> None:
    process = CompileProcess(SMALL, memory_bytes=64 * 2**20)
    report = run(process, "llguidance", HUGE)
    process.close()
    assert report.status in ("memory", "crash", "error"), report


def test_cancelled_work_stops(process: CompileProcess) -> None:
    thread, ticket, reports = start_endless(process)
    assert process.pid is not None
    [child] = children_of(process.pid)
    process.cancel(ticket)
    thread.join(20)
    assert [report.status for report in reports] == ["cancelled"]
    assert not is_alive(child)


def test_ticket_that_is_cancelled_before_its_turn_never_runs(process: CompileProcess) -> None:
    ticket = process.new_ticket()
    process.cancel(ticket)
    assert run(process, "llguidance", ENDLESS, ticket=ticket).status == "cancelled"


def test_E1_crash_ends_its_job_only(process: CompileProcess, backend: XGrammarBackend) -> None:
    thread, _, reports = start_endless(process)
    worker = process.pid
    assert worker is not None
    os.kill(children_of(worker)[0], signal.SIGSEGV)
    thread.join(20)
    assert [report.status for report in reports] == ["crash"]
    assert "signal 11" in reports[0].message
    assert run(process, "xgrammar", backend.export_source(SPEC)).status == "ok"
    assert process.pid == worker


def test_killed_worker_takes_its_jobs_along_and_is_replaced(process: CompileProcess, backend: XGrammarBackend) -> None:
    thread, _, reports = start_endless(process)
    worker = process.pid
    assert worker is not None
    [child] = children_of(worker)
    os.kill(worker, signal.SIGKILL)
    thread.join(20)
    assert [report.status for report in reports] == ["lost"]
    assert wait_until(lambda: not is_alive(child))
    assert run(process, "xgrammar", backend.export_source(SPEC)).status == "ok"
    assert process.pid != worker
    assert num_zombies() == 0


def test_close_ends_worker_and_jobs_and_removes_the_folder() -> None:
    process = CompileProcess(SMALL, memory_bytes=2**30)
    thread, _, reports = start_endless(process)
    assert process.pid is not None
    pids = [process.pid, *children_of(process.pid)]
    assert process._connection is not None
    folder = process._connection.folder
    process.close()
    thread.join(20)
    assert [report.status for report in reports] == ["lost"]
    ended_by = time.monotonic() + 10  # killed at once; the system may take a moment to take them away
    while any(map(is_alive, pids)) and time.monotonic() < ended_by:
        time.sleep(0.02)
    assert not any(map(is_alive, pids))
    assert not folder.exists()
    assert num_zombies() == 0
    assert run(process, "xgrammar", "").status == "lost"


@pytest.mark.parametrize(
    "how", ["SIGKILL", pytest.param("exit", marks=pytest.mark.slow), pytest.param("SIGINT", marks=pytest.mark.slow)]
)
def test_no_process_outlives_its_owner(how: str) -> None:
    script = textwrap.dedent("""
        import sys, threading, time
        from tests.engine.test_compile_process import CompileProcess, SMALL, start_endless, children_of
        process = CompileProcess(SMALL, memory_bytes=2**30)
        thread, _, _ = start_endless(process)
        print(process.pid, *children_of(process.pid), process._connection.folder, flush=True)
        if sys.argv[1] == "exit":
            import os; os._exit(0)
        thread.join()
    """)
    root = Path(__file__).parent.parent.parent
    owner = subprocess.Popen(
        [sys.executable, "-c", script, how], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    with owner.stdout:
        *pids, folder = owner.stdout.readline().split()
    if how != "exit":
        owner.send_signal(signal.Signals[how])
    owner.wait(30)
    assert wait_until(lambda: not any(is_alive(int(pid)) for pid in pids))
    assert wait_until(lambda: not Path(folder).exists())
