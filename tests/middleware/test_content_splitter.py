"""Which family a remote model's name stands for, and how its reply is split."""

from __future__ import annotations

import pytest

from middleware.upstreams.content_splitter import ContentSplitter, find_family


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("hosted_vllm/zai-org/GLM-4.5-Air", "glm45"),
        ("openrouter/moonshotai/kimi-k2-thinking", "kimi_k2"),
        ("moonshotai/Kimi-K2.5", "kimi_k2"),
        ("moonshotai/Kimi-VL-A3B-Thinking", "kimi"),
        ("deepseek/deepseek-v3.1", "deepseek_v3"),
        ("nvidia/Nemotron-3-Nano-30B", "nemotron_v3"),
        ("MiniMaxAI/MiniMax-M2", "minimax_m2"),
        ("MiniMaxAI/MiniMax-M3", "minimax_m3"),
        ("rednote-hilab/dots.llm1.inst", "dots"),
        ("mistralai/Magistral-Small-2509", "mistral"),
        ("ollama/qwen3vl:8b", "qwen3"),
        ("openai/gpt-oss-120b", "gpt_oss"),
        ("moonshotai/Kimi-K3", "kimi_k3"),
        ("google/gemma-4-31b-it", "gemma4"),
        ("ibm-granite/granite-3.2-8b-instruct", "granite"),
        ("ibm-granite/granite-3.3-8b-instruct", "granite_3_3"),
        ("ibm-granite/granite-4.1-small", "granite_thinking_parser"),
        ("tencent/Hunyuan-A13B-Instruct", "hunyuan_a13b"),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-14B", "hyperclovax"),
        ("naver-hyperclovax/HyperCLOVAX-SEED-Think-32B", "hyperclovax_32b"),
        ("LGAI-EXAONE/EXAONE-Deep-7.8B", "exaone_deep"),
        ("LGAI-EXAONE/EXAONE-4.0-32B", "exaone4"),
    ],
)
def test_family_is_found_by_parts_of_the_name(model: str, family: str) -> None:
    row = find_family(model, "auto")
    assert row is not None
    assert row.name == family


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("openai/akimichi-7b", id="name-inside-a-word"),
        pytest.param("openai/polkadots", id="name-at-the-end-of-a-word"),
        pytest.param("openai/dotsocr", id="name-at-the-beginning-of-a-word"),
        pytest.param("openai/sterling-3", id="name-with-a-version-inside-a-word"),
        pytest.param("openai/step-35", id="longer-number"),
        pytest.param("llava-hf/llava-1.5-7b-hf", id="name-that-stands-for-a-template-of-the-tokenizer"),
    ],
)
def test_other_names_are_taken_for_the_usual_markers(model: str) -> None:
    row = find_family(model, "auto")
    assert row is not None
    assert row.name == "qwen3"


def _split(model: str, text: str, *, has_schema: bool = False) -> tuple[str, str, bool | None]:
    splitter = ContentSplitter(find_family(model, "auto"), thinking=None, has_schema=has_schema)
    deltas = [*(splitter.feed("", piece) for piece in text), splitter.finish()]
    return "".join(d.reasoning for d in deltas), "".join(d.content for d in deltas), splitter.is_reasoning_open


def test_a21_channels_that_end_before_the_answer_leave_it_open() -> None:
    assert _split("openai/gpt-oss-20b", "<|channel|>analysis<|message|>I think") == ("I think", "", True)
    text = "<|channel|>commentary<|message|>I look it up.<|end|>"
    assert _split("openai/gpt-oss-20b", text) == ("", "I look it up.", True)


def test_preamble_is_no_part_of_an_answer_under_a_schema() -> None:
    text = '<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant<|channel|>final<|message|>{"a":1}'
    assert _split("openai/gpt-oss-20b", text, has_schema=True) == ("One moment.", '{"a":1}', False)
    assert _split("openai/gpt-oss-20b", text) == ("", 'One moment.\n{"a":1}', False)


def test_answer_at_the_head_is_the_answer_whatever_the_format() -> None:
    assert _split("openai/gpt-oss-20b", '{"a":"<|end|> it"}', has_schema=True) == ("", '{"a":"<|end|> it"}', False)
