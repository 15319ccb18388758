"""Messages to prompt ids through the tokenizer's own chat template, and the reasoning family that fits a tokenizer."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from reasoning_parsers import ReasoningFamily, ReasoningParserError, TokenMarkers, get_family, list_families

from .errors import InvalidRequestError, ModelLoadError

logger = logging.getLogger(__name__)

_STRING = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""
_JINJA_CODE = re.compile(rf"""\{{[{{%](?:{_STRING}|[^'"])*?[}}%]\}}""", re.DOTALL)


class ChatFormat:
    """A tokenizer's chat template together with its reasoning family.

    Attributes:
        tokenizer: The tokenizer.
        family: The reasoning family, or None for a model that does not think.
        markers: Think markers as token ids, or None.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, family_name: str) -> None:
        self.tokenizer = tokenizer
        self.family = _pick_family(tokenizer, family_name)
        self.markers = None if self.family is None else _resolve_markers(tokenizer, self.family)

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
            template_kwargs |= self._switch(thinking)
        try:
            token_ids: Any = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                tokenize=True,
                return_dict=False,
                **template_kwargs,
            )
        except Exception as error:  # Jinja's own errors and whatever the template's author raises
            raise InvalidRequestError(f"the chat template refuses these messages: {error}", param="messages") from error
        return [int(token_id) for token_id in token_ids]

    def _switch(self, thinking: bool) -> dict[str, bool]:
        switch = self.family.thinking_switch if self.family is not None else None
        if switch is not None:
            return {switch: thinking}
        if thinking == (self.family is not None):
            return {}
        raise InvalidRequestError(
            f"this model's thinking cannot be switched {'on' if thinking else 'off'}", param="thinking", hint="leave it out"
        )


def _pick_family(tokenizer: PreTrainedTokenizerBase, name: str) -> ReasoningFamily | None:
    if name == "none":
        return None
    if name == "auto":
        return detect_family(tokenizer)
    try:
        return get_family(name)
    except ReasoningParserError as error:
        raise InvalidRequestError(str(error), param="family") from error


def detect_family(tokenizer: PreTrainedTokenizerBase) -> ReasoningFamily | None:
    """Pick the family whose markers are single tokens here and whose switch, turn and tool tokens fit best; None if none fits.

    Of families that fit equally well it is the first one of the table.
    """
    variables = _template_variables(tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else "")
    scored = [(_fit(family, tokenizer, variables), family) for family in list_families()]
    (score, _), best = max(scored, key=lambda pair: pair[0])
    family = best if score > 0 else None
    logger.info("reasoning family: %s", family.name if family is not None else "none")
    return family


def _template_variables(template: str) -> frozenset[str]:
    """Words of a template's code that can be variables: neither text nor attributes, so that prose is no switch."""
    code = " ".join(re.sub(_STRING, "''", block, flags=re.DOTALL) for block in _JINJA_CODE.findall(template))
    return frozenset(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code))


def _fit(family: ReasoningFamily, tokenizer: PreTrainedTokenizerBase, variables: frozenset[str]) -> tuple[float, int]:
    """Score 0 = the markers are not here. Turn and tool tokens count as a share of the family's, the switch as all of them.

    Their number follows, for a family whose tokens are some of another's.
    """
    if _token_to_id(tokenizer, family.end) is None or _token_to_id(tokenizer, family.start) is None:
        return 0.0, 0
    tokens = (*family.turn_boundaries, *family.implicit_ends)
    found = [_token_to_id(tokenizer, text) is not None for text in tokens]
    score = sum(found) / len(found) if found else 0.0
    if family.thinking_switch is not None:
        score += 1 if family.thinking_switch in variables else -1
    return 10 + score, sum(found)


def _token_to_id(tokenizer: PreTrainedTokenizerBase, text: str) -> int | None:
    token_id: Any = tokenizer.convert_tokens_to_ids(text)
    return None if token_id is None or token_id == tokenizer.unk_token_id else int(token_id)


def _resolve_markers(tokenizer: PreTrainedTokenizerBase, family: ReasoningFamily) -> TokenMarkers:
    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    try:
        return TokenMarkers.resolve(family, lambda text: _token_to_id(tokenizer, text), encode)
    except ReasoningParserError as error:
        raise ModelLoadError(
            f"the markers of {family.name} are not in this vocabulary: {error}", hint="set family='none'"
        ) from error
