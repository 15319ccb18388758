"""Which backend a request gets, and why."""

from __future__ import annotations

from typing import Any

import pytest

from engine import GrammarSpec, UnsupportedGrammarError
from engine.grammar.choice import QUICK_COMPILE_S, BackendChoice, choose_backend, enforces_as_much, faster_backend
from engine.grammar.compile_cost import CompileCosts
from engine.grammar.support import Enforcement

XG, LL = "xgrammar", "llguidance"


class Report:
    def __init__(self, checked: dict[str, tuple[str, ...]], refused: dict[str, tuple[str, ...]]) -> None:
        self._checked, self._refused = checked, refused

    def checked(self, backend: str) -> tuple[str, ...]:
        return self._checked.get(backend, ())

    def narrowed(self, backend: str) -> tuple[str, ...]:
        return ()

    def may_do_worse(self, backend: str) -> bool:
        return bool(self.checked(backend))

    def refused(self, backend: str) -> tuple[str, ...]:
        return self._refused.get(backend, ())


class Costs:
    def __init__(self, xgrammar: float, llguidance: float) -> None:
        self._compile = {XG: xgrammar, LL: llguidance}

    def compile_s(self, backend: str, spec: GrammarSpec) -> float:
        return self._compile[backend]

    def mask_s(self, backend: str, spec: GrammarSpec) -> float:
        return {XG: 20e-6, LL: 40e-6}[backend]


def choose(
    *,
    checked: dict[str, tuple[str, ...]] | None = None,
    refused: dict[str, tuple[str, ...]] | None = None,
    costs: tuple[float, float] = (5.0, 0.004),
    backend: str = "auto",
) -> BackendChoice:
    spec = GrammarSpec.from_json_schema({"type": "object"}, backend=backend)
    return choose_backend(spec, Report(checked or {}, refused or {}), Costs(*costs))


NOT, PATTERN = "#/not", "#/properties/a/pattern"


@pytest.mark.parametrize(
    ("checked", "refused", "expected"),
    [
        ({XG: (NOT,)}, {}, LL),
        ({LL: (NOT,)}, {}, XG),
        ({XG: (NOT, PATTERN), LL: (PATTERN,)}, {}, LL),
        ({XG: (NOT,)}, {LL: (NOT,)}, XG),
        ({}, {XG: ("#",)}, LL),
        ({XG: (NOT,), LL: (NOT, PATTERN)}, {}, XG),
    ],
    ids=["llg-enforces", "xg-enforces", "llg-enforces-more", "llg-refuses", "xg-refuses", "xg-enforces-more"],
)
@pytest.mark.parametrize(
    "costs", [(5.0, 0.004), (0.0, 0.004), (0.004, 5.0), (5.0, 0.0)], ids=["cold", "xg-warm", "llg-slow", "llg-warm"]
)
def test_what_the_schema_needs_decides_before_any_cost(
    checked: dict[str, tuple[str, ...]], refused: dict[str, tuple[str, ...]], expected: str, costs: tuple[float, float]
) -> None:
    choice = choose(checked=checked, refused=refused, costs=costs)
    assert choice.backend == expected
    assert choice.unenforced == checked.get(expected, ())
    other = {XG: LL, LL: XG}[expected]
    # Nor may another one take its place later on, but where it enforces as much.
    is_alike = not refused.get(other) and checked.get(other) == checked.get(expected)
    assert enforces_as_much(Report(checked, refused), other, choice.unenforced) is is_alike
    assert choice.reason


@pytest.mark.parametrize(
    ("costs", "expected"),
    [((5.0, 0.004), LL), ((0.0, 0.004), XG), ((0.01, 0.004), XG), ((0.0, 0.0), XG), ((5.0, 0.0), LL), ((0.1, 5.0), XG)],
    ids=["cold", "compiled", "quick", "both-compiled", "llg-compiled", "llg-slower"],
)
def test_costs_decide_between_equals(costs: tuple[float, float], expected: str) -> None:
    assert choose(costs=costs).backend == expected


@pytest.mark.parametrize(
    ("schema", "is_quick"),
    [
        ({"properties": {"a": {}}}, False),
        ({"required": ["a"]}, False),
        ({"items": {"minimum": 1}}, True),
        ({"type": "object"}, True),
    ],
    ids=["optional", "required", "items", "no-names"],
)
def test_names_beside_listed_ones_make_compiles_of_xgrammar_long(schema: Any, is_quick: bool) -> None:
    spec = GrammarSpec.from_json_schema(schema)
    assert (CompileCosts(151_000).compile_s("xgrammar", spec) <= QUICK_COMPILE_S) is is_quick
    assert CompileCosts(257).compile_s("xgrammar", spec) <= QUICK_COMPILE_S


