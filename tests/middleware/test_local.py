"""The engine's side of the seam, on a stand-in for the engine that plays a script."""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import threading
import time
import types
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from middleware import (
    AnswerTruncatedError,
    AsyncClient,
    Client,
    FinalResult,
    InvalidRequestError,
    MiddlewareError,
    MissingExtraError,
    ReasoningTruncatedError,
    UnknownModelError,
    UnsupportedSchemaError,
    UpstreamBusyError,
    UpstreamError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
    Usage,
)
from middleware.upstreams.base import ChatRequest, UpstreamEnd
from middleware.upstreams.local import LocalUpstream

SCHEMA = {"type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "integer"}}}


@dataclass
class Output:
    reasoning_delta: str = ""
    content_delta: str = ""
    finished: bool = False
    stop_reason: str | None = None
    error: Exception | None = None
    num_reasoning_tokens: int = 2
    reasoning_ended: bool | None = True
    prompt_token_ids: list[int] = field(default_factory=lambda: [1, 2, 3])
    token_ids: list[int] = field(default_factory=lambda: [4, 5, 6, 7])
    unenforced: tuple[str, ...] = ("#/properties/a/multipleOf",)
    limits_hit: tuple[str, ...] = ()
    cut: Any = None
    is_constrained: bool = True
    prompt_state: str | None = "open"
    new_logprobs: list[Any] = field(default_factory=list)
    answer_start: int | None = 0
    matched_stop: int | str | None = None


class Stream:
    """Gives its outputs, then waits until it is cancelled."""

    def __init__(self, outputs: list[Output]) -> None:
        self._queue: queue.Queue[Output | None] = queue.Queue()
        for output in outputs:
            self._queue.put(output)
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._queue.put(None)

    close = cancel

    def __iter__(self) -> Iterator[Output]:
        while (output := self._queue.get(timeout=30)) is not None:
            yield output

    async def __aiter__(self) -> AsyncIterator[Output]:
        while not self.is_cancelled:
            try:
                output = self._queue.get_nowait()
            except queue.Empty:
                await asyncio.sleep(0.01)
                continue
            if output is not None:
                yield output


class Engine:
    """What `engine.AsyncLLMEngine` looks like from here."""

    family: Any = "a family"
    outputs: list[Output]
    error: Exception | None = None
    load_error: Exception | None = None
    instances: list[Engine]
    submit_delay_s = 0.0

    def __init__(self, config: dict[str, Any]) -> None:
        if self.load_error is not None:
            raise self.load_error
        self.config = config
        self.submitted: list[dict[str, Any]] = []
        self.streams: list[Stream] = []
        self.is_closed = False
        self.instances.append(self)

    def render(self, messages: list[Any], *, thinking: bool | None = None) -> list[int]:
        return [len(messages), int(bool(thinking))]

    def submit(self, prompt: list[int], params: dict[str, Any], **options: Any) -> Stream:
        if self.error is not None:
            raise self.error
        time.sleep(self.submit_delay_s)
        self.submitted.append({"prompt": prompt, "params": params, **options})
        self.streams.append(Stream(self.outputs))
        return self.streams[-1]

    def spell_token(self, token_id: int) -> bytes:
        return b"<%d>" % token_id

    def close(self) -> None:
        self.is_closed = True


def config(model: str, *, family: str = "auto", max_num_seqs: int = 16) -> dict[str, Any]:
    return {"model": model, "family": family, "max_num_seqs": max_num_seqs}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[Engine]:
    kind: type[Engine] = type("Engine", (Engine,), {"instances": [], "outputs": []})
    module = types.ModuleType("engine")
    grammar = types.SimpleNamespace(from_json_schema=lambda schema: ("grammar", schema))
    module.__dict__.update(AsyncLLMEngine=kind, EngineConfig=config, SamplingParams=dict, GrammarSpec=grammar)
    monkeypatch.setitem(sys.modules, "engine", module)
    return kind


def done(**details: Any) -> Output:
    return Output(finished=True, stop_reason=details.pop("stop_reason", "stop"), **details)


def generate(output_type: Any = SCHEMA, **options: Any) -> Any:
    with Client("local/tiny") as client:
        return client.generate(output_type, "hi", **options)


def test_local_answer_is_masked(engine: type[Engine]) -> None:
    engine.outputs = [Output("I add", ""), Output("", '{"z":1,'), done(content_delta='"a":2}')]
    result = generate()
    assert (result.output, result.reasoning, result.content) == ({"z": 1, "a": 2}, "I add", '{"z":1,"a":2}')
    assert (result.enforcement, result.strategy, result.checked_after) == ("masked", "mask", ("#/properties/a/multipleOf",))
    assert (result.usage, result.finish_reason) == (Usage(3, 4, 2), "stop")


def test_local_request_is_passed_on(engine: type[Engine]) -> None:
    engine.outputs = [done(content_delta="[1]")]
    generate(list[int], temperature=1.0, max_tokens=7, max_reasoning_tokens=3, reserve=2, thinking=True, on_unknown="open")
    (loaded,) = engine.instances
    (submitted,) = loaded.submitted
    assert submitted["params"] == {"temperature": 1.0, "max_tokens": 7, "max_reasoning_tokens": 3, "reserve": 2}
    assert submitted["grammar"] == ("grammar", {"type": "array", "items": {"type": "integer"}})
    assert (submitted["thinking"], submitted["on_unknown"], submitted["prompt"]) == (True, "open", [1, 1])


def test_limits_that_acted_are_noted(engine: type[Engine]) -> None:
    engine.outputs = [done(content_delta='{"z":1,"a":2}', limits_hit=("reserve", "shortest_completion"))]
    closed, brought = generate().notes
    assert "reserve" in closed
    assert "max_tokens" in brought


@pytest.mark.parametrize(
    ("state", "options", "word"),
    [
        ("open", {}, None),
        ("ended", {}, None),
        ("unknown", {}, "its first token decided"),
        ("unknown", {"on_unknown": "open"}, "taken to think"),
        ("unknown", {"on_unknown": "constrain"}, "began at the first token"),
        ("unknown", {"thinking": False}, "began at the first token"),
        (None, {}, "no reasoning family"),
    ],
)
def test_where_the_constraint_began_is_noted_if_the_prompt_does_not_say(
    engine: type[Engine], state: str | None, options: dict[str, Any], word: str | None
) -> None:
    engine.outputs = [done(content_delta='{"z":1,"a":2}', prompt_state=state)]
    notes = generate(**options).notes
    assert [word in note for note in notes] == ([True] if word else [])
    engine.outputs = [done(content_delta="hello", prompt_state=state, is_constrained=False)]
    assert generate(None, **options).notes == ()


def test_local_free_text_has_no_grammar(engine: type[Engine]) -> None:
    engine.outputs = [done(content_delta="hello")]
    result = generate(None)
    assert (result.output, result.enforcement, result.strategy) == ("hello", "validated", "text")
    assert engine.instances[0].submitted[0]["grammar"] is None


def test_local_model_is_loaded_once_and_freed(engine: type[Engine]) -> None:
    engine.outputs = [done(content_delta="{}")]
    with Client("local/tiny", family="qwen3", engine_options={"max_num_seqs": 4}) as client:
        assert engine.instances == []
        client.load()
        client.generate(SCHEMA, "hi")
        client.generate(SCHEMA, "hi")
        (loaded,) = engine.instances
        assert loaded.config == {"model": "tiny", "family": "qwen3", "max_num_seqs": 4}
        assert not loaded.is_closed
    assert loaded.is_closed


def test_local_model_is_loaded_once_from_many_threads(engine: type[Engine]) -> None:
    with Client("local/tiny") as client:
        threads = [threading.Thread(target=client.load) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert len(engine.instances) == 1


@pytest.mark.parametrize("ended", [False, None])
def test_local_length_inside_the_thinking(engine: type[Engine], ended: bool | None) -> None:
    engine.outputs = [Output("on and on"), done(stop_reason="length", reasoning_ended=ended)]
    with pytest.raises(ReasoningTruncatedError) as caught:
        generate()
    error = caught.value
    assert (error.reasoning, error.raw_content, error.usage, error.phase) == ("on and on", "", Usage(3, 4, 2), "reasoning")


@pytest.mark.parametrize(
    ("family", "ended", "is_open"), [("f", False, True), ("f", None, True), ("f", True, False), (None, None, False)]
)
def test_local_end_says_whether_the_thinking_is_open(
    engine: type[Engine], family: Any, ended: bool | None, is_open: bool
) -> None:
    engine.family = family
    engine.outputs = [done(reasoning_ended=ended)]
    *_, end = LocalUpstream("tiny").stream(ChatRequest([{"role": "user", "content": "hi"}]))
    assert isinstance(end, UpstreamEnd)
    assert end.is_reasoning_open is is_open


def test_local_length_inside_the_answer(engine: type[Engine]) -> None:
    engine.outputs = [Output("r", '{"z":1,"a":'), done(stop_reason="length")]
    with pytest.raises(AnswerTruncatedError) as caught:
        generate()
    assert (caught.value.partial, caught.value.reasoning, caught.value.phase) == ({"z": 1}, "r", "answer")


def test_local_length_of_a_model_that_does_not_think(engine: type[Engine]) -> None:
    engine.family = None
    engine.outputs = [done(content_delta='{"z":1,', stop_reason="length", reasoning_ended=None)]
    with pytest.raises(AnswerTruncatedError):
        generate()


def engine_error(name: str, **attributes: Any) -> Exception:
    error: Exception = type(name, (type("EngineError", (Exception,), {}),), {})("why")
    error.__dict__.update(attributes)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (engine_error("EngineBusyError"), UpstreamBusyError),
        (engine_error("UnsupportedGrammarError", pointer="#/a"), UnsupportedSchemaError),
        (engine_error("InvalidRequestError", param="top_k"), InvalidRequestError),
    ],
    ids=["busy", "unsupported", "invalid"],
)
def test_local_refusal_is_translated(engine: type[Engine], error: Exception, kind: type[MiddlewareError]) -> None:
    engine.error = error
    with pytest.raises(kind, match="why") as caught:
        generate()
    assert caught.value.__cause__ is error


