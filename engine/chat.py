"""Messages to prompt ids through the tokenizer's own chat template, and the reasoning family that fits a tokenizer."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from reasoning_parsers import (
    PROBE_TEXT,
    Detection,
    FamilyRegistry,
    ReasoningFamily,
    ReasoningParserError,
    TokenizerFacts,
    detect_family,
    installed_registry,
    teach_family,
)

from .errors import InvalidRequestError
from .markers import resolve_markers

logger = logging.getLogger(__name__)

_ANSWER = "An answer of seven words, and unmistakable."


class ChatFormat:
    """A tokenizer's chat template together with its reasoning family.

    Attributes:
        tokenizer: The tokenizer.
        detection: What was found of the family, and why; None where the user said that the model does not think.
        family: The reasoning family, or None for a model that does not think.
        markers: Think markers as token ids, or None.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        family_name: str = "auto",
        *,
        families: FamilyRegistry | None = None,
        model_config: Mapping[str, Any] | None = None,
    ) -> None:
        """Find the family.

        Args:
            tokenizer: The tokenizer.
            family_name: Name of a family, `auto` to find out, `none` for a model that does not think.
            families: The families to look in; None takes those that ship and those that are installed.
            model_config: The model's configuration, as a hint.

        Raises:
            InvalidRequestError: There is no such family.
            ModelLoadError: The family's markers are not in the vocabulary.
        """
        self.tokenizer = tokenizer
        self.detection = _find_family(tokenizer, family_name, families, model_config or {})
        family = None if self.detection is None else self.detection.family
        self.family = None if family is None else _with_turn_boundaries(family, tokenizer)
        self.markers = None if self.family is None else resolve_markers(tokenizer, self.family)

    def log_detection(self) -> None:
        """Log the family, and what is unsure about it as warnings."""
        if self.detection is None:
            return
        for warning in self.detection.warnings:
            logger.warning("%s", warning)
        name = "none" if self.family is None else self.family.name
        logger.info("reasoning family: %s (%s)", name, self.detection.confidence)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        thinking: bool | None = None,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> list[int]:
        """Render messages to prompt ids.

        Args:
            messages: Mappings with `role` and `content`.
            thinking: Switch thinking on or off; None leaves the template's default.
            add_generation_prompt: End with the head of the assistant's turn.
            template_kwargs: Further variables for the template.

        Raises:
            InvalidRequestError: No chat template, a message that the template refuses, or a switch that it does not have.
        """
        if not self.tokenizer.chat_template:
            raise InvalidRequestError("this model has no chat template", param="messages", hint="give token ids or text instead")
        if thinking is not None:
            template_kwargs |= self.switch(thinking, template_kwargs)
        read = read_messages(messages)
        try:
            token_ids: Any = self.tokenizer.apply_chat_template(
                read,
                add_generation_prompt=add_generation_prompt,
                tokenize=True,
                return_dict=False,
                **template_kwargs,
            )
        except Exception as error:  # Jinja's own errors and whatever the template's author raises
            raise InvalidRequestError(f"the chat template refuses these messages: {error}", param="messages") from error
        return [int(token_id) for token_id in token_ids]

    def find_turn_end(self) -> int | None:
        """Find the token with which the template ends an answer, by rendering a conversation that goes on after one.

        Configurations do not always name it; the model writes it all the same, since it was trained on the template. None where
        the template writes no added token there, or one that the family ends thoughts with too.
        """
        if self.markers is not None and self.markers.channels is not None:
            return None
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}, {"role": "user", "content": "?"}]
        try:
            text = str(self.tokenizer.apply_chat_template(turns, tokenize=False))
        except Exception:  # no template, Jinja's own errors, and whatever the template's author raises
            return None
        _, found, rest = text.rpartition(_ANSWER)
        thinking = set() if self.family is None else {self.family.start, self.family.end}
        names = [name for name in self.tokenizer.get_added_vocab() if found and name.strip() and rest.lstrip().startswith(name)]
        return _token_to_id(self.tokenizer, max(names, key=len)) if set(names) - thinking else None

    def switch(self, thinking: bool, template_kwargs: Mapping[str, Any] | None = None) -> dict[str, bool | str]:
        """Give the template's variables that switch thinking on or off; none where it is on or off anyway.

        Raises:
            InvalidRequestError: The template has no such switch, or `template_kwargs` says the opposite.
        """
        family = self.family
        given = template_kwargs or {}
        if family is not None and family.thinking_switch is not None:
            value = family.switch_on if thinking else family.switch_off
            for name in (family.thinking_switch, *family.other_switches):
                if name in given and given[name] != value:
                    raise InvalidRequestError(
                        f"thinking={thinking} contradicts {name}={given[name]!r}",
                        param="thinking",
                        hint=f"give one of them; thinking={thinking} stands for {name}={value!r} in this model",
                    )
            return {family.thinking_switch: value}
        if thinking == (family is not None):
            return {}
        raise InvalidRequestError(
            f"this model's thinking cannot be switched {'on' if thinking else 'off'}", param="thinking", hint="leave it out"
        )


