"""One request to a remote model without any I/O: keyword arguments for litellm out, chunks in.

`remote.py` drives it, once with `await` and once without.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from reasoning_parsers import ReasoningFamily

from ..errors import InvalidRequestError, UpstreamUnavailableError
from ..result import FinishReason, Usage
from ..settings import GenerationSettings
from .base import ChatRequest, UpstreamDelta, UpstreamEnd, UpstreamItem
from .chunks import ChunkTap, get, read_delta, read_logprobs
from .content_splitter import ContentSplitter
from .remote_errors import get_status, refuses_schema, translate_error
from .schema_modes import CapabilityMemory, SchemaAsk, put_in_prompt, response_format

# What a reply is read by; another value would be read wrongly.
_RESERVED = frozenset(
    {"model", "messages", "stream", "stream_options", "response_format", "n", "base_url", "api_base", "api_key", "timeout"}
)

_SAMPLING = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
)  # fmt: skip

ThinkingControl = Literal["template", "effort", "none"]
BudgetControl = Literal["anthropic", "vllm", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a request goes, and what is known about that place before asking.

    Attributes:
        model: litellm model string.
        base_url: Address of the server, None = the provider's own.
        api_key: Its key, None = from the environment.
        family: Reasoning family of the model, None = it does not think.
        strictens: The provider's strict mode is wanted.
        thinking_control: How thinking is switched.
        budget_control: How a thinking budget is given.
    """

    model: str
    base_url: str | None
    api_key: str | None
    family: ReasoningFamily | None
    strictens: bool
    thinking_control: ThinkingControl
    budget_control: BudgetControl


