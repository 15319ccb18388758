"""Read a chat completion request off the wire: JSON bytes in, a checked `CompletionCall` out.

Owns which request fields are honoured, which are accepted because they cannot change an answer, and which are refused. A
field is never dropped in silence when it could change what comes back. It knows nothing of models or of HTTP. The errors
that it raises are `ApiError`s, see errors.py.

Format: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..settings import MAX_LOGPROBS
from ..text_types import Choice, Grammar, Regex, StructuralTag, TextType
from .errors import SCHEMA_PARAM, ApiError, invalid_parameter

HARMLESS_FIELDS = frozenset(
    {
        "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user",
    }
)  # fmt: skip
"""Accepted and ignored: bookkeeping for a provider, without effect on the answer."""

NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
}
"""Fields of the format that are not supported yet: accepted only with a value that asks for nothing (or null)."""

JSON_OBJECT_SCHEMA: dict[str, Any] = {"type": "object"}

MAX_INT = 2**63 - 1
MAX_N = 16
"""Answers to one request; each is a request of its own to the model."""


class _WireModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _TextPart(_WireModel):
    type: Literal["text"]
    text: str


class _Message(_WireModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_TextPart] | None = None
    name: str | None = None
    # Thinking of earlier turns: chat templates drop it, so do we. Accepted because clients echo whole messages.
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Any] | None = None
    refusal: None = None
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None
    tool_calls: list[Any] | None = Field(default=None, max_length=0)


class _JsonSchemaFormat(_WireModel):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class _TextFormat(_WireModel):
    type: Literal["text"]


class _JsonObjectFormat(_WireModel):
    type: Literal["json_object"]
    # The word of llama.cpp and others for a schema.
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class _SchemaFormat(_WireModel):
    type: Literal["json_schema"]
    json_schema: _JsonSchemaFormat


class _StructuredOutputs(_WireModel):
    """vLLM's word for every kind of constraint; exactly one of them is given."""

    json_: dict[str, Any] | str | None = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    structural_tag: dict[str, Any] | str | None = None


class _StreamOptions(_WireModel):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _TemplateSwitches(_WireModel):
    enable_thinking: bool | None = None
    thinking: bool | None = None


class _Body(_WireModel):
    model: str
    messages: Annotated[list[_Message], Field(min_length=1)]
    response_format: Annotated[_TextFormat | _JsonObjectFormat | _SchemaFormat, Field(discriminator="type")] | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_INT)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MAX_INT)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    # As in vLLM -1 stands for no limit, of the thinking too.
    top_k: int | None = Field(default=None, ge=-1, le=MAX_INT)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-MAX_INT - 1, le=MAX_INT)
    n: int | None = Field(default=None, ge=1, le=MAX_N)
    stop: str | list[str] | None = None
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0)
    # Ids are the keys of an object, and so texts.
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: _TemplateSwitches | None = None
    max_reasoning_tokens: int | None = Field(default=None, ge=0, le=MAX_INT)
    thinking_token_budget: int | None = Field(default=None, ge=-1, le=MAX_INT)
    include_reasoning: bool | None = None
    structured_outputs: _StructuredOutputs | None = None
    # The older names of the same.
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """A checked request.

    Attributes:
        schema: JSON schema of the answer; None asks for text.
        text_type: What the text is bound to; None asks for free text, or for JSON.
        thinking: False switches the thinking off, True on, None leaves the model's default.
        reasoning_effort: OpenAI's word for how much to think, where one was given; models without levels read it as on or off.
        settings: Generation settings that the caller gave; what is absent is left to the defaults of the client.
        include_reasoning: False hides the thinking from the reply; the model still thinks.
        n: Answers that are wanted.
        output_param: Field that asked for the schema or the constraint.
    """

    model: str
    messages: list[dict[str, str]]
    schema: dict[str, Any] | None = None
    text_type: TextType | None = None
    thinking: bool | None = None
    reasoning_effort: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    is_streamed: bool = False
    include_usage: bool = False
    include_reasoning: bool = True
    n: int = 1
    output_param: str = SCHEMA_PARAM

    @property
    def wants_logprobs(self) -> bool:
        """Whether the reply has log-probabilities."""
        return "logprobs" in self.settings

    @property
    def output_type(self) -> dict[str, Any] | TextType | None:
        """What the client is asked for."""
        return self.schema if self.text_type is None else self.text_type


