"""Read a `pattern` as a regular language, with the meaning that the check afterwards gives it (ECMA-262 on whole characters).

Look-aheads and anchors become intersections and complements. What is not regular, or what readers disagree about, is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from .regular import EVERY, LAST, Language, Languages, Ranges, invert_ranges, join_ranges

MAX_REPEAT = 2**16
MAX_UNROLLED = 4


class UnreadablePatternError(Exception):
    """The pattern is beyond this reader. Internal: the caller then does without."""


def _of(text: str) -> Ranges:
    return join_ranges((ord(letter), ord(letter)) for letter in text)


DIGITS: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE = join_ranges([*_of("\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"), (0x2000, 0x200A)])
LINE_ENDS = _of("\n\r\u2028\u2029")
_CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


_LONG_NAMES = {
    "Letter": "L", "Cased_Letter": "LC", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl", "Other_Number": "No",
    "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi", "Final_Punctuation": "Pf", "Other_Punctuation": "Po",
    "Symbol": "S", "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So",
    "Separator": "Z", "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp",
    "Control": "Cc", "Format": "Cf",
}  # fmt: skip


def category_ranges(name: str) -> Ranges:
    """Give the characters of a general category of Unicode; nothing for other names.

    What Python's version of Unicode does not assign is in no category, though a newer one may know better.
    """
    short = _LONG_NAMES.get(name, name)
    wanted = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
    if short not in _LONG_NAMES.values():
        return ()
    return join_ranges(pair for category, pairs in _categories().items() if category.startswith(wanted) for pair in pairs)


@lru_cache(maxsize=1)
def _categories() -> dict[str, list[tuple[int, int]]]:
    """Read the categories of all characters: some 15 milliseconds, since of large blocks one character tells enough."""
    found: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for first, last in (*_UNIFORM, (LAST + 1, LAST + 1)):
        for category, run in groupby(map(unicodedata.category, map(chr, range(start, first)))):
            end = start + sum(1 for _ in run) - 1
            found.setdefault(category, []).append((start, end))
            start = end + 1
        if first <= LAST:
            found.setdefault(unicodedata.category(chr(first)), []).append((first, last))
        start = last + 1
    return found


_UNIFORM = (
    (0x3400, 0x4DB5), (0x4E00, 0x9FD5), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0x20000, 0x2A6D6), (0x2A700, 0x2B734),
    (0x2B820, 0x2CEA1), (0x2CEB0, 0x2EBE0), (0x40000, 0xDFFFF), (0xE1000, 0xEFFFF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD),
)  # fmt: skip
"""Ideographs, syllables, private use, and planes of which nothing is planned: each of one category in every version so far."""


def fold_case(ranges: Ranges) -> Ranges:
    """Add the other case of every letter, as the check afterwards does.

    Raises:
        UnreadablePatternError: There are letters beyond ASCII, of which versions of Unicode differ.
    """
    size = sum(high - low for low, high in ranges)
    if size > 2_000 or any(chr(code).swapcase() != chr(code) for low, high in ranges for code in range(max(low, 128), high + 1)):
        raise UnreadablePatternError
    found = list(ranges)
    for low, high in ranges:
        for code in range(low, min(high, 127) + 1):
            others = chr(code).swapcase() + {"k": "\u212a", "s": "\u017f"}.get(chr(code).lower(), "")
            found += [(ord(other), ord(other)) for other in others]
    return join_ranges(found)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of syntax: `set`, `seq`, `or`, `repeat`, `start`, `end`, `ahead`, `not ahead`."""

    kind: str
    parts: tuple[_Part, ...] = ()
    ranges: Ranges = ()
    low: int = 0
    high: int | None = None

    @property
    def is_plain(self) -> bool:
        return self.kind in ("set", "seq", "or", "repeat") and all(part.is_plain for part in self.parts)

    @property
    def has_start(self) -> bool:
        return self.kind == "start" or any(part.has_start for part in self.parts)

    def shortest(self) -> int:
        if self.kind == "set":
            return 1
        if self.kind == "seq":
            return sum(part.shortest() for part in self.parts)
        if self.kind == "or":
            return min(part.shortest() for part in self.parts)
        return self.low * self.parts[0].shortest() if self.kind == "repeat" else 0

    def is_zero_width(self) -> bool:
        return self.kind in ("start", "end", "ahead", "not ahead") or (
            self.kind in ("seq", "or") and all(part.is_zero_width() for part in self.parts)
        )


