"""The text cases of groups A and D, whole, as deltas, and cut in every way."""

from __future__ import annotations

from itertools import combinations

import pytest

from reasoning_parsers import ReasoningParser, ReasoningSplit
from tests.reasoning_parsers.cases import Case, load_cases, make_case_parser

# A19 is the rule itself: every text of the group gives one split, however it is cut.
TEXT_CASES = (
    *("A1.a", "A1.b", "A3", "A4.a", "A4.b", "A6", "A8.a", "A8.b", "A10.a", "A10.b", "A11", "A14.a", "A14.b", "A16", "A17"),
    *("A18.a", "A18.b", "A18.c", "A18.d", "A18.e", "A18.f", "A20", "A21", "A22.a", "A22.b", "A22.c", "D4", "D6", "D19"),
)
A18 = tuple(case_id for case_id in TEXT_CASES if case_id.startswith("A18"))
# Reading a call, or an object in a fence, is no business of this package: it stays content.
CONTENT = {
    "A14.a": '<tool_call>{"name":"w","arguments":{}}</tool_call>',
    "A22.a": '```json\n{"fit":1}\n```',
    "A22.b": '```json\n{"fit":1}',
    "A22.c": 'Here is the result:\n```json\n{"fit":1}\n```',
    "D4": "Sure! Name: Bob",
    "D6": '{\n\n{\n"v":"x"\n}',
    "D19": '[{"name":"w","parameters":{}}]',
}

CASES = load_cases("text_cases.json", TEXT_CASES)


def run_pieces(parser: ReasoningParser, pieces: list[str]) -> ReasoningSplit:
    deltas = [*(parser.feed(piece) for piece in pieces), parser.finish()]
    reasoning, content = ("".join(texts) for texts in zip(*((d.reasoning, d.content) for d in deltas), strict=True))
    return ReasoningSplit(reasoning or None, content or None)


def trimmed(text: str | None) -> str:
    return (text or "").strip()


@pytest.mark.parametrize("case", CASES, ids=TEXT_CASES)
def test_text_case(case: Case) -> None:
    split = make_case_parser(case).split(case["text"])
    assert trimmed(split.reasoning) == trimmed(case["reasoning"])
    assert trimmed(split.content) == trimmed(CONTENT[case["id"]] if case["id"] in CONTENT else case["content"])
    assert split.final_reached is (split.content is not None)
    # None stands for nothing, so that a caller needs one test only.
    assert split.reasoning != ""
    assert split.content != ""


@pytest.mark.parametrize("case", CASES, ids=TEXT_CASES)
def test_text_case_in_any_pieces(case: Case) -> None:
    text = case["text"]
    whole = make_case_parser(case).split(text)
    if "deltas" in case:
        assert run_pieces(make_case_parser(case), case["deltas"]) == whole
    assert run_pieces(make_case_parser(case), list(text)) == whole
    places = range(len(text) + 1)
    for cut in places:
        assert run_pieces(make_case_parser(case), [text[:cut], text[cut:]]) == whole
    for first, second in combinations(places, 2):
        assert run_pieces(make_case_parser(case), [text[:first], text[first:second], text[second:]]) == whole


def test_marker_pairs_are_data() -> None:
    splits = {make_case_parser(case).split(case["text"]) for case in load_cases("text_cases.json", A18)}
    assert splits == {ReasoningSplit("r", '{"a":1}')}
