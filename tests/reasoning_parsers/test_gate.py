from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import pytest

from reasoning_parsers import (
    Bounds,
    InvalidOptionError,
    OnUnknown,
    ReasoningGate,
    TokenMarkers,
    UnknownPromptStateError,
)
from reasoning_parsers.transition import State, Transition
from tests.reasoning_parsers.cases import Case, load_cases, make_case_markers

START, END, TOOL, TURN, X, Y = 0, 1, 2, 3, 7, 8
SINGLE = TokenMarkers(start=(START,), end=(END,), implicit_ends=frozenset({TOOL}), turn_boundaries=frozenset({TURN}))
# As ordinary text: "<", "think", ">" and "</", "think", ">".
MULTI = TokenMarkers(start=(10, 11, 12), end=(13, 11, 12), turn_boundaries=frozenset({TURN}))
SELF_OVERLAPPING = TokenMarkers(start=(10,), end=(20, 20, 21, 20, 20, 22))
SHARED_BEGINNING = TokenMarkers(start=(30, 31), end=(30, 32))

GATE_CASES = ("B1", "B2", "B4", "B5", "B12", "B13", "B16", "B17", "B18", "B25", "B27", "F1", "F3", "F11", "F13", "F15.a", "F15.b")


def make_gate(
    prompt: Sequence[int],
    markers: TokenMarkers | None = SINGLE,
    *,
    on_unknown: OnUnknown = "first_token",
    thinking_enabled: bool | None = None,
    tools_offered: bool = False,
    max_reasoning_tokens: int | None = None,
) -> ReasoningGate:
    gate = ReasoningGate(
        markers,
        on_unknown=on_unknown,
        thinking_enabled=thinking_enabled,
        tools_offered=tools_offered,
        max_reasoning_tokens=max_reasoning_tokens,
    )
    gate.start(prompt)
    return gate


# ---- cases


@pytest.mark.parametrize("case", load_cases("gate_cases.json", GATE_CASES), ids=GATE_CASES)
def test_gate_case(case: Case) -> None:
    expect = case["expect"]
    gate = make_gate(
        case["prompt"],
        make_case_markers(case),
        thinking_enabled=case.get("thinking_enabled"),
        tools_offered=case.get("tools_offered", False),
        max_reasoning_tokens=case.get("max_reasoning_tokens"),
    )
    forced = {entry["steps_done"]: entry["id"] for entry in expect.get("forced", ())}
    assert gate.prompt_state == expect["prompt_state"]
    for step, window in enumerate(case["windows"]):
        assert gate.forced_token_id() == forced.get(step)
        bounds = gate.bounds(window)
        if "bounds" in expect:
            assert list(bounds) == expect["bounds"][step]
        if "fed_to_grammar" in expect and "num_accepted" not in expect:
            assert window[bounds.grammar_start :] == expect["fed_to_grammar"][step]
        if "masked_rows" in expect and "bounds" in expect and "schema" in case:
            rows = [row >= bounds.constraint_start for row in range(len(window) + 1)]
            assert rows == expect["masked_rows"][step]
        # The grammar refuses the rest of the window; what it refuses is never committed.
        accepted = window[: expect["num_accepted"][step]] if "num_accepted" in expect else window
        gate.commit(accepted)
        assert gate.reasoning_ended is expect["reasoning_ended_after_step"][step]
    assert gate.forced_token_id() is None


# ---- the table of bounds


@pytest.mark.parametrize(
    ("prompt", "window", "expected"),
    [
        pytest.param([START, END], [X, Y], (0, 0), id="ended"),
        pytest.param([START], [], (1, 1), id="thinking-empty-window"),
        pytest.param([START], [X], (2, 2), id="thinking-one"),
        pytest.param([START], [X, Y, X], (4, 4), id="thinking-drafts"),
        pytest.param([START], [END], (1, 1), id="end-alone"),
        pytest.param([START], [X, END, Y], (2, 2), id="end-in-the-middle"),
        pytest.param([START], [X, END], (2, 2), id="end-last"),
        pytest.param([START], [END, END, END], (1, 1), id="first-end-counts"),
        pytest.param([START], [TOOL], (0, 1), id="implicit-end-alone"),
        pytest.param([START], [X, TOOL, Y], (1, 2), id="implicit-end-in-the-middle"),
        pytest.param([], [], (0, 0), id="undecided-empty-window"),
        pytest.param([], [START], (2, 2), id="undecided-start"),
        pytest.param([], [START, X, END, Y], (3, 3), id="undecided-start-and-end"),
        pytest.param([], [X, Y], (0, 0), id="undecided-did-not-think"),
        pytest.param([], [TOOL, Y], (0, 0), id="undecided-tool-opener"),
    ],
)
def test_bounds_follow_the_table(prompt: list[int], window: list[int], expected: tuple[int, int]) -> None:
    gate = make_gate(prompt, tools_offered=True)
    assert gate.bounds(window) == expected
    assert gate.bounds(window) == expected  # pure
    assert gate.commit(window) == expected


