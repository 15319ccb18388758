"""Real tokenizers: thinking in each one's own style is found on ids and on text, and both agree."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from engine import SamplingParams
from engine.markers import resolve_markers
from engine.sequence import Sequence
from reasoning_parsers import ReasoningGate, TokenMarkers, get_family, get_parser
from tests.real_tokenizers import load_tokenizer

THINKING = "First a < b, na\u00efve \u6771\u4eac \U0001f642 </ think"
ANSWER = '{"city":"K\u00f6ln"}'
# By tokenizer the family, the prompt's end, and what the model writes before its thinking and behind it.
STYLES = {
    "qwen3": ("qwen3", "<|im_start|>assistant\n", "<think>\n", "\n</think>\n\n"),
    "deepseek_v3": ("deepseek_r1", "<\uff5cAssistant\uff5c>", "<think>\n", "\n</think>\n\n"),
    "deepseek_v4": ("deepseek_v4", "<\uff5cAssistant\uff5c>", "<think>", "</think>"),
    "gpt_oss": (
        "gpt_oss",
        "<|start|>user<|message|>hi<|end|><|start|>assistant",
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),
    "gemma3": ("deepseek_r1", "<start_of_turn>model\n", "<think>", "</think>\n\n"),
    "llama3": ("deepseek_r1", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<think>\n", "</think>\n"),
    "tekken": ("mistral", "[INST]hi[/INST]", "[THINK]", "[/THINK]"),
    "smollm2": ("qwen3", "<|im_start|>assistant\n", "<think>\n", "</think>\n"),
}
CASES = [(name, is_open) for name in STYLES for is_open in (False, True)]


@lru_cache
def markers_of(name: str) -> TokenMarkers:
    return resolve_markers(load_tokenizer(name), get_family(STYLES[name][0]))


@pytest.mark.parametrize(("name", "is_open"), CASES, ids=[f"{name}-{'open' if is_open else 'closed'}" for name, is_open in CASES])
def test_thinking_in_its_own_style(name: str, is_open: bool, real_tokenizer: Callable[[str], Any]) -> None:
    tokenizer = real_tokenizer(name)
    family_name, turn, before, behind = STYLES[name]
    family = get_family(family_name)
    prompt, output = (turn + before, THINKING + behind) if is_open else (turn, before + THINKING + behind)
    gate = ReasoningGate(markers_of(name))
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    gate.start(prompt_ids)
    sequence = Sequence("a", prompt_ids, SamplingParams(), gate, tokenizer, frozenset(), None)
    for token_id in tokenizer.encode(output + ANSWER, add_special_tokens=False):
        assert sequence.append([token_id])
    sequence.finish("length")
    result = sequence.take_output([])
    assert gate.reasoning_ended is True
    parser = get_parser(family, prompt_state="open" if is_open else gate.text_prompt_state)
    split = parser.split(output + ANSWER)
    assert (result.reasoning.strip(), result.content.strip()) == (THINKING, ANSWER)
    assert ((split.reasoning or "").strip(), (split.content or "").strip()) == (THINKING, ANSWER)
    num_thinking = len(tokenizer.encode(THINKING, add_special_tokens=False))
    assert abs(gate.num_reasoning_tokens - num_thinking) <= 2  # tokens that hold some of a marker, and line breaks
