"""An upstream that plays a script, for tests without a model: yours and ours.

Example::

    upstream = ScriptedUpstream([reply("I add them up.", '{"total": 3}')])
    client = Client("test", upstream=upstream)
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import closing

from .errors import MiddlewareError
from .result import FinishReason, Usage
from .upstreams.base import ChatRequest, UpstreamDelta, UpstreamEnd, UpstreamItem, UpstreamTraits

ScriptItem = UpstreamItem | MiddlewareError
Reply = Sequence[ScriptItem]


def reply(
    reasoning: str = "", content: str = "", *, finish_reason: FinishReason = "stop", piece_len: int = 4
) -> list[ScriptItem]:
    """Write a reply that arrives in pieces of `piece_len` characters, one token counted per piece."""
    thinking = [UpstreamDelta(reasoning=piece) for piece in _pieces(reasoning, piece_len)]
    answer = [UpstreamDelta(content=piece) for piece in _pieces(content, piece_len)]
    usage = Usage(10, len(thinking) + len(answer), len(thinking))
    is_open = finish_reason == "length" and not content
    return [*thinking, *answer, UpstreamEnd(finish_reason=finish_reason, usage=usage, is_reasoning_open=is_open)]


def _pieces(text: str, piece_len: int) -> list[str]:
    return [text[start : start + piece_len] for start in range(0, len(text), piece_len)]


class ScriptedUpstream:
    """Plays one reply per request, in order; an error in a reply is raised at its place.

    Attributes:
        requests: What was asked, oldest first.
        reported: Requests whose answer broke the schema.
        num_cancelled: Streams that were closed before their end.
        is_closed: Whether `close` was called.
    """

    def __init__(self, replies: Iterable[Reply], *, traits: UpstreamTraits | None = None) -> None:
        self._replies = list(replies)
        self._lock = threading.Lock()
        self._traits = traits or UpstreamTraits()
        self.requests: list[ChatRequest] = []
        self.reported: list[ChatRequest] = []
        self.num_cancelled = 0
        self.is_closed = False

    @property
    def traits(self) -> UpstreamTraits:
        """As given."""
        return self._traits

    def stream(self, request: ChatRequest) -> Generator[UpstreamItem, None, None]:
        """Play the next reply.

        Raises:
            MiddlewareError: The script says so.
        """
        script = self._next_reply(request)
        try:
            for item in script:
                if isinstance(item, MiddlewareError):
                    raise item
                yield item
        except GeneratorExit:
            self.num_cancelled += 1
            raise

    async def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        """Play the next reply.

        Raises:
            MiddlewareError: The script says so.
        """
        with closing(self.stream(request)) as items:
            for item in items:
                yield item

    def _next_reply(self, request: ChatRequest) -> Reply:
        with self._lock:
            self.requests.append(request)
            assert len(self.requests) <= len(self._replies), "the script has no reply for this request"
            return self._replies[len(self.requests) - 1]

    def report_invalid(self, request: ChatRequest) -> None:
        """Keep the request in `reported`."""
        self.reported.append(request)

    def load(self) -> None:
        """Do nothing."""

    def check_health(self) -> None:
        """A script is always well."""

    def close(self) -> None:
        """Note that it was called."""
        self.is_closed = True
