"""Run one call with a deep stack: compilers of grammars recurse, and where a stack ends the process does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

STACK_BYTES = 512 * 2**20
"""Address space only; pages that are not touched cost nothing."""
_CREATION = threading.Lock()


def call_on_deep_stack(function: Callable[[], T]) -> T:
    """Call `function` in a thread of its own with a stack of half a gigabyte, wait, and give what it gave or raised."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # whatever it is, it is raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="grammar-deep-stack", daemon=True)
    # The size is a setting of the whole process, for threads that begin from then on.
    with _CREATION:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