def test_local_refusal_names_the_argument_of_the_caller(engine: type[Engine]) -> None:
    engine.error = engine_error("InvalidRequestError", param="prompt")
    with pytest.raises(InvalidRequestError) as caught:
        generate()
    assert caught.value.param == "messages"


def test_local_failure_while_running_is_translated(engine: type[Engine]) -> None:
    engine.outputs = [Output("so far"), Output(finished=True, stop_reason="error", error=engine_error("EngineStepError"))]
    with pytest.raises(UpstreamError, match="why") as caught:
        generate()
    assert caught.value.reasoning == "so far"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(engine_error("UnknownModelError"), UnknownModelError), (engine_error("ModelLoadError"), UpstreamUnavailableError)],
    ids=["unknown", "load"],
)
def test_local_load_error_is_translated(engine: type[Engine], error: Exception, kind: type[MiddlewareError]) -> None:
    engine.load_error = error
    with pytest.raises(kind), Client("local/tiny") as client:
        client.load()


def test_local_call_has_a_deadline_and_cancels(engine: type[Engine]) -> None:
    engine.outputs = [Output("hm")]
    with pytest.raises(UpstreamTimeoutError) as caught:
        generate(timeout_s=0.1)
    assert caught.value.reasoning == "hm"
    assert engine.instances[0].streams[0].is_cancelled