def parse_pattern(languages: Languages, pattern: str) -> Language:
    """Give the texts in which `pattern` is found.

    Raises:
        UnreadablePatternError: It is beyond this reader.
    """
    try:
        syntax = _Reader(pattern).read()
        found = _translate(languages, syntax, languages.everything, True)
        if _may_start_anywhere(syntax):
            later = _translate(languages, syntax, languages.everything, False)
            found = languages.union((found, languages.cat(languages.character, languages.everything, later)))
            if not syntax.has_start:
                found = languages.cat(languages.everything, later)
    except RecursionError:
        raise UnreadablePatternError from None
    return found


def _may_start_anywhere(syntax: _Part) -> bool:
    if syntax.kind == "start":
        return False
    if syntax.kind == "seq":
        for part in syntax.parts:
            if not _may_start_anywhere(part):
                return False
            if not part.is_zero_width():
                break
        return True
    return any(map(_may_start_anywhere, syntax.parts)) if syntax.kind == "or" else True


def _translate(languages: Languages, part: _Part, rest: Language, at_start: bool) -> Language:
    """Give the texts that begin with what `part` matches and go on with `rest`."""
    if part.is_plain:
        return languages.cat(_plain(languages, part), rest)
    if part.kind == "seq":
        return _translate_sequence(languages, part.parts, rest, at_start)
    if part.kind == "or":
        return languages.union([_translate(languages, choice, rest, at_start) for choice in part.parts])
    if part.kind == "start":
        return rest if at_start else languages.none
    if part.kind == "end":
        return languages.intersection((rest, languages.empty))
    if part.kind == "repeat":
        return _translate_repeat(languages, part, rest, at_start)
    seen = _translate(languages, part.parts[0], languages.everything, at_start)
    return languages.intersection((languages.complement(seen) if part.kind == "not ahead" else seen, rest))


def _translate_sequence(languages: Languages, parts: tuple[_Part, ...], rest: Language, at_start: bool) -> Language:
    starts = []
    for number, part in enumerate(parts):
        starts.append(at_start)
        if part.is_zero_width():
            continue
        if at_start and part.shortest() == 0 and any(later.has_start for later in parts[number + 1 :]):
            raise UnreadablePatternError
        at_start = False
    for part, is_start in zip(reversed(parts), reversed(starts), strict=True):
        rest = _translate(languages, part, rest, is_start)
    return rest


def _translate_repeat(languages: Languages, part: _Part, rest: Language, at_start: bool) -> Language:
    inner = part.parts[0]
    if part.high is None or part.high > MAX_UNROLLED or inner.has_start:
        raise UnreadablePatternError
    choices = []
    for count in range(part.low, part.high + 1):
        choices.append(_translate_sequence(languages, (inner,) * count, rest, at_start))
    return languages.union(choices)


