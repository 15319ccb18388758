"""Which family a remote model's name stands for."""

from __future__ import annotations

import pytest

from middleware.upstreams.content_splitter import find_family


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
        pytest.param("moonshotai/kimi-k3", id="format-that-is-not-supported-yet"),
        pytest.param("google/gemma4", id="another"),
    ],
)
def test_other_names_are_taken_for_the_usual_markers(model: str) -> None:
    row = find_family(model, "auto")
    assert row is not None
    assert row.name == "qwen3"
