"""Whether drafts pay: what a wider step costs in this engine against how often its drafts hold, both measured as it runs.

A draft that holds saves a step's share of one token; each draft makes the step wider, holds or not. How much wider a step may be
depends on the model, the machine and the batch (bandwidth-bound steps have room, compute-bound ones have none), so it is not
guessed: plain steps and steps with drafts are timed, by the number of sequences and of drafts. What comes out of the engine never
depends on any of this, only when it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

DraftSource = Literal["forced", "quoted", "lookup", "model", "opened", "labelled", "next", "searched", "copied", "ended"]
"""Where a draft comes from: the grammar, look-up inside an answer, look-up in free text, a draft model; and of values that are
taken from the text before the answer (`copying.py`): their quote, their beginning behind their name, behind the last value or
anywhere, what follows that, and their end."""

FIRST_RATES: dict[DraftSource, float] = {
    "forced": 0.9,
    "quoted": 0.6,
    "lookup": 0.4,
    "model": 0.7,
    "opened": 0.8,
    "labelled": 0.5,
    "next": 0.3,
    "searched": 0.4,
    "copied": 0.8,
    "ended": 0.5,
}
"""Shares of drafts that hold, until this engine has its own."""
RATE_WEIGHT = 0.03
MODEL_PRIOR = 4
"""Drafts that the first rate of a draft model counts as: it is corrected soon, since trying costs passes of that model."""
FASTER_WEIGHT, SLOWER_WEIGHT = 0.4, 0.1
"""Of a new time that is below, and above, what is known: what holds a step up is seldom the step's own work."""
MAX_OUTLIER = 1.5
"""A step that takes this many times as long as usual counts as no more than this."""
NUM_WIDE_FIRST = 2
"""Steps with about so many drafts that are timed before their cost counts."""
NUM_PLAIN_FIRST = 2
"""Plain steps of a batch size that are timed before the first one with drafts."""
PLAIN_EVERY = 64
"""Every so many steps with drafts one is plain, so that what drafts are compared with stays true."""
NUM_DRAFTS_FIRST = 2
"""Drafts of all sequences together in the first steps that have any; one for every fourth sequence, where that is more: the first
row beyond a tile of a kernel can cost as much as several that fill it."""
MAX_REST = 16
"""Steps in which nobody looks for drafts, at most, after looks that were not worth it."""
FORGET_AFTER = 256
"""Steps after which a cost that was not measured again is forgotten: drafts are tried anew, in case they gain by now."""


@dataclass(slots=True)
class Seconds:
    """Seconds that such a step takes when nothing holds it up, about."""

    value: float = 0.0
    count: int = 0

    def add(self, sample: float) -> None:
        """Take a measured time; of the first ones the shortest counts."""
        self.count += 1
        if self.count <= NUM_WIDE_FIRST:
            self.value = min(sample, self.value) if self.count > 1 else sample
            return
        sample = min(sample, MAX_OUTLIER * self.value)
        self.value += (FASTER_WEIGHT if sample < self.value else SLOWER_WEIGHT) * (sample - self.value)


@dataclass(slots=True)
class _Rate:
    """A share, and how many drafts it is known from: few of them are soon outvoted."""

    value: float
    count: float = 1 / RATE_WEIGHT

    def add(self, sample: float) -> None:
        self.count += 1
        self.value += max(RATE_WEIGHT, 1 / self.count) * (sample - self.value)


@dataclass(frozen=True, slots=True)
class Found:
    """Drafts that were found for one sequence.

    Attributes:
        sources: Where each comes from.
        is_constrained: Whether a grammar rules them.
    """

    sources: Sequence[DraftSource]
    is_constrained: bool


@dataclass(slots=True)
class _Rest:
    """When to look for drafts again: steps until then, and how many they were the last time."""

    num_left: int = 0
    length: int = 1


@dataclass(slots=True)
class _Wide:
    """Steps with about so many drafts."""

    num_drafts: float = 0.0
    step_s: Seconds = field(default_factory=Seconds)
    measured_at: int = 0


