"""The engine in this process. The only module that imports `engine`, and only when a model is wanted."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..errors import (
    InvalidRequestError,
    MiddlewareError,
    MissingExtraError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from ..result import FinishReason, Usage
from ..settings import GenerationSettings
from ..text_types import Choice, Grammar, Regex, StructuralTag
from .base import ChatRequest, CutOff, UpstreamDelta, UpstreamEnd, UpstreamItem, UpstreamTraits
from .local_errors import translate_engine_error
from .local_logprobs import AnswerLogprobs

if TYPE_CHECKING:
    from engine import AsyncLLMEngine, RequestOutput, RequestStream
    from reasoning_parsers import FamilyRegistry

_EXTRA = "pip install 'thinkgate[engine]'"
# One model at a time in the whole process: transformers switches torch's default device while it builds one, and a model built by
# another thread meanwhile ends up without weights ("Cannot copy out of meta tensor").
_LOADING = threading.Lock()


class LocalUpstream:
    """One model in one engine, loaded at the first request or by `load`. Thread-safe."""

    def __init__(self, model: str, *, family: str = "auto", engine_options: Mapping[str, Any] | None = None) -> None:
        self._model = model
        self._options = {"family": family, **(engine_options or {})}
        self._lock = threading.Lock()
        self._engine: AsyncLLMEngine | None = None
        self._is_closed = False

    @property
    def traits(self) -> UpstreamTraits:
        """Any root, and nothing around the answer: the mask sees to it."""
        return UpstreamTraits()

    def stream(self, request: ChatRequest) -> Generator[UpstreamItem, None, None]:
        """See `Upstream.stream`. Waiting for the model to load has no deadline."""
        stream = self._submit(request)
        reader = self._reader(request)
        with _Deadline(stream, request.settings.timeout_s) as deadline:
            try:
                for output in stream:
                    yield from _items(output, request, reader)
                    if output.finished:
                        return
            finally:
                stream.close()
            deadline.raise_ended()

    async def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        """See `Upstream.astream`."""
        stream = await self._asubmit(request)
        reader = self._reader(request)
        with _Deadline(stream, request.settings.timeout_s) as deadline:
            try:
                async for output in stream:
                    for item in _items(output, request, reader):
                        yield item
                    if output.finished:
                        return
            finally:
                stream.close()
            deadline.raise_ended()

    def report_invalid(self, request: ChatRequest) -> None:
        """Nothing to learn: what the mask leaves open is known."""

    def load(self) -> None:
        """Load the model.

        Raises:
            MissingExtraError: torch or another part of the engine is not installed.
            UnknownModelError: There is no such model.
            UpstreamUnavailableError: It cannot be loaded.
        """
        self._loaded()

    def check_health(self) -> None:
        """Look whether the engine takes requests; a model that is not loaded yet is well.

        Raises:
            UpstreamUnavailableError: The engine's thread is gone, or it was closed.
        """
        with self._lock:
            engine = self._engine
        if engine is not None and not engine.is_alive():
            raise UpstreamUnavailableError(f"the engine of {self._model!r} takes no requests: {engine.why_not_alive()}")

    def close(self) -> None:
        """Stop the engine and free the model."""
        with self._lock:
            self._is_closed = True
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _reader(self, request: ChatRequest) -> _Reader:
        engine = self._engine
        if engine is None:
            return _Reader(False, None)
        wants_logprobs = request.settings.logprobs is not None
        return _Reader(engine.family is not None, AnswerLogprobs(engine.spell_token) if wants_logprobs else None)

    def _loaded(self) -> AsyncLLMEngine:
        with self._lock:
            if self._is_closed:
                raise UpstreamUnavailableError("the client is closed")
            if self._engine is None:
                with _translated(), _LOADING:
                    module = _import_engine()
                    self._engine = module.AsyncLLMEngine(_config(module, self._model, self._options))
            return self._engine

    def _submit(self, request: ChatRequest) -> RequestStream:
        engine = self._loaded()
        settings = request.settings
        if settings.extra:
            name = next(iter(settings.extra))
            raise InvalidRequestError(f"local models have no option {name!r}", param=name)
        with _translated():
            grammar = _grammar(request)
            prompt = engine.render(list(request.messages), thinking=settings.thinking)
            return engine.submit(
                prompt, _sampling(settings), grammar=grammar, on_unknown=settings.on_unknown, thinking=settings.thinking
            )

    async def _asubmit(self, request: ChatRequest) -> RequestStream:
        submitting = asyncio.ensure_future(asyncio.to_thread(self._submit, request))
        try:
            return await asyncio.shield(submitting)
        except asyncio.CancelledError:
            # The thread cannot be stopped; what it submits is cancelled as soon as it is there.
            submitting.add_done_callback(_cancel_submitted)
            raise


def _cancel_submitted(submitting: asyncio.Future[RequestStream]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().close()


def _import_engine() -> Any:
    try:
        import engine
    except ImportError as error:
        raise MissingExtraError(f"the engine cannot be imported: {error}", hint=_EXTRA) from error
    if not hasattr(engine, "AsyncLLMEngine"):
        found = getattr(engine, "__file__", None) or "a namespace package"
        raise UpstreamUnavailableError(
            f"the module `engine` that Python found is not thinkgate's: {found}",
            hint="another distribution or folder of that name comes first on sys.path",
        )
    return engine


def _config(module: Any, model: str, options: Mapping[str, Any]) -> Any:
    known = [name for name in inspect.signature(module.EngineConfig).parameters if name != "model"]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InvalidRequestError(f"engine_options: there is no option {name!r}", param="engine_options", hint=hint)
    return module.EngineConfig(model=model, **options)


def _grammar(request: ChatRequest) -> Any:
    from engine import GrammarSpec

    match request.text_type:
        case Regex(pattern):
            return GrammarSpec.regex(pattern)
        case Choice(texts):
            return GrammarSpec.choice(texts)
        case Grammar() as grammar:
            return GrammarSpec.ebnf(grammar.text) if grammar.kind == "ebnf" else GrammarSpec.lark(grammar.text)
        case StructuralTag(tag):
            return GrammarSpec.structural_tag(tag)
        case None:
            return GrammarSpec.from_json_schema(request.schema) if request.schema is not None else None


def _sampling(settings: GenerationSettings) -> Any:
    from engine import SamplingParams

    given = {name: value for name in _SAMPLING if (value := getattr(settings, name)) is not None}
    if settings.seed is not None:
        given["seed"] = settings.seed % 2**63  # any whole number is one, as for other upstreams
    if settings.stop_texts:
        given["stop"] = settings.stop_texts
    return SamplingParams(**given)


_SAMPLING = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias", "logprobs", "max_reasoning_tokens", "reserve",
)  # fmt: skip


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except MiddlewareError:
        raise
    except Exception as error:
        raise translate_engine_error(error) from error


def check_local(kind: str, text: str, *, backend: str = "auto", strict: bool = False) -> dict[str, Any]:
    """Check a constraint as the engine would at admission, without a model.

    Args:
        kind: `json_schema`, `regex`, `choice`, `ebnf`, `lark` or `structural_tag`.
        text: The constraint; a choice as a JSON list.
        backend: Name of a grammar backend, or `auto`.
        strict: Refuse what the masks do not enforce.

    Returns:
        `error` (None, or message, hint, pointer, line and column) and `entries`: what becomes of each keyword, per backend.

    Raises:
        MissingExtraError: The engine is not installed.
    """
    module = _import_engine()
    from engine.grammar.backends.registry import backend_names
    from engine.grammar.support import refuse_unenforced, support_report

    if backend != "auto" and backend not in backend_names():
        hint = f"there are {', '.join(backend_names())}"
        raise InvalidRequestError(f"there is no grammar backend {backend!r}", param="backend", hint=hint)
    try:
        spec = _spec_of(module.GrammarSpec, kind, text, backend=backend, strict=strict)
        report = support_report(spec)
        if backend != "auto" and backend in report.backends and report.refused(backend):
            raise module.UnsupportedGrammarError(f"{backend} does not take it: {report.entries[0].note}")
        if strict:
            names = report.backends if backend == "auto" else (backend,)
            # The backend that enforces most speaks for all.
            refuse_unenforced(spec, report, min(names, key=lambda name: len(report.checked(name)) + len(report.refused(name))))
    except (module.GrammarError, module.InvalidRequestError) as error:
        places = {name: getattr(error, name, None) for name in ("hint", "pointer", "line", "column")}
        return {
            "error": {"message": str(error), "type": type(error).__name__, **places},
            "entries": [],
            "may_repeat_names": False,
        }
    entries = [asdict(entry) | {"status": dict(entry.status)} for entry in report.entries]
    return {"error": None, "entries": entries, "may_repeat_names": report.may_repeat_names}


def _spec_of(spec: Any, kind: str, text: str, *, backend: str, strict: bool) -> Any:
    if kind == "json_schema":
        return spec.from_json_schema(text, backend=backend, strict=strict)
    make = getattr(spec, kind)
    return make(json.loads(text) if kind == "choice" else text, backend=backend)


def inspect_local(name: str, *, family: str, families: FamilyRegistry | None) -> dict[str, Any]:
    """Look at a tokenizer: the fields of `engine.Inspection`, as plain data.

    Raises:
        MissingExtraError: transformers or another part of the engine is not installed.
        UnknownModelError: There is no such model.
        UpstreamUnavailableError: Its tokenizer cannot be loaded, or has not the markers of the family.
        InvalidRequestError: There is no such family.
    """
    with _translated():
        inspection = _import_engine().inspect_tokenizer(name, family=family, families=families)
    return asdict(inspection)


class _Deadline:
    """Cancels a stream when the time is up: then its iteration ends, and `raise_ended` says why."""

    def __init__(self, stream: RequestStream, timeout_s: float | None) -> None:
        self._stream = stream
        self._timer = threading.Timer(timeout_s, self._expire) if timeout_s is not None else None
        self._is_expired = False

    def __enter__(self) -> _Deadline:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._is_expired = True
        self._stream.cancel()

    def raise_ended(self) -> None:
        if self._is_expired:
            raise UpstreamTimeoutError("the call ran out of time", hint="raise timeout_s")
        raise UpstreamUnavailableError("the engine ended the request early", retryable=True)


@dataclass(frozen=True, slots=True)
class _Reader:
    """What is needed to read the outputs of a request."""

    has_family: bool
    logprobs: AnswerLogprobs | None


def _items(output: RequestOutput, request: ChatRequest, reader: _Reader) -> Iterator[UpstreamItem]:
    logprobs = reader.logprobs.feed(output) if reader.logprobs is not None else ()
    if output.reasoning_delta or output.content_delta or logprobs:
        yield UpstreamDelta(output.reasoning_delta, output.content_delta, logprobs)
    if output.error is not None:
        raise translate_engine_error(output.error) from output.error
    if output.stop_reason == "abort":
        raise UpstreamUnavailableError("the request was cancelled in the engine", retryable=True)
    if output.finished:
        yield _end(output, request, reader.has_family)


def _end(output: RequestOutput, request: ChatRequest, has_family: bool) -> UpstreamEnd:
    reason: FinishReason = "length" if output.stop_reason == "length" else "stop"
    is_bound = request.schema is not None or request.text_type is not None
    return UpstreamEnd(
        finish_reason=reason,
        usage=Usage(len(output.prompt_token_ids), len(output.token_ids), output.num_reasoning_tokens),
        enforcement="masked" if is_bound else "validated",
        strategy="mask" if is_bound else "text",
        checked_after=tuple(output.unenforced),
        is_reasoning_open=has_family and not output.reasoning_ended,
        notes=(*_gate_notes(output, request), *(_LIMIT_NOTES[limit] for limit in output.limits_hit)),
        cut=CutOff(output.cut.phase == "thinking", output.cut.message, output.cut.hint) if output.cut is not None else None,
    )


def _gate_notes(output: RequestOutput, request: ChatRequest) -> list[str]:
    """Say where a constraint began, if the prompt did not."""
    if not output.is_constrained:
        return []
    if output.prompt_state is None:
        return ["no reasoning family is in use for this model, so the constraint began at the first token"]
    if output.prompt_state == "unknown":
        is_switched_off = request.settings.thinking is False
        return [_UNKNOWN_NOTES["constrain" if is_switched_off else request.settings.on_unknown]]
    return []


_UNKNOWN_NOTES = {
    "first_token": "the prompt did not say whether the model thinks: its first token decided where the constraint began",
    "open": "the prompt did not say whether the model thinks: it was taken to think",
    "constrain": "the prompt did not say whether the model thinks: the constraint began at the first token",
}
_LIMIT_NOTES = {
    "max_reasoning_tokens": "the thinking was closed at max_reasoning_tokens",
    "reserve": "the thinking was closed to keep the reserve for the answer",
    "shortest_completion": "the answer was brought to its end because max_tokens was near",
    "dead_end": "the answer was led past a text that the model's tokens cannot finish",
}
