"""The text parser and the gate split one output alike, whatever the tokens are that it came in."""

from __future__ import annotations

import dataclasses
import random

import pytest

from reasoning_parsers import (
    DelimitedParser,
    ReasoningFamily,
    ReasoningGate,
    ReasoningSplit,
    TokenMarkers,
    get_family,
    get_parser,
    list_families,
)
from tests.reasoning_parsers.test_text_cases import run_pieces

FAMILY = get_family("qwen3")
# The opener's id is one token, as in the real vocabulary; markers are one token or a token for each character.
TOKENS = ["<tool_call>", *sorted({*"<think></think>ab", *"</"})]
SINGLE = [*TOKENS, FAMILY.start, FAMILY.end]


def _markers(vocabulary: list[str]) -> TokenMarkers:
    ids = {text: token_id for token_id, text in enumerate(vocabulary)}
    return TokenMarkers.resolve(FAMILY, ids.get, lambda text: [ids[char] for char in text if char in ids])


def _text(rng: random.Random, vocabulary: list[str]) -> list[str]:
    """Texts of tokens: markers whole, cut short and absent. No white space, which only the text side skips at the head."""
    texts: list[str] = []
    for _ in range(rng.randint(0, 7)):
        marker = rng.choice((FAMILY.start, FAMILY.end))
        kind = rng.random()
        if kind < 0.4:
            texts += [marker] if marker in vocabulary else list(marker)
        elif kind < 0.6:
            texts += list(marker[: rng.randrange(len(marker))])
        elif kind < 0.7:
            texts.append("<tool_call>")
        else:
            texts.append(rng.choice("ab<"))
    return texts


def _prompt(rng: random.Random, markers: TokenMarkers) -> list[int]:
    return rng.choice(([], [*markers.start], [*markers.start, *markers.end]))


def _check(gate: ReasoningGate, markers: TokenMarkers, vocabulary: list[str], texts: list[str], split: ReasoningSplit) -> None:
    end_index = gate.reasoning_end_index
    assert (split.content or "") == ("" if end_index is None else "".join(texts[end_index:])), texts
    token_ids = tuple(map(vocabulary.index, texts))
    head = len(markers.start) if token_ids[: len(markers.start)] == markers.start else 0
    assert (split.reasoning or "") == "".join(texts[head : head + gate.num_reasoning_tokens]), texts


def test_text_parser_and_gate_agree() -> None:
    for seed in range(3_000):
        rng = random.Random(seed)
        vocabulary = rng.choice((TOKENS, SINGLE))
        markers = _markers(vocabulary)
        texts = _text(rng, vocabulary)
        tools = rng.random() < 0.5
        gate = ReasoningGate(markers, tools_offered=tools, on_unknown=rng.choice(("first_token", "open", "constrain")))
        gate.start(_prompt(rng, markers))
        gate.commit([vocabulary.index(text) for text in texts])
        if gate.reasoning_ended is None:
            continue  # the output is over in the middle of a start marker
        parser = get_parser(FAMILY, prompt_state=gate.text_prompt_state, tools_offered=tools)
        split = run_pieces(parser, texts)
        assert parser.reasoning_ended is gate.reasoning_ended, texts
        _check(gate, markers, vocabulary, texts, split)


def test_parser_started_as_unknown_decides_like_the_gate() -> None:
    for seed in range(2_000):
        rng = random.Random(seed)
        vocabulary = rng.choice((TOKENS, SINGLE))
        markers = _markers(vocabulary)
        texts = _text(rng, vocabulary)
        gate = ReasoningGate(markers)
        gate.start([])
        gate.commit([vocabulary.index(text) for text in texts])
        if gate.reasoning_ended is not None:
            _check(gate, markers, vocabulary, texts, run_pieces(get_parser(FAMILY), texts))


def test_custom_family_agrees_with_itself_character_by_character() -> None:
    family = ReasoningFamily(name="x", start="aab", end="aaab")
    markers = TokenMarkers(start=tuple(map(ord, family.start)), end=tuple(map(ord, family.end)))
    for seed in range(1_000):
        rng = random.Random(seed)
        text = "".join(rng.choice("aaab") for _ in range(rng.randint(0, 14)))
        for prompt, state in (([], "unknown"), (list(markers.start), "open")):
            gate = ReasoningGate(markers)
            gate.start(prompt)
            gate.commit([ord(char) for char in text])
            if gate.reasoning_ended is None:
                continue
            assert gate.prompt_state == state
            split = get_parser(family, prompt_state=gate.text_prompt_state).split(text)
            end_index = gate.reasoning_end_index
            assert (split.content or "") == ("" if end_index is None else text[end_index:]), f"seed {seed}: {text}"
            assert len(split.reasoning or "") == gate.num_reasoning_tokens


# ---- every row of delimiters, with markers that are ordinary text, glued to their neighbours

DELIMITED = [family for family in list_families() if family.channels is None]


def _cut_into_tokens(rng: random.Random, data: bytes, vocabulary: list[bytes]) -> list[int]:
    """Tokens of a text as a tokenizer might make them: bytes, and pieces of random lengths that the vocabulary grows by."""
    token_ids: list[int] = []
    while data:
        piece = data[: rng.randint(1, 9)]
        if piece not in vocabulary:
            vocabulary.append(piece)
        token_ids.append(vocabulary.index(piece))
        data = data[len(piece) :]
    return token_ids


def _random_output(rng: random.Random, family: ReasoningFamily) -> str:
    markers = [*family.starts, *family.ends, *family.implicit_ends]
    parts = [rng.choice((*family.starts, ""))]
    for _ in range(rng.randint(0, 6)):
        marker = rng.choice(markers)
        parts.append(rng.choice((marker, marker[: rng.randrange(len(marker))], "a", "b\u00e9", "<", "/", " c")))
    return "".join(parts)


@pytest.mark.parametrize("family", DELIMITED, ids=lambda family: family.name)
def test_text_parser_and_gate_agree_where_markers_are_glued(family: ReasoningFamily) -> None:
    row = dataclasses.replace(family.for_effort(None), marker_suffix_pattern="")
    for seed in range(60):
        rng = random.Random(seed)
        tools = rng.random() < 0.5
        text = _random_output(rng, row)
        vocabulary = [bytes((byte,)) for byte in range(256)]
        token_ids = _cut_into_tokens(rng, text.encode(), vocabulary)
        prompt = _cut_into_tokens(rng, rng.choice(("", row.start)).encode(), vocabulary)
        markers = TokenMarkers.resolve(
            row,
            lambda _: None,
            lambda marker: list(marker.encode()),
            token_bytes=vocabulary.__getitem__,
            num_tokens=len(vocabulary),
        )
        gate = ReasoningGate(markers, tools_offered=tools)
        gate.start(prompt)
        gate.commit(token_ids)
        if gate.reasoning_ended is None:
            continue  # the output is over in the middle of a start marker
        what = f"seed {seed}: {text!r} after {prompt}, tools {tools}"
        parser = DelimitedParser(row, prompt_state=gate.text_prompt_state, tools_offered=tools)
        split = parser.split(text)
        assert split.final_reached is gate.reasoning_ended, what
        if gate.reasoning_end_index is not None:
            content = gate.leftover + b"".join(vocabulary[token_id] for token_id in token_ids[gate.reasoning_end_index :])
            assert (split.content or "").encode() == content, what
