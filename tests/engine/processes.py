"""What tests of processes share: who is whose child, and waiting for something to come true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(is_true: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    """Process ids of the children, zombies included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(int(entry.name))[1])
            except OSError:
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def num_zombies() -> int:
    """Children of this process that ended and were not reaped."""
    return sum(not is_alive(pid) for pid in children_of(os.getpid()))


def _stat(pid: int) -> list[str]:
    # State, parent, ...; the name before them is in parentheses and may hold spaces.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
