"""The client: an output type in, a validated object out, with the thinking beside it.

One request, top to bottom: `Client.stream` builds a `Generation` (what is asked, what counts as good), `ResponseStream` carries
its requests to the upstream and its events to the caller, `Client.generate` waits for the last of them. `async_client.py` is the
same for asyncio.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from .errors import InvalidRequestError, UpstreamError
from .events import Event, FinalResult
from .generation import Generation
from .output_types import OutputType, check_messages
from .result import Result
from .settings import GenerateOptions, GenerationSettings
from .upstreams.base import Upstream
from .upstreams.factory import Families, create_upstream
from .upstreams.schema_modes import Strategy

T = TypeVar("T")
Messages = str | Sequence[Mapping[str, Any]]


class Client:
    """A client for one model. Use it as a context manager, or call `close`.

    May be used from several threads. Nothing is loaded before the first call; `load` does it ahead of time.
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
        """Choose the upstream.

        Args:
            model: `local/<name, folder or hub id>` for the engine, else a litellm model string such as `openai/gpt-5`.
            base_url: Address of an OpenAI-compatible server.
            api_key: Its key; None = from the environment, as litellm does.
            timeout_s: Most seconds for one call, all attempts together.
            family: Reasoning family of the model; `auto` = find out.
            families: Families of your own: a TOML or JSON file, or a registry. None = those that ship or are installed.
            strategy: How the schema is asked for; `auto` = what the upstream can do.
            engine_options: Options of `engine.EngineConfig`, for local models.
            upstream: Ask this instead; see `middleware.testing`.

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
    def generate(self, output_type: None, messages: Messages, **options: Unpack[GenerateOptions]) -> Result[str]: ...
    @overload
    def generate(self, output_type: type[T], messages: Messages, **options: Unpack[GenerateOptions]) -> Result[T]: ...
    @overload
    def generate(self, output_type: Any, messages: Messages, **options: Any) -> Result[Any]: ...
    def generate(self, output_type: Any, messages: Messages, **options: Any) -> Result[Any]:
        """Ask, and return the validated object.

        Args:
            output_type: A pydantic model, dataclass, type annotation, JSON schema as a dict; None or `str` for free text.
            messages: One user message, or a conversation.
            **options: See `GenerationSettings`; other names go to the provider as they are.

        Raises:
            InvalidRequestError: The call is wrong.
            GenerationError: The model gave no valid object; carries all it wrote.
            UpstreamError: The model could not be asked, or broke off.
        """
        with self.stream(output_type, messages, **options) as stream:
            for _ in stream:
                pass
            return stream.result

    @overload
    def stream(self, output_type: None, messages: Messages, **options: Unpack[GenerateOptions]) -> ResponseStream[str]: ...
    @overload
    def stream(self, output_type: type[T], messages: Messages, **options: Unpack[GenerateOptions]) -> ResponseStream[T]: ...
    @overload
    def stream(self, output_type: Any, messages: Messages, **options: Any) -> ResponseStream[Any]: ...
    def stream(self, output_type: Any, messages: Messages, **options: Any) -> ResponseStream[Any]:
        """Ask, and return a stream of events. Arguments as for `generate`; nothing is sent before the first event is asked for.

        Raises:
            InvalidRequestError: The call is wrong.
        """
        if self._is_closed:
            raise InvalidRequestError("the client is closed")
        settings = GenerationSettings.from_options(options)
        output: OutputType[Any] = OutputType(output_type)
        generation = Generation(output, check_messages(messages), settings, self._upstream.traits, timeout_s=self.timeout_s)
        return ResponseStream(generation, self._upstream)

    def load(self) -> None:
        """Load the model now instead of at the first call. May take long.

        Raises:
            UpstreamError: It cannot be loaded.
        """
        self._upstream.load()

    def close(self) -> None:
        """Free the model. May be called twice."""
        self._is_closed = True
        self._upstream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ResponseStream(Generic[T]):
    """Events of one call; a context manager. Leaving it early cancels the request."""

    def __init__(self, generation: Generation[T], upstream: Upstream) -> None:
        self._result: Result[T] | None = None
        self._events = _run(generation, upstream)

    @property
    def result(self) -> Result[T]:
        """The result, once the stream is used up.

        Raises:
            InvalidRequestError: The stream is not used up.
        """
        if self._result is None:
            raise InvalidRequestError("the stream has no result yet", hint="iterate to its end first")
        return self._result

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event[T]:
        event = next(self._events)
        if isinstance(event, FinalResult):
            self._result = event.result
        return event

    def close(self) -> None:
        """Stop. Cancels the request if it still runs."""
        self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _run(generation: Generation[T], upstream: Upstream) -> Generator[Event[T], None, None]:
    # No method: the generator would hold the stream that holds it, and one that is dropped half-read would run on until the next
    # garbage collection.
    upstream.load()
    generation.start()
    while (request := generation.next_request()) is not None:
        with closing(upstream.stream(request)) as items:
            try:
                for item in items:
                    yield from generation.receive(item)
            except (InvalidRequestError, UpstreamError) as error:
                raise generation.annotate(error) from error.__cause__
            finally:
                if (broken := generation.failed_request) is not None:
                    upstream.report_invalid(broken)
