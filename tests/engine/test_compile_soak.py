"""Many grammars in a row: memory stays flat after the cap, and nothing is left over."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import wait
from functools import partial
from pathlib import Path

import pytest

from engine import EngineConfig, GrammarSpec, LLMEngine, SamplingParams
from engine.grammar import CompileSettings, GrammarManager

from .grammar_backends import make_backend
from .processes import children_of, is_alive, num_zombies, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(1200),
]
NUM_SCHEMAS, NUM_ANSWERS = 5000, 2000
CAP = 8 * 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def none_is_alive(pids: list[int]) -> bool:
    return not any(map(is_alive, pids))


def make_spec(number: int) -> GrammarSpec:
    properties = {f"field_{number}_{index}": {"type": kind} for index, kind in enumerate(("string", "integer", "boolean"))}
    return GrammarSpec.from_json_schema({"type": "object", "properties": properties, "required": list(properties)})


def test_E8_memory_is_flat_after_the_cap_and_nothing_is_left() -> None:
    threads_before, children_before = threading.active_count(), len(children_of(os.getpid()))
    manager = GrammarManager([make_backend("xgrammar"), make_backend("llguidance")], CompileSettings(cache_bytes=CAP))
    sizes = []
    for number in range(NUM_SCHEMAS):
        spec = make_spec(number)
        future = manager.request(spec)
        future.result(60)
        manager.release(spec, future)
        if number % 500 == 499:
            sizes.append(resident_bytes())
            assert manager._ready.num_bytes <= CAP
    # Full after a few hundred; from the third sample on nothing grows but by noise of the allocator.
    assert max(sizes[2:]) - sizes[2] < 48 * 2**20, sizes
    assert manager.counts.compiles == NUM_SCHEMAS
    assert not manager._in_flight
    manager.close()
    assert wait_until(lambda: threading.active_count() <= threads_before)
    assert len(children_of(os.getpid())) == children_before


def test_E8_memory_is_flat_through_the_engine() -> None:
    """Answers grow automata and fill masks, which compiling alone does not."""
    threads_before, children_before = threading.active_count(), len(children_of(os.getpid()))
    engine = LLMEngine(EngineConfig(model="pocket-r1", max_num_seqs=16, grammar_cache_bytes=CAP))
    prompt_ids = engine.render([{"role": "user", "content": "3 lamps"}], thinking=False)
    sizes, num_sent, num_answered = [], 0, 0
    while num_sent < NUM_ANSWERS or engine.has_unfinished():
        if num_sent < NUM_ANSWERS and num_sent - num_answered < 24:
            engine.add_request(str(num_sent), prompt_ids, SamplingParams(max_tokens=12), grammar=make_spec(num_sent))
            num_sent += 1
            if num_sent % (NUM_ANSWERS // 10) == 0:
                sizes.append(resident_bytes())
        finals = [output for output in engine.step() if output.finished]
        assert all(output.stop_reason in ("stop", "length") for output in finals)
        num_answered += len(finals)
    assert max(sizes[4:]) - sizes[4] < 48 * 2**20, sizes
    assert engine._grammars._ready.num_bytes <= CAP
    assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
    engine.close()
    assert wait_until(lambda: threading.active_count() <= threads_before)
    assert len(children_of(os.getpid())) == children_before


def test_worker_killed_again_and_again_serves_on() -> None:
    manager = GrammarManager(make_backend("xgrammar"), CompileSettings(num_workers=2))
    # Optional properties by the thousand: minutes.
    slow = [
        GrammarSpec.from_json_schema({"type": "object", "properties": {f"p{i}_{n}": {"type": "integer"} for i in range(3000)}})
        for n in range(3)
    ]
    seen: set[int] = set()
    for spec in slow:
        future = manager.request(spec)
        # A lost compile is tried once more.
        for _ in range(2):
            assert wait_until(lambda: manager.worker_pid not in {None, *seen} and bool(children_of(manager.worker_pid or 0)))
            worker = manager.worker_pid
            assert worker is not None
            seen.add(worker)
            pids = [worker, *children_of(worker)]
            os.kill(worker, signal.SIGKILL)
            assert wait_until(partial(none_is_alive, pids))
        wait([future], timeout=60)
        assert future.exception() is not None
    manager.close()
    assert num_zombies() == 0
