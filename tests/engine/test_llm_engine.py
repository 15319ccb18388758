"""The engine on a tiny random model: mechanism, not meaning."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from engine import (
    EngineBusyError,
    EngineClosedError,
    EngineConfig,
    EngineStepError,
    GrammarCompileError,
    GrammarDeadEndError,
    GrammarLimitError,
    GrammarSpec,
    InvalidRequestError,
    LLMEngine,
    RequestOutput,
    SamplingParams,
    UnsupportedGrammarError,
    selection,
)
from engine.grammar import GrammarManager
from engine.sampler import sample

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["x", "yy"]}, "ok": {"type": "boolean"}},
    "required": ["kind", "ok"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.from_json_schema(SCHEMA)
TEXTS = ("3 lamps at 4.50", "two chairs for 15 euros, please", "a", "Shipping is free. Take 10% off.\nOrder number 7.")


def prompt(engine: LLMEngine, text: str, *, thinking: bool = True) -> list[int]:
    return engine.render([{"role": "user", "content": text}], thinking=thinking)


def run_to_end(engine: LLMEngine) -> dict[str, RequestOutput]:
    finals: dict[str, RequestOutput] = {}
    while engine.has_unfinished():
        finals |= {output.request_id: output for output in engine.step() if output.finished}
    return finals


def reference(model: Any, prompt_ids: list[int], max_tokens: int) -> list[int]:
    out = model.generate(torch.tensor([prompt_ids]), max_new_tokens=max_tokens, do_sample=False)
    ids: list[int] = out[0, len(prompt_ids) :].tolist()
    return ids


def test_greedy_equals_transformers_alone(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    for text in TEXTS:
        ids = prompt(tiny_engine, text)
        [output] = tiny_engine.generate([ids], SamplingParams(max_tokens=40))
        assert output.token_ids == reference(model, ids, 40)


def test_greedy_equals_transformers_in_a_mixed_batch(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    prompts = [prompt(tiny_engine, text) for text in TEXTS for _ in range(2)]
    grammars = [None, SPEC] * len(TEXTS)
    outputs = tiny_engine.generate(prompts, SamplingParams(max_tokens=40, max_reasoning_tokens=7), grammars=grammars)
    free = [SamplingParams(max_tokens=40) for _ in TEXTS]
    mixed = tiny_engine.generate(prompts, [p for f in free for p in (f, SamplingParams(max_tokens=40))], grammars=grammars)
    for ids, output in zip(prompts[::2], mixed[::2], strict=True):
        assert output.token_ids == reference(model, ids, 40)
    for output in outputs[1::2]:
        assert output.stop_reason == "stop"
        jsonschema_rs.validate(SCHEMA, json.loads(output.content))


def test_requests_that_join_and_leave_do_not_disturb_each_other(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    ids = [prompt(tiny_engine, text) for text in TEXTS * 3]
    finals: dict[str, RequestOutput] = {}
    for number, prompt_ids in enumerate(ids):
        tiny_engine.add_request(str(number), prompt_ids, SamplingParams(max_tokens=5 + 4 * number))
        finals |= {output.request_id: output for output in tiny_engine.step() if output.finished}
        if number == 6:
            assert tiny_engine.abort("4")
    finals |= run_to_end(tiny_engine)
    assert finals.keys() == {str(number) for number in range(12)} - {"4"}
    for request_id, output in finals.items():
        number = int(request_id)
        assert output.token_ids == reference(model, ids[number], 5 + 4 * number), number


def test_cache_grows_past_its_first_length(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    ids = prompt(tiny_engine, "lamp " * 60)
    outputs = tiny_engine.generate([ids, prompt(tiny_engine, "a")], SamplingParams(max_tokens=300))
    assert outputs[0].token_ids == reference(model, ids, 300)[: len(outputs[0].token_ids)]
    assert len(outputs[0].token_ids) + len(ids) > 256


def test_answer_begins_where_the_thinking_ends(tiny_engine: LLMEngine) -> None:
    end = tiny_engine.tokenizer.convert_tokens_to_ids("</think>")
    for params in (
        SamplingParams(max_tokens=60, max_reasoning_tokens=9),
        SamplingParams(max_tokens=60, max_reasoning_tokens=9, temperature=1.0, seed=3),
    ):
        [output] = tiny_engine.generate([prompt(tiny_engine, "x")], params, grammars=SPEC)
        assert output.token_ids[9] == end
        assert output.num_reasoning_tokens == 9
        assert output.reasoning_ended is True
        jsonschema_rs.validate(SCHEMA, json.loads(output.content))
        assert "think>" not in output.content + output.reasoning


def test_thinking_rows_are_bit_identical_to_an_unconstrained_run(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    stop_ids = list(tiny_engine._loaded.stop_token_ids)
    real = sample

    def spy(logits: torch.Tensor, sequences: Any) -> list[int]:
        seen.append(logits.clone())
        return real(logits, sequences)

    monkeypatch.setattr(selection, "sample", spy)
    monkeypatch.setattr(selection, "make_likeliest_kernel", lambda: None)
    # The second run would find prompts of the first: sums in another order, and other last bits.
    monkeypatch.setattr(tiny_engine._kv_cache, "_prefix_caching", False)
    prompts = [prompt(tiny_engine, text) for text in TEXTS]
    runs = []
    for grammars in ([None] * 4, [SPEC, None, SPEC, SPEC]):
        seen.clear()
        tiny_engine._grammars.request(SPEC).result()
        tiny_engine.generate(prompts, SamplingParams(max_tokens=12, max_reasoning_tokens=20), grammars=grammars)
        runs.append(list(seen))
    keep = [column for column in range(runs[0][0].shape[1]) if column not in stop_ids]
    assert len(runs[0]) == len(runs[1]) == 12
    for free, constrained in zip(*runs, strict=True):
        assert torch.equal(free[:, keep], constrained[:, keep])
        assert torch.isinf(constrained[[0, 2, 3]][:, stop_ids]).all()
        assert torch.equal(free[1], constrained[1])


def test_B21_free_row_beside_a_schema_is_untouched(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def spy(logits: torch.Tensor, sequences: Any) -> list[int]:
        seen.append(logits.clone())
        return sample(logits, sequences)

    monkeypatch.setattr(selection, "sample", spy)
    monkeypatch.setattr(selection, "make_likeliest_kernel", lambda: None)
    monkeypatch.setattr(tiny_engine._kv_cache, "_prefix_caching", False)
    ids = prompt(tiny_engine, "x", thinking=False)
    tiny_engine._grammars.request(SPEC).result()
    rows = []
    for grammars in ([SPEC, None], [None, None]):
        seen.clear()
        tiny_engine.generate([ids, ids], SamplingParams(max_tokens=3), grammars=grammars)
        rows.append(torch.stack([logits[1] for logits in seen[:1]]))
    assert torch.equal(*rows)
    assert torch.isfinite(rows[0]).all()
    [alone] = tiny_engine.generate([ids], SamplingParams(max_tokens=20))
    _, beside = tiny_engine.generate([ids, ids], SamplingParams(max_tokens=20), grammars=[SPEC, None])
    assert beside.token_ids == alone.token_ids


def test_E12_free_requests_after_constrained_ones_equal_a_clean_run(tiny_engine: LLMEngine, tiny_model: Path) -> None:
    ids = prompt(tiny_engine, "x", thinking=False)
    clean = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=8))
    [wanted] = clean.generate([ids], SamplingParams(max_tokens=30))
    clean.close()
    mixed = tiny_engine.generate([ids] * 9, SamplingParams(max_tokens=30), grammars=[*[SPEC] * 4, None, *[SPEC] * 4])
    [after] = tiny_engine.generate([ids], SamplingParams(max_tokens=30))
    assert mixed[4].token_ids == after.token_ids == wanted.token_ids


def test_B2_thinking_off_is_constrained_from_the_first_token(tiny_engine: LLMEngine) -> None:
    [output] = tiny_engine.generate([prompt(tiny_engine, "x", thinking=False)], SamplingParams(max_tokens=40), grammars=SPEC)
    assert output.reasoning == ""
    jsonschema_rs.validate(SCHEMA, json.loads(output.content))


def test_B28_thinking_that_never_ends_is_a_length_stop_without_an_answer(tiny_engine: LLMEngine) -> None:
    [output] = tiny_engine.generate([prompt(tiny_engine, "x")], SamplingParams(max_tokens=15), grammars=SPEC)
    assert output.stop_reason == "length"
    assert output.reasoning_ended is False
    assert output.content == ""
    assert output.num_reasoning_tokens == 15


def test_unknown_prompt_state_is_decided_by_the_policy(tiny_engine: LLMEngine) -> None:
    ids = tiny_engine.tokenizer.encode("3 lamps", add_special_tokens=False)
    start = tiny_engine.tokenizer.convert_tokens_to_ids("<think>")
    params = SamplingParams(max_tokens=40, max_reasoning_tokens=4)
    [constrained] = tiny_engine.generate([ids], params, grammars=SPEC, on_unknown="constrain")
    assert constrained.num_reasoning_tokens == 0
    jsonschema_rs.validate(SCHEMA, json.loads(constrained.content))
    [opened] = tiny_engine.generate([ids], params, grammars=SPEC, on_unknown="open")
    assert opened.num_reasoning_tokens == 4
    jsonschema_rs.validate(SCHEMA, json.loads(opened.content))
    [first] = tiny_engine.generate([ids], params, grammars=SPEC)
    assert first.token_ids[0] == start or first.num_reasoning_tokens == 0
    assert {output.prompt_state for output in (constrained, opened, first)} == {"unknown"}
    jsonschema_rs.validate(SCHEMA, json.loads(first.content))
    with pytest.raises(InvalidRequestError) as caught:
        tiny_engine.generate([ids], params, grammars=SPEC, on_unknown="error")
    assert caught.value.param == "on_unknown"


@pytest.mark.parametrize(
    ("bad", "param"),
    [
        ([], "prompt"),
        ([0, 99999], "prompt"),
        ([-1], "prompt"),
        ([1] * 512, "prompt"),
        ([1.5], "prompt"),
        (None, "prompt"),
        (3, "prompt"),
    ],
    ids=["empty", "beyond-the-vocabulary", "negative", "too-long", "halves", "none", "one-number"],
)
def test_admission_names_the_parameter(tiny_engine: LLMEngine, bad: Any, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tiny_engine.add_request("bad", bad)
    assert caught.value.param == param
    assert not tiny_engine.has_unfinished()


def test_ids_of_numpy_are_token_ids(tiny_engine: LLMEngine) -> None:
    prompt = np.array([1, 2, 3])
    [output, plain] = tiny_engine.generate([list(prompt), [1, 2, 3]], SamplingParams(max_tokens=3))
    assert output.token_ids == plain.token_ids


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"stop_token_ids": None}, "stop_token_ids"),
        ({"stop_token_ids": 3}, "stop_token_ids"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias"),
        ({"stop": 3}, "stop"),
        ({"bad_words": 3}, "bad_words"),
    ],
)
def test_options_of_another_type_are_refused_by_name(options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**options)
    assert caught.value.param == param


def test_request_id_in_use_is_refused(tiny_engine: LLMEngine) -> None:
    tiny_engine.add_request("a", [1, 2])
    with pytest.raises(InvalidRequestError):
        tiny_engine.add_request("a", [1, 2])


def test_length_stops_at_the_models_limit(tiny_engine: LLMEngine) -> None:
    [output] = tiny_engine.generate([[5] * 500], SamplingParams(max_tokens=100))
    assert output.stop_reason in ("length", "stop")
    assert len(output.token_ids) <= 12


def test_request_stop_ids_end_the_answer(tiny_engine: LLMEngine) -> None:
    ids = prompt(tiny_engine, "a")
    [free] = tiny_engine.generate([ids], SamplingParams(max_tokens=10))
    [stopped] = tiny_engine.generate([ids], SamplingParams(max_tokens=10, stop_token_ids=(free.token_ids[4],)))
    assert stopped.stop_reason == "stop"
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[4]) + 1]


def test_full_queue_is_busy(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=1, max_queue=2))
    engine.add_request("a", [1])
    engine.add_request("b", [1])
    with pytest.raises(EngineBusyError) as caught:
        engine.add_request("c", [1])
    assert caught.value.retryable
    engine.close()


def test_generate_of_more_prompts_than_the_queue_holds(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=2, max_queue=2))
    outputs = engine.generate([[1, number + 2] for number in range(9)], SamplingParams(max_tokens=3))
    assert [output.prompt_token_ids[1] for output in outputs] == list(range(2, 11))
    engine.close()


def test_closed_engine_refuses(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model)))
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.add_request("a", [1])


class HeldBackend:
    """Compiles when it is let; optionally fails."""

    name = "held"

    def __init__(self, inner: Any, error: Exception | None = None) -> None:
        self.inner = inner
        self.error = error
        self.gate = threading.Event()
        self.num_calls = 0

    def check(self, spec: GrammarSpec) -> None:
        self.inner.check(spec)

    def compile(self, spec: GrammarSpec) -> Any:
        self.num_calls += 1
        assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        return self.inner.compile(spec)

    def fill_bitmasks(self, matchers: Any, bitmask: Any, rows: Any) -> None:
        self.inner.fill_bitmasks(matchers, bitmask, rows)


def hold(engine: LLMEngine, error: Exception | None = None) -> HeldBackend:
    backend = HeldBackend(next(iter(engine._grammars._backends.values())), error)
    engine._grammars.close()
    engine._grammars = engine._scheduler._grammars = GrammarManager(backend, engine.config.compile_settings())
    return backend


def test_slow_compile_holds_nobody_up(tiny_engine: LLMEngine) -> None:
    backend = hold(tiny_engine)
    tiny_engine.add_request("slow", prompt(tiny_engine, "x", thinking=False), SamplingParams(max_tokens=40), grammar=SPEC)
    tiny_engine.add_request("free", prompt(tiny_engine, "y"), SamplingParams(max_tokens=6))
    finished: list[str] = []
    while "free" not in finished:
        finished += [output.request_id for output in tiny_engine.step() if output.finished]
    assert tiny_engine._kv_cache.num_free_blocks == tiny_engine._kv_cache.num_blocks
    backend.gate.set()
    jsonschema_rs.validate(SCHEMA, json.loads(run_to_end(tiny_engine)["slow"].content))


def test_fifty_requests_with_one_schema_compile_once(tiny_engine: LLMEngine) -> None:
    backend = hold(tiny_engine)
    ids = prompt(tiny_engine, "x", thinking=False)
    for number in range(50):
        spec = GrammarSpec.from_json_schema(json.dumps(SCHEMA))
        tiny_engine.add_request(str(number), ids, SamplingParams(max_tokens=40), grammar=spec)
    backend.gate.set()
    assert len(run_to_end(tiny_engine)) == 50
    tiny_engine.generate([ids], SamplingParams(max_tokens=40), grammars=SPEC)
    assert backend.num_calls == 1


def test_failing_matcher_ends_its_request_only(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tiny_engine._grammars.request(SPEC).result()

    def fail(self: Any, stop_token_ids: Any) -> None:
        raise RuntimeError("no matcher")

    monkeypatch.setattr(type(compiled), "new_matcher", fail)
    tiny_engine.add_request("bad", [1, 2], grammar=SPEC)
    tiny_engine.add_request("good", [1, 2], SamplingParams(max_tokens=4))
    finals = run_to_end(tiny_engine)
    assert isinstance(finals["bad"].error, GrammarCompileError)
    assert len(finals["good"].token_ids) == 4


@pytest.mark.parametrize("case", ["E3", "E4"])
def test_failed_compile_ends_its_request_only(tiny_engine: LLMEngine, case: str) -> None:
    backend = hold(tiny_engine, RuntimeError("boom"))
    backend.gate.set()
    tiny_engine.add_request("bad", prompt(tiny_engine, "x"), grammar=SPEC)
    tiny_engine.add_request("good", prompt(tiny_engine, "y"), SamplingParams(max_tokens=5))
    finals = run_to_end(tiny_engine)
    assert finals["bad"].stop_reason == "error"
    assert isinstance(finals["bad"].error, GrammarCompileError)
    assert finals["good"].error is None
    assert len(finals["good"].token_ids) == 5


def test_compile_that_takes_too_long_ends_its_request(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), grammar_timeout_s=0.05))
    backend = hold(engine)
    engine.add_request("slow", [1, 2], grammar=SPEC)
    output = run_to_end(engine)["slow"]
    assert isinstance(output.error, GrammarCompileError)
    assert output.error.retryable
    backend.gate.set()
    engine.close()


def test_abort_while_waiting_for_a_grammar(tiny_engine: LLMEngine) -> None:
    backend = hold(tiny_engine)
    tiny_engine.add_request("slow", [1, 2], grammar=SPEC)
    tiny_engine.step()
    assert tiny_engine.abort("slow")
    assert not tiny_engine.abort("slow")
    assert not tiny_engine.has_unfinished()
    backend.gate.set()


def test_row_without_any_token_fails_its_request_only(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    class DenyAll:
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.backend = self
            self.error = None

        def fill_bitmasks(self, matchers: Any, bitmask: torch.Tensor, rows: list[int]) -> None:
            bitmask[rows] = 0

        def is_terminated(self) -> bool:
            return False

        def forced_tokens(self) -> list[int]:
            return []

        def validate_tokens(self, token_ids: list[int]) -> int:
            return 0

        def accept_tokens(self, token_ids: list[int]) -> bool:
            return True

        def rollback(self, num_tokens: int) -> None:
            pass

    tiny_engine._grammars.request(SPEC).result()
    ids = prompt(tiny_engine, "x", thinking=False)
    tiny_engine.add_request("bad", ids, grammar=SPEC)
    tiny_engine.add_request("good", ids, SamplingParams(max_tokens=40), grammar=SPEC)
    tiny_engine.step()
    bad = tiny_engine._sequences["bad"]
    bad.matcher = DenyAll(bad.matcher)  # type: ignore[assignment]
    finals = run_to_end(tiny_engine)
    assert isinstance(finals["bad"].error, GrammarDeadEndError)
    assert "'bad'" in str(finals["bad"].error)
    jsonschema_rs.validate(SCHEMA, json.loads(finals["good"].content))


def test_limit_that_is_met_at_a_token_is_told_as_a_limit(tiny_engine: LLMEngine) -> None:
    class LimitAtToken:
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.backend = self
            self.error: GrammarLimitError | None = None

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def fill_bitmasks(self, matchers: Any, bitmask: torch.Tensor, rows: list[int]) -> None:
            self.inner.backend.fill_bitmasks([self.inner], bitmask, rows)

        def accept_tokens(self, token_ids: list[int]) -> bool:
            self.error = GrammarLimitError("too many states")
            return False

    tiny_engine._grammars.request(SPEC).result()
    tiny_engine.add_request("bad", prompt(tiny_engine, "x", thinking=False), grammar=SPEC)
    tiny_engine.step()
    bad = tiny_engine._sequences["bad"]
    bad.matcher = LimitAtToken(bad.matcher)  # type: ignore[assignment]
    assert isinstance(run_to_end(tiny_engine)["bad"].error, GrammarLimitError)


def test_logits_that_are_no_numbers_fail_their_request_only(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tiny_engine._runner.run

    def spoil(chunks: Any) -> torch.Tensor:
        logits = real(chunks)
        logits[[chunk.sequence.request_id == "bad" for chunk in chunks]] = float("nan")
        return logits

    monkeypatch.setattr(tiny_engine._runner, "run", spoil)
    tiny_engine.add_request("bad", [1, 2])
    tiny_engine.add_request("good", [1, 2], SamplingParams(max_tokens=4))
    finals = run_to_end(tiny_engine)
    assert isinstance(finals["bad"].error, EngineStepError)
    assert len(finals["good"].token_ids) == 4


def test_end_marker_among_the_stop_ids_is_refused_under_a_grammar(tiny_engine: LLMEngine) -> None:
    end = tiny_engine.tokenizer.convert_tokens_to_ids("</think>")
    with pytest.raises(InvalidRequestError) as caught:
        tiny_engine.add_request("a", prompt(tiny_engine, "x"), SamplingParams(stop_token_ids=(end,)), grammar=SPEC)
    assert caught.value.param == "stop_token_ids"


def test_failing_forward_ends_the_batch_not_the_engine(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(batch: Any) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(tiny_engine._runner, "run", fail)
        [output] = tiny_engine.generate([[1, 2]])
    assert isinstance(output.error, EngineStepError)
    [after] = tiny_engine.generate([[1, 2]], SamplingParams(max_tokens=3))
    assert len(after.token_ids) == 3
    assert tiny_engine._kv_cache.num_free_blocks == tiny_engine._kv_cache.num_blocks


def test_constraint_that_its_backend_does_not_take_is_refused_at_admission(tiny_engine: LLMEngine) -> None:
    spec = GrammarSpec.lark('start: "a"\n%ignore " "', backend="xgrammar")
    with pytest.raises(UnsupportedGrammarError, match="does not take"):
        tiny_engine.add_request("a", [1], grammar=spec)
    assert not tiny_engine.has_unfinished()


def test_seeded_sampling_does_not_depend_on_the_batch(tiny_engine: LLMEngine) -> None:
    ids = [prompt(tiny_engine, text) for text in TEXTS]
    params = [SamplingParams(max_tokens=20, temperature=1.0, seed=seed) for seed in range(4)]
    together = tiny_engine.generate(ids, params)
    alone = [tiny_engine.generate([i], [p])[0] for i, p in zip(ids, params, strict=True)]
    assert [output.token_ids for output in together] == [output.token_ids for output in alone]


def test_deltas_join_to_the_texts(tiny_engine: LLMEngine) -> None:
    tiny_engine.add_request("a", prompt(tiny_engine, "x"), SamplingParams(max_tokens=60, max_reasoning_tokens=20), grammar=SPEC)
    outputs: list[RequestOutput] = []
    while tiny_engine.has_unfinished():
        outputs += tiny_engine.step()
    assert "".join(output.reasoning_delta for output in outputs) == outputs[-1].reasoning
    assert "".join(output.content_delta for output in outputs) == outputs[-1].content
    assert [i for output in outputs for i in output.new_token_ids] == outputs[-1].token_ids


def test_grammars_are_let_go_when_requests_end(tiny_engine: LLMEngine) -> None:
    ids = prompt(tiny_engine, "x", thinking=False)
    tiny_engine.generate([ids] * 3, SamplingParams(max_tokens=40), grammars=SPEC)
    backend = hold(tiny_engine)
    tiny_engine.add_request("aborted", ids, grammar=GrammarSpec.json_object())
    tiny_engine.step()
    tiny_engine.abort("aborted")
    assert tiny_engine._grammars._in_flight == {}
    backend.gate.set()


def test_B1_markers_cannot_stand_inside_a_string_of_the_answer(tiny_engine: LLMEngine) -> None:
    spec = GrammarSpec.from_json_schema({"type": "string"})
    compiled = tiny_engine._grammars.request(spec).result()
    matcher = compiled.new_matcher(tiny_engine._loaded.stop_token_ids)
    assert matcher.accept_tokens(tiny_engine.tokenizer.encode('"', add_special_tokens=False))
    assert matcher.validate_tokens(tiny_engine.tokenizer.encode("x", add_special_tokens=False)) == 1
    for marker in ("<think>", "</think>", "<|user|>", "<|end|>"):
        assert matcher.validate_tokens([tiny_engine.tokenizer.convert_tokens_to_ids(marker)]) == 0
