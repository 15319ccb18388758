"""Build the JSON of replies: completions, chunks and model lists, as OpenAI's clients expect them.

Owns the shape only. What happened during the generation comes in as an `Outcome`, see backend.py.

Source: https://platform.openai.com/docs/api-reference/chat/object, and for `reasoning_content` the DeepSeek API,
https://api-docs.deepseek.com/guides/reasoning_model; `reasoning` is vLLM's spelling of the same text.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from ..result import TokenLogprob, Usage
from .backend import Outcome


class ReplyWriter:
    """Write all pieces of one reply, with the same id, time and model in each."""

    def __init__(
        self, model: str, *, include_reasoning: bool = True, include_usage: bool = False, include_logprobs: bool = False
    ) -> None:
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._include_reasoning = include_reasoning
        self._include_usage = include_usage
        self._include_logprobs = include_logprobs

    def completion(self, outcomes: Sequence[Outcome], usage: Usage) -> dict[str, Any]:
        """Give a whole reply; the report is of the one answer, or a list of those of all."""
        reports = [outcome.report() for outcome in outcomes]
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(index, outcome) for index, outcome in enumerate(outcomes)],
            "usage": usage_body(usage),
            "thinkgate": reports[0] if len(reports) == 1 else {"choices": reports},
        }

    def _choice(self, index: int, outcome: Outcome) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": outcome.content, "refusal": None}
        if self._include_reasoning:
            message["reasoning_content"] = message["reasoning"] = outcome.reasoning
        logprobs = logprobs_body(outcome.logprobs) if self._include_logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": outcome.finish_reason}

    def first_chunk(self, index: int = 0) -> dict[str, Any]:
        """Give the chunk that names the role."""
        return self._chunk(index, {"role": "assistant", "content": ""})

    def reasoning_chunk(self, text: str, index: int = 0) -> dict[str, Any] | None:
        """Give a chunk of thinking; None when the caller asked to hide it."""
        return self._chunk(index, {"reasoning_content": text, "reasoning": text}) if self._include_reasoning else None

    def content_chunk(self, text: str, logprobs: Sequence[TokenLogprob] = (), index: int = 0) -> dict[str, Any]:
        """Give a chunk of the answer."""
        return self._chunk(index, {"content": text}, logprobs=logprobs_body(logprobs) if self._include_logprobs else None)

    def closing_chunk(self, outcome: Outcome, index: int = 0) -> dict[str, Any]:
        """Give the chunk with the finish reason."""
        return self._chunk(index, {}, finish_reason=outcome.finish_reason) | {"thinkgate": outcome.report()}

    def usage_chunk(self, usage: Usage) -> dict[str, Any] | None:
        """Give the last chunk, which has the usage and no choices; None where it was not asked for."""
        if not self._include_usage:
            return None
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage_body(usage)}

    def _chunk(
        self, index: int, delta: dict[str, Any], *, logprobs: dict[str, Any] | None = None, finish_reason: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        chunk: dict[str, Any] = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        if self._include_usage:
            chunk["usage"] = None
        return chunk


def logprobs_body(logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    """Give log-probabilities as OpenAI has them."""
    return {"content": [_logprob_body(item) | {"top_logprobs": list(map(_logprob_body, item.top))} for item in logprobs]}


def _logprob_body(item: TokenLogprob) -> dict[str, Any]:
    return {"token": item.token, "logprob": item.logprob, "bytes": None if item.data is None else list(item.data)}


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
