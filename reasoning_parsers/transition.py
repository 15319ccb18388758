"""The gate's one transition: a state and the next token id give the next state.

Pure, so that the gate can fold it over a window that may never be committed, and go back by forgetting states. The states:

    prompt: ended ─────────────────────────────────┐     constrained from the first token
    prompt: open ─────────────┐                    │
    prompt: unknown           ▼                    ▼
      first token ──► UNDECIDED ──► THINKING ──► ended   (by its marker, or implicitly where tools are offered)
                          └──────────────────────► ended (never thought: anything but the start marker)

Ended stays ended: there is no second block of thinking.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from .markers import TokenMarkers
from .sequence_matcher import SequenceMatcher


class Phase(Enum):
    """Where the output stands."""

    UNDECIDED = auto()
    THINKING = auto()
    ENDED_BY_MARKER = auto()
    ENDED_IMPLICITLY = auto()  # the token that ended the thinking is content
    NEVER_THOUGHT = auto()  # all tokens are content


class State(NamedTuple):
    """All that the meaning of the next token depends on.

    Attributes:
        phase: Where the output stands.
        num_head: Ids of the start marker that the whole output consists of so far; all of them for good once they stand
            there, -1 once the head is something else.
        num_end: Ids of the end marker that the tokens end with.
    """

    phase: Phase
    num_head: int = 0
    num_end: int = 0

    @property
    def is_ended(self) -> bool:
        """Whether the next token is content."""
        return self.phase is not Phase.THINKING and self.phase is not Phase.UNDECIDED


NEVER_THOUGHT = State(Phase.NEVER_THOUGHT, -1)


class Transition:
    """The transition for one set of markers.

    A start marker counts at the head of the output only. The end marker that completes first ends the thinking; its ids cannot be
    ids of the start marker before it. An implicit end that is also the last id of the end marker cannot be (`TokenMarkers`).

    Args:
        markers: The model's markers.
        tools_offered: Whether the implicit ends count.
    """

    __slots__ = ("_end", "_implicit_ends", "_start", "_turning_ids")

    def __init__(self, markers: TokenMarkers, *, tools_offered: bool) -> None:
        self._start = markers.start
        self._end = SequenceMatcher(markers.end)
        self._implicit_ends = markers.implicit_ends if tools_offered else frozenset[int]()
        self._turning_ids = self._implicit_ends | {markers.end[0]}

    def next(self, state: State, token_id: int) -> State:
        """Return the state after one more token. The same object if nothing changed, so that a history stays small.

        Args:
            state: The state before it; not an ended one, which nothing changes.
            token_id: The token.
        """
        phase, num_head, num_end = state
        if phase is Phase.UNDECIDED:
            return self._next_undecided(state, token_id)
        if not num_end and token_id not in self._turning_ids and (num_head < 0 or num_head == len(self._start)):
            # Nearly every token: no marker is under way, and this one begins none.
            return state
        after = self._next_thinking(state, token_id)
        return state if after == state else after

    def _next_undecided(self, state: State, token_id: int) -> State:
        if token_id != self._start[state.num_head]:
            return NEVER_THOUGHT
        num_head = state.num_head + 1
        return State(Phase.THINKING if num_head == len(self._start) else Phase.UNDECIDED, num_head)

    def _next_thinking(self, state: State, token_id: int) -> State:
        num_head = state.num_head
        if 0 <= num_head < len(self._start):
            # The prompt or the policy opened the thinking, and the model writes the start marker all the same.
            num_head = num_head + 1 if token_id == self._start[num_head] else -1
            if num_head == len(self._start):
                return State(Phase.THINKING, num_head)
        if token_id in self._implicit_ends:
            return State(Phase.ENDED_IMPLICITLY, num_head)
        num_end = self._end.advance(state.num_end, token_id)
        phase = Phase.ENDED_BY_MARKER if num_end == len(self._end.sequence) else Phase.THINKING
        return State(phase, num_head, num_end)
