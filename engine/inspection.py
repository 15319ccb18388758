"""Look at a tokenizer without its model: which family it is of and why, and where the gate would open for its prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from reasoning_parsers import (
    Detection,
    FamilyRegistry,
    PromptState,
    ReasoningFamily,
    ReasoningGate,
    TokenMarkers,
)

from .chat import ChatFormat
from .errors import EngineError, ModelLoadError
from .hub import check_reachable
from .model_loader import resolve_model

QUESTION = "What is 6 times 7?"
_THOUGHT = "6 times 7 is 42."
_ANSWER = '{"answer":42}'
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json", "vocab.json")


@dataclass(frozen=True, slots=True)
class MarkerFact:
    """A text of the family and its ids here.

    Attributes:
        role: `start`, `end`, `implicit end`, `turn` or `user turn`.
        text: The text.
        token_ids: Its ids as the tokenizer writes it; one id where it is a token of its own.
    """

    role: str
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """Where the gate opens in an example: a thought, the end marker and a JSON object, as the tokenizer writes them.

    Attributes:
        token_id: The token with which the thinking ends.
        token: Its text.
        leftover: What that token holds of the answer; "" as a rule.
    """

    token_id: int
    token: str
    leftover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFact:
    """A prompt for one question.

    Attributes:
        thinking: The request's switch; None where it is not given.
        state: What the prompt says of the thinking.
        variables: What the switch gives to the chat template.
        tail: The prompt after the question.
        differs_before: Whether the prompt differs from the default one before the question too.
        opening: Where the gate would open; None where the answer is constrained from its first token on.
        problem: Why there is no such prompt, "" as a rule.
    """

    thinking: bool | None = None
    state: PromptState | None = None
    variables: Mapping[str, bool | str] = field(default_factory=dict)
    tail: str = ""
    differs_before: bool = False
    opening: Opening | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What is known of a tokenizer.

    Attributes:
        source: Its folder or hub id.
        tokenizer: Name of its class.
        num_tokens: Size of its vocabulary, added tokens included.
        model_type: The `model_type` of the model's configuration, None where there is none.
        detection: The family, and why; None where the caller said that the model does not think.
        markers: The family's texts with their ids.
        prompts: One prompt by default, one with thinking on, one with it off.
    """

    source: str
    tokenizer: str
    num_tokens: int
    model_type: str | None
    detection: Detection | None
    markers: tuple[MarkerFact, ...]
    prompts: tuple[PromptFact, ...]


def inspect_tokenizer(name: str, *, family: str = "auto", families: FamilyRegistry | None = None) -> Inspection:
    """Look at a tokenizer by the name, folder or hub id of its model, or by a file of it. Loads no weights.

    Raises:
        UnknownModelError: There is no such name or folder.
        ModelLoadError: There is no tokenizer in it, or it cannot be loaded, or it has not the markers of the family.
        InvalidRequestError: There is no such family.
    """
    source = _find_source(name)
    tokenizer, config = _load(source)
    chat = ChatFormat(tokenizer, family, families=families, model_config={**config, "_name_or_path": name})
    return Inspection(
        source=source,
        tokenizer=type(tokenizer).__name__,
        num_tokens=len(tokenizer),
        model_type=config.get("model_type"),
        detection=chat.detection,
        markers=() if chat.family is None else tuple(_markers(tokenizer, chat.family)),
        prompts=_prompts(chat),
    )


def _find_source(name: str) -> str:
    path = Path(name).expanduser()
    source = str(path.parent) if path.is_file() else resolve_model(name)
    folder = Path(source)
    if folder.is_dir() and not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        raise ModelLoadError(f"no tokenizer in {source}", hint=f"it should hold one of {', '.join(_TOKENIZER_FILES)}")
    return source


