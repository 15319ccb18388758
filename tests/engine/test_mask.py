"""The three rulers line up, whatever the batch."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import GrammarSpec, SamplingParams
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.vocabulary import Vocabulary
from engine.mask import RowSpan, Window, mask_logits, row_index
from engine.sequence import Sequence
from reasoning_parsers import ReasoningGate, TokenMarkers


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Per sequence: logits rows (1 + drafts) and the first of them that is masked (may be beyond the last)."""
    rows = draw(st.lists(st.integers(1, 6), max_size=8))
    return [(num_rows, draw(st.integers(0, num_rows + 2))) for num_rows in rows]


def spans_of(batch: list[tuple[int, int]]) -> list[RowSpan]:
    spans: list[RowSpan] = []
    for num_rows, constraint_start in batch:
        first = spans[-1].first_row + spans[-1].num_rows if spans else 0
        spans.append(RowSpan(first, num_rows, constraint_start))
    return spans


@given(batches())
def test_row_index_names_each_masked_row_once(batch: list[tuple[int, int]]) -> None:
    flat = [(position, offset) for position, (num_rows, _) in enumerate(batch) for offset in range(num_rows)]
    expected = [(position, row) for row, (position, offset) in enumerate(flat) if offset >= batch[position][1]]
    assert row_index(spans_of(batch)) == expected


@given(batches(), st.randoms())
def test_row_index_follows_a_permuted_batch(batch: list[tuple[int, int]], rng: random.Random) -> None:
    order = list(range(len(batch)))
    rng.shuffle(order)
    permuted = [batch[position] for position in order]
    masked_of = masked_counts(batch)
    assert masked_counts(permuted) == [masked_of[position] for position in order]


def masked_counts(batch: list[tuple[int, int]]) -> list[int]:
    index = row_index(spans_of(batch))
    return [sum(1 for position, _ in index if position == wanted) for wanted in range(len(batch))]


STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))


class ByteDecoder:
    def decode(self, token_ids: list[int], **options: object) -> str:
        return bytes(token_ids).decode(errors="replace")


@pytest.mark.parametrize(("start", "allowed"), [("<t>", "t"), ("[t]", 't]"')])
def test_row_inside_a_start_marker_goes_on_from_its_ids(start: str, allowed: str) -> None:
    """They are the head of the answer if the marker breaks off: `<` begins no JSON, `[` begins an array."""
    spec = GrammarSpec.from_json_schema({"type": "array", "items": {"type": "string"}})
    markers = TokenMarkers(start=tuple(start.encode()), end=tuple(b"</t>"))
    sequence = Sequence("a", [1], SamplingParams(), ReasoningGate(markers), ByteDecoder(), frozenset({STOP}), spec)
    sequence.gate.start(sequence.prompt_token_ids)
    sequence.matcher = XGrammarBackend(BYTES, num_threads=1).compile(spec).new_matcher((STOP,))
    assert sequence.append([ord(start[0])])
    logits = torch.zeros(1, 257)
    assert mask_logits(logits, [Window(sequence)]) == {}
    assert bytes(logits[0].isfinite().nonzero().flatten().tolist()) == bytes(sorted(allowed.encode()))
