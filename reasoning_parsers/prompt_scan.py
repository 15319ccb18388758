"""What a prompt says of the thinking: one walk backwards over its token ids.

The walk looks at the last turn only: it ends at the last turn boundary, so that neither an earlier turn's stale end marker
nor a marker that a user wrote ever counts. The marker that completes last decides:

- a start marker: thinking is open, unless an implicit end follows it (where tools are offered);
- an end marker: thinking is over;
- none: unknown. An implicit end alone says nothing: a list of tools may name it.

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
        tail_start: Index from which on the ids of the prompt can still begin an end marker: right after the start marker, else
            the beginning of the last turn, else 0.
    """

    state: PromptState
    tail_start: int


def scan_prompt(token_ids: Sequence[int], num_tokens: int, markers: TokenMarkers, *, tools_offered: bool) -> PromptScan:
    """Walk backwards over the first `num_tokens` ids of a prompt. Does not change state.

    Cost is linear in the last turn, or in what follows the last marker, whichever is shorter.
    """
    # Longest first: of two markers that end at one place the longer one is meant.
    by_length = sorted((markers.start, markers.end), key=len, reverse=True)
    has_implicit_end = False
    for index in range(num_tokens - 1, -1, -1):
        token_id = token_ids[index]
        for marker in by_length:
            if token_id == marker[-1] and _ends_with(token_ids, index + 1, marker):
                is_open = marker is markers.start and not has_implicit_end
                return PromptScan("open" if is_open else "ended", index + 1)
        if token_id in markers.turn_boundaries:
            return PromptScan("unknown", index + 1)
        has_implicit_end |= tools_offered and token_id in markers.implicit_ends
    return PromptScan("unknown", 0)


def _ends_with(token_ids: Sequence[int], stop: int, marker: tuple[int, ...]) -> bool:
    first = stop - len(marker)
    return first >= 0 and all(token_ids[first + offset] == token_id for offset, token_id in enumerate(marker))
