"""The engine behind its thread: plain and asynchronous reading, leaving early, closing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from engine import (
    AsyncLLMEngine,
    EngineClosedError,
    EngineConfig,
    EngineError,
    GrammarSpec,
    InvalidRequestError,
    RequestOutput,
    SamplingParams,
)
from engine.grammar.choice import BackendChoice
from engine.metrics import EngineTotals, RequestStats, StepStats
from engine.sequence import Sequence

SPEC = GrammarSpec.from_json_schema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]})
LONG = SamplingParams(max_tokens=400)


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[AsyncLLMEngine]:
    with AsyncLLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=4)) as engine:
        yield engine


def wait_until_idle(engine: AsyncLLMEngine) -> None:
    deadline = time.monotonic() + 20
    while engine._engine.has_unfinished():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def joined(outputs: list[RequestOutput]) -> list[int]:
    return [token_id for output in outputs for token_id in output.new_token_ids]


def test_plain_stream_gives_everything_once(engine: AsyncLLMEngine) -> None:
    prompt = engine.render([{"role": "user", "content": "x"}])
    outputs = list(engine.submit(prompt, SamplingParams(max_tokens=30, max_reasoning_tokens=10), grammar=SPEC))
    assert outputs[-1].finished
    assert not any(output.finished for output in outputs[:-1])
    assert joined(outputs) == outputs[-1].token_ids
    assert "".join(output.content_delta for output in outputs) == outputs[-1].content


async def test_async_streams_run_side_by_side(engine: AsyncLLMEngine) -> None:
    async def run(number: int) -> list[RequestOutput]:
        return [output async for output in engine.submit([1, number + 1], SamplingParams(max_tokens=20))]

    runs = await asyncio.gather(*(run(number) for number in range(9)))
    assert all(joined(outputs) == outputs[-1].token_ids for outputs in runs)
    assert [outputs[-1].prompt_token_ids[1] for outputs in runs] == list(range(1, 10))


def test_threads_submit_side_by_side(engine: AsyncLLMEngine) -> None:
    results: dict[int, int] = {}

    def run(number: int) -> None:
        results[number] = len(list(engine.submit([1, number], SamplingParams(max_tokens=10)))[-1].token_ids)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == dict.fromkeys(range(6), 10)


def test_leaving_a_plain_stream_ends_the_request(engine: AsyncLLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: list[str] = []
    real = engine._engine.abort

    def abort(request_id: str) -> bool:
        aborted.append(request_id)
        return real(request_id)

    monkeypatch.setattr(engine._engine, "abort", abort)
    stream = engine.submit([1, 2], LONG)
    for _ in stream:
        break
    wait_until_idle(engine)
    assert aborted == [stream.request_id]
    assert engine._engine._kv_cache.num_free_blocks == engine._engine._kv_cache.num_blocks


async def test_leaving_an_async_stream_ends_the_request(engine: AsyncLLMEngine) -> None:
    async def read() -> None:
        async for _ in engine.submit([1, 2], LONG):
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    wait_until_idle(engine)
    assert not engine._streams


def test_cancel_from_another_thread_ends_the_reading(engine: AsyncLLMEngine) -> None:
    stream = engine.submit([1, 2], LONG)
    threading.Timer(0.05, stream.cancel).start()
    outputs = list(stream)
    assert not outputs[-1].finished
    wait_until_idle(engine)


def test_slow_reader_gets_merged_outputs(engine: AsyncLLMEngine) -> None:
    stream = engine.submit([1, 2], SamplingParams(max_tokens=40))
    wait_until_idle(engine)
    engine.totals()  # answered once what the last step brought has been handed out
    [output] = list(stream)
    assert output.new_token_ids == output.token_ids
    assert len(output.token_ids) == 40


def test_admission_errors_are_raised_by_submit(engine: AsyncLLMEngine) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        engine.submit([])
    assert caught.value.param == "prompt"
    assert list(engine.submit([1], SamplingParams(max_tokens=2)))[-1].finished


def test_E6_slow_check_does_not_hold_up_the_others(engine: AsyncLLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    selector = engine._engine._grammars._selector
    real, is_checking, go_on = selector.choose, threading.Event(), threading.Event()

    def slow(spec: GrammarSpec) -> BackendChoice:
        is_checking.set()
        assert go_on.wait(20)
        return real(spec)

    monkeypatch.setattr(selector, "choose", slow)
    submitting = threading.Thread(target=lambda: engine.submit([1, 2], LONG, grammar=SPEC).cancel())
    submitting.start()
    assert is_checking.wait(20)
    assert list(engine.submit([1, 2], SamplingParams(max_tokens=3)))[-1].finished
    go_on.set()
    submitting.join(20)


def test_close_ends_running_requests_with_an_error(engine: AsyncLLMEngine) -> None:
    stream = engine.submit([1, 2], LONG)
    engine.close()
    engine.close()
    last = list(stream)[-1]
    assert last.finished
    assert isinstance(last.error, EngineClosedError)
    with pytest.raises(EngineClosedError):
        engine.submit([1])


def test_failing_step_tells_its_requests_and_the_engine_lives_on(engine: AsyncLLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("bug")

    with monkeypatch.context() as patched:
        patched.setattr(engine._engine._scheduler, "schedule", fail)
        last = list(engine.submit([1, 2]))[-1]
    assert isinstance(last.error, EngineError)
    assert len(list(engine.submit([1, 2], SamplingParams(max_tokens=3)))[-1].token_ids) == 3


@pytest.mark.parametrize("is_closable", [True, False], ids=["in-order", "broken-too"])
def test_thread_that_ends_says_so_and_leaves_no_reader_waiting(
    engine: AsyncLLMEngine, monkeypatch: pytest.MonkeyPatch, is_closable: bool
) -> None:
    def fail(*args: object) -> None:
        raise MemoryError("bug")

    assert engine.why_not_alive() is None
    stream = engine.submit([1, 2], LONG)
    if not is_closable:
        monkeypatch.setattr(engine._engine, "fail_all", fail)
    monkeypatch.setattr(engine, "_step", fail)
    outputs = list(stream)
    if is_closable:
        assert isinstance(outputs[-1].error, EngineClosedError)
    engine._thread.join(20)
    assert not engine.is_alive()
    assert "MemoryError('bug')" in str(engine.why_not_alive())
    with pytest.raises(EngineClosedError, match="MemoryError"):
        engine.submit([1, 2])


def test_reader_whose_loop_is_gone_does_not_stop_the_engine(engine: AsyncLLMEngine) -> None:
    async def begin() -> None:
        stream = engine.submit([1, 2], LONG)
        await anext(aiter(stream))

    asyncio.run(begin())
    assert list(engine.submit([1, 2], SamplingParams(max_tokens=3)))[-1].finished
    wait_until_idle(engine)


class LateFuture(futures.Future[object]):
    """A result that arrives in the very moment in which waiting for it has timed out."""

    def result(self, timeout: float | None = None) -> object:
        result = super().result()
        if timeout is not None:
            raise TimeoutError
        return result


def test_result_that_arrives_at_the_timeout_is_not_lost(engine: AsyncLLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.async_engine.Future", LateFuture)
    assert list(engine.submit([1, 2, 3], SamplingParams(max_tokens=2)))[-1].finished


def test_priority_reaches_the_scheduler(engine: AsyncLLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = engine._engine._scheduler.add

    def add(sequence: Sequence) -> None:
        seen.append(sequence.priority)
        real(sequence)

    monkeypatch.setattr(engine._engine._scheduler, "add", add)
    list(engine.submit([1, 2], SamplingParams(max_tokens=2), priority=3))
    assert seen == [3]


_LEFT_OPEN = """
import sys
from engine import AsyncLLMEngine, EngineConfig, GrammarSpec, SamplingParams

