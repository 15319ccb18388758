"""A choice as a grammar: exactly the texts of the list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidGrammarError
from .nodes import BEGIN, EMPTY, Either, Lexeme, Node, Rule, Rules, Text

MAX_CHOICES = 100_000
MAX_CHARS = 2**22
START = "start"


def check_choices(choices: Any) -> str:
    """Refuse a list that is no choice, and give its canonical text: a JSON list without repeats, order kept.

    Raises:
        InvalidGrammarError: No list of texts, an empty one, or one with texts that nobody can write; the message says which.
    """
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence) or not choices:
        raise InvalidGrammarError("a choice is a list of one or more texts", pointer="#", hint="""as in ["yes", "no"]""")
    if len(choices) > MAX_CHOICES:
        raise InvalidGrammarError(f"a choice of more than {MAX_CHOICES} texts", pointer="#")
    for index, text in enumerate(choices):
        if not isinstance(text, str):
            raise InvalidGrammarError(
                f"choice {index} is no text but {type(text).__name__}", pointer=f"#/{index}", hint="a choice is made of texts"
            )
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise InvalidGrammarError(
                f"choice {index} holds half a character (a lone surrogate), which no text holds", pointer=f"#/{index}"
            )
    if all(not text for text in choices):
        raise InvalidGrammarError("a choice of nothing but the empty text", pointer="#", hint="ask for no answer instead")
    if sum(map(len, choices)) > MAX_CHARS:
        raise InvalidGrammarError(f"the choices together are longer than {MAX_CHARS} characters", pointer="#")
    return json.dumps(list(dict.fromkeys(choices)), ensure_ascii=False)


def choice_rules(source: str) -> Rules:
    """Make a grammar of a canonical choice."""
    items: list[Node] = [Text(text) if text else EMPTY for text in json.loads(source)]
    return Rules({START: Rule(START, Lexeme(Either(tuple(items))), BEGIN)}, START)