def read_messages(messages: object) -> list[dict[str, Any]]:
    """Give the messages as templates take them: text parts joined, since many templates write a list as Python shows it.

    Raises:
        InvalidRequestError: Not a list of mappings, or a content that is no text.
    """
    if not isinstance(messages, (list, tuple)):
        raise InvalidRequestError(f"messages must be a list, not {type(messages).__name__}", param="messages")
    read = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequestError(f"messages[{index}] must be a mapping, not {type(message).__name__}", param="messages")
        content = message.get("content")
        if isinstance(content, (list, tuple)):
            content = "".join(_part_text(part, index) for part in content)
        elif content is not None and not isinstance(content, str):
            raise InvalidRequestError(f"messages[{index}].content must be a text, not {content!r}", param="messages")
        read.append({**message, "content": content} if "content" in message else dict(message))
    return read


def _part_text(part: object, index: int) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise InvalidRequestError(
        f"messages[{index}].content has a part of another kind than text: {kind!r}", param="messages", hint="only text is taken"
    )


def read_tokenizer_facts(tokenizer: PreTrainedTokenizerBase, model_config: Mapping[str, Any] | None = None) -> TokenizerFacts:
    """Collect what the detection of a family has to know of a tokenizer."""

    def render(variables: Mapping[str, Any]) -> str:
        # transformers renders in jinja2's immutable sandbox.
        prompt: Any = tokenizer.apply_chat_template(
            [{"role": "user", "content": PROBE_TEXT}], add_generation_prompt=True, tokenize=False, **variables
        )
        return str(prompt)

    return TokenizerFacts(
        added_tokens={str(token): int(token_id) for token, token_id in tokenizer.get_added_vocab().items()},
        token_to_id=lambda text: _token_to_id(tokenizer, text),
        chat_template=tokenizer.chat_template,
        render=render if tokenizer.chat_template else None,
        response_template=getattr(tokenizer, "response_template", None),
        model_config=model_config or {},
    )


def _find_family(
    tokenizer: PreTrainedTokenizerBase, name: str, families: FamilyRegistry | None, model_config: Mapping[str, Any]
) -> Detection | None:
    if name == "none":
        return None
    facts = read_tokenizer_facts(tokenizer, model_config)
    try:
        registry = families or installed_registry()
        if name == "auto":
            found = detect_family(facts, registry.list_families())
        else:
            found = teach_family(registry.get_family(name), facts)
    except ReasoningParserError as error:
        raise InvalidRequestError(str(error), param="family") from error
    return found


def _with_turn_boundaries(family: ReasoningFamily, tokenizer: PreTrainedTokenizerBase) -> ReasoningFamily:
    """Give the row with the tokens that the template writes behind a user's message, where it names none of this vocabulary.

    Without any, a marker in an earlier turn, or in what the system prompt quotes (vllm#50594), would speak for the last turn.
    """
    if family.channels is not None or any(_token_to_id(tokenizer, text) is not None for text in family.turn_boundaries):
        return family
    messages = [{"role": "user", "content": PROBE_TEXT}]
    try:
        prompt = str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except Exception:  # no template, Jinja's own errors, and whatever the template's author raises
        return family
    _, found, tail = prompt.rpartition(PROBE_TEXT)
    head = min((tail.partition(marker)[0] for marker in (*family.starts, *family.ends)), key=len) if found else ""
    added = {
        token_id: name for name, token_id in tokenizer.get_added_vocab().items() if name.strip() and name != tokenizer.unk_token
    }
    names = [added[token_id] for token_id in tokenizer.encode(head, add_special_tokens=False) if token_id in added]
    return dataclasses.replace(family, turn_boundaries=(*family.turn_boundaries, *dict.fromkeys(names))) if names else family


def _token_to_id(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    token_id: Any = tokenizer.convert_tokens_to_ids(text)
    return None if token_id is None or token_id == tokenizer.unk_token_id else int(token_id)
