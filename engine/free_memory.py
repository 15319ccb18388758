"""How much memory this process may still take: of the machine, of the container it is in, and of its own limit.

Where a model or a cache is sized by this, it is sized for what the process can have, not for what the machine has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

DEFAULT_BYTES = 8 * 2**30
"""Where the system does not say."""
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_GROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Limit, use, and the part of the use that is given back when it is needed: in version 2 of control groups, and in version 1."""


def free_memory_bytes(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Give the memory that can still be had.

    Args:
        proc: Where the system tells of processes.
        cgroups: Where it tells of control groups, which is how containers are limited.
    """
    limits = [_available(proc), *_left_in_groups(proc, cgroups), *_left_of_own_limit(proc)]
    return max(0, min(limits))


def total_memory_bytes(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Give the memory that there is, whoever holds it now: of the machine, or of the container if that has less."""
    groups = (_number(folder / limit) for folder in _groups(proc, cgroups) for limit, _, _ in _GROUP_FILES)
    return min([_meminfo(proc, "MemTotal") or DEFAULT_BYTES, *(limit for limit in groups if limit is not None)])


def _available(proc: Path) -> int:
    available = _meminfo(proc, "MemAvailable")
    if available is not None:
        return available
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return DEFAULT_BYTES


def _meminfo(proc: Path, name: str) -> int | None:
    kibibytes = _field(proc / "meminfo", f"{name}:")
    return None if kibibytes is None else 1024 * kibibytes


def _left_in_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    for folder in _groups(proc, cgroups):
        for limit_file, use_file, spare_field in _GROUP_FILES:
            limit, use = _number(folder / limit_file), _number(folder / use_file)
            if limit is not None and use is not None:
                yield limit - use + (_field(folder / "memory.stat", spare_field) or 0)


def _groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    """Give the folders of this process's control group and of those around it; inside a container the root is its own."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        inner = root / path.strip("/")
        yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _left_of_own_limit(proc: Path) -> Iterator[int]:
    if sys.platform != "win32":
        import resource

        limit, pages = resource.getrlimit(resource.RLIMIT_AS)[0], _number(proc / "self" / "statm")
        if limit != resource.RLIM_INFINITY and pages is not None:
            yield limit - pages * resource.getpagesize()


def _number(path: Path) -> int | None:
    """Give the first number of a file; None where there is none, as in the limit `max`."""
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name} ") or line.startswith(f"{name}\t"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
