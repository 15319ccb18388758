"""Drafts are made where they gain time and left out where they lose it, on machines whose costs are known here."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from engine.speculative import Drafter, DraftGain, Found
from engine.speculative.draft_model import DraftModel
from engine.speculative.gain import FORGET_AFTER
from engine.speculative.run_ahead import CATCH_UP_TOKENS, MAX_REST, MOST_BEHIND, AheadGain, RunAhead

Cost = Callable[[int], float]
"""Seconds of a step with so many tokens."""
MACHINES: dict[str, Cost] = {
    "bound-by-weights": lambda rows: 1.0 + 0.02 * rows,
    "dear-first-row": lambda rows: 1.0 if rows == 1 else 1.6 + 0.05 * rows,
    "bound-by-computing": lambda rows: 0.1 + 0.3 * rows,
    # Measured: SmolLM2 in bfloat16 on two cores, milliseconds; tiles hold 16 rows.
    "tiles": lambda rows: 13.0 + 0.28 * rows + 2.0 * ((rows - 1) // 16),
}


LIMIT = 64
"""Drafts of a step."""


def verify(gain: DraftGain, kept: list[str], rate: float, rng: random.Random) -> int:
    """Verify drafts of one sequence, of which a share holds; gives how many do."""
    num_accepted = 0
    while num_accepted < len(kept) and rng.random() < rate:
        num_accepted += 1
    if kept:
        gain.note_verified(kept, num_accepted)  # type: ignore[arg-type]
    return num_accepted


def keep(gain: DraftGain, found: list[list[str]], *, is_constrained: bool) -> list[list[str]]:
    """Keep what the gain takes of the drafts of each sequence."""
    counts = gain.num_worth([Found(one, is_constrained) for one in found], LIMIT)  # type: ignore[arg-type]
    return [one[:count] for one, count in zip(found, counts, strict=True)]


def serve(gain: DraftGain, cost: Cost, rate: float, *, batch: int = 1, steps: int = 3000, length: int = 8) -> float:
    """Let every sequence find `length` forced drafts at every look, of which a share holds; gives tokens per second."""
    rng = random.Random(1)
    num_tokens, clock = 0, 0.0
    for _ in range(steps):
        gain.begin_step(batch)
        kept = keep(gain, [["forced"] * length] * batch, is_constrained=True) if gain.may_look(is_constrained=True) else []
        num_tokens += batch + sum(verify(gain, one, rate, rng) for one in kept)
        num_drafts = sum(map(len, kept))
        step_s = cost(batch + num_drafts) * rng.uniform(1.0, 1.1)
        gain.note_step(step_s, num_drafts=num_drafts)
        clock += step_s
    return num_tokens / clock


def always(cost: Cost, rate: float, *, batch: int, length: int) -> float:
    expected = sum(rate**index for index in range(length + 1))
    return batch * expected / (cost(batch * (1 + length)) * 1.05)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.98])
@pytest.mark.parametrize("batch", [1, 4, 16])
def test_never_much_slower_than_the_better_of_all_drafts_and_none(machine: str, rate: float, batch: int) -> None:
    check_speed(machine, rate, batch)


def test_first_row_that_is_dear_is_paid_by_all_drafts_together() -> None:
    """No sequence alone has a draft that pays for another tile; all of them do."""
    check_speed("tiles", 0.6, 16)


def check_speed(machine: str, rate: float, batch: int) -> None:
    cost = MACHINES[machine]
    length = min(8, LIMIT // batch)
    measured = serve(DraftGain(), cost, rate, batch=batch, length=length)
    none = batch / (cost(batch) * 1.05)
    assert measured > 0.95 * max(none, always(cost, rate, batch=batch, length=length))


def test_drafts_that_hold_are_made_where_steps_have_room() -> None:
    gain = DraftGain()
    serve(gain, MACHINES["bound-by-weights"], 0.98)
    gain.begin_step(1)
    assert keep(gain, [["forced"] * 8], is_constrained=True) == [["forced"] * 8]


def test_drafts_are_left_out_where_rows_cost_as_much_as_steps() -> None:
    gain = DraftGain()
    serve(gain, MACHINES["bound-by-computing"], 0.5, batch=4)
    num_drafts = 0
    for _ in range(200):
        gain.begin_step(4)
        kept = keep(gain, [["forced"] * 8], is_constrained=True) if gain.may_look(is_constrained=True) else []
        num_drafts += sum(map(len, kept))
        gain.note_step(0.1 + 0.3 * (4 + sum(map(len, kept))), num_drafts=sum(map(len, kept)))
    assert num_drafts < 30


def test_batch_sizes_are_told_apart() -> None:
    """One row more is free with one sequence, and dear with sixteen."""
    gain = DraftGain()
    for batch, cost in ((1, MACHINES["bound-by-weights"]), (16, MACHINES["bound-by-computing"])):
        serve(gain, cost, 0.7, batch=batch, steps=300)
    gain.begin_step(1)
    assert len(keep(gain, [["forced"] * 4], is_constrained=True)[0]) == 4
    gain.begin_step(16)
    assert len(keep(gain, [["forced"] * 4], is_constrained=True)[0]) <= 1


def test_first_step_with_drafts_that_was_held_up_is_not_believed() -> None:
    gain = DraftGain()
    for step_s, num_drafts in ((1.0, 0), (1.0, 0), (9.0, 2), (1.1, 2)):
        gain.begin_step(1)
        gain.note_step(step_s, num_drafts=num_drafts)
    gain.begin_step(1)
    assert keep(gain, [["forced"] * 2], is_constrained=True) == [["forced"] * 2]


def test_gain_that_comes_back_is_found_again() -> None:
    gain = DraftGain()
    serve(gain, MACHINES["bound-by-weights"], 0.0, steps=500)
    after = serve(gain, MACHINES["bound-by-weights"], 0.98, steps=4 * FORGET_AFTER)
    assert after > 2 / MACHINES["bound-by-weights"](1)


def test_looks_rest_where_they_are_not_worth_it() -> None:
    gain = DraftGain()
    serve(gain, MACHINES["bound-by-computing"], 0.0, steps=100)
    num_looks = 0
    for _ in range(100):
        gain.begin_step(1)
        if gain.may_look(is_constrained=True):
            num_looks += 1
            assert keep(gain, [["forced"] * 4], is_constrained=True) == [[]]
        gain.note_step(0.4, num_drafts=0)
    assert num_looks < 12


def test_switched_off_takes_every_draft() -> None:
    gain = DraftGain(is_adaptive=False)
    serve(gain, MACHINES["bound-by-computing"], 0.0, steps=50)
    gain.begin_step(1)
    assert gain.may_look(is_constrained=False)
    assert keep(gain, [["lookup"] * 5], is_constrained=False) == [["lookup"] * 5]


def serve_ahead(
    ahead: AheadGain, gain: DraftGain, cost: Cost, pass_s: float, rate: float, *, batch: int, steps: int = 4000, use: float = 1.0
) -> tuple[float, int]:
    """Let a draft model guess for every sequence where it is asked; gives tokens per second and its passes."""
    rng = random.Random(5)
    num_tokens, num_passes, clock = 0, 0, 0.0
    for _ in range(steps):
        length = ahead.num_tokens(batch, 8)
        if length:
            run_s = length * pass_s * rng.uniform(1.0, 1.1)
            ahead.note_run(run_s, num_sequences=batch, num_tokens=length)
            num_passes += length
            clock += run_s
        gain.begin_step(batch)
        found: list[list[str]] = []
        for _ in range(batch if length else 0):
            is_used = rng.random() < use
            gain.note_suggested(is_used=is_used)
            found += [["model"] * length] if is_used else []
        kept = keep(gain, found, is_constrained=False)
        num_tokens += batch + sum(verify(gain, one, rate, rng) for one in kept)
        num_drafts = sum(map(len, kept))
        step_s = cost(batch + num_drafts) * rng.uniform(1.0, 1.1)
        gain.note_step(step_s, num_drafts=num_drafts)
        clock += step_s
    return num_tokens / clock, num_passes


def best_ahead(cost: Cost, pass_s: float, rate: float, *, batch: int, use: float) -> float:
    """Tokens per second with the best fixed length; 0 is no draft model."""
    rates = []
    for length in range(9):
        expected = 1 + use * sum(rate**index for index in range(1, length + 1))
        step_s = (1 - use) * cost(batch) + use * cost(batch + batch * length)  # all sequences together, or one
        rates.append(batch * expected / (1.05 * (step_s + length * pass_s)))
    return max(rates)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("share", [0.03, 0.2, 0.9], ids=["cheap", "usual", "dear"])
@pytest.mark.parametrize(("batch", "use"), [(1, 1.0), (4, 1.0), (1, 0.3)], ids=["one", "four", "forced"])
def test_draft_model_is_run_where_it_pays(machine: str, rate: float, share: float, batch: int, use: float) -> None:
    cost = MACHINES[machine]
    pass_s = share * cost(batch)
    gain = DraftGain()
    measured, _ = serve_ahead(AheadGain(gain), gain, cost, pass_s, rate, batch=batch, use=use)
    assert measured > 0.93 * best_ahead(cost, pass_s, rate, batch=batch, use=use)


def test_draft_model_that_loses_is_seldom_run_and_found_when_it_pays() -> None:
    gain = DraftGain()
    ahead = AheadGain(gain)
    cost = MACHINES["bound-by-weights"]
    _, num_passes = serve_ahead(ahead, gain, cost, 0.2, 0.05, batch=1)
    assert 0 < num_passes < 4000 * 0.05
    serve_ahead(ahead, gain, cost, 0.1, 0.9, batch=1, steps=MAX_REST)
    measured, num_passes = serve_ahead(ahead, gain, cost, 0.1, 0.9, batch=1, steps=1000)
    assert num_passes > 2000
    assert measured > 0.93 * best_ahead(cost, 0.1, 0.9, batch=1, use=1.0)


def test_draft_model_is_not_run_for_a_step_without_drafts() -> None:
    gain = DraftGain()
    ahead = AheadGain(gain)
    assert ahead.num_tokens(1, 8) == 0
    for _ in range(2):
        gain.begin_step(1)
        gain.note_step(1.0, num_drafts=0)
    assert ahead.num_tokens(1, 8) == 2
    assert AheadGain(DraftGain(is_adaptive=False)).num_tokens(1, 8) == 8


@dataclass
class Answering:
    """A sequence as a draft model's keeper sees it."""

    request_id: str
    num_tokens: int
    num_tokens_left: int
    drafter: Drafter | None = field(default_factory=lambda: Drafter([]))

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        return [0] * (stop - start)


