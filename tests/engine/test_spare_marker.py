"""A second end marker, after a thinking budget ended the thinking, is in no text."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.chat import ChatFormat
from engine.spare_marker import SpareMarkerFilter
from engine.split_text import SplitText, make_split
from engine.stop import StopStringFilter
from reasoning_parsers import ReasoningGate

PROMPT = "<|user|>x<|end|><|assistant|><think>"


def test_filter_takes_one_marker_out_however_the_text_is_cut() -> None:
    rng = random.Random(1)
    for _ in range(300):
        text = "".join(rng.choice(["<e>", "<", "e", ">", "[E]", "[", "a"]) for _ in range(rng.randint(0, 12)))
        first = min(((at, marker) for marker in ("<e>", "[E]") if (at := text.find(marker)) >= 0), default=None)
        wanted = text if first is None else text[: first[0]] + text[first[0] + 3 :]
        spare, got, rest = SpareMarkerFilter(("<e>", "[E]")), "", text
        while rest:
            size = rng.randint(1, 4)
            got, rest = got + spare.feed(rest[:size]), rest[size:]
        assert got + spare.flush() == wanted


def _split(
    tokenizer: Any, output: str, *, budget: int | None, constrained: bool = False, stops: StopStringFilter | None = None
) -> SplitText:
    gate = ReasoningGate(ChatFormat(tokenizer, "auto").markers, max_reasoning_tokens=budget)
    gate.start(tokenizer.encode(PROMPT, add_special_tokens=False))
    split = make_split(gate, tokenizer, frozenset(), stops, is_constrained=constrained)
    token_ids: list[int] = []
    for token_id in tokenizer.encode(output, add_special_tokens=False):
        gate.commit([token_id])
        token_ids.append(token_id)
        split.update(token_ids)
    split.flush(token_ids)
    return split


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("EUR</think> so 3</think>{}", " so 3{}"),
        ("EUR</think></think>{}", "{}"),
        ("EUR</think>a</think>b</think>c", "ab</think>c"),
        ("EUR</think>{}", "{}"),
        ("EUR</think>a</thi", "a</thi"),
    ],
)
def test_spare_end_marker_is_no_answer(pocket_tokenizer: Any, output: str, content: str) -> None:
    split = _split(pocket_tokenizer, output, budget=1)
    assert ("".join(split.reasoning.pieces), "".join(split.content.pieces)) == ("EUR", content)


def test_marker_in_an_answer_is_data_where_no_budget_acted_or_a_grammar_rules(pocket_tokenizer: Any) -> None:
    output = "EUR</think>a</think>b"
    for split in (_split(pocket_tokenizer, output, budget=None), _split(pocket_tokenizer, output, budget=9)):
        assert "".join(split.content.pieces) == "a</think>b"
    assert "".join(_split(pocket_tokenizer, output, budget=1, constrained=True).content.pieces) == "a</think>b"


def test_stop_string_before_a_spare_marker_still_stops(pocket_tokenizer: Any) -> None:
    split = _split(pocket_tokenizer, "EUR</think>ab</think>c", budget=1, stops=StopStringFilter(("b</th",)))
    assert ("".join(split.content.pieces), split.content.matched_stop) == ("a", "b</th")
