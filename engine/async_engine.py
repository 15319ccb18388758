"""An engine behind its own thread, for callers in other threads and in asyncio.

One thread owns the `LLMEngine` and steps it. Callers hand it closures and get a `RequestStream` each, which is read by plain or
by asynchronous iteration, not both.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from reasoning_parsers import OnUnknown, ReasoningFamily

from .config import EngineConfig
from .errors import EngineClosedError, EngineError, InvalidRequestError
from .grammar import GrammarSpec
from .llm_engine import POLL_S, LLMEngine
from .metrics import EngineTotals, Observer
from .sampling_params import SamplingParams
from .sequence import RequestOutput

logger = logging.getLogger(__name__)

T = TypeVar("T")

JOIN_TIMEOUT_S = 30.0
DRAIN_POLL_S = 0.01


class RequestStream:
    """Outputs of one request, in order; the last has `finished` set.

    Leaving the stream early (`close`, `cancel`, the end of a `with`) ends the request in the engine. It has one reader: a second
    one gets `InvalidRequestError` while the first still reads, and nothing afterwards.
    """

    def __init__(self, request_id: str, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._abort = abort
        self._lock = threading.Lock()
        self._outputs: list[RequestOutput] = []
        self._arrived = threading.Condition(self._lock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event: asyncio.Event | None = None
        self._is_over = False
        self._is_read = False

    def put(self, output: RequestOutput) -> None:
        """Add an output; called by the engine's thread. Outputs that nobody has read yet are merged, so nothing piles up."""
        with self._arrived:
            self._outputs = [_merge(self._outputs[0], output)] if self._outputs else [output]
        self._notify()

    def cancel(self) -> None:
        """End the request in the engine, if it is not finished; reading ends too."""
        if not self._is_over:
            self._is_over = True
            self._abort(self.request_id)
            self._notify()

    close = cancel

    def _notify(self) -> None:
        with self._arrived:
            self._arrived.notify_all()
            loop, event = self._loop, self._event
        if loop is not None and event is not None and not loop.is_closed():
            # A loop may close between the test and the call; then nobody reads this stream any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    def _claim(self) -> None:
        with self._lock:
            if self._is_read and not self._is_over:
                raise InvalidRequestError(
                    "another reader has this stream already", param="stream", hint="a request has one reader"
                )
            self._is_read = True

    def __iter__(self) -> Iterator[RequestOutput]:
        self._claim()
        try:
            while not self._is_over:
                with self._arrived:
                    while not self._outputs and not self._is_over:
                        self._arrived.wait()
                    outputs, self._outputs = self._outputs, []
                yield from self._note_end(outputs)
        finally:
            self.cancel()

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        self._claim()
        arrived = asyncio.Event()
        with self._arrived:
            self._loop, self._event = asyncio.get_running_loop(), arrived
        try:
            while not self._is_over:
                with self._arrived:
                    outputs, self._outputs = self._outputs, []
                    arrived.clear()
                if not outputs:
                    await arrived.wait()
                    continue
                for output in self._note_end(outputs):
                    yield output
        finally:
            self.cancel()

    def _note_end(self, outputs: list[RequestOutput]) -> list[RequestOutput]:
        if outputs and outputs[-1].finished:
            self._is_over = True
        return outputs

    def __enter__(self) -> RequestStream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cancel()


def _merge(earlier: RequestOutput, later: RequestOutput) -> RequestOutput:
    later.new_token_ids = earlier.new_token_ids + later.new_token_ids
    later.new_logprobs = earlier.new_logprobs + later.new_logprobs
    later.reasoning_delta = earlier.reasoning_delta + later.reasoning_delta
    later.content_delta = earlier.content_delta + later.content_delta
    return later


