"""Bad input is a typed error that names the parameter, and the engine serves the next request as if nothing had been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import (
    AsyncLLMEngine,
    EngineConfig,
    EngineError,
    EngineStepError,
    GrammarDeadEndError,
    GrammarSpec,
    InvalidRequestError,
    LLMEngine,
    SamplingParams,
    kv_cache,
)
from engine.block_pool import BlockPool
from engine.config import _COUNTS, MAX_COUNT, MAX_TIMEOUT_S
from engine.grammar import compile_cost
from tests.engine.odd_tokenizers import byte_level, save_tiny_model

SPEC = GrammarSpec.from_json_schema({"enum": ["x", "yy"]})
PROMPT = [5, 6, 7]
LENGTH = 512
"""Of the tiny model."""

PARAMS: dict[str, tuple[dict[str, Any], str]] = {
    "no-tokens": ({"max_tokens": 0}, "max_tokens"),
    "fewer-than-no-tokens": ({"max_tokens": -1}, "max_tokens"),
    "half-a-token": ({"max_tokens": 0.5}, "max_tokens"),
    "least-above-most": ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
    "cold": ({"temperature": -0.1}, "temperature"),
    "no-temperature": ({"temperature": float("nan")}, "temperature"),
    "nothing-kept": ({"top_p": 0.0}, "top_p"),
    "less-than-nothing-kept": ({"top_k": -1}, "top_k"),
    "no-answer": ({"n": 0}, "n"),
    "empty-stop": ({"stop": ("",)}, "stop"),
    "negative-budget": ({"max_reasoning_tokens": -1}, "max_reasoning_tokens"),
    "negative-reserve": ({"reserve": -1}, "reserve"),
    "more-tokens-than-64-bits": ({"max_tokens": 2**63}, "max_tokens"),
    "least-of-more-than-64-bits": ({"min_tokens": 10**400, "max_tokens": 10}, "min_tokens"),
    "budget-of-more-than-64-bits": ({"max_reasoning_tokens": 2**63}, "max_reasoning_tokens"),
    "reserve-of-more-than-64-bits": ({"reserve": 10**400}, "reserve"),
    "top-k-of-more-than-64-bits": ({"top_k": 10**400}, "top_k"),
    "seed-of-more-than-64-bits": ({"seed": 2**63}, "seed"),
    "penalty-that-is-infinite-in-float32": ({"repetition_penalty": 10**300}, "repetition_penalty"),
    "penalty-that-divides-into-infinity": ({"repetition_penalty": 1e-300}, "repetition_penalty"),
    "bias-that-is-infinite-in-float32": ({"logit_bias": {5: 1e300}}, "logit_bias"),
    "bias-that-is-no-float": ({"logit_bias": {5: -(10**400)}}, "logit_bias"),
    "temperature-that-is-no-float": ({"temperature": 10**400}, "temperature"),
}


@pytest.mark.parametrize("case", PARAMS)
def test_options_that_make_no_sense_are_refused_where_they_are_made(case: str) -> None:
    options, param = PARAMS[case]
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**options)
    assert caught.value.param == param
    assert param in str(caught.value)


LETTER = 40
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "prompt-longer-than-the-model": ({"prompt": [5] * (LENGTH + 1)}, "prompt"),
    "prompt-as-long-as-the-model": ({"prompt": [5] * LENGTH}, "prompt"),
    "text-longer-than-the-model": ({"prompt": "lamp " * LENGTH}, "prompt"),
    "empty-prompt": ({"prompt": ""}, "prompt"),
    "token-beyond-the-head": ({"prompt": [5, 1088]}, "prompt"),
    "negative-token": ({"prompt": [-1]}, "prompt"),
    "stop-id-beyond-the-head": ({"params": {"stop_token_ids": (1088,)}}, "stop_token_ids"),
    "bias-beyond-the-head": ({"params": {"logit_bias": {1088: 1.0}}}, "logit_bias"),
    "reserve-is-all": ({"params": {"max_tokens": 8, "reserve": 8}}, "reserve"),
    "reserve-above-all": ({"params": {"max_tokens": 8, "reserve": 9}}, "reserve"),
    "reserve-above-the-models-room": ({"prompt": [5] * (LENGTH - 4), "params": {"max_tokens": 100, "reserve": 4}}, "reserve"),
    "stop-with-a-grammar": ({"params": {"stop": ("x",)}, "grammar": SPEC}, "stop"),
    "stop-id-of-text-with-a-grammar": ({"params": {"stop_token_ids": (LETTER,)}, "grammar": SPEC}, "stop_token_ids"),
    "several-answers-of-one-request": ({"params": {"n": 2}}, "n"),
    "undecided-and-forbidden": ({"on_unknown": "error", "grammar": SPEC}, "on_unknown"),
}


def submit(engine: LLMEngine, case: str, request_id: str = "bad") -> None:
    request = REQUESTS[case][0]
    engine.add_request(
        request_id,
        request.get("prompt", PROMPT),
        SamplingParams(**request.get("params", {})),
        grammar=request.get("grammar"),
        on_unknown=request.get("on_unknown", "first_token"),
    )


@pytest.mark.parametrize("case", REQUESTS)
def test_bad_request_is_refused_and_the_engine_goes_on(tiny_engine: LLMEngine, case: str) -> None:
    """While another request runs, which it leaves alone."""
    [wanted] = tiny_engine.generate([PROMPT], SamplingParams(max_tokens=6))
    tiny_engine.add_request("good", PROMPT, SamplingParams(max_tokens=6))
    tiny_engine.step()
    with pytest.raises(InvalidRequestError) as caught:
        submit(tiny_engine, case)
    assert caught.value.param == REQUESTS[case][1]
    outputs = [output for _ in range(6) for output in tiny_engine.step()]
    assert [output.request_id for output in outputs if output.finished] == ["good"]
    assert outputs[-1].token_ids == wanted.token_ids
    assert not tiny_engine.has_unfinished()
    assert tiny_engine._kv_cache.num_free_blocks == tiny_engine._kv_cache.num_blocks


@pytest.fixture(scope="module")
def async_engine(tiny_model: Path) -> Iterator[AsyncLLMEngine]:
    engine = AsyncLLMEngine(EngineConfig(model=str(tiny_model)))
    yield engine
    engine.close()


@pytest.mark.parametrize("case", [name for name in REQUESTS if name != "several-answers-of-one-request"])
def test_bad_request_is_refused_in_the_callers_thread(async_engine: AsyncLLMEngine, case: str) -> None:
    request, param = REQUESTS[case]
    with pytest.raises(InvalidRequestError) as caught:
        async_engine.submit(
            request.get("prompt", PROMPT),
            SamplingParams(**request.get("params", {})),
            grammar=request.get("grammar"),
            on_unknown=request.get("on_unknown", "first_token"),
        )
    assert caught.value.param == param
    *_, last = async_engine.submit(PROMPT, SamplingParams(max_tokens=2))
    assert last.error is None
    assert async_engine.is_alive()


def test_model_that_does_not_think_cannot_be_told_to(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), family="none"))
    with pytest.raises(InvalidRequestError) as caught:
        engine.add_request("a", PROMPT, thinking=True)
    assert caught.value.param == "thinking"
    engine.add_request("a", PROMPT, thinking=False)
    engine.close()


def test_grammar_that_the_tokenizer_cannot_express_is_that_requests_error(tmp_path: Path) -> None:
    """No token has a digit: refused with a typed error before a token is made, and other grammars are served."""
    save_tiny_model(tmp_path, byte_level(without="0123456789"))
    engine = LLMEngine(EngineConfig(model=str(tmp_path)))
    number, word = GrammarSpec.from_json_schema({"type": "integer"}), GrammarSpec.regex("[a-c]{2}")
    outputs = engine.generate([PROMPT] * 3, SamplingParams(max_tokens=8), grammars=[number, word, None], on_unknown="constrain")
    assert isinstance(outputs[0].error, GrammarDeadEndError)
    assert outputs[0].token_ids == []
    assert len(outputs[1].content) == 2
    assert [output.error for output in outputs[1:]] == [None, None]
    engine.close()


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "cache-of-no-block": ({"kv_cache_bytes": 1}, "kv_cache_bytes"),
    "cache-of-less-than-one-request": ({"kv_cache_bytes": 256 * (LENGTH - 1)}, "kv_cache_bytes"),
    "block-larger-than-memory": ({"kv_block_size": 10**12}, "kv_block_size"),
    "longer-than-the-model": ({"max_model_len": LENGTH + 1}, "max_model_len"),
    "no-room-for-an-answer": ({"max_model_len": 1}, "max_model_len"),
    "steps-smaller-than-the-batch": ({"max_num_seqs": 8, "max_num_batched_tokens": 8}, "max_num_batched_tokens"),
    "cache-of-more-than-there-is": ({"kv_cache_bytes": 10**15, "max_num_seqs": 10**9}, "kv_cache_bytes"),
    "draft-model-without-drafts": ({"draft_model": "pocket-r1", "max_draft_tokens": 0}, "draft_model"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_setting_that_cannot_be_had_names_itself(tiny_model: Path, case: str) -> None:
    options, param = SETTINGS[case]
    with pytest.raises(InvalidRequestError) as caught:
        LLMEngine(EngineConfig(model=str(tiny_model), **options))
    assert caught.value.param == param


def test_cache_of_just_one_request_serves_them_one_after_the_other(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=4, kv_cache_bytes=256 * LENGTH))
    outputs = engine.generate([[5] * 300, [6] * 300, [7] * (LENGTH - 2)], SamplingParams(max_tokens=4, ignore_eos=True))
    assert [len(output.token_ids) for output in outputs] == [4, 4, 2]
    engine.close()


@pytest.mark.parametrize("size", [MAX_COUNT + 1, 10**400], ids=["too-large", "no-float"])
@pytest.mark.parametrize("name", [*_COUNTS, "max_draft_tokens"])
def test_count_beyond_all_reason_names_itself(name: str, size: int) -> None:
    options: dict[str, Any] = {"model": "pocket-r1", name: size}
    with pytest.raises(InvalidRequestError, match=f"^{name} must be at most") as caught:
        EngineConfig(**options)
    assert caught.value.param == name


@pytest.mark.parametrize("seconds", [1e10, 10**400], ids=["years", "no-float"])
def test_time_that_no_thread_can_wait_names_itself(seconds: float) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        EngineConfig(model="pocket-r1", grammar_timeout_s=seconds)
    assert caught.value.param == "grammar_timeout_s"


def test_largest_counts_cost_nothing_until_they_are_used(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request in the compile process among them, whose limits a system call takes."""
    monkeypatch.setattr(compile_cost, "MAX_TINY", 0)
    # These are sizes of what is there anyhow: of the model, of a block, of a pool of threads.
    others = {"max_model_len", "kv_block_size", "num_threads", "kv_cache_bytes"}
    counts: dict[str, Any] = {name: MAX_COUNT for name in (*_COUNTS, "max_draft_tokens") if name not in others}
    counts["max_num_seqs"] -= 1
    engine = LLMEngine(
        EngineConfig(
            model=str(tiny_model), kv_cache_bytes=2**20, grammar_timeout_s=MAX_TIMEOUT_S, grammar_backends=("xgrammar",), **counts
        )
    )
    params = SamplingParams(max_tokens=2**63 - 1, temperature=1.0, top_k=2**63 - 1)
    outputs = engine.generate([PROMPT] * 2, params, grammars=[GrammarSpec.regex("x{2,40}"), None], on_unknown="constrain")
    assert [output.error for output in outputs] == [None, None]
    engine.close()


