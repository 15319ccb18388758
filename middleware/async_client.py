"""The client for asyncio: `client.py` with `await`. What is decided is decided in `generation.py`, for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from .client import Messages
from .errors import InvalidRequestError, UpstreamError, UpstreamTimeoutError
from .events import Event, FinalResult
from .generation import Generation
from .output_types import OutputType, check_messages
from .result import Result
from .settings import GenerateOptions, GenerationSettings
from .upstreams.base import Upstream, UpstreamItem
from .upstreams.factory import Families, create_upstream
from .upstreams.schema_modes import Strategy

T = TypeVar("T")


class AsyncClient:
    """A client for one model, for asyncio. Use it with `async with`, or await `close`.

    Any number of calls may run at once. Nothing is loaded before the first call; `load` does it ahead of time.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        family: str = "auto",
        families: Families = None,
        strategy: Strategy = "auto",
        engine_options: Mapping[str, Any] | None = None,
        upstream: Upstream | None = None,
    ) -> None:
        """Choose the upstream. Arguments as for `Client`.

        Raises:
            InvalidRequestError: An argument is wrong (`UnknownModelError` for the model).
        """
        self.model = model
        self.timeout_s = GenerationSettings(timeout_s=timeout_s).timeout_s or timeout_s
        self._upstream = upstream or create_upstream(
            model,
            base_url=base_url,
            api_key=api_key,
            family=family,
            families=families,
            strategy=strategy,
            engine_options=engine_options,
        )
        self._is_closed = False

    @overload
    async def generate(self, output_type: None, messages: Messages, **options: Unpack[GenerateOptions]) -> Result[str]: ...
    @overload
    async def generate(self, output_type: type[T], messages: Messages, **options: Unpack[GenerateOptions]) -> Result[T]: ...
    @overload
    async def generate(self, output_type: Any, messages: Messages, **options: Any) -> Result[Any]: ...
    async def generate(self, output_type: Any, messages: Messages, **options: Any) -> Result[Any]:
        """Ask, and return the validated object. Arguments and errors as for `Client.generate`. Cancelling cancels the request."""
        async with self.stream(output_type, messages, **options) as stream:
            async for _ in stream:
                pass
            return stream.result

    @overload
    def stream(self, output_type: None, messages: Messages, **options: Unpack[GenerateOptions]) -> AsyncResponseStream[str]: ...
    @overload
    def stream(self, output_type: type[T], messages: Messages, **options: Unpack[GenerateOptions]) -> AsyncResponseStream[T]: ...
    @overload
    def stream(self, output_type: Any, messages: Messages, **options: Any) -> AsyncResponseStream[Any]: ...
    def stream(self, output_type: Any, messages: Messages, **options: Any) -> AsyncResponseStream[Any]:
        """Ask, and return a stream of events. Arguments as for `generate`; nothing is sent before the first event is asked for.

        Raises:
            InvalidRequestError: The call is wrong.
        """
        if self._is_closed:
            raise InvalidRequestError("the client is closed")
        settings = GenerationSettings.from_options(options)
        output: OutputType[Any] = OutputType(output_type)
        generation = Generation(output, check_messages(messages), settings, self._upstream.traits, timeout_s=self.timeout_s)
        return AsyncResponseStream(generation, self._upstream)

    async def load(self) -> None:
        """Load the model now instead of at the first call. May take long.

        Raises:
            UpstreamError: It cannot be loaded.
        """
        await asyncio.to_thread(self._upstream.load)

    def check_health(self) -> None:
        """Say whether requests can be answered, as far as that is known without one; does not wait.

        Raises:
            UpstreamUnavailableError: None can, and none will.
        """
        self._upstream.check_health()

    async def close(self) -> None:
        """Free the model. May be called twice."""
        self._is_closed = True
        await asyncio.to_thread(self._upstream.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class AsyncResponseStream(Generic[T]):
    """Events of one call; a context manager. Leaving it early cancels the request."""

    def __init__(self, generation: Generation[T], upstream: Upstream) -> None:
        self._generation = generation
        self._upstream = upstream
        self._result: Result[T] | None = None
        self._events = self._run()

    @property
    def result(self) -> Result[T]:
        """The result, once the stream is used up.

        Raises:
            InvalidRequestError: The stream is not used up.
        """
        if self._result is None:
            raise InvalidRequestError("the stream has no result yet", hint="iterate to its end first")
        return self._result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[T]:
        event = await anext(self._events)
        if isinstance(event, FinalResult):
            self._result = event.result
        return event

    async def close(self) -> None:
        """Stop. Cancels the request if it still runs."""
        await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _run(self) -> AsyncGenerator[Event[T], None]:
        await asyncio.to_thread(self._upstream.load)
        self._generation.start()
        while (request := self._generation.next_request()) is not None:
            async with aclosing(self._upstream.astream(request)) as items:
                try:
                    while (item := await self._next(items)) is not None:
                        for event in self._generation.receive(item):
                            yield event
                except (InvalidRequestError, UpstreamError) as error:
                    raise self._generation.annotate(error) from error.__cause__
                finally:
                    if (broken := self._generation.failed_request) is not None:
                        self._upstream.report_invalid(broken)

    async def _next(self, items: AsyncGenerator[UpstreamItem, None]) -> UpstreamItem | None:
        left = self._generation.remaining_s()
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with an item.
            async with asyncio.timeout(left):
                return await anext(items, None)
        except TimeoutError:
            raise UpstreamTimeoutError("the call ran out of time", hint="raise timeout_s") from None
