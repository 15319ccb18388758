"""The mask operations against a NumPy oracle, at awkward vocabulary sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.grammar.bitmask import (
    apply_token_bitmask_inplace,
    bitmask_width,
    new_bitmask,
    set_bits_inplace,
)

WIDTHS = [1, 31, 32, 33, 64, 1000, 32001]


@pytest.mark.parametrize("vocab_size", WIDTHS)
def test_apply_denies_exactly_the_zero_bits(vocab_size: int) -> None:
    rng = np.random.default_rng(vocab_size)
    allowed = rng.random((3, vocab_size)) < 0.5
    bitmask = new_bitmask(3, vocab_size)
    for row in range(3):
        set_bits_inplace(bitmask.numpy()[row], tuple(np.flatnonzero(allowed[row]).tolist()))
    before = torch.tensor(rng.normal(size=(5, vocab_size)), dtype=torch.float32)
    logits = before.clone()
    rows = [4, 0, 2]
    apply_token_bitmask_inplace(logits, bitmask, torch.tensor(rows))
    expected = before.numpy().copy()
    for mask_row, row in enumerate(rows):
        expected[row] = np.where(allowed[mask_row], expected[row], -np.inf)
    assert np.array_equal(logits.numpy(), expected)
    assert torch.equal(logits[1], before[1])
    assert torch.equal(logits[3], before[3])


def test_apply_denies_columns_past_the_mask() -> None:
    bitmask = new_bitmask(1, 32)
    bitmask.fill_(-1)
    logits = torch.zeros(1, 70)
    apply_token_bitmask_inplace(logits, bitmask, torch.tensor([0]))
    assert torch.isfinite(logits[0]).tolist() == [True] * 32 + [False] * 38


def test_new_bitmask_denies_everything() -> None:
    bitmask = new_bitmask(4, 33)
    assert bitmask.shape == (4, 2)
    assert bitmask.dtype == torch.int32
    assert not bitmask.any()
    assert bitmask_width(32) == 1


def test_set_bits_sets_the_named_bits_and_no_others() -> None:
    row = np.zeros(3, dtype=np.int32)
    set_bits_inplace(row, (0, 31, 32, 95))
    bits = [bit for bit in range(96) if row.view(np.uint32)[bit // 32] >> (bit % 32) & 1]
    assert bits == [0, 31, 32, 95]