class TimedModel:
    """A draft model that takes a second to guess a token, and `read_s` to read one."""

    def __init__(self, read_s: float) -> None:
        self.read_s = read_s
        self.now = 0.0
        self.num_read: dict[str, int] = {}
        self.num_guesses: dict[str, int] = {}

    def keep_only(self, request_ids: Any) -> None:
        pass

    def num_behind(self, sequence: Answering) -> int:
        return sequence.num_tokens - self.num_read.get(sequence.request_id, 0)

    def catch_up(self, sequences: Any, num_tokens: int) -> int:
        num_left = num_tokens
        for sequence in sequences:
            count = min(num_left, self.num_behind(sequence) - 1)
            self.num_read[sequence.request_id] = self.num_read.get(sequence.request_id, 0) + count
            num_left -= count
        self.now += (num_tokens - num_left) * self.read_s
        return num_tokens - num_left

    def propose(self, sequences: Any, limit: int) -> dict[str, list[int]]:
        for sequence in sequences:
            assert self.num_behind(sequence) <= MOST_BEHIND
            self.num_read[sequence.request_id] = sequence.num_tokens
            self.num_guesses[sequence.request_id] = self.num_guesses.get(sequence.request_id, 0) + limit
        self.now += 1.0 * limit
        return {sequence.request_id: [0] * limit for sequence in sequences}


