"""Which logits rows the grammars mask, and the masks themselves: the three rulers in one place.

Ruler 1 is the order of the batch, ruler 2 the logits rows (`1 + drafts` per sequence), ruler 3 the rows of the compact mask
table, which exist for constrained rows only. `row_index` lines them up.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import NamedTuple, Protocol

import torch

from reasoning_parsers import Content, ReasoningGate

from .errors import EngineError, EngineStepError
from .grammar import Matcher, apply_token_bitmask_inplace, new_bitmask
from .grammar.bitmask import set_bits_inplace


class GatedSequence(Protocol):
    """What a mask depends on: a sequence of the engine, or a row of someone else's decoding loop."""

    @property
    def request_id(self) -> str:
        """The name of the request, for errors."""
        ...

    @property
    def gate(self) -> ReasoningGate:
        """The gate, all of `token_ids` committed."""
        ...

    @property
    def matcher(self) -> Matcher | None:
        """The grammar's state, or None for free text."""
        ...

    @property
    def token_ids(self) -> list[int]:
        """Generated ids."""
        ...

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Ids that end the answer."""
        ...


class RowSpan(NamedTuple):
    """Logits rows of one sequence: `num_rows` rows from `first_row`, of which those from `constraint_start` on are masked."""

    first_row: int
    num_rows: int
    constraint_start: int


def row_index(spans: SequenceOf[RowSpan]) -> list[tuple[int, int]]:
    """Give (position in `spans`, logits row) of every masked row, in the order of the compact table."""
    return [
        (position, span.first_row + offset)
        for position, span in enumerate(spans)
        for offset in range(min(span.constraint_start, span.num_rows), span.num_rows)
    ]


def mask_logits(logits: torch.Tensor, sequences: SequenceOf[GatedSequence]) -> dict[str, EngineError]:
    """Mask the rows of sequences whose grammar rules their next token; all other logits keep their bits.

    A thinking row of a constrained sequence loses its stop ids, since to stop while thinking is to leave without an answer, and
    the tokens that would end the thinking with something that the grammar refuses. A free one loses the start marker once a
    budget has ended its thinking.

    Args:
        logits: float32 `(len(sequences), vocab_size)`, changed in place.
        sequences: One per row.

    Returns:
        Errors by request id: sequences whose row would have been left with no token at all.
    """
    spans = [RowSpan(row, 1, _constraint_start(sequence)) for row, sequence in enumerate(sequences)]
    index = row_index(spans)
    failed: dict[str, EngineError] = {}
    if index:
        bitmask = new_bitmask(len(index), logits.shape[1], pin_memory=logits.is_cuda)
        for mask_row, (position, _) in enumerate(index):
            error = _fill(bitmask, mask_row, sequences[position])
            if error is not None:
                failed[sequences[position].request_id] = error
        kept = [i for i, (position, _) in enumerate(index) if sequences[position].request_id not in failed]
        rows = torch.tensor([index[i][1] for i in kept], device=logits.device)
        apply_token_bitmask_inplace(logits, bitmask[kept].to(logits.device, non_blocking=True), rows)
    _close_other_doors(logits, sequences)
    return failed


def _constraint_start(sequence: GatedSequence) -> int:
    return sequence.gate.bounds([]).constraint_start if sequence.matcher is not None else 1


def _fill(bitmask: torch.Tensor, mask_row: int, sequence: GatedSequence) -> EngineError | None:
    assert sequence.matcher is not None
    start_ids = sequence.gate.next_start_ids
    # Ids of a start marker that is not complete become the head of the answer where it breaks off.
    pending = sequence.token_ids if start_ids else []
    if sequence.matcher.accept_tokens(pending):
        sequence.matcher.fill_bitmask(bitmask, mask_row)
        sequence.matcher.rollback(len(pending))
    if start_ids:
        set_bits_inplace(bitmask.numpy()[mask_row], tuple(start_ids))
    if not bitmask[mask_row].any():
        return EngineStepError(
            "the grammar allows no token here", request_id=sequence.request_id, hint="please report the schema"
        )
    return None


def _close_other_doors(logits: torch.Tensor, sequences: SequenceOf[GatedSequence]) -> None:
    for row, sequence in enumerate(sequences):
        denied = sequence.gate.denied_token_ids(partial(_takes_first, sequence.matcher))
        if sequence.matcher is not None and sequence.gate.is_thinking:
            denied |= sequence.stop_token_ids
        if denied:
            logits[row, sorted(denied)] = float("-inf")


def _takes_first(matcher: Matcher | None, content: Content) -> bool:
    """Whether an answer may begin with `content`: ids, and bytes of tokens that are the answer's in part."""
    if matcher is None:
        return True
    trial = matcher.fork()
    return all(trial.accept_bytes(part) if isinstance(part, bytes) else trial.accept_tokens([part]) for part in content)