def read_call(data: bytes) -> CompletionCall:
    """Parse and check the body of a chat completion request.

    Raises:
        ApiError: 400, with the field at fault in `param`.
    """
    raw = _parse_json(data)
    if not isinstance(raw, dict):
        raise invalid_parameter(None, "the request body must be a JSON object")
    _refuse_unsupported(raw)
    known = {name: value for name, value in raw.items() if name in _Body.model_fields}
    try:
        body = _Body.model_validate(known)
    except ValidationError as error:
        _raise_worst_problem(error)
    if body.stream_options is not None and not body.stream:
        raise invalid_parameter("stream_options", "stream_options is only allowed with stream: true")
    if body.top_logprobs and not body.logprobs:
        raise invalid_parameter("top_logprobs", "top_logprobs is only allowed with logprobs: true")
    param, schema, text_type = _wanted_output(body)
    return CompletionCall(
        model=body.model,
        messages=[_plain_message(message) for message in body.messages],
        schema=schema,
        text_type=text_type,
        thinking=_wanted_thinking(body),
        reasoning_effort=body.reasoning_effort,
        settings=_given_settings(body),
        is_streamed=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        include_reasoning=body.include_reasoning is not False,
        n=body.n or 1,
        output_param=param,
    )


def _parse_json(data: bytes) -> object:
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant)
        # A lone surrogate is legal in JSON's escapes but cannot be encoded, so no tokenizer or upstream can take it.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise invalid_parameter(None, "the request body is nested too deeply") from None
    except ValueError as error:
        reason = "it holds a lone surrogate" if isinstance(error, UnicodeEncodeError) else str(error)[:200]
        raise invalid_parameter(None, f"the request body is not valid JSON: {reason}") from None
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_unsupported(raw: dict[str, Any]) -> None:
    for name, value in raw.items():
        if value is None or name in _Body.model_fields or name in HARMLESS_FIELDS:
            continue
        if name not in NEUTRAL_VALUES:
            raise ApiError(
                400, f"unknown request field {name[:100]!r}{_guess(name, _FIELDS)}", param=name[:100], code="unknown_parameter"
            )
        if not any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in NEUTRAL_VALUES[name]):
            message = f"{name} is not supported with the value {json.dumps(value)[:60]}"
            raise ApiError(400, message, param=name, code="unsupported_parameter")


_FIELDS = frozenset({*_Body.model_fields, *HARMLESS_FIELDS, *NEUTRAL_VALUES})


_NESTED_FIELDS = frozenset(
    field.alias or name
    for model in (
        _TextPart, _Message, _JsonSchemaFormat, _SchemaFormat, _StructuredOutputs, _StreamOptions, _TemplateSwitches,
    )
    for name, field in model.model_fields.items()
)  # fmt: skip