def test_bounds_ignore_implicit_end_without_tools() -> None:
    gate = make_gate([START])
    assert gate.bounds([TOOL]) == Bounds(2, 2)
    gate.commit([TOOL])
    assert gate.is_thinking


def test_bounds_without_markers_are_zero() -> None:
    gate = make_gate([START], None, max_reasoning_tokens=0)
    assert gate.prompt_state == "ended"
    assert gate.reasoning_ended is True
    assert gate.bounds([X, END]) == Bounds(0, 0)
    assert not gate.allows_start
    assert gate.num_reasoning_tokens == 0
    assert gate.forced_token_id() is None


# ---- the two views


def test_views_are_twins_around_the_end_marker() -> None:
    gate = make_gate([START])
    seen = [(gate.should_fill_bitmask(), gate.should_advance())]
    for token_id in (X, END, Y, Y):
        gate.commit([token_id])
        seen.append((gate.should_fill_bitmask(), gate.should_advance()))
    assert seen == [(False, False), (False, False), (True, False), (True, True), (True, True)]


def test_views_with_the_end_inside_a_window() -> None:
    gate = make_gate([START])
    gate.commit([X, END, Y])
    assert gate.should_fill_bitmask()
    assert not gate.should_advance()
    gate.commit([Y, Y])
    assert gate.should_advance()


def test_views_with_an_implicit_end() -> None:
    gate = make_gate([START], tools_offered=True)
    gate.commit([TOOL])
    assert gate.should_fill_bitmask()
    assert gate.should_advance()
    assert gate.reasoning_end_index == 0


def test_should_advance_is_restored_by_rollback() -> None:
    gate = make_gate([START])
    gate.commit([X, END])
    gate.commit([Y])
    assert gate.should_advance()
    gate.rollback(1)
    assert not gate.should_advance()
    gate.commit([])  # no pass
    assert not gate.should_advance()
    gate.commit([Y])
    assert gate.should_advance()


# ---- what the prompt says


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        pytest.param([], "unknown", id="empty"),
        pytest.param([X], "unknown", id="no-marker"),
        pytest.param([TURN, X, START], "open", id="template-opens"),
        pytest.param([START, X, END, X], "ended", id="closed-block"),
        pytest.param([TURN, START, X, END, X, TURN, X], "unknown", id="stale-end-marker"),
        pytest.param([TURN, START, X, TURN, X], "unknown", id="stale-start-marker"),
        pytest.param([TURN, X, END, X, TURN], "unknown", id="user-wrote-the-end-marker"),
        pytest.param([TURN, X, END, TURN, START], "open", id="user-wrote-the-end-marker-and-template-opens"),
        pytest.param([END, X, START, X], "open", id="start-after-end"),
        pytest.param([X, END], "ended", id="end-without-start"),
    ],
)
def test_prompt_state(prompt: list[int], expected: str) -> None:
    assert make_gate(prompt).prompt_state == expected


def test_prompt_state_without_boundaries_takes_the_last_marker() -> None:
    markers = TokenMarkers(start=(START,), end=(END,))
    assert make_gate([START, X, END, TURN, X, TURN, START], markers).prompt_state == "open"
    assert make_gate([START, X, END, TURN, X, TURN], markers).prompt_state == "ended"


