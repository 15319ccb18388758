"""Ranges and multiples of decimals: each number in the spelling that programs write, and nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from engine.grammar.support import support_report
from tests.engine.grammar_backends import BACKENDS, accepts, make_backend, new_matcher, schema_spec

STEPS = ("0.25", "0.125", "0.15", "0.05", "0.012", "0.01", "0.5", "2.5", "3.75", "0.00025")
BOUNDS: dict[str, dict[str, Any]] = {
    "unbounded": {},
    "from-0": {"minimum": 0},
    "around-0": {"minimum": -2.5, "maximum": 2.5},
    "open": {"exclusiveMinimum": -1, "exclusiveMaximum": 3},
}


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("step", STEPS)
def test_every_multiple_is_written_as_programs_write_it(step: str, bounds: dict[str, Any]) -> None:
    spec = schema_spec({"type": "number", "multipleOf": float(step), **bounds})
    matcher = new_matcher(make_backend("llguidance"), spec)
    for count in range(-25, 26):
        number = Decimal(step) * count
        is_within = (
            number >= Decimal(str(bounds.get("minimum", -100)))
            and number <= Decimal(str(bounds.get("maximum", 100)))
            and number > Decimal(str(bounds.get("exclusiveMinimum", -100)))
            and number < Decimal(str(bounds.get("exclusiveMaximum", 100)))
        )
        assert accepts(matcher, format(number.normalize(), "f")) is is_within, number
        assert not accepts(matcher, format((number + Decimal(step) / 2).normalize(), "f")), number


@pytest.mark.parametrize("step", [0.25, 2.5, 0.75])
def test_whole_multiples_of_a_decimal_are_whole(step: float) -> None:
    matcher = new_matcher(make_backend("llguidance"), schema_spec({"type": "integer", "multipleOf": step}))
    for number in range(-12, 13):
        assert accepts(matcher, str(number)) is (Decimal(number) % Decimal(str(step)) == 0), number


RANGES = (
    ("0", "0.5"), ("0", "1.89"), ("0", "99.99"), ("0.8", "0.86"), ("0.05", "0.15"), ("1", "1.15"), ("1.25", "1.89"), ("2", "2.5"),
    ("-1.92", "-1.8"), ("-0.5", "0"), ("-1.15", "-1"), ("-0.83", "1.89"), ("0.125", "0.875"), ("10", "10.75"), ("-0.15", "0.1"),
)  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("open_ends", ["", "low", "high", "low high"])
@pytest.mark.parametrize("ends", RANGES, ids="..".join)
def test_range_holds_what_is_within_it(backend: str, ends: tuple[str, str], open_ends: str) -> None:
    """C15."""
    low, high = map(Decimal, ends)
    words = ("exclusiveMinimum" if "low" in open_ends else "minimum", "exclusiveMaximum" if "high" in open_ends else "maximum")
    spec = schema_spec({"type": "number", words[0]: float(low), words[1]: float(high)})
    assert not support_report(spec).checked(backend)
    matcher = new_matcher(make_backend(backend), spec)
    steps = [Decimal(1).scaleb(-decimals) for decimals in range(4)]
    near = {end.quantize(step) + step * count for end in (low, high) for step in steps for count in (-1, 0, 1)}
    for number in near:
        is_low_enough = number < high or (number == high and "high" not in open_ends)
        is_within = is_low_enough and (number > low or (number == low and "low" not in open_ends))
        assert accepts(matcher, format(number.normalize(), "f") if number else "0") is is_within, number
