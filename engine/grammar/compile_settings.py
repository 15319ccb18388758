"""Limits of compiling and remembering grammars."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileSettings:
    """What a grammar manager may use.

    Attributes:
        num_workers: Compiles at the same time, of the quick kind and of the others each; None takes half of the cores, at least
            one, since compiling is CPU-bound and the scheduler needs its share.
        timeout_s: A compile is stopped after so long.
        memory_bytes: Memory that one compile in the compile process may take.
        max_waiting: Grammars that may wait or compile before new ones are refused as busy.
        cache_bytes: Cap of the remembered grammars in memory, keys counted.
        disk_cache: Folder for grammars that took long to compile; None keeps nothing on disk.
        disk_cache_bytes: Cap of that folder.
        upgrade_after: From this use of a spec on, a backend that may have faster masks is compiled in the background and compared
            with the one in use; later requests get the faster one. None never does that.
        upgrade_timeout_s: Such a compile is stopped after so long.
        memo_bytes: Cap of the masks and states that sequences of one grammar share; None shares none.
    """

    num_workers: int | None = None
    timeout_s: float = 60.0
    memory_bytes: int = 2 * 2**30
    max_waiting: int = 128
    cache_bytes: int = 512 * 2**20
    disk_cache: Path | None = None
    disk_cache_bytes: int = 2 * 2**30
    upgrade_after: int | None = 2
    upgrade_timeout_s: float = 30.0
    memo_bytes: int | None = 128 * 2**20