def test_prompt_state_of_a_users_turn_is_unknown() -> None:
    user, assistant = 40, 41
    markers = TokenMarkers(
        start=(START,), end=(END,), turn_boundaries=frozenset({TURN}), user_turns=frozenset({(TURN, user), (TURN, 42)})
    )
    assert make_gate([TURN, user, X, END, X], markers).prompt_state == "unknown"
    assert make_gate([TURN, user, START], markers).prompt_state == "unknown"
    assert make_gate([TURN, user, END, TURN, assistant, START], markers).prompt_state == "open"
    assert make_gate([TURN], markers).prompt_state == "unknown"


@pytest.mark.parametrize(
    ("tools_offered", "prompt", "expected"),
    [
        pytest.param(True, [TURN, START, X, TOOL, X], "ended", id="implicit-end"),
        pytest.param(False, [TURN, START, X, TOOL, X], "open", id="no-tools"),
        pytest.param(True, [TOOL, X, START, X], "open", id="before-the-start"),
        pytest.param(True, [X, TOOL, X], "unknown", id="alone"),
    ],
)
def test_prompt_state_with_a_tool_opener(tools_offered: bool, prompt: list[int], expected: str) -> None:
    assert make_gate(prompt, tools_offered=tools_offered).prompt_state == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        pytest.param([10, 11, 12], "open", id="start"),
        pytest.param([10, 11, 12, X, 13, 11, 12], "ended", id="end"),
        pytest.param([10, 11], "unknown", id="part-of-start"),
        pytest.param([11, 12], "unknown", id="rest-of-start"),
        pytest.param([10, TURN, 11, 12], "unknown", id="cut-by-a-turn"),
        pytest.param([10, 11, 12, 13, 11], "open", id="part-of-end"),
    ],
)
def test_prompt_state_with_markers_of_several_ids(prompt: list[int], expected: str) -> None:
    assert make_gate(prompt, MULTI).prompt_state == expected


def test_prompt_state_takes_the_longer_marker_where_two_end() -> None:
    assert make_gate([5, 6], TokenMarkers(start=(5, 6), end=(6,))).prompt_state == "open"
    assert make_gate([5, 6], TokenMarkers(start=(6,), end=(5, 6))).prompt_state == "ended"


def test_gate_goes_on_with_an_end_marker_that_the_prompt_began() -> None:
    gate = make_gate([10, 11, 12, X, 13, 11], MULTI)
    assert gate.bounds([12]) == Bounds(1, 1)
    gate.commit([12])
    assert gate.reasoning_ended is True
    assert gate.num_reasoning_tokens == 0


def test_end_marker_does_not_begin_inside_the_start_marker() -> None:
    markers = TokenMarkers(start=(5, 6), end=(6, 7))
    for gate, tokens in (
        (make_gate([5, 6], markers), [7]),
        (make_gate([], markers), [5, 6, 7]),
        (make_gate([5, 6], markers), [5, 6, 7]),
    ):
        gate.commit(tokens)
        assert gate.is_thinking
        gate.commit([6, 7])
        assert gate.reasoning_ended is True


# ---- laziness and cost


class CountingPrompt(Sequence[int]):
    """A prompt that counts looks at its ids."""

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids
        self.seen: list[int] = []

    def __len__(self) -> int:
        return len(self.token_ids)

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("the prompt is never read from the front")

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            self.seen.extend(range(*index.indices(len(self.token_ids))))
            return self.token_ids[index]
        self.seen.append(index)
        return self.token_ids[index]


def _ask_everything(gate: ReasoningGate) -> None:
    _ = (gate.prompt_state, gate.reasoning_ended, gate.is_thinking, gate.allows_start, gate.num_reasoning_tokens)
    _ = (gate.reasoning_end_index, gate.text_prompt_state, gate.forced_token_id())
    gate.should_fill_bitmask()
    gate.should_advance()
    gate.bounds([X, END])


@pytest.mark.parametrize("tail", [[], [START], [START, END]], ids=["unknown", "open", "ended"])
def test_prompt_is_scanned_once_and_only_in_the_last_turn(tail: list[int]) -> None:
    prompt = CountingPrompt([X] * 1000 + [TURN, X, *tail])
    gate = make_gate(prompt)
    assert prompt.seen == []
    _ask_everything(gate)
    looks = len(prompt.seen)
    assert 0 < looks <= 4 * (len(tail) + 2)
    assert min(prompt.seen) >= 1000
    for token_id in (START, X, END, Y):
        gate.commit([token_id])
        _ask_everything(gate)
    gate.rollback(4)
    _ask_everything(gate)
    assert len(prompt.seen) == looks