def test_local_request_that_the_engine_drops_is_typed(engine: type[Engine]) -> None:
    engine.outputs = [Output(finished=True, stop_reason="abort")]
    with pytest.raises(UpstreamUnavailableError, match="cancelled"):
        generate()


def test_local_stream_that_just_ends_is_typed(engine: type[Engine]) -> None:
    engine.outputs = [Output("hm")]
    with Client("local/tiny") as client, client.stream(SCHEMA, "hi") as stream:
        next(stream)
        engine.instances[0].streams[0].cancel()
        with pytest.raises(UpstreamUnavailableError, match="ended the request early"):
            next(stream)


def test_local_stream_left_early_is_cancelled(engine: type[Engine]) -> None:
    engine.outputs = [Output("hm")]
    with Client("local/tiny") as client:
        with client.stream(SCHEMA, "hi") as stream:
            next(stream)
        assert engine.instances[0].streams[0].is_cancelled


async def test_local_async_is_the_same(engine: type[Engine]) -> None:
    engine.outputs = [Output("r", ""), done(content_delta='{"z":1}')]
    async with AsyncClient("local/tiny") as client:
        await client.load()
        async with client.stream(SCHEMA, "hi") as stream:
            events = [event async for event in stream]
    assert isinstance(events[-1], FinalResult)
    assert events[-1].result.output == {"z": 1}
    assert engine.instances[0].is_closed


async def test_local_async_deadline_and_cancellation_cancel(engine: type[Engine]) -> None:
    engine.outputs = [Output("hm")]
    async with AsyncClient("local/tiny") as client:
        with pytest.raises(UpstreamTimeoutError):
            await client.generate(SCHEMA, "hi", timeout_s=0.2)
        task = asyncio.create_task(client.generate(SCHEMA, "hi"))
        while len(engine.instances[0].streams) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [stream.is_cancelled for stream in engine.instances[0].streams] == [True, True]


