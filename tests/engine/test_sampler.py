"""Sampling against a plain NumPy reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine import InvalidRequestError, SamplingParams
from engine.fast_path.draw import make_draw_kernel
from engine.grammar.kernels.row_table import NO_NUMBER, NOTHING
from engine.random_stream import uniform
from engine.sampler import RowDraw, _draw_by_torch, draw_rows, sample
from engine.threads import torch_threads
from tests.engine.bitmask_oracle import pack


@dataclass
class Row:
    """A request whose every draw is one position further on."""

    params: SamplingParams
    seed: int
    position: int = 0


def make_row(seed: int = 0, **options: float) -> Row:
    return Row(SamplingParams(seed=seed, **options), seed)  # type: ignore[arg-type]


def draw(logits: torch.Tensor, rows: list[Row]) -> list[int]:
    chosen = sample(logits, [RowDraw(row.params, row.seed, row.position) for row in rows])
    for row in rows:
        row.position += 1
    return chosen


def reference_support(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float = 0.0) -> set[int]:
    order = np.argsort(-logits, kind="stable")
    order = order[:top_k] if top_k else order
    weights = np.exp((logits[order] - logits[order].max()) / temperature)
    weights /= weights.sum()
    kept: list[tuple[int, float]] = []
    reached = 0.0
    for token_id, weight in zip(order, weights, strict=True):
        if reached >= top_p and kept:
            break
        kept.append((int(token_id), weight))
        reached += weight
    return {token_id for token_id, weight in kept if weight > 0 and weight >= min_p * weights[0]}


def test_greedy_takes_the_largest() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [5.0, -1.0, float("-inf")]])
    assert draw(logits, [make_row(), make_row()]) == [1, 0]


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature", "min_p"),
    [
        (0, 1.0, 1.0, 0.0),
        (3, 1.0, 0.7, 0.0),
        (0, 0.6, 1.0, 0.0),
        (4, 0.5, 2.0, 0.0),
        (1, 0.01, 1.0, 0.0),
        (0, 1.0, 1.0, 0.5),
        (0, 0.9, 0.5, 1.0),
    ],
)
def test_sampling_stays_in_the_support_and_reaches_all_of_it(top_k: int, top_p: float, temperature: float, min_p: float) -> None:
    logits = torch.tensor([[1.0, 0.5, 0.2, 0.9, float("-inf"), -0.3, 0.1]])
    row = make_row(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    drawn = {draw(logits, [row])[0] for _ in range(600)}
    assert drawn == reference_support(logits[0].numpy(), temperature, top_k, top_p, min_p)


def test_sampling_follows_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2]]))
    row = make_row(temperature=1.0)
    counts = np.bincount([draw(logits, [row])[0] for _ in range(4000)], minlength=3) / 4000
    assert np.abs(counts - [0.5, 0.3, 0.2]).max() < 0.03


def test_seeded_tokens_do_not_depend_on_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 50)
    alone = [draw(logits[i : i + 1], [make_row(seed=i, temperature=1.0)])[0] for i in range(6)]
    together = draw(logits, [make_row(seed=i, temperature=1.0) for i in range(6)])
    assert together == alone


def test_denied_tokens_are_never_drawn_even_with_top_k_beyond_the_rest() -> None:
    logits = torch.full((1, 40), float("-inf"))
    logits[0, 7] = -3.0
    assert {draw(logits, [make_row(seed=i, temperature=1.5, top_k=20)])[0] for i in range(50)} == {7}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("seed", -1),
        ("stop_token_ids", (-2,)),
        ("max_reasoning_tokens", -1),
        ("max_reasoning_tokens", 1.5),
    ],
)
def test_sampling_params_name_the_wrong_one(name: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert caught.value.param == name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-9])
def test_tiny_temperature_is_greedy(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[3.0, 9.0, float("-inf"), 8.0]], dtype=dtype)
    assert draw(logits, [make_row(temperature=temperature)]) == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("temperature", [1e9, 1.7e308])
def test_huge_temperature_never_takes_a_denied_token(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[3.0, 9.0, float("-inf"), 8.0]], dtype=dtype)
    assert {draw(logits, [make_row(seed, temperature=temperature)])[0] for seed in range(60)} == {0, 1, 3}


def test_number_beyond_floats_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(temperature=10**400)
    assert caught.value.param == "temperature"


@pytest.mark.parametrize(
    "options",
    [
        {"top_p": 0.9}, {"top_p": 0.9999}, {"top_k": 7}, {"top_k": 3000}, {"top_k": 3000, "top_p": 0.5},
        {"min_p": 0.3}, {"min_p": 1e-9},
    ],
    ids=["p", "wide-p", "k", "wide-k", "wide-k-p", "min-p", "wide-min-p"],
)  # fmt: skip
def test_large_vocabulary_gives_the_tokens_of_a_whole_sort(options: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sampler.make_draw_kernel", lambda: None)
    torch.manual_seed(1)
    logits = torch.randn(3, 5000)
    rows = [make_row(seed, temperature=1.5, **options) for seed in range(3)]
    few = [draw(logits, rows) for _ in range(20)]
    monkeypatch.setattr("engine.sampler.NUM_CANDIDATES", 5000)
    rows = [make_row(seed, temperature=1.5, **options) for seed in range(3)]
    assert [draw(logits, rows) for _ in range(20)] == few


OPTIONS: list[dict[str, float]] = [
    {},
    {"top_p": 0.9},
    {"top_p": 0.9999},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 3000},
    {"top_k": 20, "top_p": 0.7, "min_p": 0.02},
    {"min_p": 0.3},
    {"min_p": 1e-9},
]


def make_draws(rng: np.random.Generator, position: int) -> list[RowDraw]:
    """Eighteen rows, each drawn in another way or with another seed."""
    options = [OPTIONS[index % len(OPTIONS)] | {"temperature": rng.choice([0.1, 0.8, 1, 3])} for index in range(18)]
    return [RowDraw(SamplingParams(**option), seed, position) for seed, option in enumerate(options)]


@pytest.mark.parametrize("width", [1, 7, 64, 65, 1000, 5003])
def test_kernel_draws_what_a_whole_sort_draws(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded logits tie all the time, and rows of a grammar allow little."""
    kernel = make_draw_kernel()
    if kernel is None:
        pytest.skip("no C++ compiler here")
    rng = np.random.default_rng(width)
    for number in range(60):
        logits = torch.tensor(rng.normal(scale=rng.choice([0.01, 1, 5, 30]), size=(18, width)), dtype=torch.float32)
        logits = logits.round(decimals=1) if number % 2 else logits
        denied = torch.from_numpy(rng.random((18, width)) < rng.choice([0.0, 0.5, 0.99]))
        denied[:, rng.integers(width)] = False
        table = torch.full((18, width + 2), 50.0)
        table[:, :width] = logits.masked_fill(denied, -torch.inf)
        draws = make_draws(rng, number)
        rows = rng.permutation(18).tolist()
        # All columns at once, or the likeliest first.
        monkeypatch.setattr("engine.sampler.NUM_CANDIDATES", rng.choice([width, 20]))
        expected = _draw_by_torch(table[:, :width], rows, draws)
        assert draw_rows(kernel, draws, table[:, :width], rows) == expected
        with torch_threads(3):
            assert draw_rows(kernel, draws, table[:, :width], rows) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [1, 7, 31, 64, 65, 1000, 5003])