@dataclass(slots=True)
class _Costs:
    """Steps of one batch size: plain ones, and those with drafts by the power of two of their number."""

    plain: Seconds = field(default_factory=Seconds)
    wide: dict[int, _Wide] = field(default_factory=dict)
    num_steps: int = 0
    num_since_plain: int = 0
    rests: dict[bool, _Rest] = field(default_factory=lambda: {False: _Rest(), True: _Rest()})

    def extra_s(self, num_drafts: float) -> float:
        """Seconds that so many drafts add to a step: in a straight line between the numbers that were timed, from 0 on."""
        before, before_s = 0.0, 0.0
        for wide in (self.wide[size] for size in self._known()):
            here, here_s = wide.num_drafts, max(before_s, wide.step_s.value - self.plain.value)
            if num_drafts <= here:
                return before_s + (here_s - before_s) * (num_drafts - before) / (here - before)
            before, before_s = here, here_s
        return before_s * num_drafts / before if before else 0.0

    def is_plain_due(self) -> bool:
        """Whether the next step should have no drafts, since what they are compared with is unknown or was measured long ago."""
        return self.plain.count < NUM_PLAIN_FIRST or self.num_since_plain >= PLAIN_EVERY

    def most_drafts(self, num_sequences: int) -> int:
        """Give the drafts that may be tried: twice as many as were timed, so that no try costs much."""
        known = self._known()
        return 2 << known[-1] if known else max(NUM_DRAFTS_FIRST, num_sequences // 4)

    def note(self, step_s: float, num_drafts: int) -> None:
        self.num_steps += 1
        if num_drafts:
            self.num_since_plain += 1
            wide = self.wide.setdefault(bucket(num_drafts), _Wide())
            wide.num_drafts += (num_drafts - wide.num_drafts) / min(wide.step_s.count + 1, 10)
            wide.step_s.add(step_s)
            wide.measured_at = self.num_steps
        else:
            self.num_since_plain = 0
            self.plain.add(step_s)
        for size in [key for key, wide in self.wide.items() if self.num_steps - wide.measured_at > FORGET_AFTER]:
            del self.wide[size]

    def _known(self) -> list[int]:
        return sorted(size for size, wide in self.wide.items() if wide.step_s.count >= NUM_WIDE_FIRST)


class DraftGain:
    """Decides for one engine how many drafts are worth their rows, and learns from every step.

    Args:
        is_adaptive: False takes every draft that there is.
    """

    def __init__(self, *, is_adaptive: bool = True) -> None:
        self.is_adaptive = is_adaptive
        self._rates = {source: _Rate(rate) for source, rate in FIRST_RATES.items()}
        self._rates["model"].count = MODEL_PRIOR
        # Share of a draft model's guesses that become drafts: none where the grammar forces the next token.
        self._model_use = _Rate(1.0, MODEL_PRIOR)
        self._costs: dict[int, _Costs] = {}
        self._num_sequences = 1
        self._may_look = {False: True, True: True}

    def begin_step(self, num_sequences: int) -> None:
        """Say how many sequences decode in the step that is scheduled now."""
        self._num_sequences = max(1, num_sequences)
        if not self.is_adaptive:
            return
        costs = self._here()
        for is_constrained, rest in costs.rests.items():
            rest.num_left = max(0, rest.num_left - 1)
            self._may_look[is_constrained] = not costs.is_plain_due() and rest.num_left == 0

    def is_plain_due(self, num_sequences: int) -> bool:
        """Whether a step with so many sequences would have no drafts; does not change state."""
        return self._costs_of(num_sequences).is_plain_due()

    def num_ahead(self, num_sequences: int, limit: int, pass_s: float) -> int:
        """Give how far a draft model should run ahead of so many sequences: 0 to `limit` tokens; arguments as `best_ahead`."""
        return self.best_ahead(num_sequences, limit, pass_s)[0]

    def best_ahead(self, num_sequences: int, limit: int, pass_s: float) -> tuple[int, float]:
        """Give how far a draft model should run ahead of so many sequences, and the seconds that this gains in a step.

        Args:
            num_sequences: Those that decode in the next step.
            limit: Tokens for each, at most.
            pass_s: Seconds of one pass of the draft model, which guesses one token for all of them.
        """
        costs, rate, use = self._costs_of(num_sequences), self._rates["model"].value, self._model_use.value
        best, best_gain_s, num_expected = 0, 0.0, 0.0
        for num_tokens in range(1, min(limit, max(1, costs.most_drafts(num_sequences) // num_sequences)) + 1):
            num_expected += rate**num_tokens
            # A token more for every sequence saves a step of all of them.
            step_gain_s = num_expected * costs.plain.value - costs.extra_s(num_sequences * num_tokens)
            gain_s = use * step_gain_s - num_tokens * pass_s
            if gain_s > best_gain_s:
                best, best_gain_s = num_tokens, gain_s
        return best, best_gain_s

    def note_suggested(self, *, is_used: bool) -> None:
        """Take whether a draft model's guesses for one sequence became drafts."""
        self._model_use.add(float(is_used))

    def forget_model(self) -> None:
        """Forget what is known of a draft model, which is tried anew."""
        self._rates["model"] = _Rate(FIRST_RATES["model"], MODEL_PRIOR)
        self._model_use = _Rate(1.0, MODEL_PRIOR)

    def may_look(self, *, is_constrained: bool) -> bool:
        """Whether to look for drafts in this step at all: looking costs time too."""
        return self._may_look[is_constrained]

    def num_worth(self, found: Sequence[Found], limit: int) -> list[int]:
        """Give how many of the drafts of each sequence, from the first on, are worth it: 0 to all.

        They are weighed together, the likeliest first: what a step costs by having drafts at all, all of them share.

        Args:
            found: By sequence.
            limit: Drafts of all together, at most.
        """
        counts = [0] * len(found)
        for position in self._best(found, limit):
            counts[position] += 1
        if self.is_adaptive:
            for is_constrained, rest in self._here().rests.items():
                own = [count for one, count in zip(found, counts, strict=True) if one.is_constrained == is_constrained]
                if own:
                    rest.length = 1 if any(own) else min(MAX_REST, rest.length * 2)
                    rest.num_left = 0 if any(own) else rest.length
        return counts

    def note_verified(self, sources: Sequence[DraftSource], num_accepted: int) -> None:
        """Take how many drafts of one sequence held; those behind the first that did not were not tried."""
        for index, source in enumerate(sources[: num_accepted + 1]):
            self._rates[source].add(1.0 if index < num_accepted else 0.0)

    def note_step(self, step_s: float, *, num_drafts: int) -> None:
        """Take the time of a step in which all sequences decoded; `begin_step` told of it.

        Args:
            step_s: On the CPU that of the thread alone: another process that takes the core makes no step dearer.
            num_drafts: Drafts in it.
        """
        self._here().note(step_s, num_drafts)

    def _best(self, found: Sequence[Found], limit: int) -> list[int]:
        """Give the position of the sequence of each draft that is worth it."""
        # Chances only fall along a sequence, so its first drafts come first.
        ranked: list[tuple[float, int, int]] = []
        for position, one in enumerate(found):
            chance = 1.0
            for index, source in enumerate(one.sources):
                chance *= self._rates[source].value if self.is_adaptive else 1.0
                ranked.append((-chance, index, position))
        ranked.sort()
        if not self.is_adaptive:
            return [position for _, _, position in ranked[:limit]]
        costs = self._here()
        token_s = costs.plain.value / self._num_sequences
        best, best_gain_s, num_expected = 0, 0.0, 0.0
        for num_drafts, (chance, _, _) in enumerate(ranked[: min(limit, costs.most_drafts(self._num_sequences))], start=1):
            num_expected -= chance
            gain_s = num_expected * token_s - costs.extra_s(num_drafts)
            if gain_s > best_gain_s:
                best, best_gain_s = num_drafts, gain_s
        return [position for _, _, position in ranked[:best]]

    def _here(self) -> _Costs:
        return self._costs_of(self._num_sequences)

    def _costs_of(self, num_sequences: int) -> _Costs:
        return self._costs.setdefault(bucket(num_sequences), _Costs())


def bucket(count: int) -> int:
    """Counts that are alike: 1, 2, 3 to 4, 5 to 8 ..."""
    return (count - 1).bit_length()
