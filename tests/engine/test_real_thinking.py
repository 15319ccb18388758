"""Real tokenizers: the family that is found, and thinking in each one's own style, found alike on ids and on text.

The reference is the text itself: the answer stands after the end marker. Ids come from the tokenizer, so markers that are no
tokens are glued to their neighbours as they are in a model's output.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from engine.chat import ChatFormat, read_tokenizer_facts
from engine.grammar.vocabulary import read_vocabulary
from reasoning_parsers import PromptState, ReasoningGate, detect_family, get_family, get_parser
from tests.real_tokenizers import NAMES, load_tokenizer

Load = Callable[[str], Any]

# The family in whose style each thinks. Those that have no thinking tokens write the markers as text, as distilled models do.
STYLES = {
    "qwen3": "qwen3",
    "deepseek_v3": "deepseek_r1",
    "deepseek_v4": "deepseek_v4",
    "gpt_oss": "gpt_oss",
    "gemma3": "qwen3_thinking",
    "llama3": "deepseek_r1",
    "tekken": "mistral",
    "smollm2": "olmo3",
}
THOUGHTS = (
    "6 * 7 = 42.",
    'First {"a": 1}? No.\n\nThen [2, 3].',
    "日本語で考える… naïve 🙂🏽 — Ünïcode",
    "a < b, </thin, <think, </ think>, ]/THINK[, <|chan",
    "line\n\n\n    code()\t\n",
    "",
)
BLANKS = ("", "\n", "\n\n", " ", " \n", "\r\n")


def make_answers(count: int, seed: int) -> list[str]:
    """Random JSON values, compact and not, with text of several scripts."""
    rng = random.Random(seed)
    texts = ["", "x", "</think>", "Grüße", "東京", "🙂", "a\nb", '"', "\\", "<think>"]

    def value(depth: int) -> Any:
        kind = rng.randrange(6 if depth else 4)
        if kind == 4:
            return [value(depth - 1) for _ in range(rng.randrange(4))]
        if kind == 5:
            return {rng.choice(texts): value(depth - 1) for _ in range(rng.randrange(4))}
        return (rng.randrange(-999, 9999), rng.choice(texts), rng.random(), rng.choice([True, False, None]))[kind]

    return [json.dumps(value(3), ensure_ascii=rng.random() < 0.3, indent=rng.choice([None, None, 2])) for _ in range(count)]


@cache
def chat_of(name: str) -> ChatFormat:
    return ChatFormat(load_tokenizer(name), STYLES[name])


@cache
def spelling_of(name: str) -> tuple[bytes, ...]:
    """The bytes of every id: those that grammars see, and the text of tokens that are none."""
    tokenizer = load_tokenizer(name)
    found = list(read_vocabulary(tokenizer, vocab_size=len(tokenizer), stop_token_ids=()).token_bytes)
    for token_id, token in tokenizer.added_tokens_decoder.items():
        found[token_id] = found[token_id] or str(token).encode()
    return tuple(found)


def write(family: str, thought: str, answer: str, *, is_opened: bool) -> tuple[str, str]:
    """A model's output in a family's style, and its head: all before the answer."""
    if family == "gpt_oss":
        head = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>"
        return head + answer, head
    row = get_family(family)
    head = ("" if is_opened else row.start) + thought + row.end
    return head + answer, head


# Harmony's prompt ends before the header of the first message.
OPENERS = [(name, is_opened) for name in STYLES for is_opened in (True, False) if not (is_opened and name == "gpt_oss")]


@pytest.mark.parametrize(
    ("name", "is_opened"), OPENERS, ids=lambda value: {True: "by prompt", False: "by output"}.get(value, value)
)
def test_thinking_is_found_alike_on_ids_and_on_text(name: str, is_opened: bool, real_tokenizer: Load) -> None:
    tokenizer = real_tokenizer(name)
    chat, spelling = chat_of(name), spelling_of(name)
    assert chat.family is not None
    prompt_ids = tokenizer.encode(chat.family.start, add_special_tokens=False) if is_opened else []
    # Harmony's answer has a header of its own, so a prompt without any leaves it to come.
    state: PromptState = "open" if is_opened or name == "gpt_oss" else "unknown"
    answers = make_answers(len(THOUGHTS) * len(BLANKS), seed=len(name))
    glued = 0
    for index, answer in enumerate(answers):
        thought, blank = THOUGHTS[index % len(THOUGHTS)], BLANKS[index // len(THOUGHTS)]
        text, head = write(STYLES[name], thought, blank + answer, is_opened=is_opened)
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(spelling[token_id] for token_id in token_ids) == text.encode(), "the tokenizer changes the text"

        gate = ReasoningGate(chat.markers)
        gate.start(prompt_ids)
        assert gate.prompt_state == state
        for token_id in token_ids:
            gate.commit([token_id])
        assert gate.reasoning_ended, text
        assert gate.reasoning_end_index is not None
        rest = gate.leftover + b"".join(spelling[token_id] for token_id in token_ids[gate.reasoning_end_index :])
        assert rest == text.removeprefix(head).encode(), text
        glued += bool(gate.leftover)

        split = get_parser(chat.family, prompt_state="open" if is_opened else "unknown").split(text)
        assert (split.content or "") == text.removeprefix(head), text
        assert (split.reasoning or "").strip() == thought.strip(), text
    if name in ("gpt_oss", "qwen3", "tekken", "deepseek_v4"):
        assert glued == 0
    elif name != "deepseek_v3":
        assert glued, "no answer was glued to the end marker, so nothing of it was tried"


@pytest.mark.parametrize("name", STYLES)
def test_windows_of_any_size_open_the_gate_at_the_same_token(name: str, real_tokenizer: Load) -> None:
    tokenizer, chat = real_tokenizer(name), chat_of(name)
    text, _ = write(STYLES[name], THOUGHTS[2], '\n{"a":1}', is_opened=False)
    token_ids = tokenizer.encode(text, add_special_tokens=False)
    found = set()
    for size in (1, 2, 3, 5, 8, len(token_ids)):
        gate = ReasoningGate(chat.markers)
        gate.start([])
        for start in range(0, len(token_ids), size):
            gate.commit(token_ids[start : start + size])
        found.add((gate.reasoning_end_index, gate.leftover))
        gate.rollback(len(token_ids))
        gate.commit(token_ids)
        found.add((gate.reasoning_end_index, gate.leftover))
    assert len(found) == 1


def test_B8_markers_hold_no_token_that_begins_a_sequence(real_tokenizer: Load) -> None:
    tokenizer, chat = real_tokenizer("gemma3"), chat_of("gemma3")
    assert tokenizer.bos_token_id in tokenizer.encode("x")
    assert chat.markers is not None
    symbols = {symbol for marker in chat.markers.starts for symbol in marker} | set(chat.markers.forced_end)
    assert tokenizer.bos_token_id not in symbols


DETECTED = {
    "qwen3": ("qwen3", "certain"),
    "deepseek_v3": (None, "certain"),
    "gpt_oss": ("gpt_oss", "likely"),
    "gemma3": (None, "certain"),
    "llama3": (None, "certain"),
    "tekken": ("mistral", "likely"),
    "smollm2": (None, "certain"),
}


@pytest.mark.parametrize("name", DETECTED)
def test_family_of_a_real_tokenizer(name: str, real_tokenizer: Load) -> None:
    facts = read_tokenizer_facts(real_tokenizer(name))
    found = detect_family(facts)
    assert (None if found.family is None else found.family.name, found.confidence) == DETECTED[name]
    assert found.warnings == ()
    # Reading the source tells the same as rendering it.
    assert detect_family(dataclasses.replace(facts, render=None)) == found


def test_switch_of_qwen3_is_the_templates(real_tokenizer: Load) -> None:
    chat = ChatFormat(real_tokenizer("qwen3"))
    assert chat.detection is not None
    (switch,) = chat.detection.switches
    assert (switch.name, switch.on, switch.off, switch.default) == ("enable_thinking", True, False, True)
    prompt_ids = chat.render([{"role": "user", "content": "hi"}], thinking=False)
    gate = ReasoningGate(chat.markers)
    gate.start(prompt_ids)
    assert gate.prompt_state == "ended"


def test_tokenizer_of_two_families_is_a_guess_until_the_model_says_more(real_tokenizer: Load) -> None:
    tokenizer = real_tokenizer("deepseek_v4")
    unsure = detect_family(read_tokenizer_facts(tokenizer))
    assert unsure.confidence == "guess"
    assert {"deepseek_v3", "deepseek_v4"} <= set(unsure.warnings[0].replace(",", "").split())
    sure = detect_family(read_tokenizer_facts(tokenizer, {"model_type": "deepseek_v4"}))
    assert sure.family is not None
    assert (sure.family.name, sure.warnings) == ("deepseek_v4", ())


def test_every_real_tokenizer_has_a_style() -> None:
    assert set(STYLES) == set(NAMES)
