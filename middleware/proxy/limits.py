"""Limits of the server, and the slots that requests take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import overloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may ask of the server.

    Attributes:
        max_body_bytes: Larger request bodies are refused with 413.
        max_concurrency: Requests in work at the same time; one more is refused with 503.
        body_timeout_s: Seconds for a request body to arrive; a slow one gives its slot back with 408.
        timeout_s: Seconds for one answer, from the complete request to its last byte.
        keep_alive_s: Seconds of silence in a stream before a comment is sent.
        shutdown_s: Seconds that running requests get when the server is asked to stop.
    """

    max_body_bytes: int = 4 * 1024 * 1024
    max_concurrency: int = 64
    body_timeout_s: float = 30.0
    timeout_s: float = 600.0
    keep_alive_s: float = 10.0
    shutdown_s: float = 10.0


class Slots:
    """Count the requests in work; one event loop only."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self.num_taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot inside the block.

        Raises:
            ApiError: 503 `overloaded`, when none is free.
        """
        if self.num_taken >= self._num_slots:
            raise overloaded(f"{self.num_taken} requests are in work and no more are taken; try again shortly")
        self.num_taken += 1
        try:
            yield
        finally:
            self.num_taken -= 1
