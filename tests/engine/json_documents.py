"""Random JSON texts that are hard on tokenizers: every plane of Unicode, every kind of escape and number, deep nesting."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

PIECES = (
    "the ", " The", "Straße", "東京", "🙂", "👩‍👩‍👧", "👍🏽", "🇫🇷", "é", "e\u0301", "ﬁ", "Å", "\u212b", "①", "ｱ", "\u3000",
    "\u2028", "\ufeff", "\u00a0", "\u200b", "\ufffd", "▁", "▁▁a", "Ġa", "Ċ", "##b", "</w>", "<0x41>", "</", "```json", "<|",
    "[INST", "    ", "0000000", "007", "--------", "\u0e01\u0e33", "\u05d0\u05b8", "क्षि", "\U000e0001",
)  # fmt: skip
"""Texts that tokenizers normalise, split or write in ways of their own, and their own signs as plain text."""
SHORT_ESCAPES = ('\\"', "\\\\", "\\b", "\\f", "\\n", "\\r", "\\t", "\\r\\n", "\\u0000", "\\u001f", "\\u001F", "\\u007f")
"""Escapes of what JSON has escaped (DEL it only permits)."""
FREE_ESCAPES = ("\\/", "\\u0041", "\\u00e9", "\\u00E9", "\\u2028", "\\ud83d\\ude42", "\\uD83D\\uDE42", "\\udbff\\udfff")
"""Escapes of what may stand as it is, surrogate pairs among them."""
NUMBERS = (
    "0", "-0", "1", "-17", "12345678901234567890", "-9223372036854775808", "0.1", "-0.0", "3.25e-8", "1E+5", "1e05", "1.50",
    "0.00000000000000000001", "123456789.123456789", "1e279",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JsonText:
    """A JSON text, compact.

    Attributes:
        text: The text.
        has_free_escapes: Whether it has escapes of characters that need none.
    """

    text: str
    has_free_escapes: bool


def random_json(rng: random.Random) -> JsonText:
    """Write one; a third of them has free escapes."""
    writer = _Writer(rng, free_escapes=rng.random() < 0.33)
    text = writer.nested() if rng.random() < 0.05 else writer.value(0)
    return JsonText(text, writer.has_free_escapes)


class _Writer:
    def __init__(self, rng: random.Random, *, free_escapes: bool) -> None:
        self._rng = rng
        self._free_escapes = free_escapes
        self.has_free_escapes = False

    def value(self, depth: int) -> str:
        rng = self._rng
        kind = rng.randrange(7 if depth < 4 else 5)
        if kind == 0:
            return rng.choice(("null", "true", "false", '""', "[]", "{}"))
        if kind == 1:
            return rng.choice(NUMBERS) if rng.random() < 0.5 else self._number()
        if kind <= 4:
            return self._string(12)
        if kind == 5:
            return f"[{','.join(self.value(depth + 1) for _ in range(rng.randrange(4)))}]"
        return f"{{{','.join(f'{self._string(5)}:{self.value(depth + 1)}' for _ in range(rng.randrange(4)))}}}"

    def nested(self) -> str:
        heads, tails = [], []
        for _ in range(self._rng.randrange(5, 60)):
            is_array = self._rng.random() < 0.6
            heads.append("[" if is_array else f"{{{self._string(2)}:")
            tails.append("]" if is_array else "}")
        return "".join([*heads, self.value(4), *reversed(tails)])

    def _number(self) -> str:
        rng = self._rng
        text = rng.choice(("", "-")) + str(rng.randrange(10 ** rng.randrange(1, 20)))
        if rng.random() < 0.4:
            text += "." + "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 20)))
        if rng.random() < 0.3:
            text += rng.choice("eE") + rng.choice(("", "+", "-")) + str(rng.randrange(279))
        return text

    def _string(self, most: int) -> str:
        return f'"{"".join(self._character() for _ in range(self._rng.randrange(most)))}"'

    def _character(self) -> str:
        rng = self._rng
        if self._free_escapes and rng.random() < 0.1:
            self.has_free_escapes = True
            return rng.choice(FREE_ESCAPES)
        if rng.random() < 0.12:
            return rng.choice(SHORT_ESCAPES)
        text = rng.choice(_SOURCES)(rng)
        # What JSON has escaped comes from its own list.
        return "".join(letter for letter in text if letter not in '"\\\x7f')


_SOURCES: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: chr(rng.randrange(0x20, 0x7F)),
    lambda rng: chr(rng.randrange(0x80, 0x800)),
    lambda rng: chr(rng.choice([rng.randrange(0x800, 0xD800), rng.randrange(0xE000, 0x10000)])),
    lambda rng: chr(rng.randrange(0x10000, 0x110000)),
    lambda rng: " " * rng.randrange(90),
    lambda rng: rng.choice(PIECES),
    lambda rng: unicodedata.normalize(rng.choice(("NFD", "NFKD")), rng.choice(PIECES)),
)
