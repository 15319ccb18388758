"""Public reports as token-level cases: gate, grammar and mask together, with each case's own vocabulary.

The keys of the cases: `windows` are the ids that arrive per step, `expect` is what must hold. Windows of several ids are checked
through `validate_tokens`, as a check of drafts would.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import SamplingParams
from engine.grammar import GrammarSpec
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.vocabulary import Vocabulary
from engine.mask import Window, mask_logits
from engine.sequence import Sequence
from reasoning_parsers import ReasoningFamily, ReasoningGate, TokenMarkers

CASES = json.loads((Path(__file__).parents[1] / "cases" / "gate_cases.json").read_text(encoding="utf-8"))
CONSTRAINED_CASES = [case for case in CASES if {"schema", "choice", "regex"} & case.keys()]
FREE_CASES = [case for case in CASES if case not in CONSTRAINED_CASES]


class CaseTokenizer:
    """Joins the bytes of a case's tokens."""

    def __init__(self, token_bytes: list[bytes]) -> None:
        self.token_bytes = token_bytes

    def decode(self, token_ids: list[int], **options: Any) -> str:
        return b"".join(self.token_bytes[token_id] for token_id in token_ids).decode("utf-8", errors="replace")


def case_vocabulary(case: dict[str, Any]) -> tuple[Vocabulary, CaseTokenizer]:
    given = {
        int(key): bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()
        for key, value in case["vocab"].items()
    }
    listed = max(given) + 1
    size = max(case.get("tokenizer_vocab_size", 0), listed)
    texts = [given.get(token_id, b"") for token_id in range(size)]
    texts += [bytes([byte]) for byte in range(256)]
    width = max(case.get("logits_width", 0), len(texts))
    if "logits_width" in case:
        # The single-byte tokens take the place of fillers, so that the sizes stay those of the case.
        texts = [given.get(token_id, bytes([token_id - 100]) if 100 <= token_id < 356 else b"") for token_id in range(size)]
        width = case["logits_width"]
    stop_ids = tuple(sorted({token_id for ids in case["stop"].values() for token_id in ids}))
    hidden = set(case["special"]) | set(stop_ids)
    token_bytes = tuple(b"" if token_id in hidden else text for token_id, text in enumerate(texts)) + (b"",) * (
        width - len(texts)
    )
    return Vocabulary(token_bytes, width, stop_ids), CaseTokenizer(texts)


def make_spec(case: dict[str, Any]) -> GrammarSpec:
    if "choice" in case:
        return GrammarSpec.choice(case["choice"])
    return GrammarSpec.regex(case["regex"]) if "regex" in case else GrammarSpec.from_json_schema(case["schema"])


def make_markers(case: dict[str, Any], vocabulary: Vocabulary) -> TokenMarkers:
    if "marker_text" not in case:
        markers = case["markers"]
        return TokenMarkers(tuple(markers["start"]), tuple(markers["end"]), implicit_ends=frozenset(case.get("implicit_end", ())))
    return TokenMarkers.resolve(
        ReasoningFamily(name="case", **case["marker_text"]),
        lambda text: None,
        lambda text: [vocabulary.token_bytes.index(bytes((byte,))) for byte in text.encode()],
        token_bytes=lambda token_id: vocabulary.token_bytes[token_id],
        num_tokens=len(vocabulary.token_bytes),
    )


def make_gate(case: dict[str, Any], vocabulary: Vocabulary) -> ReasoningGate:
    gate = ReasoningGate(
        make_markers(case, vocabulary),
        thinking_enabled=case.get("thinking_enabled"),
        tools_offered=case.get("tools_offered", False),
        max_reasoning_tokens=case.get("max_reasoning_tokens"),
    )
    gate.start(case["prompt"])
    return gate


def make_sequence(case: dict[str, Any], vocabulary: Vocabulary, tokenizer: CaseTokenizer) -> Sequence:
    spec = make_spec(case)
    sequence = Sequence(
        case["id"],
        case["prompt"],
        SamplingParams(),
        make_gate(case, vocabulary),
        tokenizer,
        frozenset(vocabulary.stop_token_ids),
        spec,
    )
    sequence.matcher = XGrammarBackend(vocabulary, num_threads=1).compile(spec).new_matcher(vocabulary.stop_token_ids)
    return sequence


def allowed_next(sequence: Sequence, width: int) -> tuple[set[int], bool]:
    """The ids that the masked logits still allow, and whether the grammar left the row alone."""
    logits = torch.zeros(1, width)
    assert mask_logits(logits, [Window(sequence)]) == {}
    allowed = set(torch.isfinite(logits[0]).nonzero().flatten().tolist())
    return allowed, len(allowed) >= width - len(sequence.stop_token_ids)


