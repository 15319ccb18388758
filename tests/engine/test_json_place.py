"""Where an answer stands in its JSON, against what a parser says of the whole text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.speculative.json_place import JsonPlace, Value

LEAVES = st.one_of(st.text(max_size=6), st.integers(-999, 999), st.booleans(), st.none(), st.sampled_from([1.5, -2e30]))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=10
)


def leaves(value: Any) -> list[bytes]:
    """Texts of the values in a document that are no lists and no objects, in their order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [(json.dumps(value)[1:-1] if isinstance(value, str) else json.dumps(value)).encode()]


@given(VALUES, st.sampled_from([(",", ":"), (", ", ": ")]), st.lists(st.integers(1, 9), max_size=20))
def test_values_end_where_a_parser_finds_them(value: Any, separators: tuple[str, str], sizes: list[int]) -> None:
    data = json.dumps([value], separators=separators).encode()
    place = JsonPlace()
    ended: list[Value] = []
    for size in [*sizes, len(data)]:
        before = place.copy()
        before.feed(b'","]}')  # a copy changes nothing here
        ended += place.feed(data[:size])
        data = data[size:]
    assert [text for _, text in ended] == leaves(value)


@pytest.mark.parametrize(
    ("text", "spot", "key", "written", "is_in_list"),
    [
        ('{"a', "key", "", "a", False),
        ('{"a":', "value", "a", "", False),
        ('{"a": "b\\"', "string", "a", 'b\\"', False),
        ('{"a":{"b":-1', "literal", "b", "-1", False),
        ('{"a":"x","b":[', "value", "b", "", True),
        ('{"a":[{"b":1},', "value", "b", "", True),
        ('{"a":[1,2]', "between", "a", "", False),
        ('["x"', "between", "", "", True),
    ],
)
def test_place_says_what_is_being_written(text: str, spot: str, key: str, written: str, is_in_list: bool) -> None:
    place = JsonPlace()
    place.feed(text.encode())
    assert (place.spot, place.key.decode(), place.text.decode(), place.is_in_list) == (spot, key, written, is_in_list)
