"""Loads the cases that `tests/cases/` keeps as data; a case's id is its test's id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reasoning_parsers import PromptState, ReasoningFamily, ReasoningParser, TokenMarkers, get_parser

_FOLDER = Path(__file__).resolve().parents[1] / "cases"

Case = dict[str, Any]


def load_cases(file_name: str, ids: tuple[str, ...]) -> list[Case]:
    by_id = {case["id"]: case for case in load_all_cases(file_name)}
    return [by_id[case_id] for case_id in ids]


def load_all_cases(file_name: str) -> list[Case]:
    cases: list[Case] = json.loads((_FOLDER / file_name).read_text(encoding="utf-8"))
    return cases


def make_case_parser(case: Case) -> ReasoningParser:
    family = ReasoningFamily(name="custom", **case["markers"]) if case["parser"] == "custom" else case["parser"]
    prompt_state: PromptState = "unknown" if case["prompt_state"] == "none" else case["prompt_state"]
    return get_parser(
        family,
        prompt_state=prompt_state,
        thinking_enabled=case["thinking_enabled"],
        tools_offered=case["tools_offered"],
        structured="schema" in case or case.get("structured", False),
    )


def write_message(family: ReasoningFamily, reasoning: str, content: str) -> str:
    """A whole message in the style of a family: thinking, then the answer."""
    if family.channels is None:
        return f"{family.start}{family.start_label}{reasoning}{family.end}{content}"
    closers, frame = family.channels.closers, family.channels.next_frame
    return f"{family.start}{reasoning}{closers[0]}{frame}{family.end}{content}{closers[-1]}"


def make_case_markers(case: Case) -> TokenMarkers:
    markers = case["markers"]
    return TokenMarkers(
        start=tuple(markers["start"]),
        end=tuple(markers["end"]),
        implicit_ends=frozenset(case.get("implicit_end", ())),
    )
