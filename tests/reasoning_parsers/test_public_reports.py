"""Outputs of models as public reports on other projects show them; a case's id names the report."""

from __future__ import annotations

import pytest

from tests.reasoning_parsers.cases import Case, load_all_cases, make_case_parser
from tests.reasoning_parsers.test_text_cases import run_pieces, trimmed

REPORTS = load_all_cases("text_report_cases.json")


@pytest.mark.parametrize("case", REPORTS, ids=lambda case: str(case["id"]))
def test_output_of_a_report_is_split(case: Case) -> None:
    text = case["text"]
    split = make_case_parser(case).split(text)
    assert (trimmed(split.reasoning), trimmed(split.content)) == (trimmed(case["reasoning"]), trimmed(case["content"]))
    assert run_pieces(make_case_parser(case), list(text)) == split
    for cut in range(1, len(text)):
        assert run_pieces(make_case_parser(case), [text[:cut], text[cut:]]) == split
