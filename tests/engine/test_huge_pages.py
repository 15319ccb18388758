"""Large pages under weights: which memory is asked for, and that nothing in it changes."""

from __future__ import annotations

import itertools
import random
import sys

import pytest
import torch

from engine.fast_path.huge_pages import MAX_GAP_BYTES, PAGE_BYTES, Span, join, prefer_huge_pages
from engine.fast_path.linear import Linear, is_blocked_faster, make_torch_product


def test_joined_spans_cover_the_same_bytes_and_no_wide_gap() -> None:
    rng = random.Random(5)
    for _ in range(200):
        spans = [Span(rng.randrange(100) * 2**20, rng.randint(1, 2**23)) for _ in range(rng.randint(0, 12))]
        joined = join(spans)
        assert all(
            any(own.start <= s.start and s.start + s.num_bytes <= own.start + own.num_bytes for own in joined) for s in spans
        )
        for before, after in itertools.pairwise(joined):
            assert after.start - (before.start + before.num_bytes) > MAX_GAP_BYTES
        assert {span.start for span in joined} <= {span.start for span in spans}
        assert {span.start + span.num_bytes for span in joined} <= {span.start + span.num_bytes for span in spans}


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_contents_stay() -> None:
    weights = torch.arange(3 * PAGE_BYTES // 4, dtype=torch.int32)
    before = weights.clone()
    assert prefer_huge_pages([Span(weights.data_ptr(), weights.nbytes)]) >= PAGE_BYTES
    assert torch.equal(weights, before)


def test_less_than_a_page_is_left_alone() -> None:
    weights = torch.zeros(100)
    assert prefer_huge_pages([Span(weights.data_ptr(), weights.nbytes)]) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_linear_says_where_its_weights_lie(dtype: torch.dtype) -> None:
    module = torch.nn.Linear(64, 96, bias=False, dtype=dtype)
    fused = Linear([module], make_torch_product)
    assert fused.memory().num_bytes == 64 * 96 * dtype.itemsize
    if not is_blocked_faster(module.weight):
        assert fused.memory().start == module.weight.data_ptr()
