"""The gate: at which token the grammar begins, per request, on token ids.

Knows token ids and markers; no text, no grammar, no model. What a prompt says is in `prompt_scan.py`, what a token changes in
`transition.py`; here are the history and the questions. Validating drafts, filling masks and feeding the grammar all ask
`bounds`, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from .base import PromptState
from .errors import InvalidOptionError, UnknownPromptStateError
from .markers import TokenMarkers
from .prompt_scan import PromptScan, scan_prompt
from .sequence_matcher import SequenceMatcher
from .transition import NEVER_THOUGHT, Phase, State, Transition

OnUnknown = Literal["first_token", "open", "constrain", "error"]
"""What to do when the prompt does not say whether thinking is open.

`first_token`: the head of the output decides, start marker or not; white space is not. `open`: thinking until an end marker
comes. `constrain`: the grammar rules from the first token. `error`: raise `UnknownPromptStateError`.
"""


class Bounds(NamedTuple):
    """Where the grammar begins in a window of n tokens.

    Attributes:
        grammar_start: Index of the first token of the window that is fed to the grammar; n + 1 where none is. Negative only
            where a start marker of several ids began in earlier windows and broke off in this one: that many committed tokens
            before the window turn out to be content, and are fed first.
        constraint_start: First row that the grammar masks; n + 1 where none is. Row i masks the choice of token i, row n that
            of the bonus token.
    """

    grammar_start: int
    constraint_start: int


class ReasoningGate:
    """Decides for one request which tokens are thinking and which obey the grammar.

    Only `start`, `commit` and `rollback` change state. The cost of a call is linear in its window, whatever the context; the
    prompt is scanned once, when something first depends on it. A gate that was not started has an empty prompt.

    A start marker of several ids leaves the gate undecided until it is complete or broken off. Its ids are not fed to the
    grammar meanwhile; if it breaks off they were the beginning of the answer, and `bounds` gives a negative `grammar_start`.

    Args:
        markers: The model's markers; None for a model without thinking, which is constrained from the first token.
        on_unknown: What to do when the prompt does not say whether thinking is open.
        thinking_enabled: The request's switch; None if it was not given. If False, an unknown prompt is constrained at once,
            whatever `on_unknown` is. A prompt that says something is believed.
        tools_offered: Whether `markers.implicit_ends` count.
        max_reasoning_tokens: Thinking tokens, markers aside, after which `forced_token_id` closes the thinking. None is no
            limit, 0 closes it at once.

    Raises:
        InvalidOptionError: An option is out of range.
    """

    def __init__(
        self,
        markers: TokenMarkers | None,
        *,
        on_unknown: OnUnknown = "first_token",
        thinking_enabled: bool | None = None,
        tools_offered: bool = False,
        max_reasoning_tokens: int | None = None,
    ) -> None:
        if on_unknown not in get_args(OnUnknown):
            raise InvalidOptionError("on_unknown", f"{on_unknown!r} is none of {', '.join(get_args(OnUnknown))}")
        if max_reasoning_tokens is not None and max_reasoning_tokens < 0:
            raise InvalidOptionError("max_reasoning_tokens", f"{max_reasoning_tokens} is below 0; None is no limit")
        self._markers = markers
        self._transition = Transition(markers, tools_offered=tools_offered) if markers else None
        self._on_unknown = on_unknown
        self._thinking_enabled = thinking_enabled
        self._tools_offered = tools_offered
        self._max_reasoning_tokens = max_reasoning_tokens
        self.start(())

    def start(self, prompt_token_ids: Sequence[int]) -> None:
        """Begin a request and forget the one before. Keeps a reference to the prompt and scans nothing.

        Args:
            prompt_token_ids: Ids of the rendered prompt. Ids that are appended later do not count; the others must not change.
        """
        self._prompt = prompt_token_ids
        self._num_prompt_tokens = len(prompt_token_ids)
        self._scan: PromptScan | None = None
        self._initial_state: State | None = None
        # The state after each committed token, up to the one that ended the thinking: nothing changes after that.
        self._states: list[State] = []
        self._num_committed = 0
        self._window_starts: list[int] = []

    @property
    def prompt_state(self) -> PromptState:
        """What the prompt says; the first ask scans it. A model without thinking is "ended"."""
        return self._scan_once().state

    @property
    def text_prompt_state(self) -> PromptState:
        """The `prompt_state` for a text parser of the same request, policy and first tokens considered.

        "unknown" only while the gate is undecided; ask again when it is not. Correct for the whole output, also if some of it
        is committed: a parser in the state "open" drops a start marker at the head.

        Raises:
            UnknownPromptStateError: The prompt says nothing and `on_unknown` is "error".
        """
        if self._initial().is_ended or self._state().phase is Phase.NEVER_THOUGHT:
            return "ended"
        return "unknown" if self._state().phase is Phase.UNDECIDED else "open"

    @property
    def reasoning_ended(self) -> bool | None:
        """True: the next token obeys the grammar. False: thinking. None: undecided, the head of the output will tell.

        Raises:
            UnknownPromptStateError: The prompt says nothing and `on_unknown` is "error".
        """
        state = self._state()
        return None if state.phase is Phase.UNDECIDED else state.is_ended

    @property
    def is_thinking(self) -> bool:
        """Whether thinking is known to be under way."""
        return self.reasoning_ended is False

    @property
    def allows_start(self) -> bool:
        """Whether the gate is undecided: the next row allows what the grammar allows and `next_start_id`."""
        return self.next_start_id is not None

    @property
    def next_start_id(self) -> int | None:
        """The id that goes on with the start marker while the gate is undecided, else None.

        It is `markers.start[0]` before the first token, and so always for a marker of one id.
        """
        state = self._state()
        if state.phase is not Phase.UNDECIDED or self._markers is None:
            return None
        return self._markers.start[state.num_head]

    @property
    def num_reasoning_tokens(self) -> int:
        """Committed thinking tokens. The end marker and a start marker at the head of the output are not counted.

        Ids that may yet turn out to be an end marker count until they do.
        """
        first, stop = self._thinking_range()
        return stop - first

    @property
    def reasoning_end_index(self) -> int | None:
        """Number of committed tokens before the first content token, the end marker included; None while there is no such.

        0 if all tokens are content. An implicit end is content itself.
        """
        state = self._state()
        if not state.is_ended:
            return None
        if state.phase is Phase.NEVER_THOUGHT:
            return 0
        return len(self._states) - (state.phase is Phase.ENDED_IMPLICITLY)

    @property
    def reasoning_span(self) -> tuple[int, int]:
        """First and last + 1 of the committed tokens that are certain to be thinking text, markers left out.

        The tail that may still become an end marker, and a head that may still become a start marker, are not certain.
        """
        first, stop = self._thinking_range()
        state = self._state()
        if self._markers is not None and state.phase is Phase.THINKING:
            num_head = state.num_head if state.num_head < len(self._markers.start) else 0
            stop -= max(state.num_end, num_head)
        return first, max(first, stop)

    def bounds(self, window: Sequence[int]) -> Bounds:
        """Say where the grammar begins in the tokens that come next. Does not change state.

        Rows of an undecided gate count as masked, with `next_start_id` allowed besides (`allows_start`).

        Args:
            window: Ids that follow the committed ones: sampled, drafted, or none.

        Raises:
            UnknownPromptStateError: The prompt says nothing and `on_unknown` is "error".
        """
        return self._fold(window)[0]

    def commit(self, token_ids: Sequence[int]) -> Bounds:
        """Take tokens as output and return `bounds(token_ids)` as of before. Can be rolled back.

        Raises:
            UnknownPromptStateError: The prompt says nothing and `on_unknown` is "error".
        """
        bounds, states = self._fold(token_ids)
        if len(token_ids):
            self._window_starts.append(self._num_committed)
        self._states += states
        self._num_committed += len(token_ids)
        return bounds

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens, as if they had never been committed.

        Args:
            num_tokens: How many, from 0 to all committed ones.

        Raises:
            InvalidOptionError: There are not so many.
        """
        if not 0 <= num_tokens <= self._num_committed:
            raise InvalidOptionError("num_tokens", f"cannot take back {num_tokens} of {self._num_committed} tokens")
        self._num_committed -= num_tokens
        del self._states[self._num_committed :]
        while self._window_starts and self._window_starts[-1] >= self._num_committed:
            self._window_starts.pop()

    def should_fill_bitmask(self) -> bool:
        """Whether the next row is masked. See `allows_start` for what it allows besides."""
        return self.bounds(()).constraint_start == 0

    def should_advance(self) -> bool:
        """Whether the grammar takes the tokens of the last committed window.

        False in the pass in which the end marker arrived, True from the next one on. Before any commit it is True where the
        first token will be content.
        """
        end_index = self.reasoning_end_index
        window_start = self._window_starts[-1] if self._window_starts else 0
        return end_index is not None and end_index <= window_start

    def forced_token_id(self) -> int | None:
        """Return the id that must come next because the thinking budget is used up, else None.

        It goes on with an end marker that is half written, so the marker is never written twice.
        """
        if self._max_reasoning_tokens is None or self._markers is None or not self.is_thinking:
            return None
        if self.num_reasoning_tokens < self._max_reasoning_tokens:
            return None
        return self._markers.end[self._state().num_end]

    def _fold(self, window: Sequence[int]) -> tuple[Bounds, list[State]]:
        """Bounds of a window, and the states after its tokens up to the one that ends the thinking."""
        state = self._state()
        states: list[State] = []
        if state.is_ended or self._transition is None:
            return Bounds(0, 0), states
        # Ids of an unfinished start marker; none of them is fed to the grammar so far.
        num_pending = state.num_head if state.phase is Phase.UNDECIDED else 0
        for index, token_id in enumerate(window):
            state = self._transition.next(state, token_id)
            states.append(state)
            if state.phase is Phase.ENDED_BY_MARKER:
                return Bounds(index + 1, index + 1), states
            if state.phase is Phase.ENDED_IMPLICITLY:
                return Bounds(index, index + 1), states
            if state.phase is Phase.NEVER_THOUGHT:
                return Bounds(-num_pending, 0), states
        past_end = len(states) + 1
        if state.phase is Phase.THINKING:
            return Bounds(past_end, past_end), states
        return Bounds(past_end if state.num_head else 0, 0), states

    def _thinking_range(self) -> tuple[int, int]:
        """First and last + 1 of the committed thinking tokens, complete markers left out."""
        state = self._state()
        if self._markers is None or state.phase is Phase.UNDECIDED or state.phase is Phase.NEVER_THOUGHT:
            return 0, 0
        first = state.num_head if state.num_head == len(self._markers.start) else 0
        stop = len(self._states)
        if state.phase is Phase.ENDED_BY_MARKER:
            stop -= len(self._markers.end)
        elif state.phase is Phase.ENDED_IMPLICITLY:
            stop -= 1
        # Below the first if the prompt holds the beginning of the end marker.
        return first, max(first, stop)

    def _state(self) -> State:
        return self._states[-1] if self._states else self._initial()

    def _initial(self) -> State:
        if self._initial_state is None:
            self._initial_state = self._find_initial()
        return self._initial_state

    def _find_initial(self) -> State:
        prompt_state = self.prompt_state
        if self._markers is None or prompt_state == "ended":
            return NEVER_THOUGHT
        if prompt_state == "unknown":
            if self._thinking_enabled is False or self._on_unknown == "constrain":
                return NEVER_THOUGHT
            if self._on_unknown == "error":
                raise UnknownPromptStateError
            if self._on_unknown == "first_token":
                return State(Phase.UNDECIDED)
        return State(Phase.THINKING, 0, self._num_end_in_prompt(self._markers))

    def _num_end_in_prompt(self, markers: TokenMarkers) -> int:
        """Ids of an end marker that the prompt ends with: a continued message may stop in the middle of one."""
        first = max(self._scan_once().tail_start, self._num_prompt_tokens - len(markers.end) + 1)
        return SequenceMatcher(markers.end).tail_len(self._prompt[first : self._num_prompt_tokens])

    def _scan_once(self) -> PromptScan:
        if self._scan is None:
            if self._markers is None:
                self._scan = PromptScan("ended", 0)
            else:
                self._scan = scan_prompt(self._prompt, self._num_prompt_tokens, self._markers, tools_offered=self._tools_offered)
        return self._scan
