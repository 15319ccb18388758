"""The choice between one thread and several, on a clock of our own."""

from __future__ import annotations

import pytest

from engine.grammar.backends.lanes import LOOK_AGAIN_AFTER, WORTH_TRYING_S, Lanes, RowCost, share_out


def known(row_s: float) -> RowCost:
    cost = RowCost()
    cost.note(row_s)
    return cost


def run(lanes: Lanes, costs: list[RowCost], *, shared_s: float, alone_s: float, count: int) -> list[bool]:
    chosen = []
    for _ in range(count):
        is_shared = lanes.is_shared(costs)
        lanes.note(costs, shared_s if is_shared else alone_s, is_shared=is_shared)
        chosen.append(is_shared)
    return chosen


def test_first_batch_of_a_grammar_is_measured_alone() -> None:
    lanes, cost = Lanes(), RowCost()
    assert not lanes.is_shared([cost] * 64)
    lanes.note([cost] * 64, 0.64, is_shared=False)
    assert cost.row_s == pytest.approx(0.01)
    assert lanes.is_shared([cost] * 64)


def test_little_work_is_never_shared() -> None:
    cost = known(WORTH_TRYING_S / 100)
    assert not any(run(Lanes(), [cost] * 99, shared_s=0.0, alone_s=WORTH_TRYING_S * 0.99, count=500))


@pytest.mark.parametrize(("shared_s", "is_better"), [(0.6, True), (1.3, False)], ids=["faster", "slower"])
def test_way_that_was_faster_is_taken_and_the_other_looked_at_now_and_then(shared_s: float, is_better: bool) -> None:
    lanes = Lanes()
    chosen = run(lanes, [known(0.01)] * 100, shared_s=shared_s, alone_s=1.0, count=10 * LOOK_AGAIN_AFTER)
    others = [number for number, is_shared in enumerate(chosen) if is_shared is not is_better]
    assert 5 <= len(others) <= 12
    assert others[-1] - others[-2] >= LOOK_AGAIN_AFTER


def test_choice_follows_what_the_machine_does() -> None:
    lanes, costs = Lanes(), [known(0.01)] * 100
    assert run(lanes, costs, shared_s=0.6, alone_s=1.0, count=20)[-1]
    assert not run(lanes, costs, shared_s=2.0, alone_s=1.0, count=40)[-1]
    assert run(lanes, costs, shared_s=0.5, alone_s=1.0, count=20 * LOOK_AGAIN_AFTER)[-1]


def test_rows_of_a_mixed_batch_keep_their_shares() -> None:
    cheap, dear = known(0.001), known(0.1)
    lanes = Lanes()
    for _ in range(60):
        lanes.note([cheap] * 10 + [dear] * 10, 2.02, is_shared=False)
    assert cheap.row_s == pytest.approx(0.002, rel=0.01)
    assert dear.row_s == pytest.approx(0.2, rel=0.01)


def test_groups_are_shared_out_by_what_they_cost() -> None:
    groups = [(0.1, ["a", "b", "c"]), (0.5, ["d"]), (0.3, ["e"]), (0.25, ["f", "g"])]
    assert share_out(groups, 2) == [["d", "a", "b", "c"], ["e", "f", "g"]]
    assert share_out(groups[:1], 2) == [["a", "b", "c"]]