def test_kernel_reads_masks_and_bans_in_the_logits_as_they_are(width: int, dtype: torch.dtype) -> None:
    """Beside logits that were widened, masked and banned by hand."""
    kernel = make_draw_kernel()
    if kernel is None:
        pytest.skip("no C++ compiler here")
    rng = np.random.default_rng(width)
    for number in range(40):
        table = torch.tensor(rng.normal(scale=rng.choice([0.1, 1, 5, 30]), size=(20, width)), dtype=dtype)
        before = table.clone()
        allowed = rng.random((12, width)) < rng.choice([0.02, 0.5, 1.0], size=(12, 1))
        bitmask = torch.from_numpy(pack(allowed, (width + 31) // 32))
        rows = rng.permutation(20)[:18].tolist()
        mask_rows = rng.permutation([*range(12), *[-1] * 6]).tolist()
        banned = [rng.integers(-2, width + 2, size=rng.choice([0, 0, 3])).tolist() for _ in rows]
        draws = make_draws(rng, number)
        by_hand = table[rows].float()
        for line, mask_row, ids in zip(by_hand, mask_rows, banned, strict=True):
            if mask_row >= 0:
                line[torch.from_numpy(~allowed[mask_row])] = -torch.inf
            line[[token_id for token_id in ids if 0 <= token_id < width]] = -torch.inf
        has_token = (by_hand > -torch.inf).any(dim=-1)
        expected = [NOTHING] * 18
        live = has_token.nonzero()[:, 0].tolist()
        for row, token_id in zip(live, _draw_by_torch(by_hand, live, [draws[row] for row in live]), strict=True):
            expected[row] = token_id
        assert draw_rows(kernel, draws, table, rows, bitmask, mask_rows, banned) == expected
        assert torch.equal(table, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_draw_kernel_tells_of_rows_without_a_token_and_without_numbers(dtype: torch.dtype) -> None:
    kernel = make_draw_kernel()
    if kernel is None:
        pytest.skip("no C++ compiler here")
    logits = torch.zeros(4, 70, dtype=dtype)
    logits[0] = -torch.inf
    logits[1, 69] = torch.nan
    logits[2, 3], logits[2, 66] = torch.inf, torch.inf
    bitmask = torch.zeros(1, 3, dtype=torch.int32)
    for options in OPTIONS:
        for temperature in (5e-324, 1e-9, 1.0, 1.7e308):
            draws = [RowDraw(SamplingParams(temperature=temperature, **options), 1, 0)] * 4  # type: ignore[arg-type]
            mask_rows = [-1, -1, -1, 0]
            assert draw_rows(kernel, draws, logits, [0, 1, 2, 3], bitmask, mask_rows) == [NOTHING, NO_NUMBER, 3, NOTHING]


def test_draw_kernel_survives_infinity() -> None:
    logits = torch.tensor([[1.0, float("inf"), float("inf")], [1.0, float("-inf"), 0.5]])
    for options in OPTIONS:
        assert draw(logits, [make_row(1, temperature=1.0, **options), make_row(2, temperature=1e-9, **options)]) == [1, 0]


def test_uniform_numbers_are_uniform_and_unrelated() -> None:
    drawn = np.array([[uniform(seed, position) for position in range(2000)] for seed in range(4)])
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert np.abs(np.histogram(drawn, bins=10, range=(0, 1))[0] / drawn.size - 0.1).max() < 0.012
    correlations = np.corrcoef([*drawn, drawn[0][::-1], np.roll(drawn[1], 1)])
    assert np.abs(correlations - np.eye(6)).max() < 0.08


@pytest.mark.parametrize(
    ("index", "expected"), [(1, 16294208416658607535), (2, 7960286522194355700), (3, 487617019471545679)], ids=["1", "2", "3"]
)
def test_uniform_numbers_are_splitmix64(index: int, expected: int) -> None:
    """The published first outputs of SplitMix64 from the state 0, which is also what the seed 0 is mixed to."""
    assert uniform(0, index - 1) == (expected >> 11) / 2**53
