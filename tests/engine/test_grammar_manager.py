"""Background compiles: single flight, failure, cancellation, the byte cap."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine import GrammarSpec
from engine.grammar import CompileSettings, GrammarManager


class FakeCompiled:
    memory_size_bytes = 1000

    def new_matcher(self, stop_token_ids: Any) -> Any:
        raise NotImplementedError


class FakeBackend:
    name = "fake"

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.checked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def check(self, spec: GrammarSpec) -> None:
        self.checked += 1

    def compile(self, spec: GrammarSpec) -> FakeCompiled:
        assert self.gate.wait(20)
        self.compiled.append(spec.schema_text)
        if self.error is not None:
            raise self.error
        return FakeCompiled()

    def fill_bitmasks(self, matchers: Any, bitmask: Any, rows: Any) -> None:
        raise NotImplementedError


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def manager(backend: FakeBackend) -> Iterator[GrammarManager]:
    manager = GrammarManager(backend, CompileSettings(num_workers=1, cache_bytes=5000))
    yield manager
    backend.gate.set()
    manager.close()


def spec(number: int) -> GrammarSpec:
    return GrammarSpec.from_json_schema({"const": number})


def test_equal_specs_compile_once_while_in_flight_and_after(backend: FakeBackend, manager: GrammarManager) -> None:
    backend.gate.clear()
    futures = [manager.request(spec(1)) for _ in range(50)]
    backend.gate.set()
    assert len({id(future.result(20).compiled) for future in futures}) == 1
    assert manager.request(spec(1)).done()
    assert len(backend.compiled) == manager.num_compiles == 1


def test_failure_reaches_its_waiters_and_is_not_remembered(backend: FakeBackend, manager: GrammarManager) -> None:
    backend.error = RuntimeError("boom")
    with pytest.raises(RuntimeError, match="boom"):
        manager.request(spec(1)).result(20)
    backend.error = None
    assert isinstance(manager.request(spec(1)).result(20).compiled, FakeCompiled)


def test_compile_that_nobody_waits_for_is_cancelled(backend: FakeBackend, manager: GrammarManager) -> None:
    backend.gate.clear()
    running = manager.request(spec(1))
    queued = [manager.request(spec(2)) for _ in range(2)]
    manager.release(spec(2), queued[0])
    assert not queued[0].cancelled()
    manager.release(spec(2), queued[1])
    assert queued[0].cancelled()
    backend.gate.set()
    running.result(20)
    assert isinstance(manager.request(spec(2)).result(20).compiled, FakeCompiled)
    assert len(backend.compiled) == 2


def test_E8_remembered_grammars_stay_within_the_cap(backend: FakeBackend, manager: GrammarManager) -> None:
    for number in range(100):
        future = manager.request(spec(number))
        future.result(20)
        manager.release(spec(number), future)
    assert manager._ready.num_bytes <= 5000
    assert len(manager._ready) == 4
    assert not manager._in_flight
    manager.request(spec(99)).result(20)
    assert len(backend.compiled) == 100
    manager.request(spec(0)).result(20)
    assert len(backend.compiled) == 101


def test_known_spec_is_not_checked_again(backend: FakeBackend, manager: GrammarManager) -> None:
    manager.check(spec(1))
    manager.request(spec(1)).result(20)
    manager.check(spec(1))
    assert backend.checked == 1


def test_passed_checks_are_remembered_up_to_a_cap(
    backend: FakeBackend, manager: GrammarManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager._checked.max_bytes = 16_000
    for number in (1, 1, *range(2, 200), 199, 1):
        manager.check(spec(number))
    assert backend.checked == 200
    assert manager._checked.num_bytes <= 16_000


def test_check_of_what_is_ready_is_not_remembered_twice(manager: GrammarManager) -> None:
    for number in range(50):
        manager.check(spec(number))
        manager.request(spec(number)).result(30)
    assert len(manager._checked) == 0


def test_spelling_of_the_schema_text_does_not_matter() -> None:
    assert GrammarSpec.from_json_schema('{ "type" : "object" }') == GrammarSpec.from_json_schema({"type": "object"})
