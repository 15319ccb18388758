"""The gate: at which token the grammar begins, per request, on token ids.

Knows token ids and markers; no text, no grammar, no model. What a prompt says is in `prompt_scan.py`, what a token changes in
`transition.py`; here are the history and the questions. Validating drafts, filling masks and feeding the grammar all ask
`bounds`, so they cannot disagree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from .aho_corasick import ROOT
from .base import PromptState
from .boundary import Boundary, History, find_boundary, find_certain_stop
from .channel_scanner import ChannelScanner
from .errors import InvalidOptionError, UnknownPromptStateError
from .exits import Content, denied_exits
from .markers import TokenMarkers
from .prompt_scan import PromptScan, scan_prompt
from .transition import HEAD_OVER, NEVER_THOUGHT, Phase, State

OnUnknown = Literal["first_token", "open", "constrain", "error"]
"""What to do when the prompt does not say whether thinking is open.

`first_token`: the head of the output decides, start marker or not; white space is not. `open`: thinking until an end marker
comes. `constrain`: the grammar rules from the first token. `error`: raise `UnknownPromptStateError`.
"""


class Bounds(NamedTuple):
    """Where the grammar begins in a window of n tokens.

    Attributes:
        grammar_start: Index of the first token of the window that is fed to the grammar; n + 1 where none is. Negative where
            committed tokens before the window turn out to be content, and are fed first: a start marker of several tokens
            broke off in this window, or a tool opener of several tokens is complete. What the token before it has of the
            answer is `leftover`.
        constraint_start: First row that the grammar masks; n + 1 where none is. Row i masks the choice of token i, row n that
            of the bonus token.
    """

    grammar_start: int
    constraint_start: int


class ReasoningGate:
    """Decides for one request which tokens are thinking and which obey the grammar.

    Only `start`, `commit` and `rollback` change state. The cost of a call is linear in its window, whatever the context; the
    prompt is scanned once, when something first depends on it. A gate that was not started has an empty prompt.

    A start marker of several tokens leaves the gate undecided until it is complete or broken off, and so do blanks. They are not
    fed to the grammar meanwhile; if it breaks off they were the beginning of the answer, and `bounds` gives a negative
    `grammar_start`.

    Where a marker is not one token it can end inside one. The rest of that token belongs to the answer: `leftover`, which the
    grammar takes before the tokens that follow. `denied_token_ids` names the tokens whose rest it would refuse.

    Args:
        markers: The model's markers; None for a model without thinking, which is constrained from the first token.
        on_unknown: What to do when the prompt does not say whether thinking is open.
        thinking_enabled: The request's switch; None if it was not given. If False, an unknown prompt is constrained at once,
            whatever `on_unknown` is. A prompt that says something is believed.
        tools_offered: Whether `markers.implicit_ends` count.
        max_reasoning_tokens: Thinking tokens, markers aside, after which `forced_token_id` closes the thinking. None is no
            limit, 0 closes it at once.
        transition_token_ids: What is written before a forced end: a sentence that leads over to the answer. It is thinking,
            beyond the budget. Left out if the model has begun its own end marker when the budget is used up.

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
        transition_token_ids: Sequence[int] = (),
    ) -> None:
        if on_unknown not in get_args(OnUnknown):
            raise InvalidOptionError("on_unknown", f"{on_unknown!r} is none of {', '.join(get_args(OnUnknown))}")
        if max_reasoning_tokens is not None and max_reasoning_tokens < 0:
            raise InvalidOptionError("max_reasoning_tokens", f"{max_reasoning_tokens} is below 0; None is no limit")
        if max_reasoning_tokens is not None and markers is not None and not markers.forced_end:
            raise InvalidOptionError("max_reasoning_tokens", "the vocabulary has no tokens to write an end marker with")
        self._markers = markers
        self._transition = markers.transition(tools_offered=tools_offered) if markers else None
        self._on_unknown = on_unknown
        self._thinking_enabled = thinking_enabled
        self._tools_offered = tools_offered
        self._max_reasoning_tokens = max_reasoning_tokens
        self._transition_token_ids = tuple(transition_token_ids)
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
        # The committed tokens and the state after each, up to the one that ended the thinking: nothing changes after that.
        self._states: list[State] = []
        self._token_ids: list[int] = []
        self._boundary: Boundary | None = None
        self._denied: dict[int, frozenset[int]] = {}
        self._num_committed = 0
        self._window_starts: list[int] = []

    @property
    def markers(self) -> TokenMarkers | None:
        """The model's markers."""
        return self._markers

    @property
    def thinking_enabled(self) -> bool | None:
        """The request's switch."""
        return self._thinking_enabled

    @property
    def tools_offered(self) -> bool:
        """Whether implicit ends count."""
        return self._tools_offered

    @property
    def prompt_state(self) -> PromptState:
        """What the prompt says; the first ask scans it. A model without thinking is "ended"."""
        return self._scan_once().state

    @property
    def text_prompt_state(self) -> PromptState:
        """The `prompt_state` for a text parser of the same request, policy and first tokens considered.

        "unknown" while the gate is undecided; ask again when it is not. Also "unknown" where messages have headers and the prompt
        ends in none, so that the output begins with a header. Correct for the whole output, also if some of it is committed: a
        parser in the state "open" drops a start marker at the head. See `text_prompt_tail`.

        Raises:
            UnknownPromptStateError: The prompt says nothing and `on_unknown` is "error".
        """
        if self._initial().is_ended or self._state().phase is Phase.NEVER_THOUGHT:
            return "ended"
        scanner = self._transition.scanner if self._transition is not None else None
        if isinstance(scanner, ChannelScanner):
            return "open" if scanner.is_body(self._initial().node) else "unknown"
        return "unknown" if self._state().phase is Phase.UNDECIDED else "open"

    @property
    def text_prompt_tail(self) -> Sequence[int]:
        """Ids at the end of the prompt that a text parser must read before the output: a marker or a header that is begun there.

        Empty where the prompt says that the thinking is over, or nothing.
        """
        scan = self._scan_once()
        return (
            self._prompt[self._num_prompt_tokens - scan.num_unfinished : self._num_prompt_tokens] if scan.state == "open" else ()
        )

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
        """The usual id that goes on with the start marker while the gate is undecided, else None.

        It is `markers.start[0]` before the first token, and so always for a marker of one id.
        """
        state = self._state()
        if state.phase is not Phase.UNDECIDED or self._transition is None:
            return None
        return self._transition.usual_start_id(state.head)

    @property
    def next_start_ids(self) -> frozenset[int]:
        """All ids that go on with a start marker while the gate is undecided; empty if it is not."""
        state = self._state()
        if state.phase is not Phase.UNDECIDED or self._transition is None:
            return frozenset()
        return self._transition.start_ids(state.head)

    @property
    def num_reasoning_tokens(self) -> int:
        """Committed tokens that are thinking, or hold some. Markers, headers and a start marker at the head are not counted.

        What may yet turn out to be an end marker counts until it does.
        """
        state = self._state()
        if self._markers is None or state.phase is Phase.UNDECIDED or state.phase is Phase.NEVER_THOUGHT:
            return 0
        if self._markers.channels is not None:
            return state.num_thinking
        if not state.is_ended:
            return max(0, len(self._states) - state.num_head)
        return self._find_boundary().num_thinking

    @property
    def reasoning_end_index(self) -> int | None:
        """Number of committed tokens before the first that is content only, the end marker included; None while there is none.

        0 if all tokens are content. An implicit end is content itself. See `leftover` for the token before.
        """
        state = self._state()
        if not state.is_ended:
            return None
        return 0 if state.phase is Phase.NEVER_THOUGHT else self._find_boundary().content_index

    @property
    def leftover(self) -> bytes:
        """What the token before `reasoning_end_index` holds of the answer; b"" while there is no such.

        The grammar takes it when the end of the thinking is committed, before the tokens from `grammar_start` on.
        """
        state = self._state()
        if not state.is_ended or state.phase is Phase.NEVER_THOUGHT:
            return b""
        return self._find_boundary().leftover

    def leftover_in(self, window: Sequence[int]) -> bytes:
        """Return what `leftover` will be once `window` is committed, if the thinking ends in it; b"" if not. Changes nothing."""
        if self._state().is_ended:
            return b""
        states = self._fold(window)[1]
        if not states or not states[-1].is_ended or states[-1].phase is Phase.NEVER_THOUGHT:
            return b""
        return self._boundary_in(states, window).leftover

    @property
    def reasoning_span(self) -> tuple[int, int]:
        """First and last + 1 of the committed tokens that are certain to be thinking and nothing else, markers left out.

        The tail that may still become a marker, and a head that may still become a start marker, are not certain. (0, 0) where
        messages have headers: thinking is not in one piece then.
        """
        state = self._state()
        if self._markers is None or state.phase is Phase.UNDECIDED or state.phase is Phase.NEVER_THOUGHT:
            return 0, 0
        if self._markers.channels is not None:
            return 0, 0
        first = state.num_head + (state.head_offset > 0)
        if state.is_ended:
            return first, max(first, self._find_boundary().certain_stop)
        if state.head != HEAD_OVER:
            return first, first
        return first, max(first, find_certain_stop(self._history()))

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
        self._token_ids += token_ids[: len(states)]
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
        if self._num_committed < len(self._states):
            del self._states[self._num_committed :]
            del self._token_ids[self._num_committed :]
            self._boundary = None
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

        It goes on with an end that is half written, so the end is never written twice, and the transition is left out then.
        """
        budget = self._max_reasoning_tokens
        if budget is None or self._transition is None or self._markers is None or not self.is_thinking:
            return None
        num_over = self.num_reasoning_tokens - budget
        if num_over < 0:
            return None
        resumption = self._transition.scanner.resume(self._state().node)
        if num_over < len(self._transition_token_ids) and resumption.takes_text and not self._had_begun_to_end(budget):
            return self._transition_token_ids[num_over]
        return self._transition.write(resumption.symbols, self._markers.forced_end)

    @property
    def is_cut_short(self) -> bool:
        """Whether a budget has ended the thinking: the model may go on with it in its answer, and then end it itself."""
        state = self._state()
        return state.is_ended and state.phase is not Phase.NEVER_THOUGHT and self._is_budget_used_up()

    def denied_token_ids(self, accepts: Callable[[Content], bool]) -> frozenset[int]:
        """Return the ids that must not come next. Does not change state.

        While thinking, these are the tokens that would end it in a way that the grammar refuses: a tool opener that is no
        beginning of the answer, and a token whose rest, after the end marker in it, is none. After a budget has ended the
        thinking, they are the start markers: there is no second block.

        Args:
            accepts: Whether the grammar takes this from its start: ids, and bytes where a token is content in part only. Asked
                once for each place in a marker, so it must always answer alike.
        """
        state = self._state()
        if self._transition is None:
            return frozenset()
        if state.phase is Phase.THINKING:
            denied = self._denied.get(state.node)
            if denied is None:
                denied = self._denied[state.node] = denied_exits(self._transition.exits(state.node), accepts)
            return denied
        return self._transition.single_starts if self.is_cut_short else frozenset()

    def _is_budget_used_up(self) -> bool:
        return self._max_reasoning_tokens is not None and self.num_reasoning_tokens >= self._max_reasoning_tokens

    def _had_begun_to_end(self, budget: int) -> bool:
        """Whether an end marker was half written when the budget was used up."""
        assert self._transition is not None
        assert self._markers is not None
        if budget == 0 and self._state().head_offset:
            return False  # The start marker has just ended, inside a token.
        if self._markers.channels is not None:
            index = bisect_left(self._states, budget, key=lambda state: state.num_thinking) if budget else -1
        else:
            index = self._state().num_head + budget - 1
        state = self._states[index] if index >= 0 else self._initial()
        return self._transition.scanner.resume(state.node).is_begun

    def _fold(self, window: Sequence[int]) -> tuple[Bounds, list[State]]:
        """Bounds of a window, and the states after its tokens up to the one that ends the thinking."""
        state = self._state()
        states: list[State] = []
        if state.is_ended or self._transition is None:
            return Bounds(0, 0), states
        for index, token_id in enumerate(window):
            state = self._transition.next(state, token_id)
            states.append(state)
            if state.phase is Phase.THINKING or state.phase is Phase.UNDECIDED:
                continue
            if state.phase is Phase.ENDED_BY_MARKER:
                return Bounds(index + 1, index + 1), states
            if state.phase is Phase.ENDED_IMPLICITLY:
                content_index = self._boundary_in(states, window).content_index
                return Bounds(content_index - self._num_committed, index + 1), states
            # Nothing was thought: all tokens so far are content.
            return Bounds(-self._num_committed, 0), states
        past_end = len(states) + 1
        if state.phase is Phase.THINKING:
            return Bounds(past_end, past_end), states
        return Bounds(past_end if self._num_committed + len(states) else 0, 0), states

    def _find_boundary(self) -> Boundary:
        """Where the thinking ended; asked only if it did."""
        if self._boundary is None:
            self._boundary = find_boundary(self._history())
        return self._boundary

    def _boundary_in(self, states: list[State], window: Sequence[int]) -> Boundary:
        return find_boundary(self._history(states, window))

    def _history(self, more_states: Sequence[State] = (), more_token_ids: Sequence[int] = ()) -> History:
        assert self._transition is not None
        return History(self._transition, self._initial(), self._states, self._token_ids, more_states, more_token_ids)

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
                return State(Phase.UNDECIDED, ROOT)
        head = HEAD_OVER if self._markers.channels is not None else ROOT
        return State(Phase.THINKING, head, node=self._scan_once().node)

    def _scan_once(self) -> PromptScan:
        if self._scan is None:
            if self._markers is None:
                self._scan = PromptScan("ended", 0)
            else:
                self._scan = scan_prompt(self._prompt, self._num_prompt_tokens, self._markers, tools_offered=self._tools_offered)
        return self._scan