def check_next(case: dict[str, Any], sequence: Sequence, width: int, steps_done: int) -> None:
    for wanted in case["expect"].get("next", ()):
        if wanted["steps_done"] != steps_done:
            continue
        allowed, _ = allowed_next(sequence, width)
        listed = {int(key) for key in case["vocab"]}
        assert allowed >= set(wanted.get("allow", ()))
        assert not allowed & set(wanted.get("deny", ()))
        if "only" in wanted:
            assert allowed & listed == set(wanted["only"])
    for forced in case["expect"].get("forced", ()):
        if forced["steps_done"] == steps_done:
            assert sequence.gate.forced_token_id() == forced["id"]


@pytest.mark.parametrize("case", CONSTRAINED_CASES, ids=[case["id"] for case in CONSTRAINED_CASES])
def test_case(case: dict[str, Any]) -> None:
    vocabulary, tokenizer = case_vocabulary(case)
    sequence = make_sequence(case, vocabulary, tokenizer)
    assert sequence.matcher is not None
    expect = case["expect"]
    for step, window in enumerate(case["windows"]):
        check_next(case, sequence, vocabulary.vocab_size, step)
        masked = expect.get("masked_rows")
        if masked is not None and len(window) == 1:
            assert allowed_next(sequence, vocabulary.vocab_size)[1] is not masked[step][0]
        start = sequence.gate.bounds(window).grammar_start
        num_accepted = min(start, len(window)) + sequence.matcher.validate_tokens(window[start:])
        if "num_accepted" in expect and isinstance(expect["num_accepted"][step], int):
            assert num_accepted == expect["num_accepted"][step]
        assert sequence.append(window[:num_accepted])
        if "fed_to_grammar" in expect:
            is_open = "num_accepted" in expect and expect["num_accepted"][step] is None and num_accepted == 0
            assert window[start:num_accepted] == ([] if is_open else expect["fed_to_grammar"][step])
        assert sequence.gate.reasoning_ended is expect["reasoning_ended_after_step"][step]
    check_next(case, sequence, vocabulary.vocab_size, len(case["windows"]))
    if "mask_width" in expect:
        assert vocabulary.vocab_size == expect["mask_width"]
    if "text" in expect:
        assert sequence.take_output([]).content == expect["text"]


@pytest.mark.parametrize("case", FREE_CASES, ids=[case["id"] for case in FREE_CASES])
def test_free_case(case: dict[str, Any]) -> None:
    vocabulary, tokenizer = case_vocabulary(case)
    gate = make_gate(case, vocabulary)
    sequence = Sequence(case["id"], case["prompt"], SamplingParams(), gate, tokenizer, frozenset(vocabulary.stop_token_ids), None)
    expect = case["expect"]
    assert gate.prompt_state == expect["prompt_state"]
    forced = {entry["steps_done"]: entry["id"] for entry in expect.get("forced", ())}
    for step, window in enumerate(case["windows"]):
        assert len(allowed_next(sequence, vocabulary.vocab_size)[0]) == vocabulary.vocab_size
        assert gate.forced_token_id() == forced.get(step)
        if "bounds" in expect:
            assert list(gate.bounds(window)) == expect["bounds"][step]
        assert sequence.append(window)
        assert gate.reasoning_ended is expect["reasoning_ended_after_step"][step]


@pytest.mark.parametrize(
    ("generated", "reasoning", "content"),
    [
        ([3, 0, 1], "r</", ""),
        ([3, 0, 1, 2], "r", ""),
        ([3, 0, 1, 2, 4], "r", "x"),
        ([3, 0, 0, 1, 2, 4], "r<", "x"),
        ([0, 1, 3], "</r", ""),
    ],
    ids=["cut-inside-the-marker", "marker", "answer", "overlap", "half-a-marker-is-text"],
)
def test_text_around_an_end_marker_of_several_ids(generated: list[int], reasoning: str, content: str) -> None:
    tokenizer = CaseTokenizer([b"<", b"/", b">", b"r", b"x", b"<t>"])
    gate = ReasoningGate(TokenMarkers((5,), (0, 1, 2)))
    gate.start([5])
    sequence = Sequence("a", [5], SamplingParams(), gate, tokenizer, frozenset({9}), None)
    deltas = []
    for token_id in generated:
        sequence.append([token_id])
        deltas.append(sequence.take_output([token_id]))
    sequence.finish("length")
    deltas.append(sequence.take_output([]))
    assert deltas[-1].reasoning == "".join(delta.reasoning_delta for delta in deltas) == reasoning
    assert deltas[-1].content == "".join(delta.content_delta for delta in deltas) == content
