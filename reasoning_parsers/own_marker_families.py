"""Rows of the families that have a pair of markers of their own, data only. See `families.py`."""

from __future__ import annotations

from .family import ReasoningFamily

_VLLM = "https://docs.vllm.ai/en/stable/features/reasoning_outputs/"
_VLLM_CODE = "https://github.com/vllm-project/vllm"
_SGLANG_CODE = "https://github.com/sgl-project/sglang"

OWN_MARKER_FAMILIES: tuple[ReasoningFamily, ...] = (
    ReasoningFamily(
        name="seed_oss",
        start="<seed:think>",
        end="</seed:think>",
        turn_boundaries=("<seed:bos>", "<seed:eos>"),
        user_turns=("<seed:bos>user", "<seed:bos>system"),
        source="https://huggingface.co/ByteDance-Seed/Seed-OSS-36B-Instruct",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # The template's `thinking_mode` is a word ("enabled"), not a bool, so it is no `thinking_switch`.
        name="minimax_m3",
        aliases=("minimax-m3",),
        start="<mm:think>",
        end="</mm:think>",
        source="https://huggingface.co/MiniMaxAI",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # Tokenizer v13 and later (Magistral). `reasoning_effort` is a word, not a bool, so it is no `thinking_switch`.
        name="mistral",
        aliases=("magistral",),
        start="[THINK]",
        end="[/THINK]",
        thinking_default=False,
        turn_boundaries=("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        user_turns=("[INST]", "[SYSTEM_PROMPT]"),
        source="https://huggingface.co/mistralai/Magistral-Small-2509",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # Before K2.
        name="kimi",
        start="\u25c1think\u25b7",
        end="\u25c1/think\u25b7",
        source=_SGLANG_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="plamo3",
        start="<|plamo:begin_think:plamo|>",
        end="<|plamo:end_think:plamo|>",
        template_opens=True,
        thinking_switch="enable_thinking",
        turn_boundaries=("<|plamo:tag|>",),
        source=_VLLM_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="cohere_command3",
        aliases=("cohere_command4",),
        start="<|START_THINKING|>",
        end="<|END_THINKING|>",
        template_opens=True,
        turn_boundaries=("<|CHATBOT_TOKEN|>",),
        source=_VLLM,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="apertus2509",
        aliases=("apertus",),
        start="<|inner_prefix|>",
        end="<|inner_suffix|>",
        source=_SGLANG_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="longcat",
        start="<longcat_think>",
        end="</longcat_think>",
        source="https://huggingface.co/meituan-longcat/LongCat-Flash-Thinking",
        checked="2026-11-29",
    ),
)