def _load(source: str) -> tuple[PreTrainedTokenizerBase, dict[str, Any]]:
    check_reachable(source)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except Exception as error:  # transformers raises OSError, ValueError, ImportError and hub errors alike
        hint = "are its files whole?" if Path(source).is_dir() else "is the id right, and is the model hub reached?"
        reason = str(error).strip().partition("\n")[0]
        raise ModelLoadError(f"cannot load the tokenizer of {source!r}: {reason}", hint=hint) from error
    try:
        config = dict(PreTrainedConfig.get_config_dict(source)[0])
    except Exception:  # a tokenizer need not have a model beside it
        config = {}
    return tokenizer, config


def _markers(tokenizer: PreTrainedTokenizerBase, family: ReasoningFamily) -> list[MarkerFact]:
    texts = {"start": family.starts, "end": family.ends, "implicit end": family.implicit_ends}
    texts |= {"turn": family.turn_boundaries, "user turn": family.user_turns}
    return [
        MarkerFact(role, text, tuple(tokenizer.encode(text, add_special_tokens=False)))
        for role, spelled in texts.items()
        for text in spelled
    ]


def _prompts(chat: ChatFormat) -> tuple[PromptFact, ...]:
    if not chat.tokenizer.chat_template:
        gate = ReasoningGate(chat.markers)
        return (_judge(chat, gate, PromptFact(problem="there is no chat template, so prompts have to be rendered elsewhere")),)
    default = _prompt(chat, None, None)
    if chat.family is None:
        return (default,)
    head = _head(chat, None)
    return (default, _prompt(chat, True, head), _prompt(chat, False, head))


def _prompt(chat: ChatFormat, thinking: bool | None, default_head: str | None) -> PromptFact:
    try:
        prompt_ids = chat.render([{"role": "user", "content": QUESTION}], thinking=thinking)
        variables = {} if thinking is None else chat.switch(thinking)
        head = _head(chat, thinking)
    except EngineError as error:
        return PromptFact(thinking=thinking, problem=str(error))
    text = str(chat.tokenizer.decode(prompt_ids))
    gate = ReasoningGate(chat.markers, thinking_enabled=thinking)
    gate.start(prompt_ids)
    fact = PromptFact(
        thinking=thinking,
        variables=variables,
        tail=text[text.rfind(QUESTION) + len(QUESTION) :] if QUESTION in text else text,
        differs_before=default_head is not None and head != default_head,
    )
    return _judge(chat, gate, fact)


def _judge(chat: ChatFormat, gate: ReasoningGate, fact: PromptFact) -> PromptFact:
    opening = None if chat.markers is None else _find_opening(chat, chat.markers, gate)
    return dataclasses.replace(fact, state=gate.prompt_state, opening=opening)


def _head(chat: ChatFormat, thinking: bool | None) -> str:
    """The prompt before the question."""
    prompt_ids = chat.render([{"role": "user", "content": QUESTION}], thinking=thinking)
    return str(chat.tokenizer.decode(prompt_ids)).partition(QUESTION)[0]


def _find_opening(chat: ChatFormat, markers: TokenMarkers, gate: ReasoningGate) -> Opening | None:
    if _is_open(gate):
        return None
    for token_id in _example(chat, markers, gate.prompt_state):
        gate.commit([token_id])
        if _is_open(gate):
            leftover = gate.leftover.decode("utf-8", "replace")
            return Opening(token_id, str(chat.tokenizer.decode([token_id])), leftover)
    return None


def _is_open(gate: ReasoningGate) -> bool:
    return gate.reasoning_ended is True


def _example(chat: ChatFormat, markers: TokenMarkers, state: PromptState) -> list[int]:
    """What a model would write that thinks and answers, as ids."""
    assert chat.family is not None

    def encode(text: str) -> list[int]:
        return list(chat.tokenizer.encode(text, add_special_tokens=False))

    start = chat.family.start + chat.family.start_label if state == "unknown" else ""
    if markers.channels is not None:
        return [*encode(start + _THOUGHT), *markers.forced_end, *encode(_ANSWER)]
    return encode(start + _THOUGHT + chat.family.end + _ANSWER)
