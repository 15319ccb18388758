from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from middleware import streaming
from middleware.streaming import PartialParser

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROOTS = st.lists(JSON, max_size=4) | st.dictionaries(st.text(), JSON, max_size=4)


def snapshots(*pieces: str) -> list[Any]:
    parser = PartialParser()
    return [value for piece in pieces if (value := parser.feed(piece)) is not None]


def test_partials_hold_completed_fields_only_d21() -> None:
    assert snapshots('{"hue":"gr', 'een","pct":7', "5}") == [{}, {"hue": "green"}, {"hue": "green", "pct": 75}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('{"a":tru', {}, id="half-literal"),
        pytest.param('{"a":-', {}, id="half-number"),
        pytest.param('{"a":1.5', {}, id="number-may-go-on"),
        pytest.param('{"a":1.5 ', {"a": 1.5}, id="number-ended"),
        pytest.param('{"a":"x\\', {}, id="half-escape"),
        pytest.param('{"a":"x\\"', {}, id="escaped-quote"),
        pytest.param('{"a":"x\\""', {"a": 'x"'}, id="string-ended"),
        pytest.param('{"a":[1,2', {"a": [1]}, id="list-goes-on"),
        pytest.param('{"a":{"b":[{"c":1}', {"a": {"b": [{"c": 1}]}}, id="nested"),
        pytest.param('{"a":1,"b"', {"a": 1}, id="key-without-value"),
        pytest.param('{"a":1,"b":', {"a": 1}, id="colon-without-value"),
        pytest.param('{"a":1}\n```\nthat {"b":2} is', {"a": 1}, id="text-after"),
    ],
)
def test_partials_of_an_unfinished_text(text: str, value: Any) -> None:
    parser = PartialParser()
    parser.feed(text)
    assert parser.snapshot() == value


@quick
@given(ROOTS, st.data(), st.booleans())
def test_partials_end_in_the_whole_value_however_it_is_cut(value: Any, data: st.DataObject, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    parser = PartialParser()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        parser.feed(text[start:end])
    assert parser.snapshot() == value


@quick
@given(ROOTS)
def test_partials_only_grow(value: Any) -> None:
    seen = snapshots(*json.dumps(value))
    for earlier, later in pairwise(seen):
        assert _is_part(earlier, later)


def _is_part(small: Any, large: Any) -> bool:
    if isinstance(small, dict):
        return isinstance(large, dict) and all(key in large and _is_part(item, large[key]) for key, item in small.items())
    if isinstance(small, list):
        return isinstance(large, list) and len(small) <= len(large) and all(map(_is_part, small, large))
    return bool(small == large)


@quick
@given(st.text(alphabet='{}[]",:\\1tn e', max_size=30))
def test_partials_survive_broken_text(text: str) -> None:
    snapshots(*text)


def test_partials_survive_deep_nesting() -> None:
    parser = PartialParser()
    assert str(parser.feed("[" * 100_000)).startswith("[[[[")
    assert parser.feed("[" * 100_000) is None


def test_partials_cost_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    num_parsed = 0

    def count(text: str, **options: Any) -> Any:
        nonlocal num_parsed
        num_parsed += len(text)
        return from_json(text, **options)

    monkeypatch.setattr(streaming, "from_json", count)
    text = json.dumps([{"name": f"item {index}", "price": index} for index in range(2000)])
    seen = snapshots(*(text[start : start + 4] for start in range(0, len(text), 4)))
    assert num_parsed <= 60_000 + 201 * len(text)
    assert len(seen) > 100
    # The last one is not thinned out.
    parser = PartialParser()
    parser.feed(text)
    assert parser.snapshot() == json.loads(text)


def test_partials_of_a_huge_answer_in_small_pieces_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PARSED_PER_CHARACTER", 0)
    text = json.dumps([f"x{number}" for number in range(150_000)])
    parser = PartialParser()
    started_s = time.process_time()
    for start in range(0, len(text), 4):
        parser.feed(text[start : start + 4])
    assert parser.snapshot() == json.loads(text)
    assert time.process_time() - started_s < 6
