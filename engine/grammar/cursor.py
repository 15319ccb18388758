"""A place in a text that is being read, and errors that name it."""

from __future__ import annotations

from bisect import bisect_right
from typing import NoReturn

from ..errors import GrammarError, InvalidGrammarError
from .nodes import BEGIN, Place

MAX_GRAMMAR_CHARS = 2**18
"""Longest text of a grammar; reading is linear, so that this bounds the time of admission."""


class Cursor:
    """Reads a text character by character.

    Args:
        text: The text.
        subject: What the text is, for messages: `regex`, `ebnf`, `lark`.
        max_chars: Longest text.
        origin: Where the text begins, if it is a piece of a longer one.

    Raises:
        InvalidGrammarError: The text is too long, or holds a character that no grammar may hold.
    """

    def __init__(self, text: str, subject: str, *, max_chars: int = MAX_GRAMMAR_CHARS, origin: Place = BEGIN) -> None:
        self.text = text
        self.subject = subject
        self.index = 0
        self._origin = origin
        self._starts = [0]
        self._starts.extend(index + 1 for index, char in enumerate(text) if char == "\n")
        if len(text) > max_chars:
            raise InvalidGrammarError(f"the {subject} is longer than {max_chars} characters")
        if "\0" in text:
            self.fail("a NUL byte", at=text.index("\0"), hint=r"write it as \x00 or \u0000 where you mean the character")
        self._refuse_surrogates()

    @property
    def is_done(self) -> bool:
        """Whether everything was read."""
        return self.index >= len(self.text)

    def peek(self, count: int = 1) -> str:
        """Give the next characters without reading them; fewer at the end."""
        return self.text[self.index : self.index + count]

    def next(self) -> str:
        """Read one character.

        Raises:
            InvalidGrammarError: The text is over.
        """
        char = self.peek()
        if not char:
            self.fail("it ends too early")
        self.index += 1
        return char

    def take(self, wanted: str) -> bool:
        """Read `wanted` if it comes next, and say so."""
        found = self.text.startswith(wanted, self.index)
        self.index += len(wanted) * found
        return found

    def take_while(self, chars: str | frozenset[str]) -> str:
        """Read the longest run of `chars`."""
        start = self.index
        while self.index < len(self.text) and self.text[self.index] in chars:
            self.index += 1
        return self.text[start : self.index]

    def place(self, index: int | None = None) -> Place:
        """Give line and column of an index, by default the current one."""
        index = self.index if index is None else index
        line = bisect_right(self._starts, index)
        column = index - self._starts[line - 1] + 1
        return Place(line + self._origin.line - 1, column + (self._origin.column - 1 if line == 1 else 0))

    def fail(
        self,
        problem: str,
        *,
        at: int | Place | None = None,
        hint: str | None = None,
        kind: type[GrammarError] = InvalidGrammarError,
    ) -> NoReturn:
        """Raise an error that names the place, by default the current one."""
        place = at if isinstance(at, Place) else self.place(at)
        raise_at(self.subject, place, problem, hint=hint, kind=kind)

    def _refuse_surrogates(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            self.fail("half a character (a lone surrogate), which no text holds", at=error.start)


def raise_at(
    subject: str, place: Place, problem: str, *, hint: str | None = None, kind: type[GrammarError] = InvalidGrammarError
) -> NoReturn:
    """Raise an error about the text of a `subject` that names the place."""
    where = f"column {place.column}" if subject == "regex" and place.line == 1 else f"line {place.line}, column {place.column}"
    raise kind(f"{subject}, {where}: {problem}", line=place.line, column=place.column, hint=hint)