async def test_local_cancellation_during_admission_cancels_what_was_admitted(engine: type[Engine]) -> None:
    engine.outputs = [Output("hm")]
    engine.submit_delay_s = 0.3
    async with AsyncClient("local/tiny") as client:
        await client.load()
        task = asyncio.create_task(client.generate(SCHEMA, "hi"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not engine.instances[0].streams or not engine.instances[0].streams[0].is_cancelled:
            await asyncio.sleep(0.01)


def test_local_options_of_providers_are_refused(engine: type[Engine]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        generate(service_tier="flex")
    assert caught.value.param == "service_tier"


@pytest.mark.parametrize("seed", [-5, 2**63, -(2**63), 10**30])
def test_any_whole_number_is_a_seed(engine: type[Engine], seed: int) -> None:
    engine.outputs = [done(content_delta="{}", reasoning_delta="t")]
    generate({}, seed=seed)
    assert engine.instances[0].submitted[0]["params"]["seed"] == seed % 2**63


def test_sampling_options_reach_the_engine(engine: type[Engine]) -> None:
    engine.outputs = [done(content_delta="{}", reasoning_delta="t")]
    given: dict[str, Any] = {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 4, "presence_penalty": 0.5,
        "frequency_penalty": -1, "repetition_penalty": 1.2, "logit_bias": {5: -100}, "max_reasoning_tokens": 2, "reserve": 3,
    }  # fmt: skip
    generate({}, **given)
    assert engine.instances[0].submitted[0]["params"] == given


@pytest.mark.parametrize("stop", ["END", ["END", "\n\n"]])
def test_stop_texts_reach_the_engine_as_a_tuple(engine: type[Engine], stop: Any) -> None:
    engine.outputs = [done(content_delta="a", reasoning_delta="t")]
    generate(None, stop=stop)
    assert engine.instances[0].submitted[0]["params"] == {"stop": (stop,) if isinstance(stop, str) else tuple(stop)}


def test_logprobs_are_those_of_the_answer_without_its_stop_id(engine: type[Engine]) -> None:
    """Ids of a start marker that broke off turn out to be the answer's, a step late."""
    one = [(((i, -float(i)), ((i, -float(i)), (9, -math.inf)))) for i in range(5)]
    engine.outputs = [
        Output(new_logprobs=one[:1], answer_start=None),
        Output(content_delta="ab", new_logprobs=one[1:2], answer_start=0),
        Output(new_logprobs=one[2:3], answer_start=0),
        done(content_delta="cd", new_logprobs=one[3:5], answer_start=0, matched_stop=4),
    ]
    result = generate(None, logprobs=2)
    assert [(item.token, item.logprob, item.data) for item in result.logprobs] == [
        ("<0>", -0.0, b"<0>"), ("<1>", -1.0, b"<1>"), ("<2>", -2.0, b"<2>"), ("<3>", -3.0, b"<3>"),
    ]  # fmt: skip
    assert [(item.token, item.logprob) for item in result.logprobs[1].top] == [("<1>", -1.0), ("<9>", -9999.0)]
    assert engine.instances[0].submitted[0]["params"] == {"logprobs": 2}


def test_logprobs_of_thinking_are_left_out(engine: type[Engine]) -> None:
    one = [((i, -1.0), ()) for i in range(4)]
    engine.outputs = [
        Output(reasoning_delta="t", new_logprobs=one[:2], answer_start=None),
        done(content_delta="a", new_logprobs=one[2:], answer_start=3),
    ]
    assert [item.token for item in generate(None, logprobs=0).logprobs] == ["<3>"]


def test_unknown_engine_option_is_refused(engine: type[Engine]) -> None:
    with Client("local/tiny", engine_options={"num_seqs": 1}) as client, pytest.raises(InvalidRequestError) as caught:
        client.load()
    assert (caught.value.param, caught.value.hint) == ("engine_options", "did you mean 'max_num_seqs'?")


def test_foreign_engine_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("engine")
    module.__file__ = "/elsewhere/engine.py"
    monkeypatch.setitem(sys.modules, "engine", module)
    with pytest.raises(UpstreamUnavailableError, match=r"/elsewhere/engine\.py"):
        generate()


def test_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "engine", None)
    with pytest.raises(MissingExtraError) as caught:
        generate()
    assert "thinkgate[engine]" in (caught.value.hint or "")


def test_closed_client_loads_nothing(engine: type[Engine]) -> None:
    client = Client("local/tiny")
    client.close()
    with pytest.raises(UpstreamUnavailableError, match="closed"):
        client.load()
    assert engine.instances == []


def test_local_models_are_loaded_one_at_a_time(engine: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[float, float]] = []
    build = engine.__init__

    def slow(self: Engine, config: Any) -> None:
        started_s = time.monotonic()
        time.sleep(0.05)
        build(self, config)
        spans.append((started_s, time.monotonic()))

    monkeypatch.setattr(engine, "__init__", slow)
    threads = [threading.Thread(target=LocalUpstream("tiny").load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(end_s <= start_s for (_, end_s), (start_s, _) in pairwise(sorted(spans)))
    assert len(spans) == 3
