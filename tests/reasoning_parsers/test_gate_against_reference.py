"""Random markers, prompts, windows, drafts and rollbacks: the gate answers what the brute-force reference answers."""

from __future__ import annotations

import random

import pytest

from reasoning_parsers import OnUnknown, ReasoningGate, TokenMarkers
from tests.reasoning_parsers.reference_gate import ReferenceGate

_BOUNDARY, _IMPLICIT = 8, 9
_NUM_CASES, _NUM_SLOW_CASES = 5_000, 200_000
_NUM_PARTS, _NUM_SLOW_PARTS = 10, 100  # short parts: a busy machine must not run into the time limit of a test
_POLICIES: tuple[OnUnknown, ...] = ("first_token", "open", "constrain")


def _marker(rng: random.Random, num_ids: int) -> tuple[int, ...]:
    if rng.random() < 0.3:  # overlaps itself
        period = [rng.randrange(num_ids) for _ in range(rng.randint(1, 2))]
        return tuple((period * 4)[: rng.randint(2, 5)])
    return tuple(rng.randrange(num_ids) for _ in range(rng.choice((1, 1, 2, 3, 4))))


def _markers(rng: random.Random, num_ids: int) -> TokenMarkers:
    start = end = _marker(rng, num_ids)
    while start == end:
        end = _marker(rng, num_ids)
        if rng.random() < 0.3:  # shares a beginning
            end = (*start[: rng.randint(1, len(start))], *end)
    return TokenMarkers(
        start=start,
        end=end,
        implicit_ends=frozenset({_IMPLICIT}),
        turn_boundaries=frozenset({_BOUNDARY}) if rng.random() < 0.7 else frozenset(),
        user_turns=frozenset({(_BOUNDARY, rng.randrange(num_ids))}) if rng.random() < 0.3 else frozenset(),
    )


def _tokens(rng: random.Random, markers: TokenMarkers, num_ids: int, max_pieces: int) -> list[int]:
    """Fillers, whole markers and broken ones."""
    tokens: list[int] = []
    for _ in range(rng.randint(0, max_pieces)):
        kind = rng.random()
        if kind < 0.2:
            tokens += rng.choice((markers.start, markers.end))
        elif kind < 0.4:
            marker = rng.choice((markers.start, markers.end))
            tokens += marker[: rng.randint(0, len(marker))]
        elif kind < 0.45:
            tokens.append(_IMPLICIT)
        elif kind < 0.5:
            tokens.append(_BOUNDARY)
        else:
            tokens.append(rng.randrange(num_ids))
    return tokens


def _compare(gate: ReasoningGate, reference: ReferenceGate) -> None:
    assert gate.reasoning_ended is reference.reasoning_ended
    assert gate.is_thinking is (reference.reasoning_ended is False)
    assert gate.reasoning_end_index == reference.reasoning_end_index
    assert gate.num_reasoning_tokens == reference.num_reasoning_tokens
    assert gate.reasoning_span == reference.reasoning_span
    assert gate.next_start_id == reference.next_start_id
    assert gate.allows_start is (reference.next_start_id is not None)
    assert gate.should_fill_bitmask() is reference.should_fill_bitmask()
    assert gate.should_advance() is reference.should_advance()
    assert gate.forced_token_id() == reference.forced_token_id()


def _run_case(seed: int) -> None:
    rng = random.Random(seed)
    num_ids = rng.randint(2, 4)
    markers = _markers(rng, num_ids)
    prompt = _tokens(rng, markers, num_ids, 6)
    policy = rng.choice(_POLICIES)
    enabled = rng.choice((None, None, True, False))
    tools = rng.random() < 0.5
    budget = rng.choice((None, 0, 1, 2, 4))
    gate = ReasoningGate(markers, on_unknown=policy, thinking_enabled=enabled, tools_offered=tools, max_reasoning_tokens=budget)
    gate.start(prompt)
    reference = ReferenceGate(markers, prompt, policy, enabled, tools, budget)
    assert gate.prompt_state == reference.in_prompt[0]
    stream = _tokens(rng, markers, num_ids, 12)
    for _ in range(rng.randint(1, 8)):
        _compare(gate, reference)
        window, stream = (stream[: (size := rng.choice((1, 1, 2, 3, 5)))], stream[size:])
        assert gate.bounds(window) == reference.bounds(window)
        drafts = _tokens(rng, markers, num_ids, 3)
        assert gate.bounds(drafts) == reference.bounds(drafts)
        assert gate.commit(window) == reference.commit(window)
        if rng.random() < 0.3:
            _compare(gate, reference)
            num_tokens = rng.randint(0, len(reference.tokens))
            gate.rollback(num_tokens)
            reference.rollback(num_tokens)
    _compare(gate, reference)


def _run_part(size: int, part: int) -> None:
    for seed in range(part * size, (part + 1) * size):
        try:
            _run_case(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("part", range(_NUM_PARTS))
def test_gate_equals_reference(part: int) -> None:
    _run_part(_NUM_CASES // _NUM_PARTS, part)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_NUM_SLOW_PARTS))
def test_gate_equals_reference_in_many_cases(part: int) -> None:
    _run_part(_NUM_SLOW_CASES // _NUM_SLOW_PARTS, part)


def _feed(gate: ReasoningGate, tokens: list[int], rng: random.Random) -> list[int]:
    """Commit in random windows; return what the bounds feed to a grammar."""
    fed: list[int] = []
    done = 0
    while done < len(tokens):
        window = tokens[done : done + rng.randint(1, 4)]
        grammar_start, _ = gate.commit(window)
        fed += tokens[max(0, done + grammar_start) : done + len(window)]
        done += len(window)
    return fed


def test_gate_feeds_the_same_tokens_in_any_windows() -> None:
    for seed in range(2_000):
        rng = random.Random(seed)
        num_ids = rng.randint(2, 4)
        markers = _markers(rng, num_ids)
        prompt, tokens = _tokens(rng, markers, num_ids, 4), _tokens(rng, markers, num_ids, 10)
        tools = rng.random() < 0.5
        reference = ReferenceGate(markers, prompt, tools_offered=tools, windows=[tokens])
        expected = [] if reference.verdict(tokens)[0] == "undecided" else reference.split()[1]
        gate = ReasoningGate(markers, tools_offered=tools)
        gate.start(prompt)
        assert _feed(gate, tokens, rng) == expected, f"seed {seed}"


def test_gate_replay_after_rollback_equals_no_rollback() -> None:
    for seed in range(1_000):
        rng = random.Random(seed)
        num_ids = rng.randint(2, 4)
        markers = _markers(rng, num_ids)
        prompt, tokens = _tokens(rng, markers, num_ids, 4), _tokens(rng, markers, num_ids, 10)
        gate, plain = ReasoningGate(markers, tools_offered=True), ReasoningGate(markers, tools_offered=True)
        gate.start(prompt)
        plain.start(prompt)
        gate.commit(tokens)
        plain.commit(tokens)
        depth = rng.randint(0, len(tokens))
        gate.rollback(depth)
        gate.commit(tokens[len(tokens) - depth :])
        assert gate.reasoning_end_index == plain.reasoning_end_index
        assert gate.num_reasoning_tokens == plain.num_reasoning_tokens
        assert gate.bounds(markers.end) == plain.bounds(markers.end)