def test_ids_appended_to_the_prompt_later_do_not_count() -> None:
    token_ids = [TURN, X]
    gate = make_gate(token_ids)
    token_ids += [START, END]
    assert gate.prompt_state == "unknown"


def test_start_forgets_the_request_before() -> None:
    gate = make_gate([START])
    gate.commit([X, END, Y])
    gate.start([X])
    assert gate.prompt_state == "unknown"
    assert gate.reasoning_ended is None
    assert not gate.should_advance()
    with pytest.raises(InvalidOptionError, match="num_tokens"):
        gate.rollback(1)


def test_gate_that_was_not_started_has_an_empty_prompt() -> None:
    gate = ReasoningGate(SINGLE)
    assert gate.prompt_state == "unknown"
    assert gate.allows_start


def test_commit_costs_its_window_whatever_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    num_transitions = 0
    original = Transition.next

    def count(self: Transition, state: State, token_id: int) -> State:
        nonlocal num_transitions
        num_transitions += 1
        return original(self, state, token_id)

    prompt = CountingPrompt([X] * 1000 + [START])
    gate = make_gate(prompt)
    gate.commit([X] * 10_000)
    looks = len(prompt.seen)
    monkeypatch.setattr(Transition, "next", count)
    gate.commit([X, X, X])
    assert num_transitions == 3
    gate.commit([END])
    num_transitions = 0
    gate.commit([X] * 100)
    gate.bounds([X] * 100)
    assert num_transitions == 0
    assert len(prompt.seen) == looks


def test_history_of_plain_thinking_holds_few_objects() -> None:
    gate = make_gate([START])
    gate.commit([X] * 1000)
    assert len({id(state) for state in gate._states}) == 1


# ---- markers of several ids


@pytest.mark.parametrize("cut", range(7))
def test_end_marker_that_overlaps_itself_is_found(cut: int) -> None:
    # Six ids, after two more that look like its beginning.
    tokens = [20, 20, 21, 20, 20, 21, 20, 20, 22]
    gate = make_gate([10], SELF_OVERLAPPING)
    gate.commit(tokens[:cut])
    assert gate.is_thinking
    assert gate.bounds([*tokens[cut:], X]) == Bounds(9 - cut, 9 - cut)
    gate.commit(tokens[cut:])
    assert gate.reasoning_end_index == 9
    assert gate.num_reasoning_tokens == 3


def test_rollback_in_the_middle_of_a_marker() -> None:
    gate = make_gate([10], SELF_OVERLAPPING)
    gate.commit([20, 20, 21, 20])
    gate.rollback(1)
    assert gate.bounds([20, 20, 22]) == Bounds(3, 3)
    gate.rollback(2)
    assert gate.bounds([20, 20, 22]) == Bounds(4, 4)
    gate.rollback(1)
    assert gate.bounds([20, 20, 21, 20, 20, 22]) == Bounds(6, 6)


@pytest.mark.parametrize("depth", range(8))
def test_rollback_over_the_boundary(depth: int) -> None:
    tokens = [X, 13, 11, 12, Y, Y, Y]
    gate = make_gate([10, 11, 12], MULTI)
    gate.commit(tokens)
    gate.rollback(depth)
    assert gate.reasoning_ended is (depth <= 3)
    assert gate.num_reasoning_tokens == (1 if depth <= 3 else 7 - depth)
    gate.commit(tokens[7 - depth :])
    assert gate.reasoning_end_index == 4


@pytest.mark.parametrize("depth", [-1, 3])
def test_rollback_refuses_what_was_not_committed(depth: int) -> None:
    gate = make_gate([START])
    gate.commit([X, X])
    with pytest.raises(InvalidOptionError) as caught:
        gate.rollback(depth)
    assert caught.value.param == "num_tokens"
    assert gate.num_reasoning_tokens == 2


# ---- prompt state unknown


