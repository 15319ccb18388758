"""The likeliest token in one look: the kernel against NumPy, and the choice with it against the choice by all rules."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine import LLMEngine, SamplingParams, selection
from engine.grammar.kernels.likeliest import SOURCE, LikeliestKernel, make_likeliest_kernel
from engine.grammar.kernels.row_table import NO_NUMBER, NOTHING
from engine.logit_rules import LogitRules
from engine.mask import StepMasks
from engine.selection import Chosen, SequenceWindow, choose_tokens
from reasoning_parsers import ReasoningGate
from tests.engine.bitmask_oracle import pack
from tests.engine.test_crowded import SPECS, random_job

WIDTHS = (1, 31, 32, 33, 1056, 32_001, 49_152)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NUM_ROWS = 6


@pytest.fixture(scope="module")
def kernel() -> LikeliestKernel:
    made = make_likeliest_kernel()
    if made is None:
        pytest.skip("no C++ compiler here")
    return made


def oracle(logits: npt.NDArray[np.float32], allowed: npt.NDArray[np.bool_], banned: list[int]) -> int:
    if np.isnan(logits).any():
        return NO_NUMBER
    values = np.where(allowed, logits, -np.inf)
    values[[token_id for token_id in banned if 0 <= token_id < len(values)]] = -np.inf
    return int(values.argmax()) if values.max() > -np.inf else NOTHING


def make_logits(rng: np.random.Generator, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows of a wider table, with ties, both zeros, infinities and a NaN of either sign."""
    values = torch.tensor(rng.normal(size=(NUM_ROWS, width + 3)), dtype=torch.float32)
    values[1] = values[1].round()
    values[2] = torch.where(values[2] > 0, -0.0, -values[2].abs().round())
    values[3] = torch.where(values[3] > 0.5, torch.inf, -torch.inf)
    values[4] = -values[4].abs() - 1
    values[5, rng.integers(width)] = rng.choice([np.nan, -np.nan])
    return values.to(dtype)[:, :width]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_likeliest_is_that_of_numpy(kernel: LikeliestKernel, width: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(width)
    for density in (0.0, 0.001, 0.5, 1.0):
        for mask_size in (width, max(1, width - 40)):
            logits = make_logits(rng, width, dtype)
            before = logits.clone()
            rows = rng.permutation(NUM_ROWS).tolist()
            num_words = (mask_size + 31) // 32
            # Words that allow all, some and none of their tokens.
            share = np.repeat(rng.choice([0.0, density, 1.0], size=(NUM_ROWS, num_words)), 32, axis=1)[:, :mask_size]
            allowed = rng.random((NUM_ROWS, mask_size)) < share
            mask_rows = [int(mask_row) if rng.random() < 0.7 else -1 for mask_row in rng.permutation(NUM_ROWS)]
            likely = logits.float().nan_to_num().topk(min(2, width)).indices.tolist()
            banned = [[*likely[row], int(rng.integers(width)), width] if rng.random() < 0.5 else [] for row in rows]
            bitmask = torch.from_numpy(pack(allowed, num_words))
            found = kernel(logits, rows, bitmask, mask_rows, banned)
            wide = np.zeros((NUM_ROWS + 1, width), dtype=bool)
            bits = np.unpackbits(bitmask.numpy().view(np.uint8), axis=1, bitorder="little")[:, :width].astype(bool)
            wide[:NUM_ROWS, : bits.shape[1]] = bits
            wide[-1] = True
            expected = [
                oracle(logits[row].float().numpy(), wide[mask_row], ids)
                for row, mask_row, ids in zip(rows, mask_rows, banned, strict=True)
            ]
            assert found == expected
            assert torch.equal(logits.nan_to_num(nan=7.0), before.nan_to_num(nan=7.0))


def test_likeliest_of_a_whole_type_is_in_the_order_of_floats(kernel: LikeliestKernel) -> None:
    """Every bfloat16 there is beside the next larger one, either way round; of two zeros the first is taken."""
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    numbers = numbers[~numbers.isnan()].sort().values
    pairs = torch.stack([numbers[:-1], numbers[1:]], dim=1)
    for table in (pairs, pairs.flip(1)):
        found = torch.tensor(kernel(table, range(len(table)), None, [-1] * len(table), [()] * len(table)))
        assert torch.equal(found, (table[:, 1] > table[:, 0]).long())


@pytest.mark.parametrize("fault", ["row", "mask", "dtype"])
def test_kernel_refuses_what_it_would_read_elsewhere(kernel: LikeliestKernel, fault: str) -> None:
    bitmask = torch.zeros(1, 2, dtype=torch.int64 if fault == "dtype" else torch.int32)
    with pytest.raises((IndexError, ValueError)):
        kernel(torch.zeros(2, 40), [2 if fault == "row" else 0], bitmask, [1 if fault == "mask" else 0], [()])


def test_kernel_takes_rows_of_floats_on_the_cpu_only() -> None:
    takes = LikeliestKernel.takes
    assert all(takes(torch.zeros(2, 3, dtype=dtype)) for dtype in DTYPES)
    assert not takes(torch.zeros(2, 3, dtype=torch.float64))
    assert not takes(torch.zeros(2, 3).t())
    assert not takes(torch.zeros(2, 3, device="meta"))


def test_source_ships_with_the_package() -> None:
    assert SOURCE.is_file()


class AllowsAll:
    """A grammar that takes any one token; what the masks of a test say is not its business."""

    error = None

    @property
    def backend(self) -> AllowsAll:
        return self

    def fill_bitmasks(self, matchers: Sequence[object], bitmask: torch.Tensor, rows: Sequence[int]) -> None:
        bitmask[list(rows)] = -1

    def accept_tokens(self, token_ids: Sequence[int]) -> bool:
        return False


def make_window(rng: np.random.Generator, name: str, width: int) -> SequenceWindow:
    """A request with drafts, some rules and some way to draw."""
    options: list[dict[str, Any]] = [
        *({},) * 3,
        {"temperature": 0.8, "seed": 3},
        {"temperature": 1.5, "top_k": 3, "seed": 4},
        {"temperature": 0.6, "top_p": 0.9, "seed": 5, "min_tokens": 9},
        {"logprobs": 2},
        {"logprobs": 0, "logprobs_mode": "processed"},
        {"ignore_eos": True},
        {"min_tokens": 3},
        {"presence_penalty": 0.5},
        {"logit_bias": {0: 4.0}},
    ]
    params = SamplingParams(**options[rng.integers(len(options))])
    token_ids = rng.integers(width, size=3).tolist()
    bad_words = [(token_ids[-1], token_id) for token_id in rng.integers(width, size=rng.choice([0, 2]))]
    rules = LogitRules(params, token_ids, stop_token_ids=rng.integers(width, size=3).tolist(), bad_word_ids=bad_words)
    sequence: Any = SimpleNamespace(
        request_id=name,
        params=params,
        rules=None if rules.is_empty else rules,
        token_ids=token_ids,
        seed=5,
        gate=ReasoningGate(None),
        matcher=AllowsAll(),
    )
    return SequenceWindow(sequence, tuple(rng.integers(width, size=rng.choice([0, 0, 2])).tolist()))


def make_step(seed: int, width: int, dtype: torch.dtype) -> tuple[torch.Tensor, list[SequenceWindow], StepMasks]:
    rng = np.random.default_rng(seed)
    windows = [make_window(rng, str(number), width) for number in range(6)]
    first_rows = np.cumsum([0, *(window.num_rows for window in windows)]).tolist()
    num_rows = first_rows.pop()
    logits = torch.tensor(rng.normal(size=(num_rows, width)).round(1), dtype=torch.float32)
    for row in range(num_rows):
        for value, share in ((torch.nan, 0.04), (-torch.inf, 0.1), (torch.inf, 0.1)):
            if rng.random() < share:
                logits[row, rng.integers(width, size=max(1, width // 3))] = value
    masked = [row for row in range(num_rows) if rng.random() < 0.6]
    allowed = rng.random((len(masked), width)) < rng.choice([0.0, 0.1, 0.9], size=(len(masked), 1), p=[0.1, 0.4, 0.5])
    bitmask = torch.from_numpy(pack(allowed, (width + 31) // 32)) if masked else None
    if bitmask is not None:
        bitmask[torch.from_numpy(~allowed.any(axis=1))] = 0  # dead ends; `pack` sets bits past the columns
    denied = [(int(rng.integers(num_rows)), int(rng.integers(width))) for _ in range(rng.choice([0, 4]))]
    return logits.to(dtype), windows, StepMasks(bitmask, masked, denied, first_rows)


def plain(chosen: list[Chosen]) -> list[str]:
    return [repr(own) for own in chosen]  # a NaN is no equal of itself


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_choice_with_the_kernel_is_that_by_all_rules(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        width = (7, 40, 1100)[seed % 3]
        quick = choose_tokens(*make_step(seed, width, dtype))
        with monkeypatch.context() as patch:
            patch.setattr(selection, "make_likeliest_kernel", lambda: None)
            patch.setattr(selection, "make_draw_kernel", lambda: None)
            assert plain(quick) == plain(choose_tokens(*make_step(seed, width, dtype))), seed


@pytest.mark.usefixtures("kernel")
def test_answers_with_the_kernel_are_those_without(tiny_engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    heads = [tiny_engine.tokenizer.encode("x", add_special_tokens=False)]
    jobs = [random_job(rng, tiny_engine, heads) for _ in range(40)]
    prompts = [job.prompt for job in jobs]
    bans_only: dict[str, Any] = {
        "temperature": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0,
        "logit_bias": {},
        "logprobs": None,
    }
    params = [replace(job.params, **bans_only) if number % 2 else job.params for number, job in enumerate(jobs)]
    grammars = [None if job.spec is None else SPECS[job.spec] for job in jobs]
    monkeypatch.setattr(tiny_engine._kv_cache, "_prefix_caching", False)
    quick = tiny_engine.generate(prompts, params, grammars=grammars)
    monkeypatch.setattr(selection, "make_likeliest_kernel", lambda: None)
    slow = tiny_engine.generate(prompts, params, grammars=grammars)
    assert [output.error for output in quick] == [None] * len(jobs)
    assert [output.token_ids for output in quick] == [output.token_ids for output in slow]
