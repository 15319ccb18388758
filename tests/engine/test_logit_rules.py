"""Penalties, bias and bans against plain NumPy over the whole history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import InvalidRequestError, SamplingParams
from engine.logit_rules import LogitRules
from engine.logprobs import token_logprobs

VOCAB_SIZE = 12
TOKENS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=12)
PENALTY = st.sampled_from([-1.5, 0.0, 0.3, 2.0])


def reference(logits: np.ndarray, params: SamplingParams, prompt: list[int], output: list[int]) -> np.ndarray:
    changed = logits.astype(np.float64).copy()
    for token_id in range(VOCAB_SIZE):
        if token_id in prompt + output:
            above = changed[token_id] > 0
            changed[token_id] *= 1 / params.repetition_penalty if above else params.repetition_penalty
        if token_id in output:
            changed[token_id] -= params.presence_penalty + params.frequency_penalty * output.count(token_id)
        changed[token_id] += params.logit_bias.get(token_id, 0)
    return changed


@given(TOKENS, TOKENS, TOKENS, st.sampled_from([0.5, 1.0, 1.7]), PENALTY, PENALTY, st.integers(0, 99))
def test_penalties_are_those_of_the_whole_history(
    prompt: list[int], output: list[int], drafts: list[int], repetition: float, presence: float, frequency: float, seed: int
) -> None:
    bias: Mapping[int, float] = {3: 1.5, 7: -2.0} if seed % 2 else {}
    params = SamplingParams(
        repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency, logit_bias=bias
    )
    rules = LogitRules(params, prompt, stop_token_ids=())
    logits = torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))
    for length in range(len(output) + 1):  # as the engine asks: after every token
        row = logits.clone()
        assert rules.apply(row, output[:length]) is None
        np.testing.assert_allclose(row.numpy(), reference(logits.numpy(), params, prompt, output[:length]), rtol=1e-5, atol=1e-5)
    row = logits.clone()
    rules.apply(row, output, drafts)
    np.testing.assert_allclose(row.numpy(), reference(logits.numpy(), params, prompt, output + drafts), rtol=1e-5, atol=1e-5)
    after = logits.clone()
    rules.apply(after, output)
    np.testing.assert_allclose(after.numpy(), reference(logits.numpy(), params, prompt, output), rtol=1e-5, atol=1e-5)


@given(TOKENS, TOKENS, st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3))
def test_bad_words_are_never_completed(output: list[int], drafts: list[int], words: list[list[int]]) -> None:
    rules = LogitRules(SamplingParams(), [], stop_token_ids=(), bad_word_ids=[tuple(word) for word in words])
    row = torch.zeros(VOCAB_SIZE)
    bans = rules.apply(row, output, drafts)
    history = output + drafts
    wanted = {i for i in range(VOCAB_SIZE) if any([*history, i][-len(word) :] == word for word in words)}
    assert {i for i in range(VOCAB_SIZE) if row[i] == -math.inf} == wanted
    assert (bans is None) == (not wanted)
    if bans is not None:
        bans.lift(row)
        assert torch.equal(row, torch.zeros(VOCAB_SIZE))


@pytest.mark.parametrize(
    ("options", "num_tokens", "is_held_back"),
    [({"min_tokens": 3}, 2, True), ({"min_tokens": 3}, 3, False), ({"ignore_eos": True}, 50, True), ({}, 0, False)],
    ids=["below-min", "at-min", "ignore-eos", "plain"],
)
def test_stop_ids_are_held_back(options: dict[str, Any], num_tokens: int, is_held_back: bool) -> None:
    rules = LogitRules(SamplingParams(**options), [], stop_token_ids=(5, 9))
    row = torch.zeros(VOCAB_SIZE)
    rules.apply(row, [1] * num_tokens)
    assert [i for i in range(VOCAB_SIZE) if row[i] == -math.inf] == ([5, 9] if is_held_back else [])


def test_rules_without_settings_are_empty() -> None:
    assert LogitRules(SamplingParams(), [1, 2], stop_token_ids=(5,)).is_empty
    assert not LogitRules(SamplingParams(min_tokens=1), [], stop_token_ids=(5,)).is_empty


@pytest.mark.parametrize("num_top", [0, 1, 3])
def test_logprobs_are_the_logarithms_of_softmax(num_top: int) -> None:
    logits = torch.tensor([1.0, 3.0, -math.inf, 3.0, 0.5])
    weights = np.exp(logits.double().numpy())
    logs = np.log(weights / weights.sum(), where=weights > 0, out=np.full(5, -np.inf))
    found = token_logprobs(logits, 4, num_top)
    assert found.chosen.token_id == 4
    assert found.chosen.logprob == pytest.approx(logs[4], abs=1e-6)
    assert [token.token_id for token in found.top] == [1, 3, 0][:num_top]
    assert [token.logprob for token in found.top] == pytest.approx([logs[1], logs[3], logs[0]][:num_top], abs=1e-6)
    assert token_logprobs(logits, 2, 0).chosen.logprob == -math.inf


@pytest.mark.parametrize("width", [1, 2, 50, 3000])
@pytest.mark.parametrize("kind", ["rounded", "masked", "infinite"])
def test_top_logprobs_are_the_first_of_a_whole_sort(width: int, kind: str) -> None:
    rng = np.random.default_rng(width)
    for count in (1, 2, 5, 100):
        logits = torch.tensor(rng.normal(size=width), dtype=torch.float32)
        if kind == "infinite":
            logits[rng.integers(width)] = math.inf
        elif kind == "masked":
            logits[rng.random(width) < 0.99] = -math.inf
            logits[0] = 1.0
        else:
            logits = logits.round(decimals=0)
        logprobs = torch.log_softmax(logits, dim=-1)
        values, ids = torch.sort(logprobs, descending=True, stable=True)
        top = token_logprobs(logits, 0, count).top
        assert [token.token_id for token in top] == ids[:count].tolist()
        np.testing.assert_array_equal([token.logprob for token in top], values[:count].tolist())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0), ("n", 10**9), ("min_p", 1.1), ("repetition_penalty", 0), ("presence_penalty", 2.5), ("frequency_penalty", -3),
        ("logit_bias", {-1: 1.0}), ("logit_bias", {1: float("inf")}), ("bad_words", ("",)), ("bad_words", "word"),
        ("min_tokens", -1), ("min_tokens", 5000), ("ignore_eos", 1), ("stop", ("",)), ("stop", "END"), ("stop", ("x",) * 17),
        ("include_stop_in_output", "yes"), ("logprobs", 101), ("logprobs", True), ("logprobs_mode", "both"),
    ],
)  # fmt: skip
def test_sampling_params_name_the_wrong_rule(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name
