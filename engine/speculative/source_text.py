"""The text that an answer may copy from: where a name stands in it, where a value does, and where its words end.

Everything is a search in one string, made when first asked for, so that a long prompt costs nothing until then.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Literal

MAX_CHARS = 1_000_000
"""Longest text; of a longer one the end."""
MAX_PLACES = 128
"""Places of one name that are looked at."""
MAX_TRIES = 16
"""Places of a value's beginning that are looked at."""
MAX_REACH = 10_000
"""Characters in which a number is looked for."""
MAX_NAMES = 256
"""Names whose places are remembered."""
MAX_WORD_REACH = 4096
"""Characters in which a word is looked for: a text that has none, or is one word, must not hold a step up."""
MAX_GAP = 16
"""Characters between two words of a name."""

Opening = Literal["quoted", "labelled", "plain"]
"""What stands before a value: a quote, a label with its colon, anything else."""
Ending = Literal["quote", "line", "comma", "stop", "cell", "mark", "same", "falling", "rising", "digit"]
"""What stands behind a word: a mark, or a space and a word of letters like its own, of small ones, of capitals, or a number."""

_WORD = re.compile(r"[-+]?\w+(?:[-.:/@'\u2019&+#]+\w+)*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?![\d])")
_NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\dA-Z_]+|\d+|[^\W_]+")
# What may stand between a name and its value: of a label, and of a name in a sentence.
_LABEL_END = re.compile(r"""["'*`\])]{0,4}[ \t]*(?:[:=\uff1a]|=>|->)[ \t]*[\["'*`\u300c\u201c]{0,3}""")
_BETWEEN_WORDS = (" ", "_", "-", "\n", "\t")
_GAP = re.compile(r"[ \t]+[\"'\u201c]?")
_LABEL = re.compile(r"[\w .-]{1,40}?[:=\uff1a][ \t]*")
_MARKS: dict[Ending, str] = {
    "quote": "\"'`\u201c\u201d\u300d\u00bb",
    "line": "\n\r\0",
    "comma": ",;\u3001\uff0c",
    "stop": ".!?\u3002",
    "cell": "|\t",
}
_ENDINGS: dict[str, Ending] = {mark: ending for ending, marks in _MARKS.items() for mark in marks}
_COLONS = (":", "=", "\uff1a")
_QUOTES = "\"'`\u201c\u300c\u00ab"


