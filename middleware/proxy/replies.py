"""Build the JSON of replies: completions, chunks and model lists, as OpenAI's clients expect them.

Owns the shape only. What happened during the generation comes in as an `Outcome`, see backend.py.

Source: https://platform.openai.com/docs/api-reference/chat/object, and for `reasoning_content` the DeepSeek API,
https://api-docs.deepseek.com/guides/reasoning_model; `reasoning` is vLLM's spelling of the same text.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from ..result import Usage
from .backend import Outcome


class ReplyWriter:
    """Write all pieces of one reply, with the same id, time and model in each."""

    def __init__(self, model: str, *, include_reasoning: bool = True, include_usage: bool = False) -> None:
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._include_reasoning = include_reasoning
        self._include_usage = include_usage

    def completion(self, outcome: Outcome) -> dict[str, Any]:
        """Give a whole reply."""
        message: dict[str, Any] = {"role": "assistant", "content": outcome.content, "refusal": None}
        if self._include_reasoning:
            message["reasoning_content"] = message["reasoning"] = outcome.reasoning
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": outcome.finish_reason}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_body(outcome.usage),
            "thinkgate": outcome.report(),
        }

    def first_chunk(self) -> dict[str, Any]:
        """Give the chunk that names the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def reasoning_chunk(self, text: str) -> dict[str, Any] | None:
        """Give a chunk of thinking; None when the caller asked to hide it."""
        return self._chunk({"reasoning_content": text, "reasoning": text}) if self._include_reasoning else None

    def content_chunk(self, text: str) -> dict[str, Any]:
        """Give a chunk of the answer."""
        return self._chunk({"content": text})

    def closing_chunks(self, outcome: Outcome) -> list[dict[str, Any]]:
        """Give the chunk with the finish reason and, where asked for, the one with the usage and no choices."""
        last = self._chunk({}, finish_reason=outcome.finish_reason) | {"thinkgate": outcome.report()}
        if not self._include_usage:
            return [last]
        usage = {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage_body(outcome.usage)}
        return [last, usage]

    def _chunk(self, delta: dict[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk: dict[str, Any] = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def usage_body(usage: Usage) -> dict[str, Any]:
    """Give the token counts; thinking counts as completion, as OpenAI counts it. Counts that nobody knows are left out."""
    details = None if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "completion_tokens_details": details,
    }


def model_body(model_id: str, *, created: int) -> dict[str, Any]:
    """Give one entry of the model list."""
    return {"id": model_id, "object": "model", "created": created, "owned_by": "thinkgate"}
