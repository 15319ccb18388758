"""Makes the parser of a family."""

from __future__ import annotations

from .base import PromptState, ReasoningParser
from .default_registry import get_family
from .delimited import DelimitedParser
from .family import ReasoningFamily


def get_parser(
    name_or_family: str | ReasoningFamily,
    *,
    prompt_state: PromptState = "unknown",
    thinking_enabled: bool | None = None,
    tools_offered: bool = False,
) -> ReasoningParser:
    """Return a parser for one message.

    Args:
        name_or_family: Name in the default registry, or a row.
        prompt_state: What the prompt says; take it from the gate where there is one (`ReasoningGate.text_prompt_state`).
        thinking_enabled: The request's switch; None if it was not given.
        tools_offered: Whether the family's implicit ends count.

    Raises:
        UnknownFamilyError: The default registry has no such name.
        InvalidOptionError: `prompt_state` is none of the three.
    """
    family = get_family(name_or_family) if isinstance(name_or_family, str) else name_or_family
    return DelimitedParser(family, prompt_state=prompt_state, thinking_enabled=thinking_enabled, tools_offered=tools_offered)