def test_first_token_start_marker_opens_the_thinking() -> None:
    gate = make_gate([X])
    assert (gate.reasoning_ended, gate.allows_start, gate.next_start_id) == (None, True, START)
    assert (gate.should_fill_bitmask(), gate.should_advance()) == (True, False)
    gate.commit([START])
    assert (gate.reasoning_ended, gate.allows_start, gate.next_start_id) == (False, False, None)
    assert (gate.should_fill_bitmask(), gate.should_advance()) == (False, False)
    assert gate.num_reasoning_tokens == 0


def test_first_token_other_than_start_marker_is_the_answer() -> None:
    gate = make_gate([X])
    assert gate.commit([Y]) == Bounds(0, 0)
    assert gate.reasoning_ended is True
    assert gate.should_advance()
    assert gate.reasoning_end_index == 0
    gate.commit([START])
    assert gate.reasoning_ended is True
    assert not gate.allows_start


def test_start_marker_of_several_ids_is_undecided_until_complete() -> None:
    gate = make_gate([X], MULTI)
    assert gate.commit([10]) == Bounds(2, 0)
    assert gate.reasoning_ended is None
    assert gate.next_start_id == 11
    assert gate.bounds([]) == Bounds(1, 0)
    assert gate.should_fill_bitmask()
    assert not gate.should_advance()
    assert gate.commit([11]) == Bounds(2, 0)
    assert gate.next_start_id == 12
    assert gate.bounds([12, X]) == Bounds(3, 3)
    assert gate.bounds([12, X, 13, 11, 12, Y]) == Bounds(5, 5)
    gate.commit([12])
    assert gate.is_thinking


def test_start_marker_that_breaks_off_is_content_from_its_first_id() -> None:
    gate = make_gate([X], MULTI)
    gate.commit([10])
    gate.commit([11])
    assert gate.bounds([Y, 12]) == Bounds(-2, 0)
    assert gate.commit([Y]) == Bounds(-2, 0)
    assert (gate.reasoning_ended, gate.reasoning_end_index, gate.should_advance()) == (True, 0, True)
    gate.rollback(1)
    assert (gate.reasoning_ended, gate.reasoning_end_index, gate.should_advance()) == (None, None, False)
    assert gate.next_start_id == 12


def test_markers_that_share_a_beginning_are_told_apart() -> None:
    gate = make_gate([X], SHARED_BEGINNING)
    assert gate.bounds([30, 32]) == Bounds(0, 0)
    assert gate.bounds([30, 31, 30, 32]) == Bounds(4, 4)
    gate.commit([30, 31, 30, 31])
    assert gate.is_thinking
    assert gate.num_reasoning_tokens == 2


def test_policy_open_thinks_until_an_end_marker() -> None:
    gate = make_gate([X], on_unknown="open")
    assert gate.prompt_state == "unknown"
    assert gate.is_thinking
    assert gate.bounds([X]) == Bounds(2, 2)
    gate.commit([START, X, END])
    assert gate.num_reasoning_tokens == 1
    assert gate.reasoning_ended is True


def test_policy_constrain_is_constrained_at_once() -> None:
    gate = make_gate([X], on_unknown="constrain")
    assert gate.reasoning_ended is True
    assert gate.bounds([START]) == Bounds(0, 0)
    assert not gate.allows_start


def test_policy_error_raises_at_the_first_ask_but_tells_the_prompt_state() -> None:
    gate = make_gate([X], on_unknown="error")
    assert gate.prompt_state == "unknown"
    for _ in range(2):
        with pytest.raises(UnknownPromptStateError) as caught:
            _ = gate.reasoning_ended
        assert caught.value.hint
    with pytest.raises(UnknownPromptStateError):
        gate.commit([X])
    gate.start([START])
    assert gate.is_thinking


@pytest.mark.parametrize("on_unknown", ["first_token", "open", "constrain", "error"])
def test_thinking_off_and_unknown_is_constrained_at_once(on_unknown: OnUnknown) -> None:
    gate = make_gate([X], on_unknown=on_unknown, thinking_enabled=False)
    assert gate.prompt_state == "unknown"
    assert gate.reasoning_ended is True
    assert not gate.allows_start


def test_thinking_off_believes_a_prompt_that_opened_it() -> None:
    assert make_gate([START], thinking_enabled=False).is_thinking


