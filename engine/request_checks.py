"""What a request may be, before anything is made of it: its types, its switches, and what a batch of them has for each prompt.

Values of `SamplingParams` and of `GrammarSpec` are checked where they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast, get_args

from reasoning_parsers import OnUnknown, ReasoningGate, TokenMarkers

from .errors import InvalidRequestError
from .grammar import GrammarSpec
from .sampling_params import SamplingParams, is_encodable

MAX_PRIORITY = 1_000_000

T = TypeVar("T")


def check_request(
    request_id: object, sampling_params: object, *, on_unknown: object, thinking: object, tools_offered: object, priority: object
) -> None:
    """Refuse arguments of `LLMEngine.add_request` that are of another type.

    Raises:
        InvalidRequestError: With the parameter's name.
    """
    is_priority = isinstance(priority, int) and not isinstance(priority, bool) and abs(priority) <= MAX_PRIORITY
    checks = (
        ("request_id", request_id, isinstance(request_id, str), "a text"),
        (
            "sampling_params",
            sampling_params,
            sampling_params is None or isinstance(sampling_params, SamplingParams),
            "SamplingParams",
        ),
        ("on_unknown", on_unknown, on_unknown in get_args(OnUnknown), f"one of {', '.join(get_args(OnUnknown))}"),
        ("thinking", thinking, thinking is None or isinstance(thinking, bool), "a bool, or None"),
        ("tools_offered", tools_offered, isinstance(tools_offered, bool), "a bool"),
        ("priority", priority, is_priority, f"a whole number, at most {MAX_PRIORITY:,} from 0"),
    )
    for param, value, is_right, wanted in checks:
        if not is_right:
            raise InvalidRequestError(f"{param} must be {wanted}, not {value!r}", param=param)


def check_is_grammar(grammar: object) -> None:
    """Refuse what is no `GrammarSpec`: a schema as it stands, for one.

    Raises:
        InvalidRequestError: With what to write instead.
    """
    if not isinstance(grammar, GrammarSpec):
        raise InvalidRequestError(
            f"a grammar must be a GrammarSpec, not {type(grammar).__name__}",
            param="grammar",
            hint="make one: GrammarSpec.from_json_schema(schema), GrammarSpec.regex(pattern), ...",
        )


def check_prompt(prompt: object) -> None:
    """Refuse a prompt that only looks like one.

    Raises:
        InvalidRequestError: Bytes, whose values are no token ids; or a text with half a surrogate pair.
    """
    if isinstance(prompt, (bytes, bytearray)):
        raise InvalidRequestError("the prompt is bytes, neither a text nor token ids", param="prompt", hint="decode it")
    if isinstance(prompt, str) and not is_encodable(prompt):
        raise InvalidRequestError("the prompt holds half a surrogate pair, which is no text", param="prompt")


def check_transition(token_ids: Sequence[int], stop_token_ids: frozenset[int], markers: TokenMarkers | None) -> None:
    """Refuse a transition that would end the thinking, or the answer, itself.

    Raises:
        InvalidRequestError: It holds a stop id or an end marker.
    """
    if stop_token_ids.intersection(token_ids):
        raise InvalidRequestError("the transition holds a stop token, which would end the answer", param="transition")
    gate = ReasoningGate(markers, on_unknown="open")
    if markers is not None and gate.is_thinking:
        gate.commit(token_ids)
        if not gate.is_thinking:
            raise InvalidRequestError(
                "the transition holds an end of the thinking", param="transition", hint="leave it out: it is written behind it"
            )


def one_per_prompt(prompts: Sequence[str | Sequence[int]], values: T | Sequence[T], param: str) -> Sequence[T]:
    """Give a value for each prompt: the one for all, or its own.

    Raises:
        InvalidRequestError: There is not one for each; or `prompts` is a text, of which each letter would be a prompt.
    """
    if isinstance(prompts, (str, bytes)):
        raise InvalidRequestError("prompts must be a list of prompts, not one", param="prompts", hint="put it into a list")
    if not isinstance(values, (list, tuple)):
        return [cast(T, values)] * len(prompts)
    if len(values) != len(prompts):
        raise InvalidRequestError(
            f"{param}: {len(values)} for {len(prompts)} prompts", param=param, hint="give one for all, or one each"
        )
    return values