def _guess(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _raise_worst_problem(error: ValidationError) -> NoReturn:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    # Of the branches of a union, the one that got furthest is the one that was meant.
    problem = max(problems, key=lambda found: len(found["loc"]))
    param = _param_name([part for part in problem["loc"] if part not in _UNION_BRANCHES])
    if problem["type"] == "extra_forbidden":
        name = str(problem["loc"][-1])
        raise ApiError(400, f"unknown field {param!r}{_guess(name, _NESTED_FIELDS)}", param=param, code="unknown_parameter")
    if problem["type"] == "union_tag_not_found":
        raise invalid_parameter(f"{param}.type", f"{param}.type: Field required")
    raise invalid_parameter(param, f"{param}: {problem['msg']}")


_UNION_BRANCHES = frozenset({"str", "list[_TextPart]", "list[str]"})
"""What pydantic puts into a location for a branch of a union; no names of fields."""


def _param_name(location: list[int | str]) -> str:
    if location[0] == "response_format" and len(location) > 1:
        # The second part repeats the type that chose the branch.
        del location[1]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _plain_message(message: _Message) -> dict[str, str]:
    content = message.content
    if isinstance(content, list):
        content = "".join(part.text for part in content)
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": content or ""}


def _wanted_output(body: _Body) -> tuple[str, dict[str, Any] | None, TextType | None]:
    """Give the field that asks for it, and the schema or what the text is bound to.

    Raises:
        ApiError: More than one constraint, or an empty one.
    """
    wanted = _text_constraints(body)
    schema = _wanted_schema(body)
    if schema is not None:
        wanted["response_format"] = schema
    if len(wanted) > 1:
        raise invalid_parameter(list(wanted)[1], f"only one of {' and '.join(wanted)} can bind an answer")
    for param, value in wanted.items():
        return SCHEMA_PARAM if param == "response_format" else param, *_read_constraint(param, value)
    return SCHEMA_PARAM, None, None


def _text_constraints(body: _Body) -> dict[str, Any]:
    """Everything that was asked for besides `response_format`, by the name of its field."""
    given = {name: getattr(body, name) for name in ("guided_json", "guided_regex", "guided_choice", "guided_grammar")}
    outputs = body.structured_outputs
    if outputs is not None:
        given |= {f"structured_outputs.{name.rstrip('_')}": getattr(outputs, name) for name in type(outputs).model_fields}
    wanted = {name: value for name, value in given.items() if value is not None}
    if outputs is not None and not any(name.startswith("structured_outputs") for name in wanted):
        raise invalid_parameter("structured_outputs", "structured_outputs names no constraint")
    return wanted


def _read_constraint(param: str, value: Any) -> tuple[dict[str, Any] | None, TextType | None]:
    name = param.rpartition(".")[2].removeprefix("guided_")
    if name != "response_format" and (not value or (isinstance(value, str) and not value.strip())):
        raise invalid_parameter(param, f"{param} is empty")
    match name:
        case "regex":
            return None, Regex(value)
        case "choice":
            return None, Choice(tuple(value))
        case "grammar":
            return None, Grammar(value)
        case "structural_tag":
            return None, StructuralTag(_read_object(param, value))
        case "json_object":
            return JSON_OBJECT_SCHEMA, None
        case _:
            return _read_object(param, value), None


def _read_object(param: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise invalid_parameter(param, f"{param} is not JSON") from None
    if not isinstance(value, dict):
        raise invalid_parameter(param, f"{param} must be an object")
    return value


def _wanted_schema(body: _Body) -> dict[str, Any] | None:
    match body.response_format:
        case _SchemaFormat(json_schema=wanted):
            return wanted.schema_
        case _JsonObjectFormat(schema_=wanted_schema):
            return JSON_OBJECT_SCHEMA if wanted_schema is None else wanted_schema
        case _:
            return None


def _wanted_thinking(body: _Body) -> bool | None:
    switches = body.chat_template_kwargs
    if switches is not None:
        chosen = switches.enable_thinking if switches.enable_thinking is not None else switches.thinking
        if chosen is not None:
            return chosen
    if body.reasoning_effort is None:
        return None
    return body.reasoning_effort != "none"


def _given_settings(body: _Body) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "max_tokens": body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k == -1 else body.top_k,
        "min_p": body.min_p,
        "seed": body.seed,
        # What asks for nothing is left out: clients send it by default, and some providers take none of it.
        "stop": None if body.stop == [] else body.stop,
        "presence_penalty": body.presence_penalty or None,
        "frequency_penalty": body.frequency_penalty or None,
        "repetition_penalty": None if body.repetition_penalty == 1 else body.repetition_penalty,
        "logit_bias": _token_bias(body.logit_bias),
        "logprobs": (body.top_logprobs or 0) if body.logprobs else None,
        "max_reasoning_tokens": _thinking_budget(body),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _thinking_budget(body: _Body) -> int | None:
    if body.max_reasoning_tokens is not None:
        return body.max_reasoning_tokens
    return None if body.thinking_token_budget == -1 else body.thinking_token_budget


_MAX_ID_DIGITS = 18


def _token_bias(bias: dict[str, float] | None) -> dict[int, float] | None:
    for token_id in bias or ():
        if not (token_id.isascii() and token_id.isdecimal() and len(token_id) <= _MAX_ID_DIGITS):
            raise invalid_parameter("logit_bias", f"logit_bias: {token_id[:60]!r} is no token id")
    return {int(token_id): value for token_id, value in bias.items()} if bias else None
