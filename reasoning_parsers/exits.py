"""Tokens that end the thinking and bring the answer's beginning along, so that the grammar has a say in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

Content: TypeAlias = tuple[int | bytes, ...]
"""The beginning of an answer: ids of whole tokens, and bytes where a token is content in part only."""


class Exit(NamedTuple):
    """A token that ends the thinking, and the content that begins with it."""

    token_id: int
    content: Content


def denied_exits(exits: Iterable[Exit], accepts: Callable[[Content], bool]) -> frozenset[int]:
    """Return the tokens of the exits that `accepts` refuses; each content is asked once."""
    answers: dict[Content, bool] = {}
    for _, content in exits:
        if content not in answers:
            answers[content] = accepts(content)
    return frozenset(token_id for token_id, content in exits if not answers[content])