def _plain(languages: Languages, part: _Part) -> Language:
    if part.kind == "set":
        return languages.set(part.ranges)
    parts = [_plain(languages, inner) for inner in part.parts]
    if part.kind == "seq":
        return languages.cat(*parts)
    return languages.union(parts) if part.kind == "or" else languages.repeat(parts[0], part.low, part.high)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._ignores_case = False
        self._is_negated = False

    def read(self) -> _Part:
        syntax = self._choice()
        if self._at < len(self._text):
            raise UnreadablePatternError
        return syntax

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise UnreadablePatternError
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> _Part:
        ignored_case = self._ignores_case
        choices = [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        self._ignores_case = ignored_case
        return choices[0] if len(choices) == 1 else _Part("or", tuple(choices))

    def _sequence(self) -> _Part:
        parts = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._take("(?i)"):  # until the end of the group, in other branches too
                self._ignores_case = True
            else:
                parts.append(self._quantified(self._atom()))
        return _Part("seq", tuple(parts))

    def _quantified(self, part: _Part) -> _Part:
        while self._at < len(self._text):
            match = re.compile(r"[*+?]|\{(\d+)(?:(,)(\d*))?\}").match(self._text, self._at)
            if match is None:
                return part
            self._at = match.end()
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(match[0], (0, 0))
            if match[1]:
                low = int(match[1])
                high = low if not match[2] else int(match[3]) if match[3] else None
            if max(low, high or 0) > MAX_REPEAT or self._peek("+") or (high is not None and low > high):
                raise UnreadablePatternError
            self._take("?")
            if part.kind in ("start", "end", "ahead", "not ahead"):
                raise UnreadablePatternError
            part = _Part("repeat", (part,), low=low, high=high)
        return part

    def _atom(self) -> _Part:
        letter = self._next()
        if letter == "(":
            return self._group()
        if letter == "[":
            return self._set(self._class)
        if letter == ".":
            return _Part("set", ranges=invert_ranges(LINE_ENDS))
        if letter in "^$":
            return _Part("start" if letter == "^" else "end")
        if letter == "\\":
            return self._set(self._escape)
        if letter in "*+?{":
            raise UnreadablePatternError
        return self._set(lambda: _of(letter))

    def _set(self, read: Callable[[], Ranges]) -> _Part:
        self._is_negated = False
        ranges = read()
        if not self._ignores_case:
            return _Part("set", ranges=ranges)
        # What is negated is folded before.
        return _Part("set", ranges=invert_ranges(fold_case(invert_ranges(ranges))) if self._is_negated else fold_case(ranges))

    def _group(self) -> _Part:
        kind = "group"
        ignored_case = self._ignores_case
        if self._take("?"):
            if self._take(":"):
                pass
            elif self._take("i:"):
                self._ignores_case = True
            elif self._take("="):
                kind = "ahead"
            elif self._take("!"):
                kind = "not ahead"
            else:
                match = re.compile(r"P?<[A-Za-z_]\w*>").match(self._text, self._at)
                if match is None:
                    raise UnreadablePatternError
                self._at = match.end()
        inner = self._choice()
        self._ignores_case = ignored_case
        if not self._take(")"):
            raise UnreadablePatternError
        return inner if kind == "group" else _Part(kind, (inner,))

    def _escape(self) -> Ranges:
        letter = self._next()
        if self._ignores_case and letter in "pPDWS":
            raise UnreadablePatternError
        if letter in "pP":
            return self._property(is_negated=letter == "P")
        if letter.lower() in _CLASSES:
            ranges = _CLASSES[letter.lower()]
            return ranges if letter.islower() else invert_ranges(ranges)
        code = self._code(letter)
        return ((code, code),)

    def _property(self, *, is_negated: bool) -> Ranges:
        match = re.compile(r"\{(?:(?:gc|General_Category)=)?(\w+)\}").match(self._text, self._at)
        ranges = category_ranges(match[1]) if match else ()
        if match is None or not ranges:
            raise UnreadablePatternError
        self._at = match.end()
        return invert_ranges(ranges) if is_negated else ranges

    def _code(self, letter: str) -> int:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        for prefix, form in (("x", r"([0-9A-Fa-f]{2})"), ("u", r"([0-9A-Fa-f]{4})"), ("u", r"\{([0-9A-Fa-f]{1,6})\}")):
            match = re.compile(form).match(self._text, self._at) if letter == prefix else None
            if match:
                self._at = match.end()
                return self._whole(int(match[1], 16))
        if letter == "c" and re.match("[A-Za-z]", self._text[self._at : self._at + 1]):
            return ord(self._next()) % 32
        if letter.isalnum() or not letter.isascii():
            raise UnreadablePatternError
        return ord(letter)

    def _whole(self, code: int) -> int:
        """Join the halves of a surrogate pair."""
        if not 0xD800 <= code <= 0xDFFF:
            return min(code, 0x10FFFF)
        match = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})").match(self._text, self._at)
        if code >= 0xDC00 or match is None:
            raise UnreadablePatternError
        self._at = match.end()
        return 0x10000 + ((code - 0xD800) << 10) + int(match[1], 16) - 0xDC00

    def _class(self) -> Ranges:
        is_negated = self._is_negated = self._take("^")
        pairs: list[tuple[int, int]] = []
        while not self._take("]"):
            first = self._member()
            if len(first) == 1 and first[0][0] == first[0][1] and self._peek("-") and not self._peek("-]"):
                self._at += 1
                last = self._member()
                if len(last) != 1 or last[0][0] != last[0][1] or last[0][0] < first[0][0]:
                    raise UnreadablePatternError
                pairs += _range(first[0][0], last[0][0])
            else:
                pairs += first
        ranges = join_ranges(pairs)
        return invert_ranges(ranges) if is_negated else ranges

    def _member(self) -> Ranges:
        if self._peek("[") or self._peek("&&") or self._peek("~~") or self._peek("--"):
            raise UnreadablePatternError
        letter = self._next()
        return self._escape() if letter == "\\" else _of(letter)


def _range(low: int, high: int) -> list[tuple[int, int]]:
    pairs = [(max(low, first), min(high, last)) for first, last in EVERY]
    return [(first, last) for first, last in pairs if first <= last]