def test_gate_refuses_bad_options() -> None:
    with pytest.raises(InvalidOptionError, match="on_unknown"):
        ReasoningGate(SINGLE, on_unknown="maybe")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="max_reasoning_tokens"):
        ReasoningGate(SINGLE, max_reasoning_tokens=-1)


@pytest.mark.parametrize(
    ("prompt", "on_unknown", "tokens", "expected"),
    [
        pytest.param([START], "first_token", [], "open", id="open"),
        pytest.param([START], "first_token", [X, END, Y], "open", id="open-and-over-since"),
        pytest.param([START, END], "first_token", [X], "ended", id="ended"),
        pytest.param([X], "first_token", [], "unknown", id="undecided"),
        pytest.param([X], "first_token", [START], "open", id="first-token-start"),
        pytest.param([X], "first_token", [Y], "ended", id="first-token-other"),
        pytest.param([X], "open", [], "open", id="policy-open"),
        pytest.param([X], "constrain", [], "ended", id="policy-constrain"),
    ],
)
def test_text_prompt_state(prompt: list[int], on_unknown: OnUnknown, tokens: list[int], expected: str) -> None:
    gate = make_gate(prompt, on_unknown=on_unknown)
    gate.commit(tokens)
    assert gate.text_prompt_state == expected


# ---- thinking budget


def test_budget_of_zero_closes_the_thinking_at_once() -> None:
    gate = make_gate([START], max_reasoning_tokens=0)
    assert gate.forced_token_id() == END
    gate.commit([END])
    assert gate.forced_token_id() is None


def test_budget_waits_while_undecided() -> None:
    gate = make_gate([X], max_reasoning_tokens=0)
    assert gate.forced_token_id() is None
    gate.commit([START])
    assert gate.forced_token_id() == END


def test_budget_resumes_a_half_written_end_marker() -> None:
    gate = make_gate([10, 11, 12], MULTI, max_reasoning_tokens=3)
    gate.commit([X, 13, 11])
    assert gate.forced_token_id() == 12
    gate.commit([12])
    assert gate.forced_token_id() is None
    assert gate.num_reasoning_tokens == 1
    gate.rollback(2)
    assert gate.forced_token_id() is None


def test_budget_writes_the_whole_end_marker() -> None:
    gate = make_gate([10, 11, 12], MULTI, max_reasoning_tokens=2)
    gate.commit([X, X])
    written = []
    while (token_id := gate.forced_token_id()) is not None:
        written.append(token_id)
        gate.commit([token_id])
    assert written == [13, 11, 12]
    assert gate.num_reasoning_tokens == 2


def test_count_leaves_out_a_start_marker_that_repeats_the_prompts() -> None:
    gate = make_gate([10, 11, 12], MULTI)
    gate.commit([10, 11, 12, X])
    assert gate.num_reasoning_tokens == 1
    gate.commit([10, 11, 12])
    assert gate.num_reasoning_tokens == 4


def test_count_with_an_implicit_end() -> None:
    gate = make_gate([START], tools_offered=True)
    gate.commit([X, X, TOOL, Y])
    assert gate.num_reasoning_tokens == 2
    assert gate.reasoning_end_index == 2


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param([], (0, 0), id="nothing"),
        pytest.param([X, Y], (0, 2), id="thinking"),
        pytest.param([X, 13, 11], (0, 1), id="part-of-the-end-marker"),
        pytest.param([X, 13, 11, Y], (0, 4), id="end-marker-broken-off"),
        pytest.param([X, 13, 11, 12, Y], (0, 1), id="ended"),
        pytest.param([10, 11], (0, 0), id="part-of-a-start-marker"),
        pytest.param([10, 11, 12, X], (3, 4), id="start-marker-at-the-head"),
    ],
)
def test_reasoning_span_holds_what_is_certain(tokens: list[int], expected: tuple[int, int]) -> None:
    gate = make_gate([10, 11, 12], MULTI)
    gate.commit(tokens)
    assert gate.reasoning_span == expected


def test_reasoning_span_is_empty_without_thinking() -> None:
    gate = make_gate([X], MULTI)
    gate.commit([10])
    assert gate.reasoning_span == (0, 0)
    gate.commit([X])
    assert gate.reasoning_span == (0, 0)
