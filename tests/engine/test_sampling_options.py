"""Sampling options through the engine, against transformers' own `generate` and against the rules that the options state."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from transformers import LlamaForCausalLM

from engine import EngineConfig, GrammarSpec, InvalidRequestError, LLMEngine, SamplingParams

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["x", "yy"]}, "ok": {"type": "boolean"}},
    "required": ["kind", "ok"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.from_json_schema(SCHEMA)


@pytest.fixture
def free_engine(tiny_model: Path) -> Iterator[LLMEngine]:
    """The tiny model taken as one that does not think: all its text is answer."""
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=8, family="none"))
    yield engine
    engine.close()


def prompt(engine: LLMEngine, text: str) -> list[int]:
    return list(engine.tokenizer.encode(text))


def reference(model_path: Path, prompt_ids: list[int], **options: Any) -> list[int]:
    model = LlamaForCausalLM.from_pretrained(model_path)
    out = model.generate(torch.tensor([prompt_ids]), max_new_tokens=40, do_sample=False, **options)
    ids: list[int] = out[0, len(prompt_ids) :].tolist()
    return ids


@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_repetition_penalty_equals_transformers(free_engine: LLMEngine, tiny_model: Path, penalty: float) -> None:
    ids = prompt(free_engine, "two chairs for 15 euros, please")
    [output] = free_engine.generate([ids], SamplingParams(max_tokens=40, repetition_penalty=penalty))
    assert output.token_ids == reference(tiny_model, ids, repetition_penalty=penalty)


def test_min_tokens_equals_transformers(free_engine: LLMEngine, tiny_model: Path) -> None:
    ids = prompt(free_engine, "a")
    [output] = free_engine.generate([ids], SamplingParams(max_tokens=40, min_tokens=30))
    assert output.token_ids == reference(tiny_model, ids, min_new_tokens=30)


def test_bad_words_are_not_written(free_engine: LLMEngine) -> None:
    ids = prompt(free_engine, "two chairs")
    [plain] = free_engine.generate([ids], SamplingParams(max_tokens=12))
    word = free_engine.tokenizer.decode(plain.token_ids[:1]).strip()
    assert word
    [output] = free_engine.generate([ids], SamplingParams(max_tokens=12, bad_words=(word,)))
    assert output.token_ids != plain.token_ids
    assert plain.token_ids[0] not in output.token_ids


def test_stop_string_ends_the_answer_before_it(free_engine: LLMEngine) -> None:
    ids = prompt(free_engine, "3 lamps at 4.50")
    [plain] = free_engine.generate([ids], SamplingParams(max_tokens=40))
    stop = plain.content[7:10]
    before = plain.content[: plain.content.index(stop)]
    for keep in (False, True):
        params = SamplingParams(max_tokens=40, stop=(stop, "never there"), include_stop_in_output=keep)
        free_engine.add_request("stop", ids, params)
        outputs = []
        while free_engine.has_unfinished():
            outputs += free_engine.step()
        assert outputs[-1].content == before + stop * keep
        assert "".join(output.content_delta for output in outputs) == outputs[-1].content
        assert (outputs[-1].stop_reason, outputs[-1].matched_stop) == ("stop", stop)
        assert len(outputs[-1].token_ids) < 40


def test_stop_string_does_not_count_while_thinking(tiny_engine: LLMEngine) -> None:
    ids = tiny_engine.render([{"role": "user", "content": "x"}], thinking=True)
    [plain] = tiny_engine.generate([ids], SamplingParams(max_tokens=20, max_reasoning_tokens=15))
    stop = plain.reasoning[2:5]
    [output] = tiny_engine.generate([ids], SamplingParams(max_tokens=20, max_reasoning_tokens=15, stop=(stop,)))
    assert output.reasoning == plain.reasoning


def test_stop_string_with_a_grammar_is_refused(tiny_engine: LLMEngine) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tiny_engine.add_request("a", [1, 2], SamplingParams(stop=("x",)), grammar=SPEC)
    assert caught.value.param == "stop"


@pytest.mark.parametrize(
    "options",
    [{"min_tokens": 60}, {"ignore_eos": True}, {"bad_words": ('"', '{"', "kind", "true", "false")}, {"logit_bias": {5: 90.0}}],
    ids=["min-tokens", "ignore-eos", "bad-words", "bias"],
)
def test_grammar_wins_over_other_rules(tiny_engine: LLMEngine, options: dict[str, Any]) -> None:
    ids = tiny_engine.render([{"role": "user", "content": "x"}], thinking=True)
    params = SamplingParams(max_tokens=80, max_reasoning_tokens=5, **options)
    [output] = tiny_engine.generate([ids], params, grammars=SPEC)
    assert output.stop_reason == "stop"
    jsonschema_rs.validate(SCHEMA, json.loads(output.content))


def test_bias_moves_a_free_answer(free_engine: LLMEngine) -> None:
    ids = prompt(free_engine, "a")
    [output] = free_engine.generate([ids], SamplingParams(max_tokens=5, logit_bias={77: 1e6}))
    assert output.token_ids == [77] * 5
    with pytest.raises(InvalidRequestError, match="9999"):
        free_engine.add_request("a", ids, SamplingParams(logit_bias={9999: 1.0}))


@pytest.mark.parametrize("temperature", [1e-38, 1e-300, 1e300])
def test_log_probabilities_of_extreme_temperatures_are_numbers(tiny_engine: LLMEngine, temperature: float) -> None:
    params = SamplingParams(max_tokens=3, temperature=temperature, seed=1, logprobs=2, logprobs_mode="processed")
    [output] = tiny_engine.generate([[5, 6, 7]], params)
    assert [math.isnan(own.chosen.logprob) for own in output.new_logprobs] == [False]
    if temperature < 1:
        [[chosen, (likeliest, other)]] = output.new_logprobs
        assert (chosen, chosen.logprob) == (likeliest, 0.0)
        assert other.logprob < -1e30


def test_several_answers_are_those_of_their_own_seeds(tiny_engine: LLMEngine) -> None:
    ids = tiny_engine.render([{"role": "user", "content": "x"}], thinking=True)
    options: dict[str, Any] = {"max_tokens": 15, "temperature": 1.0}
    outputs = tiny_engine.generate([ids, ids], [SamplingParams(n=3, seed=7, **options), SamplingParams(seed=8, **options)])
    assert len(outputs) == 4
    assert len({tuple(output.token_ids) for output in outputs[:3]}) == 3
    assert outputs[1].token_ids == outputs[3].token_ids
    with pytest.raises(InvalidRequestError) as caught:
        tiny_engine.add_request("a", ids, SamplingParams(n=2))
    assert caught.value.param == "n"


@pytest.mark.parametrize("mode", ["raw", "processed"])
def test_logprobs_come_from_before_or_after_the_mask(tiny_engine: LLMEngine, tiny_model: Path, mode: Any) -> None:
    ids = tiny_engine.render([{"role": "user", "content": "x"}], thinking=False)
    params = SamplingParams(max_tokens=40, logprobs=4, logprobs_mode=mode)
    [output] = tiny_engine.generate([ids], params, grammars=SPEC)
    tiny_engine.add_request("again", ids, params, grammar=SPEC)
    stepped = []
    while tiny_engine.has_unfinished():
        stepped += [found for step in tiny_engine.step() for found in step.new_logprobs]
    assert [found.chosen.token_id for found in stepped] == output.token_ids
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        logits = model(torch.tensor([ids + output.token_ids])).logits[0, len(ids) - 1 : -1]
    raw = torch.log_softmax(logits, dim=-1)
    for position, found in enumerate(stepped):
        expected = float(raw[position, found.chosen.token_id])
        if mode == "raw":
            assert found.chosen.logprob == pytest.approx(expected, abs=1e-4)
            assert [top.token_id for top in found.top] == raw[position].topk(4).indices.tolist()
        else:
            # The mask only takes competitors away, and greedy takes the likeliest that is left.
            assert found.chosen.logprob >= expected - 1e-4
            assert found.top[0].token_id == found.chosen.token_id
