"""Models behind HTTP, through litellm.

What is sent and how replies are read is decided in `remote_call.py`; here is the I/O, once with `await` and once without.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any

from reasoning_parsers import FamilyRegistry, ReasoningFamily, ReasoningParserError

from ..errors import InvalidRequestError, UnknownModelError, UnsupportedSchemaError
from ..text_types import can_check
from .base import ChatRequest, UpstreamItem, UpstreamTraits
from .content_splitter import find_family
from .litellm_loader import load_litellm
from .remote_call import BudgetControl, RemoteCall, Target, ThinkingControl
from .schema_modes import CapabilityMemory, SchemaMode, Strategy

_SELF_HOSTED = frozenset({"hosted_vllm", "vllm", "custom_openai", "lm_studio", "llamafile", "openai_like", "xinference"})
_ANTHROPIC_LIKE = frozenset({"anthropic", "bedrock", "vertex_ai", "gemini"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFacts:
    """What is known of a remote model by its name.

    Attributes:
        provider: litellm's name of the provider.
        family: Reasoning family whose markers are looked for where the server does not separate the thinking itself.
        schema_mode: How a schema is asked for first.
        fallbacks: How it is asked for where the server refuses that.
        thinking_control: How thinking is switched: a variable of the chat template, an effort, or not at all.
        budget_control: How `max_reasoning_tokens` reaches the server.
    """

    provider: str
    family: ReasoningFamily | None
    schema_mode: SchemaMode
    fallbacks: tuple[SchemaMode, ...]
    thinking_control: ThinkingControl
    budget_control: BudgetControl


class RemoteUpstream:
    """One model on one server. Asks nothing of the server before the first request."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        family: str = "auto",
        families: FamilyRegistry | None = None,
        strategy: Strategy = "auto",
    ) -> None:
        """Look the family up.

        Raises:
            InvalidRequestError: There is no such family.
        """
        try:
            self._family = find_family(model, family, families)
        except ReasoningParserError as error:
            raise InvalidRequestError(str(error), param="family") from error
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._strategy = strategy
        self._lock = threading.Lock()
        self._prepared: tuple[Target, CapabilityMemory] | None = None

    @property
    def traits(self) -> UpstreamTraits:
        """Roots are wrapped; answers may stand in a fence."""
        return UpstreamTraits(wraps_root=True, extracts_answer=True)

    def stream(self, request: ChatRequest) -> Generator[UpstreamItem, None, None]:
        """See `Upstream.stream`."""
        call = self._call(request)
        while True:
            try:
                with closing(load_litellm().completion(**call.arguments())) as response:
                    call.tap.install(response)
                    for chunk in response:
                        yield from call.receive(chunk)
                break
            except Exception as error:  # litellm raises classes of four libraries
                yield from call.step_down(error)
        yield from call.end()

    async def astream(self, request: ChatRequest) -> AsyncGenerator[UpstreamItem, None]:
        """See `Upstream.astream`."""
        call = await asyncio.to_thread(self._call, request)
        while True:
            try:
                async with aclosing(await load_litellm().acompletion(**call.arguments())) as response:
                    call.tap.install(response)
                    async for chunk in response:
                        for delta in call.receive(chunk):
                            yield delta
                break
            except Exception as error:  # litellm raises classes of four libraries
                for delta in call.step_down(error):
                    yield delta
        for item in call.end():
            yield item

    def report_invalid(self, request: ChatRequest) -> None:
        """Put the schema into the prompt from now on: the server does not keep to it."""
        if request.schema is not None and self._prepared is not None:
            self._prepared[1].note_ignored()

    def load(self) -> None:
        """Import litellm and look the model up in its tables."""
        self._prepare()

    def check_health(self) -> None:
        """Nothing is known of a server before it is asked."""

    def close(self) -> None:
        """Nothing is held: connections belong to litellm."""

    def describe(self) -> RemoteFacts:
        """Tell what is known of the model before the server is asked anything.

        Raises:
            UnknownModelError: litellm knows no such provider.
        """
        target, memory = self._prepare()
        return RemoteFacts(
            provider=self._find_provider(load_litellm()),
            family=self._family,
            schema_mode=memory.asks()[0].mode,
            fallbacks=tuple(ask.mode for ask in memory.asks()[1:]),
            thinking_control=target.thinking_control,
            budget_control=target.budget_control,
        )

    def _call(self, request: ChatRequest) -> RemoteCall:
        if request.text_type is not None and not can_check(request.text_type):
            kind = type(request.text_type).__name__
            raise UnsupportedSchemaError(
                f"the answer of a remote model cannot be checked against this {kind}",
                hint="use a local model, a JSON schema, a Choice or a plainer Regex",
            )
        return RemoteCall(request, *self._prepare())

    def _prepare(self) -> tuple[Target, CapabilityMemory]:
        with self._lock:
            if self._prepared is None:
                target = self._find_target(load_litellm())
                self._prepared = target, CapabilityMemory(self._first_mode(load_litellm()))
            return self._prepared

    def _find_target(self, litellm: Any) -> Target:
        provider = self._find_provider(litellm)
        is_hosted = provider in _SELF_HOSTED or (provider == "openai" and self._base_url is not None)
        return Target(
            model=self._model,
            base_url=self._base_url,
            api_key=self._api_key,
            family=self._family,
            strictens=provider in ("openai", "azure") and not is_hosted,
            thinking_control="template" if is_hosted else _thinking_control(litellm, self._model, provider),
            budget_control=_budget_control(provider),
        )

    def _find_provider(self, litellm: Any) -> str:
        try:
            return str(litellm.get_llm_provider(self._model, api_base=self._base_url)[1])
        except Exception as error:  # litellm has one class for all bad requests
            first_line = str(getattr(error, "message", error)).splitlines()[0]
            raise UnknownModelError(first_line, hint="<provider>/<model> as in openai/gpt-5, or local/<model>") from error

    def _first_mode(self, litellm: Any) -> SchemaMode:
        if self._strategy != "auto":
            return self._strategy
        return "native" if _supports_schema(litellm, self._model) else "prompted"


def _supports_schema(litellm: Any, model: str) -> bool:
    """Whether to send a schema. A model that litellm's table does not have is not a model that cannot do it."""
    if litellm.supports_response_schema(model=model):
        return True
    try:
        known = litellm.get_model_info(model).get("supports_response_schema")
    except Exception:  # litellm raises a bare Exception subclass for models it does not know
        return True
    return known is None and "response_format" in (litellm.get_supported_openai_params(model) or ())


def _thinking_control(litellm: Any, model: str, provider: str) -> ThinkingControl:
    name = model.removeprefix(f"{provider}/")
    known = litellm.get_supported_openai_params(model=name, custom_llm_provider=provider) or ()
    return "effort" if "reasoning_effort" in known else "none"


def _budget_control(provider: str) -> BudgetControl:
    if provider in _ANTHROPIC_LIKE:
        return "anthropic"
    return "vllm" if provider == "hosted_vllm" else "none"