class SourceText:
    """Text before an answer.

    Args:
        text: The text; what is no text in it stands as NUL.
    """

    def __init__(self, text: str) -> None:
        self.text = text[-MAX_CHARS:]
        lower = self.text.lower()
        # Some letters change their number when they change their case; then names are found as they are written only.
        self._lower = lower if len(lower) == len(self.text) else self.text
        self._named: dict[bytes, tuple[list[int], list[int]]] = {}

    def labels(self, name: bytes, after: int) -> list[int]:
        """Give where values begin that a name labels: the first one at or behind `after`, and the first of all."""
        return _first_ones(self._after_name(name)[0], after)

    def mentions(self, name: bytes, after: int) -> list[int]:
        """Give the same of a name within a sentence."""
        return _first_ones(self._after_name(name)[1], after)

    def nexts(self, last_end: int | None) -> list[int]:
        """Give where the next value begins behind one that ends at `last_end`; labels are passed over."""
        word = None if last_end is None else self._next_word(last_end)
        if word is None:
            return []
        label = _LABEL.match(self.text, word.start())
        if label is not None:
            word = self._next_word(label.end()) or word
        return [word.start()]

    def find(self, value: str, start: int) -> int | None:
        """Give where a text that begins with a word stands first at or behind `start`; None where it does not."""
        for _ in range(MAX_TRIES):
            start = self.text.find(value, start)
            if start < 0:
                return None
            if not start or not (self.text[start - 1].isalnum() and value[0].isalnum()) or not value[0].isascii():
                return start
            start += 1
        return None

    def word_starts(self, start: int) -> Iterator[int]:
        """Give where words begin, from `start` on."""
        return (word.start() for word in self._words(start))

    def word_ends(self, start: int, stop: int) -> Iterator[int]:
        """Give where words end, from `start` to `stop`."""
        return itertools.takewhile(lambda end: end <= stop, (word.end() for word in self._words(start)))

    def is_number(self, start: int, stop: int) -> bool:
        """Whether a number stands there."""
        return _NUMBER.fullmatch(self.text, start, stop) is not None

    def numbers(self, start: int, stop: int | None = None) -> Iterator[str]:
        """Give numbers from `start` on."""
        stop = start + MAX_REACH if stop is None else stop
        return (number[0] for number in _NUMBER.finditer(self.text, start, stop))

    def word_end(self, start: int) -> int:
        """Give where the word ends that goes on at `start`, or else the next one."""
        word = self._next_word(start)
        return start if word is None else word.end()

    def opening(self, start: int) -> Opening:
        """Say what stands before `start`."""
        before = self.text[max(0, start - 2) : start]
        if before[-1:] in _QUOTES and before:
            return "quoted"
        return "labelled" if before.strip()[-1:] in _COLONS else "plain"

    def ending(self, start: int, stop: int) -> Ending:
        """Say what stands behind a text that ends with a word."""
        mark = self.text[stop : stop + 1]
        if mark == " " and self.text[stop + 1 : stop + 2] == "|":
            return "cell"
        if mark != " ":
            return _ENDINGS.get(mark, "mark") if mark else "line"
        word = _WORD.match(self.text, stop + 1, stop + MAX_WORD_REACH)
        if word is None:
            return "mark"
        last = self.text[start:stop].rsplit(None, 1)[-1]
        if last[-1].isdigit() or word[0][0].isdigit():
            return "digit"
        is_upper, is_next_upper = last[0].isupper(), word[0][0].isupper()
        return "same" if is_upper == is_next_upper else "falling" if is_upper else "rising"

    def _words(self, start: int) -> Iterator[re.Match[str]]:
        return _WORD.finditer(self.text, start, start + MAX_WORD_REACH)

    def _next_word(self, start: int) -> re.Match[str] | None:
        return _WORD.search(self.text, start, start + MAX_WORD_REACH)

    def _after_name(self, name: bytes) -> tuple[list[int], list[int]]:
        found = self._named.get(name)
        if found is None:
            if len(self._named) >= MAX_NAMES:
                self._named.clear()
            found = self._named[name] = self._find_name(name.decode(errors="replace"))
        return found

    def _find_name(self, name: str) -> tuple[list[int], list[int]]:
        words = [word.lower() for word in _NAME_PARTS.findall(name)]
        # The whole name first, then the thing that it names, then its kind.
        spellings = [words, words[:-1], words[-1:]] if len(words) > 1 else [words]
        labels, others = list[int](), list[int]()
        for spelling in spellings:
            if not spelling or len("".join(spelling)) < 2:
                continue
            new_labels, new_others = self._find_words(spelling)
            labels += new_labels
            others += new_others
            if labels:
                break
        return labels, others

    def _find_words(self, words: list[str]) -> tuple[list[int], list[int]]:
        labels, others = list[int](), list[int]()
        start = -1
        for _ in range(MAX_PLACES):
            start = self._lower.find(words[0], start + 1)
            if start < 0:
                break
            end = self._end_of_words(words, start)
            if end is None:
                continue
            if (label := _LABEL_END.match(self.text, end)) is not None:
                labels.append(label.end())
            elif (gap := _GAP.match(self.text, end)) is not None:
                others.append(gap.end())
        return labels, others

    def _end_of_words(self, words: list[str], start: int) -> int | None:
        """Give where words end that stand from `start` on with little between them; None where they do not."""
        text = self._lower
        if text[max(0, start - 1) : start].isalpha():
            return None
        end = start
        for word in words:
            most = end + MAX_GAP
            while start < end < most and text[end : end + 1] in _BETWEEN_WORDS:
                end += 1
            if not text.startswith(word, end):
                return None
            end += len(word)
        end += text.startswith("s", end)
        return None if text[end : end + 1].isalnum() else end


def _first_ones(places: list[int], after: int) -> list[int]:
    return list(dict.fromkeys([*[place for place in places if place >= after][:1], *places[:1]]))
