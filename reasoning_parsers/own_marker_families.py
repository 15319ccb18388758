"""Rows of the families that have a pair of markers of their own, data only. See `families.py`."""

from __future__ import annotations

from .family import ReasoningFamily

_VLLM = "https://docs.vllm.ai/en/stable/features/reasoning_outputs/"
_VLLM_CODE = "https://github.com/vllm-project/vllm"
_LLAMA_TEMPLATES = "https://github.com/ggml-org/llama.cpp/blob/master/models/templates/"
_APERTUS_USERS = ("<|system_start|>", "<|developer_start|>", "<|user_start|>")
_APERTUS = (*_APERTUS_USERS, "<|assistant_start|>", "<|assistant_end|>")
_SGLANG_CODE = "https://github.com/sgl-project/sglang"

OWN_MARKER_FAMILIES: tuple[ReasoningFamily, ...] = (
    ReasoningFamily(
        name="seed_oss",
        start="<seed:think>",
        end="</seed:think>",
        turn_boundaries=("<seed:bos>", "<seed:eos>"),
        user_turns=("<seed:bos>user", "<seed:bos>system"),
        implicit_ends=("<seed:tool_call>",),
        source=_LLAMA_TEMPLATES + "ByteDance-Seed-OSS.jinja",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="minimax_m3",
        aliases=("minimax-m3",),
        start="<mm:think>",
        end="</mm:think>",
        thinking_switch="thinking_mode",
        switch_on="enabled",
        switch_off="disabled",
        is_second_hand=True,
        note="Without `thinking_mode` the model decides; `enabled` lets the template write the start marker.",
        source=_VLLM_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # Tokenizer v13 and later (Magistral).
        name="mistral",
        aliases=("magistral",),
        start="[THINK]",
        end="[/THINK]",
        thinking_default=False,
        turn_boundaries=("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
        user_turns=("[INST]", "[SYSTEM_PROMPT]"),
        thinking_switch="reasoning_effort",
        switch_on="high",
        switch_off="none",
        note="Magistral has no switch: its system prompt asks for the thinking.",
        source="https://huggingface.co/mistralai/Magistral-Small-2509",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # Before K2.
        name="kimi",
        start="\u25c1think\u25b7",
        end="\u25c1/think\u25b7",
        is_second_hand=True,
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
        is_second_hand=True,
        source=_VLLM_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="cohere_command3",
        aliases=("cohere_command4",),
        start="<|START_THINKING|>",
        end="<|END_THINKING|>",
        template_opens=True,
        turn_boundaries=("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        content_wrappers=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
        thinking_switch="reasoning",
        implicit_ends=("<|START_ACTION|>",),
        user_turns=("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>"),
        is_second_hand=True,
        source=_VLLM_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="apertus2509",
        aliases=("apertus",),
        start="<|inner_prefix|>",
        end="<|inner_suffix|>",
        thinking_switch="enable_thinking",
        thinking_default=False,
        turn_boundaries=_APERTUS,
        user_turns=_APERTUS_USERS,
        is_second_hand=True,
        note="Tool calls stand inside the thinking.",
        source=_SGLANG_CODE,
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="longcat",
        start="<longcat_think>",
        end="</longcat_think>",
        template_opens=True,
        thinking_switch="enable_thinking",
        implicit_ends=("<longcat_tool_call>",),
        turn_boundaries=("<longcat_system>", "<longcat_user>", "<longcat_assistant>", "</longcat_s>"),
        user_turns=("<longcat_system>", "<longcat_user>"),
        source="https://huggingface.co/meituan-longcat/LongCat-Flash-Thinking",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # Before EXAONE 4.
        name="exaone_deep",
        start="<thought>",
        end="</thought>",
        template_opens=True,
        turn_boundaries=("[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"),
        user_turns=("[|system|]", "[|user|]"),
        source="https://huggingface.co/LGAI-EXAONE/EXAONE-Deep-32B",
        checked="2026-11-29",
    ),
)