class AsyncLLMEngine:
    """An `LLMEngine` in a thread of its own; every method may be called from any thread.

    Args:
        config: Settings; the model is loaded in the calling thread.
        observer: As `LLMEngine`; called on the engine's thread.

    Raises:
        EngineError: As `LLMEngine`.
    """

    def __init__(self, config: EngineConfig, *, observer: Observer | None = None) -> None:
        self._engine = LLMEngine(config, observer=observer)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[str, RequestStream] = {}
        self._ids = itertools.count()
        self._is_closing = False
        self._is_draining = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="thinkgate-engine", daemon=True)
        self._thread.start()
        # A thread that is still inside torch when the interpreter goes aborts the process.
        atexit.register(self.close)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._engine.tokenizer

    @property
    def family(self) -> ReasoningFamily | None:
        """The reasoning family in use, or None."""
        return self._engine.family

    @property
    def max_model_len(self) -> int:
        """Tokens that prompt and answer together may have."""
        return self._engine.max_model_len

    def spell_token(self, token_id: int) -> bytes:
        """Give the bytes of a token, or its name; see `LLMEngine.spell_token`."""
        return self._engine.spell_token(token_id)

    def render(
        self, messages: SequenceOf[Mapping[str, Any]], *, thinking: bool | None = None, **template_kwargs: Any
    ) -> list[int]:
        """Render messages to prompt ids; see `ChatFormat.render`. Done by the engine's thread: tokenizers are not thread-safe."""
        return self._call(lambda: self._engine.render(messages, thinking=thinking, **template_kwargs))

    def submit(
        self,
        prompt: str | SequenceOf[int],
        sampling_params: SamplingParams | None = None,
        *,
        grammar: GrammarSpec | None = None,
        on_unknown: OnUnknown = "first_token",
        thinking: bool | None = None,
        tools_offered: bool = False,
        priority: int = 0,
    ) -> RequestStream:
        """Admit a request and give its stream; arguments and errors as `LLMEngine.add_request`.

        Returns at the latest after the step that is under way.
        """
        if self._is_draining:
            raise EngineClosedError("the engine finishes what it has and takes no more")
        if grammar is not None:
            # Here, in the caller's thread: a large schema must not hold up the step of the others.
            self._engine.check_grammar(grammar)
        stream = RequestStream(f"request-{next(self._ids)}", self._abort)

        def admit() -> RequestStream:
            self._engine.add_request(
                stream.request_id,
                prompt,
                sampling_params,
                grammar=grammar,
                on_unknown=on_unknown,
                thinking=thinking,
                tools_offered=tools_offered,
                priority=priority,
            )
            self._streams[stream.request_id] = stream
            return stream

        return self._call(admit)

    def submit_n(self, prompt: str | SequenceOf[int], sampling_params: SamplingParams, **options: Any) -> list[RequestStream]:
        """Admit the `n` requests of `sampling_params.n` and give a stream for each; all of them, or none.

        They share the keys and values of their prompt; with a seed, request i has the seed plus i. Further arguments and errors
        are those of `submit`.
        """
        streams: list[RequestStream] = []
        try:
            for params in sampling_params.one_each():
                streams.append(self.submit(prompt, params, **options))
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise
        return streams

    def totals(self) -> EngineTotals:
        """Give sums since the engine was made, and where it stands."""
        return self._call(self._engine.totals)

    def is_alive(self) -> bool:
        """Whether the engine takes requests: neither closed nor draining, and its thread runs."""
        return not self._is_closing and not self._is_draining and self._thread.is_alive()

    def why_not_alive(self) -> str | None:
        """Say why no request is taken; None while some are."""
        if self._failure is not None:
            return f"its thread ended with {self._failure!r}"
        return None if self.is_alive() else "it is closed, or closing"

    def drain(self, timeout_s: float) -> bool:
        """Take no more requests, let those under way finish, then close; True if all did within `timeout_s`.

        Those that did not end with `EngineClosedError`.
        """
        self._is_draining = True
        deadline = time.monotonic() + timeout_s
        while (is_busy := bool(self._streams)) and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(DRAIN_POLL_S)
        self.close()
        return not is_busy

    def close(self) -> None:
        """End all requests with `EngineClosedError` and stop the thread; calling it twice does nothing more."""
        if not self._is_closing:
            self._is_closing = True
            self._commands.put(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_TIMEOUT_S)
            atexit.unregister(self.close)

    def __enter__(self) -> AsyncLLMEngine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _call(self, function: Callable[[], T]) -> T:
        """Run `function` on the engine's thread and give what it gives."""
        if threading.current_thread() is self._thread:
            return function()  # an observer's: the thread that would do it is the one that waits
        if self._is_closing or not self._thread.is_alive():
            raise EngineClosedError(f"the engine is not running: {self.why_not_alive() or 'it is closing'}")
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # handed to the caller whole
                future.set_exception(error)

        self._commands.put(run)
        while not wait([future], timeout=1.0).done:
            if not self._thread.is_alive() and not future.done():
                raise EngineClosedError("the engine is closed")
        return future.result()

    def _abort(self, request_id: str) -> None:
        def abort() -> None:
            self._streams.pop(request_id, None)
            self._engine.abort(request_id)

        self._commands.put(abort)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._do_commands()
                if self._engine.has_unfinished() and not self._is_closing:
                    self._deliver(self._step())
        except BaseException as error:  # nobody else would hear of it: this is the thread's last frame
            logger.exception("the engine's thread ends")
            self._failure = error
            self._is_closing = True
        self._shut_down()

    def _step(self) -> list[RequestOutput]:
        try:
            return self._engine.step()
        except Exception as error:  # a bug of the engine's own: the requests are told, the thread lives on
            logger.exception("the engine's step failed")
            return self._engine.fail_all(EngineError(f"the engine failed: {error!r}", hint="please report this"))

    def _do_commands(self) -> None:
        """Run what callers asked for; sleeps only when no sequence could run."""
        try:
            if not self._engine.has_unfinished():
                self._commands.get()()
            elif self._engine.is_idle():
                self._commands.get(timeout=POLL_S)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            pass

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if output.finished:
                self._streams.pop(output.request_id, None)
            if stream is not None:
                stream.put(output)

    def _shut_down(self) -> None:
        try:
            reason = "was closed" if self._failure is None else f"ended with {self._failure!r}"
            self._deliver(self._engine.fail_all(EngineClosedError(f"the engine {reason} while this request ran")))
            self._engine.close()
        except Exception:  # what ended the thread may be broken here too; readers must not wait for ever
            logger.exception("the engine could not be closed in order")
        for stream in list(self._streams.values()):
            stream.cancel()
        while True:
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                return
