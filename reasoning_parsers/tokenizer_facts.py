"""What detection has to know of a tokenizer and its model, as plain data: whoever has the tokenizer fills it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

PROBE_TEXT = "thinkgate asks what comes after this"
"""Content of the one user message that `TokenizerFacts.render` renders; what stands after it is the generation prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    """Facts about one tokenizer.

    Attributes:
        added_tokens: Text and id of the added tokens, special or not.
        token_to_id: Id of a token of the whole vocabulary by its exact text, None where there is none. None asks `added_tokens`.
        chat_template: Source of the chat template; or several, by name, or as a list of mappings with `name` and `template`.
        render: Gives the prompt for one user message with the content `PROBE_TEXT`, with these variables given and a generation
            prompt asked for. It has to be safe to call: a sandbox. None where nothing can be rendered.
        response_template: The tokenizer's `response_template`, if it has one.
        model_config: The model's configuration; `model_type` and `_name_or_path` are looked at.
    """

    added_tokens: Mapping[str, int] = field(default_factory=dict)
    token_to_id: Callable[[str], int | None] | None = None
    chat_template: str | Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    render: Callable[[Mapping[str, object]], str] | None = None
    response_template: Mapping[str, object] | None = None
    model_config: Mapping[str, object] = field(default_factory=dict)

    def find_token(self, text: str) -> int | None:
        """Id of a token by its exact text, or None."""
        found = self.added_tokens.get(text)
        return found if found is not None or self.token_to_id is None else self.token_to_id(text)

    def find_tokens_within(self, text: str) -> tuple[str, ...]:
        """Added tokens that occur in a text, `text` itself included; a single character is no evidence of anything."""
        return tuple(token for token in self.added_tokens if len(token.strip()) > 2 and token in text)
