"""The grammar manager over real backends: stopping, crashing, upgrading, the disk, and that later requests are served."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import GrammarCompileError, GrammarSpec
from engine.errors import EngineClosedError
from engine.grammar import CompileSettings, GrammarManager, compile_cost, killable_compiler, upgrades
from engine.grammar.compile_threads import CompileThreads

from .grammar_backends import STOP, make_backend
from .processes import children_of, wait_until

ROOT = Path(__file__).parent.parent.parent
SPEC = GrammarSpec.from_json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
# With a common vocabulary or not, xgrammar needs minutes for these optional properties.
SLOW = GrammarSpec.from_json_schema(
    {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(3000)}}, backend="xgrammar"
)
# Quick for llguidance, some seconds for xgrammar.
HEAVY = GrammarSpec.from_json_schema(
    {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(350)}}
)


@pytest.fixture
def manager() -> Iterator[GrammarManager]:
    manager = GrammarManager(
        [make_backend("xgrammar"), make_backend("llguidance")], CompileSettings(num_workers=1, upgrade_after=2)
    )
    yield manager
    manager.close()


@pytest.fixture
def everything_goes_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cost, "MAX_TINY", 0)


def test_E4_compile_over_its_deadline_ends_with_an_error_and_the_next_is_served() -> None:
    manager = GrammarManager(make_backend("xgrammar"), CompileSettings(num_workers=1, timeout_s=0.2))
    with pytest.raises(GrammarCompileError, match=r"within 0.2 s and was stopped"):
        manager.request(SLOW).result(60)
    assert manager.worker_pid is not None
    assert children_of(manager.worker_pid) == []
    assert manager.request(SPEC).result(60).backend == "xgrammar"
    assert (manager.counts.failed, manager.counts.compiles) == (1, 2)
    manager.close()


def test_E6_running_compile_stops_when_its_last_request_goes_away(manager: GrammarManager) -> None:
    futures = [manager.request(SLOW) for _ in range(2)]
    assert wait_until(lambda: manager.worker_pid is not None and bool(children_of(manager.worker_pid)))
    worker = manager.worker_pid
    assert worker is not None
    manager.release(SLOW, futures[0])
    assert not futures[0].cancelled()
    manager.release(SLOW, futures[1])
    assert futures[1].cancelled()
    assert wait_until(lambda: children_of(worker) == [])
    assert manager.request(SPEC).result(60).compile_s >= 0
    assert manager.counts.cancelled == 1


def test_quick_compiles_pass_a_slow_one(manager: GrammarManager) -> None:
    slow = manager.request(SLOW)
    assert manager.request(SPEC).result(60).new_matcher((STOP,)).accept_tokens([*b'{"a":1}', STOP])
    assert not slow.done()
    manager.release(SLOW, slow)


@pytest.mark.usefixtures("everything_goes_to_the_process")
@pytest.mark.parametrize("recompile_under_s", [1e9, 0.0], ids=["again_here", "loaded"])
def test_grammar_from_the_process_is_the_same_either_way(
    manager: GrammarManager, monkeypatch: pytest.MonkeyPatch, recompile_under_s: float
) -> None:
    monkeypatch.setattr(killable_compiler, "RECOMPILE_UNDER_S", recompile_under_s)
    spec = GrammarSpec.from_json_schema({"const": [f"{recompile_under_s}"]}, backend="xgrammar")
    prepared = manager.request(spec).result(60)
    assert prepared.compile_s > 0
    assert prepared.new_matcher((STOP,)).accept_tokens([*json.dumps([f"{recompile_under_s}"]).encode(), STOP])


@pytest.mark.usefixtures("everything_goes_to_the_process")
def test_later_requests_get_the_faster_backend_and_nothing_is_compiled_again(
    manager: GrammarManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "token_costs", lambda *_: (9e-6, 2e-6))
    first = manager.request(SPEC).result(60)
    assert (first.backend, first.cache) == ("llguidance", "none")
    second = manager.request(SPEC).result(60)
    assert (second.backend, second.cache) == ("llguidance", "memory")
    assert wait_until(lambda: manager.request(SPEC).result().backend == "xgrammar")
    third = manager.request(SPEC).result()
    assert third.reason == "a token took 2.0 us on a sample, with llguidance 9.0 us"
    assert (manager.counts.compiles, manager.counts.upgrades) == (1, 1)


@pytest.mark.usefixtures("everything_goes_to_the_process")
@pytest.mark.parametrize("costs", [(2e-6, 9e-6), (2e-6, 1.9e-6), None], ids=["slower", "hardly-faster", "nothing-measured"])
def test_backend_that_is_not_faster_is_compared_once(
    manager: GrammarManager, costs: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = threading.Event()

    def compare(*_: object) -> tuple[float, float] | None:
        compared.set()
        return costs

    monkeypatch.setattr(upgrades, "token_costs", compare)
    spec = GrammarSpec.from_json_schema({"const": [str(costs)]})
    for _ in range(2):
        assert manager.request(spec).result(60).backend == "llguidance"
    assert compared.wait(60)
    assert wait_until(lambda: not manager._upgrades._running)
    for _ in range(3):
        assert manager.request(spec).result(60).backend == "llguidance"
    assert manager.counts.upgrades == 1


@pytest.mark.usefixtures("everything_goes_to_the_process")
def test_backend_that_enforces_less_is_not_even_compiled(manager: GrammarManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrades, "token_costs", lambda *_: (9e-6, 1e-6))
    begun: list[str] = []
    killable = manager._routes._killable["xgrammar"]
    monkeypatch.setattr(killable, "compile", lambda *_, **__: begun.append("xgrammar"))
    # llguidance masks the multiple, xgrammar leaves it to the check.
    spec = GrammarSpec.from_json_schema({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 70_000})
    for _ in range(2):
        assert manager.request(spec).result(60).unenforced == ()
    assert wait_until(lambda: manager.counts.upgrades == 1 and not manager._upgrades._running)
    assert manager.request(spec).result(60).backend == "llguidance"
    assert begun == []


@pytest.mark.slow
@pytest.mark.usefixtures("everything_goes_to_the_process")
def test_upgrade_makes_room_for_a_request(manager: GrammarManager) -> None:
    spec = HEAVY
    manager.request(spec).result(60)
    manager.request(spec).result(60)
    assert wait_until(lambda: manager.worker_pid is not None and bool(children_of(manager.worker_pid)))
    assert manager.counts.upgrades == 1
    started = time.monotonic()
    manager.request(GrammarSpec.from_json_schema({"const": 1}, backend="xgrammar")).result(60)
    assert time.monotonic() - started < 20
    assert manager.request(spec).result(60).backend == "llguidance"
    assert wait_until(lambda: manager.counts.upgrades == 2)


@pytest.mark.slow
@pytest.mark.usefixtures("everything_goes_to_the_process")
def test_upgrade_that_fails_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = CompileSettings(num_workers=1, upgrade_after=2, upgrade_timeout_s=0.001)
    manager = GrammarManager([make_backend("xgrammar"), make_backend("llguidance")], settings)
    manager.request(HEAVY).result(60)
    monkeypatch.setattr(manager._costs, "compile_s", lambda *_: 0.0)
    manager.request(HEAVY).result(60)
    assert wait_until(lambda: len(manager._upgrades._settled) == 1)
    assert manager.request(HEAVY).result().backend == "llguidance"
    assert manager.counts.upgrades == 1
    manager.close()


@pytest.mark.usefixtures("everything_goes_to_the_process")
def test_upgrade_that_cannot_be_done_in_time_is_not_begun() -> None:
    settings = CompileSettings(num_workers=1, upgrade_after=2, upgrade_timeout_s=0.001)
    manager = GrammarManager([make_backend("xgrammar"), make_backend("llguidance")], settings)
    for _ in range(3):
        assert manager.request(HEAVY).result(60).backend == "llguidance"
    assert manager.counts.upgrades == 0
    manager.close()


def test_close_cancels_what_waits_and_refuses_what_comes(manager: GrammarManager) -> None:
    future = manager.request(SLOW)
    manager.close()
    assert future.cancelled()
    with pytest.raises(EngineClosedError):
        manager.request(SPEC)


def test_thread_that_hangs_is_replaced() -> None:
    threads = CompileThreads(1, name="test")
    gate, done = threading.Event(), threading.Event()

    def hang() -> None:
        gate.wait(60)

    job = threads.submit(hang)
    assert wait_until(lambda: job.is_running)
    threads.submit(done.set)
    assert not done.wait(0.05)
    threads.drop(job)
    assert done.wait(20)
    gate.set()
    assert wait_until(lambda: len(threads._threads) == 1)
    threads.close()
    assert wait_until(lambda: not threads._threads)


def test_job_that_raises_leaves_its_thread_alive() -> None:
    threads = CompileThreads(1, name="test")
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("boom")

    threads.submit(fail)
    threads.submit(done.set)
    assert done.wait(20)
    threads.close()


def run_with_disk_cache(folder: Path) -> dict[str, Any]:
    """One process: ask for a grammar of xgrammar twice, with the cache's threshold at 0."""
    script = textwrap.dedent("""
        import json, sys
        from dataclasses import asdict
        from pathlib import Path
        from engine.grammar import CompileSettings, GrammarManager, compile_cost, disk_cache, killable_compiler
        from tests.engine.test_compile_routes import STOP, SPEC, make_backend
        compile_cost.MAX_TINY = disk_cache.MIN_COMPILE_S = disk_cache.MIN_GAIN = killable_compiler.RECOMPILE_UNDER_S = 0
        manager = GrammarManager(make_backend("xgrammar"), CompileSettings(disk_cache=Path(sys.argv[1])))
        prepared = [manager.request(SPEC).result(100) for _ in range(2)]
        assert prepared[0].new_matcher((STOP,)).accept_tokens([*b'{"a":7}', STOP])
        print(json.dumps({"caches": [p.cache for p in prepared], "worker": manager.worker_pid, **asdict(manager.counts)}))
        manager.close()
    """)
    done = subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts


@pytest.mark.slow
def test_second_request_compiles_nothing_also_after_a_restart(tmp_path: Path) -> None:
    first = run_with_disk_cache(tmp_path / "cache")
    assert first["caches"] == ["none", "memory"]
    assert first["worker"] is not None
    second = run_with_disk_cache(tmp_path / "cache")
    assert second["caches"] == ["disk", "memory"]
    # No worker, no compile: it was loaded.
    assert (second["worker"], second["disk_hits"], second["memory_hits"]) == (None, 1, 1)
