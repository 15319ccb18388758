"""What a prompt says of the thinking: one walk backwards over its token ids.

The walk looks at the last turn only: it ends at the last turn boundary, so that an earlier turn's stale end marker never
counts, nor does a marker that a user wrote. The marker that completes last decides:

- a start marker: thinking is open, unless an implicit end follows it (where tools are offered);
- an end marker: thinking is over;
- none, or the last turn is not the model's: unknown. An implicit end alone says nothing: a list of tools may name it.

Where a family has no boundary tokens the walk may cross turns; then too the last marker decides, so a start marker that
follows an old end marker means open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .base import PromptState
from .markers import TokenMarkers


class PromptScan(NamedTuple):
    """What the walk found.

    Attributes:
        state: What the prompt says.
        tail_start: Index from which on the ids of the prompt can still begin an end marker: right after the last marker, else
            the beginning of the last turn, else 0.
    """

    state: PromptState
    tail_start: int


def scan_prompt(token_ids: Sequence[int], num_tokens: int, markers: TokenMarkers, *, tools_offered: bool) -> PromptScan:
    """Walk backwards over the first `num_tokens` ids of a prompt. Does not change state.

    Cost is linear in the last turn; without turn boundaries, in what follows the last marker.
    """
    boundary = _last_boundary(token_ids, num_tokens, markers)
    if boundary >= 0 and any(_stands_at(token_ids, num_tokens, boundary, opener) for opener in markers.user_turns):
        return PromptScan("unknown", boundary + 1)
    # Longest first: of two markers that end at one place the longer one is meant.
    by_length = sorted((markers.start, markers.end), key=len, reverse=True)
    has_implicit_end = False
    for index in range(num_tokens - 1, boundary, -1):
        for marker in by_length:
            if _stands_at(token_ids, num_tokens, index + 1 - len(marker), marker):
                is_open = marker is markers.start and not has_implicit_end
                return PromptScan("open" if is_open else "ended", index + 1)
        has_implicit_end |= tools_offered and token_ids[index] in markers.implicit_ends
    return PromptScan("unknown", boundary + 1)


def _last_boundary(token_ids: Sequence[int], num_tokens: int, markers: TokenMarkers) -> int:
    """Return the index of the last turn boundary, -1 if there is none."""
    if not markers.turn_boundaries:
        return -1
    indices = range(num_tokens - 1, -1, -1)
    return next((index for index in indices if token_ids[index] in markers.turn_boundaries), -1)


def _stands_at(token_ids: Sequence[int], num_tokens: int, first: int, sequence: tuple[int, ...]) -> bool:
    """Whether `sequence` begins at `first`; compared from the back, since its last id is the one that is rare."""
    if not 0 <= first <= num_tokens - len(sequence):
        return False
    return all(token_ids[first + offset] == sequence[offset] for offset in range(len(sequence) - 1, -1, -1))
