"""Read a `pattern` as a regular language, with the meaning that the check afterwards gives it (ECMA-262 on whole characters).

Look-aheads, anchors and what is asked of the character before a place become intersections and complements. What is not regular,
or what readers disagree about, is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from .regular import EVERY, LAST, Language, Languages, Ranges, invert_ranges, join_ranges

MAX_REPEAT = 2**16
MAX_UNROLLED = 4
MAX_SETS_BEHIND = 3


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
    """A piece of syntax: `set`, `seq`, `or`, `repeat`, or one of `_ASSERTIONS`."""

    kind: str
    parts: tuple[_Part, ...] = ()
    ranges: Ranges = ()
    low: int = 0
    high: int | None = None

    @property
    def is_plain(self) -> bool:
        return self.kind in ("set", "seq", "or", "repeat") and all(part.is_plain for part in self.parts)

    def is_zero_width(self) -> bool:
        return self.kind in _ASSERTIONS or (self.kind in ("seq", "or") and all(part.is_zero_width() for part in self.parts))


_ASSERTIONS = ("start", "end", "ahead", "not ahead", "behind", "not behind", "boundary", "not boundary")


def parse_pattern(languages: Languages, pattern: str) -> Language:
    """Give the texts in which `pattern` is found.

    Raises:
        UnreadablePatternError: It is beyond this reader.
    """
    try:
        return _Translator(languages, _Reader(pattern).read()).find()
    except RecursionError:
        raise UnreadablePatternError from None


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


Before = tuple[bool, ...] | None
"""What stands before a place: nothing (None), or a character, by which of the sets that the pattern looks back at it is in."""
Rest = Callable[[Before], Language]
"""What may follow, by what stands before it."""


class _Translator:
    """Writes syntax as a language, from its end to its start: each piece is given what may follow it."""

    def __init__(self, languages: Languages, syntax: _Part) -> None:
        self._languages = languages
        self._syntax = syntax
        self._sets = tuple(dict.fromkeys(_sets_behind(syntax)))
        if len(self._sets) > MAX_SETS_BEHIND:
            raise UnreadablePatternError
        self._characters = self._split(EVERY, ())

    def _split(self, ranges: Ranges, before: tuple[bool, ...]) -> list[tuple[tuple[bool, ...], Ranges]]:
        """Give the characters by which of the sets they are in."""
        if len(before) == len(self._sets):
            return [(before, ranges)] if ranges else []
        wanted = self._sets[len(before)]
        return [
            *self._split(_meet(ranges, wanted), (*before, True)),
            *self._split(_meet(ranges, invert_ranges(wanted)), (*before, False)),
        ]

    def find(self) -> Language:
        """Give the texts in which the syntax is found somewhere."""
        languages = self._languages
        found = self._translate(self._syntax, self._anything, None)
        if not _may_start_anywhere(self._syntax):
            return found
        later = [(self._translate(self._syntax, self._anything, before), ranges) for before, ranges in self._characters]
        if all(language is found for language, _ in later):
            return languages.cat(languages.everything, found)
        if all(language is later[0][0] for language, _ in later):
            return languages.union((found, languages.cat(languages.character, languages.everything, later[0][0])))
        behind = [languages.cat(languages.everything, languages.set(ranges), language) for language, ranges in later]
        return languages.union((found, *behind))

    def _anything(self, before: Before) -> Language:
        return self._languages.everything

    def _translate(self, part: _Part, rest: Rest, before: Before) -> Language:
        """Give the texts that begin with what `part` matches and go on with `rest`."""
        languages = self._languages
        if part.is_plain:
            return self._translate_plain(part, rest, before)
        if part.kind == "seq":
            return self._translate_sequence(part.parts, rest, before)
        if part.kind == "or":
            return languages.union([self._translate(choice, rest, before) for choice in part.parts])
        if part.kind == "repeat":
            return self._translate_repeat(part, rest, before)
        if part.kind == "start":
            return rest(before) if before is None else languages.none
        if part.kind in ("behind", "not behind"):
            is_in = before is not None and before[self._sets.index(part.ranges)]
            return rest(before) if is_in is (part.kind == "behind") else languages.none
        return languages.intersection((self._seen(part, before), rest(before)))

    def _seen(self, part: _Part, before: Before) -> Language:
        """Give the texts in front of which an assertion holds."""
        languages = self._languages
        if part.kind == "end":
            return languages.empty
        if part.kind in ("boundary", "not boundary"):
            is_word = before is not None and before[self._sets.index(WORD)]
            goes_on = languages.cat(languages.set(WORD), languages.everything)
            return goes_on if is_word is (part.kind == "not boundary") else languages.complement(goes_on)
        seen = self._translate(part.parts[0], self._anything, before)
        return languages.complement(seen) if part.kind == "not ahead" else seen

    def _translate_plain(self, part: _Part, rest: Rest, before: Before) -> Language:
        languages = self._languages
        later = [(rest(after), ranges) for after, ranges in self._characters]
        known = later[0][0]
        whole = _plain(languages, part)
        if all(language is known for language, _ in later) and (not whole.is_nullable or rest(before) is known):
            return languages.cat(whole, known)
        if part.kind == "set":
            return languages.union(languages.cat(languages.set(_meet(part.ranges, found)), then) for then, found in later)
        if part.kind == "seq":
            return self._translate_sequence(part.parts, rest, before)
        if part.kind == "or":
            return languages.union([self._translate(choice, rest, before) for choice in part.parts])
        choices = [rest(before)] if whole.is_nullable else []
        return languages.union([*choices, *(languages.cat(self._ending(part, ranges), then) for then, ranges in later)])

    def _ending(self, part: _Part, ranges: Ranges) -> Language:
        """Give the texts of a plain repetition that end with one of some characters."""
        languages = self._languages
        inner = _plain(languages, part.parts[0])
        last = languages.intersection((inner, languages.cat(languages.everything, languages.set(ranges))))
        if inner.kind == "set":
            last = languages.set(_meet(inner.ranges, ranges))
        elif inner.is_nullable:
            return languages.intersection((_plain(languages, part), languages.cat(languages.everything, languages.set(ranges))))
        if part.high == 0:
            return languages.none
        high = None if part.high is None else part.high - 1
        return languages.cat(languages.repeat(inner, max(0, part.low - 1), high), last)

    def _translate_sequence(self, parts: tuple[_Part, ...], rest: Rest, before: Before) -> Language:
        for part in reversed(parts[1:]):
            rest = self._behind(part, rest)
        return self._translate(parts[0], rest, before) if parts else rest(before)

    def _behind(self, part: _Part, rest: Rest) -> Rest:
        known: dict[Before, Language] = {}

        def follow(before: Before) -> Language:
            if before not in known:
                known[before] = self._translate(part, rest, before)
            return known[before]

        return follow

    def _translate_repeat(self, part: _Part, rest: Rest, before: Before) -> Language:
        if part.high is None or part.high > MAX_UNROLLED:
            raise UnreadablePatternError
        counts = range(part.low, part.high + 1)
        return self._languages.union([self._translate_sequence((part.parts[0],) * count, rest, before) for count in counts])


def _sets_behind(part: _Part) -> Iterator[Ranges]:
    """Give the sets of which a pattern asks whether the character before a place is in them."""
    if part.kind in ("boundary", "not boundary"):
        yield WORD
    elif part.kind in ("behind", "not behind"):
        yield part.ranges
    for inner in part.parts:
        yield from _sets_behind(inner)


def _meet(ranges: Ranges, other: Ranges) -> Ranges:
    return ranges if other == EVERY else invert_ranges(join_ranges((*invert_ranges(ranges), *invert_ranges(other))))


def _plain(languages: Languages, part: _Part) -> Language:
    if part.kind == "set":
        return languages.set(part.ranges)
    parts = [_plain(languages, inner) for inner in part.parts]
    if part.kind == "seq":
        return languages.cat(*parts)
    return languages.union(parts) if part.kind == "or" else languages.repeat(parts[0], part.low, part.high)


_OPENERS = {":": "group", "=": "ahead", "!": "not ahead", "<=": "behind", "<!": "not behind"}


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
            if part.kind in _ASSERTIONS:
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
            if self._peek("b") or self._peek("B"):
                return _Part("boundary" if self._next() == "b" else "not boundary")
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
        ignored_case = self._ignores_case
        kind = self._group_kind()
        inner = self._choice()
        self._ignores_case = ignored_case
        if not self._take(")"):
            raise UnreadablePatternError
        if kind in ("behind", "not behind"):
            return _Part(kind, ranges=_one_character(inner))
        return inner if kind == "group" else _Part(kind, (inner,))

    def _group_kind(self) -> str:
        if not self._take("?"):
            return "group"
        kind = next((kind for opener, kind in _OPENERS.items() if self._take(opener)), None)
        if kind is not None:
            return kind
        if self._take("i:"):
            self._ignores_case = True
            return "group"
        match = re.compile(r"P?<[A-Za-z_]\w*>").match(self._text, self._at)
        if match is None:
            raise UnreadablePatternError
        self._at = match.end()
        return "group"

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


def _one_character(part: _Part) -> Ranges:
    """Give the set of what matches one character.

    Raises:
        UnreadablePatternError: It matches anything else.
    """
    if part.kind == "set":
        return part.ranges
    if part.kind == "or" or (part.kind == "seq" and len(part.parts) == 1):
        return join_ranges(pair for inner in part.parts for pair in _one_character(inner))
    raise UnreadablePatternError


def _range(low: int, high: int) -> list[tuple[int, int]]:
    pairs = [(max(low, first), min(high, last)) for first, last in EVERY]
    return [(first, last) for first, last in pairs if first <= last]