def test_pool_of_blocks_costs_nothing_until_they_are_held() -> None:
    pool = BlockPool(MAX_COUNT)
    taken = pool.take(3)
    assert (taken, pool.num_free) == ([0, 1, 2], MAX_COUNT - 3)
    assert pool.release(taken) == [2, 1, 0]
    assert all(pool.is_free(block_id) for block_id in (0, 2, 3, MAX_COUNT - 1))
    assert sorted(pool.take(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [MemoryError("unable to allocate"), torch.OutOfMemoryError("tried to allocate")])
def test_cache_for_which_there_is_no_memory_names_itself(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(kv_cache, "_zeros", fail)
    with pytest.raises(InvalidRequestError, match=r"blocks of 16 tokens.*allocate") as caught:
        LLMEngine(EngineConfig(model=str(tiny_model)))
    assert caught.value.param == "kv_cache_bytes"


def test_memory_that_runs_out_in_a_step_ends_its_batch_only(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = tiny_engine._runner.run, [MemoryError("no room"), RuntimeError("CUDA out of memory")]

    def run(chunks: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(chunks)

    tiny_engine._grammars.request(SPEC).result()
    monkeypatch.setattr(tiny_engine._runner, "run", run)
    for _ in range(2):
        outputs = tiny_engine.generate([PROMPT, [9]], SamplingParams(max_tokens=3), grammars=[SPEC, None])
        assert all(isinstance(output.error, EngineStepError) for output in outputs)
    outputs = tiny_engine.generate([PROMPT, [9]], SamplingParams(max_tokens=8), grammars=[SPEC, None], on_unknown="constrain")
    assert [output.error for output in outputs] == [None, None]
    assert tiny_engine._kv_cache.num_free_blocks == tiny_engine._kv_cache.num_blocks


def test_backend_that_fails_while_a_token_is_committed_ends_its_request_only(
    tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_engine.add_request("bad", PROMPT, SamplingParams(max_tokens=8), grammar=SPEC, on_unknown="constrain")
    tiny_engine.add_request("good", PROMPT, SamplingParams(max_tokens=8))
    tiny_engine._grammars.request(SPEC).result()
    tiny_engine.step()
    sequence = tiny_engine._sequences["bad"]

    def fail(token_ids: list[int]) -> bool:
        raise RuntimeError("a backend's own trouble")

    monkeypatch.setattr(sequence, "append", fail)
    errors: dict[str, EngineError | None] = {}
    while tiny_engine.has_unfinished():
        errors |= {output.request_id: output.error for output in tiny_engine.step() if output.finished}
    assert isinstance(errors["bad"], EngineStepError)
    assert errors["good"] is None
