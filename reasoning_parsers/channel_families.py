"""Rows of the families whose output is a row of messages with headers, data only. See `families.py` and `channels.py`."""

from __future__ import annotations

from .channels import Channels
from .family import ReasoningFamily

_VLLM_CODE = "https://github.com/vllm-project/vllm"

CHANNEL_FAMILIES: tuple[ReasoningFamily, ...] = (
    ReasoningFamily(
        name="gpt_oss",
        aliases=("openai_gptoss",),
        format="channels",
        start="<|channel|>analysis<|message|>",
        end="<|channel|>final<|message|>",
        channels=Channels(
            openers=("<|channel|>",),
            header_end="<|message|>",
            closers=("<|end|>", "<|return|>", "<|call|>"),
            reasoning=("analysis",),
            content=("final",),
            preamble=("commentary",),
            recipient="to=",
            frames=("<|start|>",),
            next_frame="<|start|>assistant",
        ),
        turn_boundaries=("<|start|>",),
        user_turns=("<|start|>system", "<|start|>developer", "<|start|>user", "<|start|>functions"),
        source="https://cookbook.openai.com/articles/openai-harmony",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        # The template opens the thinking, or the answer where thinking is switched off.
        name="kimi_k3",
        format="channels",
        start="<|open|>think<|sep|>",
        end="<|open|>response<|sep|>",
        channels=Channels(
            openers=("<|open|>",),
            header_end="<|sep|>",
            closers=("<|close|>think<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"),
            content_closers=("<|close|>response<|sep|>",),
            reasoning=("think",),
            content=("response",),
        ),
        template_opens=True,
        thinking_switch="thinking",
        other_switches=("enable_thinking",),
        turn_boundaries=("<|end_of_msg|>",),
        user_turns=tuple(f'<|end_of_msg|><|open|>message role="{role}"' for role in ("system", "user", "tool")),
        source="https://github.com/ggml-org/llama.cpp/blob/master/models/templates/Kimi-K3.jinja",
        checked="2026-11-29",
    ),
    ReasoningFamily(
        name="inkling",
        format="channels",
        start="<|content_thinking|>",
        end="<|content_text|>",
        channels=Channels(
            openers=(
                "<|content_thinking|>",
                "<|content_text|>",
                "<|content_invoke_tool_json|>",
                "<|content_invoke_tool_text|>",
                "<|content_tool_error|>",
            ),
            closers=("<|end_message|>", "<|content_model_end_sampling|>"),
            reasoning=("<|content_thinking|>",),
            content=("<|content_text|>",),
            frames=("<|message_model|>",),
            next_frame="<|message_model|>",
        ),
        turn_boundaries=("<|message_model|>",),
        source=_VLLM_CODE,
        checked="2026-11-29",
        is_second_hand=True,
    ),
    ReasoningFamily(
        name="muse",
        aliases=("musespark1x", "muse_glimmer"),
        format="channels",
        start="to=self<|message|>",
        end="to=user<|message|>",
        channels=Channels(
            openers=("to=",),
            header_end="<|message|>",
            closers=("<|eom|>", "<|eot|>"),
            reasoning=("self",),
            content=("user",),
            frames=("<|start|>",),
            next_frame="<|start|>assistant ",
            plain_openers=True,
        ),
        turn_boundaries=("<|start|>",),
        user_turns=("<|start|>system", "<|start|>user"),
        source=_VLLM_CODE,
        checked="2026-11-29",
        is_second_hand=True,
    ),
)
