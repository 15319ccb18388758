"""What a prompt says of the thinking: one walk over its last turn.

Nothing before the last turn boundary counts, so that an earlier turn's stale end marker says nothing, nor does a marker that a
user wrote. The marker that completes last decides:

- a start marker: thinking is open, unless an implicit end follows it (where tools are offered);
- an end marker: thinking is over;
- none, or the last turn is not the model's: unknown. An implicit end alone says nothing: a list of tools may name it.

Where messages have headers, an answer cannot begin without one: thinking is over inside an answer, and open anywhere else.

Where a family has no boundary tokens the walk crosses turns; then too the last marker decides, so a start marker that follows an
old end marker means open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .aho_corasick import ROOT
from .base import PromptState
from .channel_scanner import ChannelScanner
from .markers import TokenMarkers
from .scanner import EndScanner
from .transition import Transition


class PromptScan(NamedTuple):
    """What the walk found.

    Attributes:
        state: What the prompt says.
        node: Where the scanner for the end of the thinking stands: a continued message may stop in the middle of a marker.
        num_unfinished: Tokens at the end of the prompt that are the beginning of a marker or, frame and all, of a header.
    """

    state: PromptState
    node: int = ROOT
    num_unfinished: int = 0


def scan_prompt(token_ids: Sequence[int], num_tokens: int, markers: TokenMarkers, *, tools_offered: bool) -> PromptScan:
    """Walk over the last turn of the first `num_tokens` ids of a prompt. Does not change state.

    Cost is linear in the last turn.
    """
    boundary = _last_boundary(token_ids, num_tokens, markers)
    is_user_turn = boundary >= 0 and any(_stands_at(token_ids, num_tokens, boundary, opener) for opener in markers.user_turns)
    transition = markers.transition(tools_offered=tools_offered)
    if isinstance(transition.scanner, ChannelScanner):
        # The boundary may be the beginning of a frame.
        first = num_tokens if is_user_turn else max(boundary, 0)
        return _scan_channels(token_ids, first, num_tokens, transition, transition.scanner)
    if is_user_turn:
        return PromptScan("unknown")
    scan = _scan_markers(_symbols(token_ids, boundary + 1, num_tokens, transition), transition)
    return scan._replace(num_unfinished=_num_unfinished(token_ids, num_tokens, scan, transition))


def _symbols(token_ids: Sequence[int], first: int, num_tokens: int, transition: Transition) -> Iterator[int]:
    for index in range(first, num_tokens):
        yield from transition.of_token(token_ids[index])


def _scan_channels(
    token_ids: Sequence[int], first: int, num_tokens: int, transition: Transition, scanner: ChannelScanner
) -> PromptScan:
    node, header_start = ROOT, num_tokens
    for index in range(first, num_tokens):
        for symbol in transition.of_token(token_ids[index]):
            node = scanner.advance(node, symbol)
        if not scanner.is_header(node):
            header_start = num_tokens
        elif header_start == num_tokens:
            header_start = index
    num_unfinished = num_tokens - header_start if scanner.is_opened(node) else 0
    return PromptScan("ended" if scanner.is_ended(node) else "open", node, num_unfinished)


def _num_unfinished(token_ids: Sequence[int], num_tokens: int, scan: PromptScan, transition: Transition) -> int:
    assert isinstance(transition.scanner, EndScanner)
    num_symbols, count = transition.scanner.num_unfinished(scan.node), 0
    while num_symbols > 0:
        count += 1
        num_symbols -= len(transition.of_token(token_ids[num_tokens - count]))
    return count


def _scan_markers(symbols: Iterator[int], transition: Transition) -> PromptScan:
    scanner = transition.scanner
    assert isinstance(scanner, EndScanner)
    # The marks know all that has no gap, wherever it begins; the scanner begins anew after each marker.
    marks, num_starts = transition.marks, len(transition.starts.sequences)
    turning = marks.starts | scanner.turning_symbols
    state: PromptState = "unknown"
    mark = node = ROOT
    for symbol in symbols:
        if mark == ROOT and node == ROOT and symbol not in turning:
            continue
        mark, node = marks.advance(mark, symbol), scanner.advance(node, symbol)
        hit = scanner.hit(node)
        if hit is not None and hit.gap >= 0:
            state, node = "ended", ROOT
        elif marks.found[mark]:
            # Of two markers that end at one place the longer one is meant.
            longest = marks.found[mark][0]
            if not transition.is_implicit_mark(longest):
                state, node = "open" if longest < num_starts else "ended", ROOT
            elif state == "open":
                state = "ended"
    return PromptScan(state, node)


def _last_boundary(token_ids: Sequence[int], num_tokens: int, markers: TokenMarkers) -> int:
    """Return the index of the last turn boundary, -1 if there is none."""
    if not markers.turn_boundaries:
        return -1
    indices = range(num_tokens - 1, -1, -1)
    return next((index for index in indices if token_ids[index] in markers.turn_boundaries), -1)


def _stands_at(token_ids: Sequence[int], num_tokens: int, first: int, sequence: tuple[int, ...]) -> bool:
    """Whether `sequence` begins at `first`."""
    if first + len(sequence) > num_tokens:
        return False
    return all(token_ids[first + offset] == symbol for offset, symbol in enumerate(sequence))
