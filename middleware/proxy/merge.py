"""Several asynchronous generators read at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")

_MAX_WAITING = 64


async def merge(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """Yield the items of all sources as they come, each with the number of its source.

    The first error ends all of them. Closing it closes the sources, and waits until they have cleaned up. A slow reader holds the
    sources up.
    """
    queue: asyncio.Queue[tuple[int, T] | Exception | None] = asyncio.Queue(_MAX_WAITING)
    tasks = [asyncio.create_task(_pump(index, source, queue)) for index, source in enumerate(sources)]
    num_open = len(tasks)
    try:
        while num_open:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _pump(index: int, source: AsyncGenerator[T, None], queue: asyncio.Queue[tuple[int, T] | Exception | None]) -> None:
    ending: Exception | None = None
    try:
        async with aclosing(source):
            async for item in source:
                await queue.put((index, item))
    except Exception as error:  # handed on to the reader, whatever it is
        ending = error
    await queue.put(ending)