def test_bounded_strings_make_masks_of_xgrammar_dear() -> None:
    costs = CompileCosts(151_000)
    free = GrammarSpec.from_json_schema({"type": "array", "items": {"type": "string"}})
    bounded = GrammarSpec.from_json_schema({"type": "array", "items": {"type": "string", "maxLength": 20}})
    assert costs.mask_s(XG, free) < costs.mask_s(LL, free)
    assert costs.mask_s(XG, bounded) > 100 * costs.mask_s(LL, bounded)
    # However quick it is to compile, and no later change to it is thought of.
    for spec, expected in ((free, XG), (bounded, LL)):
        costs.learn(XG, spec, 0.001)
        costs.learn(LL, spec, 0.001)
        assert choose_backend(spec, Report({}, {}), costs).backend == expected
    assert faster_backend(bounded, LL, costs, backends=(XG, LL)) is None


@pytest.mark.parametrize(
    ("xgrammar_s", "expected"),
    [(1e-6, XG), (8e-6, XG), (9e-6, None), (20e-6, None)],
    ids=["fast", "enough", "hardly", "slow"],
)
def test_measured_masks_count_more_than_expected_ones(xgrammar_s: float, expected: str | None) -> None:
    costs = CompileCosts(151_000)
    spec = GrammarSpec.from_json_schema({"type": "object"})
    assert faster_backend(spec, LL, costs, backends=(XG, LL)) == XG
    assert faster_backend(spec, XG, costs, backends=(XG, LL)) is None
    costs.learn_mask(LL, spec, 10e-6)
    costs.learn_mask(XG, spec, xgrammar_s)
    assert faster_backend(spec, LL, costs, backends=(XG, LL)) == expected


@pytest.mark.parametrize("backend", [XG, LL])
def test_fixed_backend_is_never_left_for_a_faster_one(backend: str) -> None:
    costs = CompileCosts(151_000)
    spec = GrammarSpec.from_json_schema({"type": "object"}, backend=backend)
    for name in (XG, LL):
        costs.learn_mask(name, spec, 1.0 if name == backend else 1e-6)
    assert faster_backend(spec, backend, costs, backends=(XG, LL)) is None


@pytest.mark.parametrize(("checked", "asked"), [((), [LL, LL]), ((NOT,), [LL, XG, LL])], ids=["enforces-all", "leaves-one-out"])
def test_other_backends_are_looked_at_only_where_they_may_enforce_more(checked: tuple[str, ...], asked: list[str]) -> None:
    report = Report({LL: checked, XG: (NOT, PATTERN)}, {})
    seen: list[str] = []

    class Watched(Report):
        def checked(self, backend: str) -> tuple[str, ...]:
            seen.append(backend)
            return report.checked(backend)

    spec = GrammarSpec.from_json_schema({"type": "object"})
    choice = choose_backend(spec, Watched({}, {}), Costs(5.0, 0.004))
    assert (choice.backend, choice.unenforced) == (LL, checked)
    assert set(seen) == set(asked)


def test_reason_says_what_the_other_would_have_cost() -> None:
    assert choose(costs=(12.34, 0.004)).reason == "about 4 ms to compile; xgrammar would take 12.3 s"


@pytest.mark.parametrize("backend", [XG, LL])
def test_fixed_backend_is_taken_whatever_it_costs_or_leaves_out(backend: str) -> None:
    choice = choose(backend=backend, checked={XG: (NOT,), LL: (NOT, PATTERN)}, costs=(99.0, 99.0))
    assert choice.backend == backend
    assert choice.reason == "asked for by the request"
    assert NOT in choice.unenforced


@pytest.mark.parametrize("backend", [XG, LL])
def test_fixed_backend_never_falls_back(backend: str) -> None:
    with pytest.raises(UnsupportedGrammarError, match=backend) as caught:
        choose(backend=backend, refused={backend: (NOT,)})
    assert caught.value.pointer == NOT


def test_unknown_backend_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedGrammarError, match="'outlines'"):
        choose(backend="outlines")


def test_constraint_that_no_backend_takes_is_refused_with_the_place() -> None:
    with pytest.raises(UnsupportedGrammarError, match="no grammar backend") as caught:
        choose(refused={XG: (PATTERN,), LL: (NOT,)})
    assert caught.value.pointer == PATTERN


def test_backend_that_writes_less_of_what_is_valid_is_not_chosen_for_being_quick() -> None:
    spec = GrammarSpec.from_json_schema({"type": "string", "pattern": "^.$"})
    choice = choose_backend(spec, Enforcement(spec), Costs(0.001, 0.004))
    assert (choice.backend, choice.unenforced) == (LL, ())
    assert not enforces_as_much(Enforcement(spec), XG, ())
    assert enforces_as_much(Enforcement(spec), LL, ())
    spec = GrammarSpec.from_json_schema({"type": "string", "pattern": "^[a-z]$"})
    assert choose_backend(spec, Enforcement(spec), Costs(0.001, 0.004)).backend == XG