class RemoteCall:
    """The state of one request."""

    def __init__(self, request: ChatRequest, target: Target, memory: CapabilityMemory) -> None:
        if reserved := sorted(_RESERVED & request.settings.extra.keys()):
            raise InvalidRequestError(f"{reserved[0]} cannot be given per call", param=reserved[0], hint="the client sets it")
        self._request = request
        self._target = target
        self._memory = memory
        self._asks: list[SchemaAsk | None] = [*memory.asks()] if request.schema is not None else [None]
        self._notes: list[str] = []
        self._refusals: list[str] = []
        self._finish_reason: FinishReason = "stop"
        self._usage = Usage()
        self._has_tool_calls = False
        self._has_received = False
        self._splitter = ContentSplitter(target.family, thinking=request.settings.thinking, has_schema=request.schema is not None)
        self.tap = ChunkTap()

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments of `litellm.completion` for the way of asking whose turn it is."""
        target, settings = self._target, self._request.settings
        self._notes = []
        arguments = {
            "model": target.model,
            "base_url": target.base_url,
            "api_key": target.api_key,
            "messages": self._messages(),
            "stream": True,
            "stream_options": {"include_usage": True},
            # Whole seconds: litellm keeps one HTTP client per timeout.
            "timeout": math.ceil(settings.timeout_s) if settings.timeout_s is not None else None,
            "max_retries": 0,
            "num_retries": 0,
            # What a provider does not take is an error to learn from, never something to leave out unsaid.
            "drop_params": False,
            "no-log": True,
            **self._sampling(settings),
            **settings.extra,
            **self._thinking(settings),
            **self._schema_arguments(),
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def step_down(self, error: Exception) -> Iterator[UpstreamDelta]:
        """After an error, go on to the next way of asking. Changes what `arguments` returns.

        Yields:
            Text that was held back, before the error is raised.

        Raises:
            MiddlewareError: The error is about something else, or no way is left.
        """
        if self._has_received or len(self._asks) == 1 or not refuses_schema(error):
            yield from _non_empty(self._splitter.finish())
            raise translate_error(error) from error
        refused = self._asks.pop(0)
        assert refused is not None
        self._refusals.append(f"the upstream refused the schema as {refused.mode} (status {get_status(error)})")

    def receive(self, chunk: Any) -> Iterator[UpstreamDelta]:
        """Take one litellm chunk."""
        self._has_received = True
        if usage := get(chunk, "usage"):
            self._usage = _read_usage(usage)
        for choice in get(chunk, "choices") or ():
            if get(choice, "index"):
                continue
            self._finish_reason = _read_finish_reason(get(choice, "finish_reason")) or self._finish_reason
            delta = get(choice, "delta")
            self._has_tool_calls |= bool(get(delta, "tool_calls"))
            yield from _non_empty(self._splitter.feed(*read_delta(delta)))
            if logprobs := read_logprobs(get(choice, "logprobs")):
                yield UpstreamDelta(logprobs=logprobs)

    def end(self) -> Iterator[UpstreamItem]:
        """Say that the reply is over. Remembers which way of asking worked.

        Raises:
            UpstreamUnavailableError: The stream broke off without a word.
        """
        was_open = self._splitter.is_reasoning_open
        yield from _non_empty(self._splitter.finish())
        # Text that a marker might have settled is taken for thinking where the token limit came before one.
        is_open = was_open if self._finish_reason == "length" else self._splitter.is_reasoning_open
        if self.tap.is_cut_off:
            raise UpstreamUnavailableError("the stream ended before a finish_reason came", retryable=True)
        ask = self._asks[0]
        if ask is not None and self._refusals:
            self._memory.note_accepted(ask.mode)
        usage = replace(self._usage, reasoning_tokens=None) if self.tap.lacks_reasoning_count else self._usage
        if self.tap.lacks_usage:
            self._notes.append("the upstream did not count tokens; the counts are an estimate")
        if self._has_tool_calls:
            self._notes.append("the upstream sent tool calls; they are not part of a result")
        is_native = ask is not None and ask.mode == "native"
        if is_native and self._memory.ignores_schema:
            self._notes.append("the upstream was sent the schema, and has been seen not to keep to it")
        yield UpstreamEnd(
            finish_reason=self._finish_reason,
            usage=usage,
            enforcement="upstream" if is_native and not self._memory.ignores_schema else "validated",
            strategy=ask.mode if ask is not None else "text",
            notes=(*self._refusals, *self._notes, *self._splitter.notes),
            is_reasoning_open=is_open,
            refusal=self.tap.refusal or None,
        )

    def _messages(self) -> list[dict[str, Any]]:
        ask = self._asks[0]
        messages = list(self._request.messages)
        if ask is not None and ask.in_prompt:
            messages = put_in_prompt(messages, json.dumps(self._request.schema, ensure_ascii=False))
        return [dict(message) for message in messages]

    def _schema_arguments(self) -> dict[str, Any]:
        ask = self._asks[0]
        if ask is None or self._request.schema is None:
            return {}
        wanted = response_format(self._request.schema, ask.mode, strictens=self._target.strictens)
        if wanted is None:
            return {}
        # Unknown is not unsupported: litellm's tables may not stop the field from being sent.
        return {"response_format": wanted, "allowed_openai_params": ["response_format"]}

    def _sampling(self, settings: GenerationSettings) -> dict[str, Any]:
        if settings.on_unknown != "first_token":
            self._notes.append("on_unknown has no meaning for a remote model")
        if settings.reserve is not None:
            self._notes.append("a remote server keeps no tokens back for the answer; reserve was not sent")
        arguments = {name: getattr(settings, name) for name in _SAMPLING}
        if settings.stop_texts:
            arguments["stop"] = list(settings.stop_texts)
        if settings.logit_bias is not None:
            arguments["logit_bias"] = {str(token_id): value for token_id, value in settings.logit_bias.items()}
        if settings.logprobs is not None:
            arguments |= {"logprobs": True, "top_logprobs": settings.logprobs}
        return arguments

    def _thinking(self, settings: GenerationSettings) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        body: dict[str, Any] = {}
        if settings.thinking is not None:
            if self._target.thinking_control == "template":
                switch = self._target.family.template_kwargs(settings.thinking) if self._target.family is not None else {}
                body["chat_template_kwargs"] = switch or {"enable_thinking": settings.thinking}
            elif self._target.thinking_control == "effort":
                arguments["reasoning_effort"] = "medium" if settings.thinking else "none"
            else:
                self._notes.append("this provider has no switch for thinking; it was not sent")
        if settings.max_reasoning_tokens is not None:
            if self._target.budget_control == "anthropic":
                arguments["thinking"] = {"type": "enabled", "budget_tokens": settings.max_reasoning_tokens}
                arguments.pop("reasoning_effort", None)
            elif self._target.budget_control == "vllm":
                body["thinking_token_budget"] = settings.max_reasoning_tokens
            else:
                self._notes.append("this provider has no thinking budget; max_reasoning_tokens was not sent")
        body |= settings.extra.get("extra_body") or {}
        return {**arguments, "extra_body": body} if body else arguments


def _non_empty(delta: UpstreamDelta) -> Iterator[UpstreamDelta]:
    if delta.reasoning or delta.content:
        yield delta


def _read_finish_reason(reason: Any) -> FinishReason | None:
    if reason is None:
        return None
    known = {"length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter", "function_call": "tool_calls"}
    return cast(FinishReason, known.get(reason, "stop"))


def _read_usage(usage: Any) -> Usage:
    details = get(usage, "completion_tokens_details")
    reasoning = get(details, "reasoning_tokens") if details is not None else get(usage, "reasoning_tokens")
    return Usage(get(usage, "prompt_tokens") or 0, get(usage, "completion_tokens") or 0, reasoning)