engine = AsyncLLMEngine(EngineConfig(model=sys.argv[1]))
streams = [engine.submit([5, 6], SamplingParams(max_tokens=400, ignore_eos=True)) for _ in range(4)]
slow = {f"p{i}": {"type": "string", "pattern": f"^(a|b|c{i}){{1,400}}(x|y){{1,400}}$"} for i in range(30)}
spec = GrammarSpec.from_json_schema({"type": "object", "properties": slow}, backend="xgrammar")
streams.append(engine.submit([5], grammar=spec))
next(iter(streams[0]))
"""


def test_process_ends_in_order_with_an_engine_left_open(tiny_model: Path) -> None:
    # A daemon thread that comes back from native code after the interpreter has gone would abort the process.
    command = [sys.executable, "-c", _LEFT_OPEN, str(tiny_model)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_second_reader_of_a_stream_is_refused(engine: AsyncLLMEngine) -> None:
    stream = engine.submit([1, 2], LONG)
    first = iter(stream)
    next(first)
    with pytest.raises(InvalidRequestError, match="another reader"):
        next(iter(stream))
    assert list(first)[-1].finished
    assert list(stream) == []


async def test_second_asynchronous_reader_is_refused(engine: AsyncLLMEngine) -> None:
    stream = engine.submit([1, 2], LONG)
    first = aiter(stream)
    await anext(first)
    with pytest.raises(InvalidRequestError, match="another reader"):
        await anext(aiter(stream))
    assert [output async for output in first][-1].finished


def test_observer_may_ask_the_engine(tiny_model: Path) -> None:
    asked: list[EngineTotals] = []
    engines: list[AsyncLLMEngine] = []

    def observe(stats: StepStats | RequestStats) -> None:
        asked.extend(engine.totals() for engine in engines)

    with AsyncLLMEngine(EngineConfig(model=str(tiny_model)), observer=observe) as engine:
        engines.append(engine)
        list(engine.submit([1, 2], SamplingParams(max_tokens=3)))
    assert asked[-1].num_steps >= 2


def test_death_of_the_thread_is_told_to_its_requests(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = AsyncLLMEngine(EngineConfig(model=str(tiny_model)))

    def die() -> None:
        raise SystemExit("killed")

    stream = engine.submit([1, 2], LONG)
    monkeypatch.setattr(engine._engine, "step", die)
    error = list(stream)[-1].error
    assert isinstance(error, EngineClosedError)
    assert "SystemExit('killed')" in str(error)
    engine.close()