def answer(read_s: float, sequences: list[Answering], *, num_steps: int, is_adaptive: bool = True) -> TimedModel:
    """Let sequences get their tokens, of a model that takes ten seconds a step and with which every guess holds."""
    model, gain = TimedModel(read_s), DraftGain(is_adaptive=is_adaptive)
    ahead = RunAhead(cast(DraftModel, model), gain, is_on_cpu=True)
    ahead._clock = lambda: model.now
    for _ in range(num_steps):
        live = [sequence for sequence in sequences if sequence.num_tokens_left > 0]
        read_before = sum(model.num_read.values())
        ahead.guess(live, 4, live_ids=[sequence.request_id for sequence in live])
        assert sum(model.num_read.values()) - read_before <= CATCH_UP_TOKENS + MOST_BEHIND * len(live)
        gain.begin_step(len(live))
        num_drafts = 0
        for sequence in live:
            assert sequence.drafter is not None
            drafts = sequence.drafter.propose(None, 4)
            sequence.drafter.learn(len(drafts), num_verified=len(drafts))
            num_drafts += len(drafts)
            sequence.num_tokens += 1 + len(drafts)
            sequence.num_tokens_left -= 1 + len(drafts)
        gain.note_step(10.0 + 0.01 * num_drafts, num_drafts=num_drafts)
    return model


@pytest.mark.parametrize(
    ("prompt_len", "num_left", "read_s", "is_read"),
    [
        (20, 30, 5.0, True),
        (4000, 1000, 0.01, True),
        (4000, 1000, 5.0, False),
        (100_000, 1000, 0.1, False),
        (4000, 3, 0.01, False),
    ],
    ids=["short", "pays", "dear", "long", "nearly-over"],
)
def test_prompt_is_read_by_the_draft_model_where_its_answer_pays_for_it(
    prompt_len: int, num_left: int, read_s: float, is_read: bool
) -> None:
    """The first prompt of all is how reading is timed; later ones are weighed."""
    first, later = Answering("first", 100, 10**6), Answering("later", prompt_len, num_left)
    model = answer(read_s, [first, later], num_steps=120)
    assert model.num_guesses["first"] > 20
    assert ("later" in model.num_guesses) == is_read
    assert is_read or model.num_read.get("later", 0) <= CATCH_UP_TOKENS


def test_prompt_is_read_whatever_it_costs_where_nothing_is_weighed() -> None:
    assert "a" in answer(5.0, [Answering("a", 4000, 1000)], num_steps=40, is_adaptive=False).num_guesses
