"""What memory is left is that of the machine, of the container around the process, or of its own limit, whichever is least."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine import free_memory
from engine.free_memory import DEFAULT_BYTES, free_memory_bytes, total_memory_bytes

GIB = 2**30


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return folder


def machine(tmp_path: Path, group: str) -> Path:
    meminfo = f"MemTotal:       {64 * 2**20} kB\nMemFree: 1 kB\nMemAvailable:   {32 * 2**20} kB\n"
    return write(tmp_path / "proc", {"meminfo": meminfo, "self/cgroup": group})


def v2(limit: str, use: int, spare: int = 0) -> dict[str, str]:
    return {"memory.max": f"{limit}\n", "memory.current": f"{use}\n", "memory.stat": f"anon 7\ninactive_file {spare}\n"}


def v1(limit: int, use: int, spare: int = 0) -> dict[str, str]:
    stat = f"inactive_file 1\ntotal_inactive_file {spare}\n"
    return {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": f"{use}\n", "memory.stat": stat}


GROUPS: dict[str, tuple[str, dict[str, dict[str, str]], int, int]] = {
    "no-groups": ("", {}, 32, 64),
    "no-limit": ("0::/\n", {"": v2("max", 5 * GIB)}, 32, 64),
    "own": ("0::/\n", {"": v2(str(8 * GIB), 6 * GIB)}, 2, 8),
    "files-are-given-back": ("0::/\n", {"": v2(str(8 * GIB), 6 * GIB, 3 * GIB)}, 5, 8),
    "group-around": ("0::/a/b\n", {"a": v2(str(8 * GIB), 6 * GIB), "a/b": v2("max", GIB)}, 2, 8),
    "more-than-its-limit": ("0::/\n", {"": v2(str(8 * GIB), 9 * GIB)}, 0, 8),
    "larger-than-the-machine": ("0::/\n", {"": v2(str(800 * GIB), 6 * GIB)}, 32, 64),
    "version-1": ("5:cpu:/x\n4:memory:/x\n", {"memory/x": v1(8 * GIB, 6 * GIB, GIB)}, 3, 8),
    # What a container sees as the root is its own group; the path is that of the machine.
    "version-1-inside": ("4:memory:/docker/1f\n", {"memory": v1(8 * GIB, 6 * GIB)}, 2, 8),
    "version-1-without-limit": ("4:memory:/x\n", {"memory/x": v1(2**63 - 4096, GIB)}, 32, 64),
}


@pytest.mark.parametrize("case", GROUPS)
def test_container_counts_where_it_has_less_than_the_machine(tmp_path: Path, case: str) -> None:
    group, folders, free, total = GROUPS[case]
    proc, cgroups = machine(tmp_path, group), tmp_path / "groups"
    for name, files in folders.items():
        write(cgroups / name, files)
    assert free_memory_bytes(proc=proc, cgroups=cgroups) == free * GIB
    assert total_memory_bytes(proc=proc, cgroups=cgroups) == total * GIB


def test_system_that_says_nothing_has_a_default(tmp_path: Path) -> None:
    assert total_memory_bytes(proc=tmp_path, cgroups=tmp_path) == DEFAULT_BYTES
    assert free_memory_bytes(proc=tmp_path, cgroups=tmp_path) > 0


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limits")
def test_own_limit_of_a_process_counts() -> None:
    code = """
import resource, runpy, sys
free_memory_bytes = runpy.run_path(sys.argv[1])["free_memory_bytes"]
before = free_memory_bytes()
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
assert free_memory_bytes() < 2**30 < before, (before, free_memory_bytes())
"""
    # Without the package around it, whose import takes seconds.
    subprocess.run([sys.executable, "-c", code, free_memory.__file__], check=True)
