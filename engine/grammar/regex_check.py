r"""Read a regular expression in Python's syntax (https://docs.python.org/3/library/re.html), matched against the whole text.

Accepted: everything that describes a regular language, flags `a`, `i`, `s`, `u` and `x` included, and look-ahead where nothing
but the rest of the text follows it. Refused with the column: back-references, look-behind, word boundaries, atomic groups, and
anchors in places where they can never hold. `tests/engine/test_regex_check.py` compares with `re.fullmatch`. Spellings of other
engines that mean nothing in Python are taken too: `(?<name>...)`, `\z`, `\p{L}`, `\u{1F642}`; and `[[:alpha:]]`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

from ..errors import UnsupportedGrammarError
from .char_classes import class_ranges, fold_case
from .cursor import Cursor
from .nodes import (
    BEGIN,
    EMPTY,
    MAX_CODE_POINT,
    MAX_DEPTH,
    Both,
    Chars,
    Either,
    Node,
    Other,
    Place,
    Ranges,
    Repeat,
    Row,
    Text,
    make_repeat,
)
from .nodes import merge_ranges as merge
from .nodes import negate_ranges as negate
from .rewrite.pattern_parse import category_ranges

MAX_REGEX_CHARS = 2**16
MAX_REPEAT = 2**16
_MAX_QUANTIFIER_CHARS = 40
_DIGITS = frozenset("0123456789")
_SPACES = frozenset(" \t\n\r\v\f")
_SIMPLE_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_BRACED_HEX = re.compile(r"\{([0-9A-Fa-f]{1,6})\}")
_PROPERTY = re.compile(r"\{(?:(?:gc|General_Category)=)?(\w{1,40})\}|([CLMNPSZ])")
_POSIX_CLASS = re.compile(r"\[:(\w+):\]")
_POSIX: dict[str, Ranges] = {
    "alnum": merge([(48, 57), (65, 90), (97, 122)]), "alpha": merge([(65, 90), (97, 122)]), "ascii": ((0, 127),),
    "blank": merge([(9, 9), (32, 32)]), "cntrl": merge([(0, 31), (127, 127)]), "digit": ((48, 57),), "graph": ((33, 126),),
    "lower": ((97, 122),), "print": ((32, 126),), "punct": merge([(33, 47), (58, 64), (91, 96), (123, 126)]),
    "space": merge([(9, 13), (32, 32)]), "upper": ((65, 90),), "word": merge([(48, 57), (65, 90), (95, 95), (97, 122)]),
    "xdigit": merge([(48, 57), (65, 70), (97, 102)]),
}  # fmt: skip
_ANYTHING = Chars(merge([(0, MAX_CODE_POINT)]))
_REST = Repeat(_ANYTHING, 0, None)
_NOT_REGULAR = "write it without, or check the answer afterwards"


@dataclass(frozen=True, slots=True)
class _Anchor:
    text: str
    is_end: bool
    place: Place
    is_of_line: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    is_negative: bool
    node: _Raw
    place: Place


@dataclass(frozen=True, slots=True)
class _RawRow:
    items: tuple[_Raw, ...]


@dataclass(frozen=True, slots=True)
class _RawEither:
    items: tuple[_Raw, ...]


@dataclass(frozen=True, slots=True)
class _RawRepeat:
    item: _Raw
    low: int
    high: int | None


# The tree before anchors and look-aheads are settled; `Chars` needs no settling.
_Raw = _Anchor | _Look | _RawRow | _RawEither | _RawRepeat | Chars


@dataclass(frozen=True, slots=True)
class _Flags:
    is_ascii: bool = False
    ignores_case: bool = False
    is_multiline: bool = False
    dot_is_all: bool = False
    is_verbose: bool = False


_FLAG_FIELDS = {"a": "is_ascii", "i": "ignores_case", "m": "is_multiline", "s": "dot_is_all", "x": "is_verbose"}


def parse_regex(pattern: str, *, subject: str = "regex", flags: str = "", origin: Place = BEGIN) -> Node:
    """Read a pattern; the node matches exactly the texts that `re.fullmatch` does.

    Args:
        pattern: Python's syntax.
        subject: What the pattern is, for messages.
        flags: Flags of the whole pattern, letters as in `(?is)`.
        origin: Where the pattern begins, if it stands in a longer text.

    Raises:
        InvalidGrammarError: No regular expression; `line` and `column` name the place.
        UnsupportedGrammarError: A feature that no automaton has, with its place.
    """
    reader = _Reader(Cursor(pattern, subject, max_chars=MAX_REGEX_CHARS, origin=origin))
    return _Settler(reader.cursor).settle(reader.read_all(flags), is_start=True, is_end=True)


class _Reader:
    """Syntax only; one method for each construct."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._depth = 0
        self._group_names: set[str] = set()

    def read_all(self, letters: str) -> _Raw:
        flags = self._read_global_flags(self._add_flags(_Flags(), letters))
        raw = self._read_either(flags)
        if not self.cursor.is_done:
            self.cursor.fail("a closing bracket that none opens")
        return raw

    def _read_global_flags(self, flags: _Flags) -> _Flags:
        while match := re.match(r"\(\?([aiLmsux]+)\)", self.cursor.text[self.cursor.index : self.cursor.index + 16]):
            flags = self._add_flags(flags, match[1])
            self.cursor.index += match.end()
        return flags

    def _add_flags(self, flags: _Flags, letters: str, *, value: bool = True) -> _Flags:
        for letter in letters:
            if letter == "L":
                self.cursor.fail("the flag L is for bytes")
            if letter != "u":
                flags = replace(flags, **{_FLAG_FIELDS[letter]: value})
        return flags

    def _read_either(self, flags: _Flags) -> _Raw:
        items = [self._read_row(flags)]
        while self.cursor.take("|"):
            items.append(self._read_row(flags))
        return items[0] if len(items) == 1 else _RawEither(tuple(items))

    def _read_row(self, flags: _Flags) -> _Raw:
        items: list[_Raw] = []
        while not self.cursor.is_done and self.cursor.peek() not in "|)":
            if flags.is_verbose and self._skip_comment():
                continue
            if self.cursor.peek() in "*+?{" and self._read_quantifier(items, flags):
                continue
            if (item := self._read_item(flags)) is not None:
                items.append(item)
        return items[0] if len(items) == 1 else _RawRow(tuple(items))

    def _skip_comment(self) -> bool:
        if self.cursor.take_while(_SPACES):
            return True
        if not self.cursor.take("#"):
            return False
        end = self.cursor.text.find("\n", self.cursor.index)
        self.cursor.index = len(self.cursor.text) if end < 0 else end + 1
        return True

    def _read_quantifier(self, items: list[_Raw], flags: _Flags) -> bool:
        """Apply what comes next to the last item; False if it is a plain brace."""
        start = self.cursor.index
        bounds = self._read_bounds()
        if bounds is None:
            return False
        low, high = bounds
        if not items or isinstance(items[-1], _Anchor):
            self.cursor.fail("nothing to repeat", at=start)
        if isinstance(items[-1], _RawRepeat):
            self.cursor.fail("a repetition of a repetition", at=start, hint="put the inner one in (?:...)")
        if max(low, high or 0) > MAX_REPEAT:
            self.cursor.fail(f"more than {MAX_REPEAT} repetitions", at=start)
        if high is not None and low > high:
            self.cursor.fail("the least number of repetitions is larger than the most", at=start)
        if self.cursor.peek() == "+":
            self.cursor.fail("a possessive repetition", hint=_NOT_REGULAR, kind=UnsupportedGrammarError)
        # A lazy repetition matches the same whole texts.
        self.cursor.take("?")
        items[-1] = _RawRepeat(items[-1], low, high)
        return True

    def _read_bounds(self) -> tuple[int, int | None] | None:
        if self.cursor.take("*"):
            return 0, None
        if self.cursor.take("+"):
            return 1, None
        if self.cursor.take("?"):
            return 0, 1
        match = re.compile(r"\{(?!\})([0-9]*)(?:(,)([0-9]*))?\}").match(self.cursor.text, self.cursor.index)
        if match is None:
            return None
        if match.end() - match.start() > _MAX_QUANTIFIER_CHARS:
            self.cursor.fail(f"more than {MAX_REPEAT} repetitions")
        self.cursor.index = match.end()
        low = int(match[1] or 0)
        if match[2] is None:
            return low, low
        return low, int(match[3]) if match[3] else None

    def _read_item(self, flags: _Flags) -> _Raw | None:
        start = self.cursor.index
        char = self.cursor.next()
        if char == "(":
            return self._read_group(flags, start)
        if char == "[":
            return self._read_class(flags, start)
        if char == "\\":
            return self._read_escape(flags, start)
        if char in "^$":
            return _Anchor(char, char == "$", self.cursor.place(start), is_of_line=flags.is_multiline)
        if char == ".":
            return _ANYTHING if flags.dot_is_all else Chars(negate([(10, 10)]))
        return _char(ord(char), flags)

    def _read_group(self, flags: _Flags, start: int) -> _Raw | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.cursor.fail(f"nested deeper than {MAX_DEPTH} levels", at=start)
        raw = self._read_group_body(flags, start)
        self._depth -= 1
        return raw

    def _read_group_body(self, flags: _Flags, start: int) -> _Raw | None:
        take = self.cursor.take
        if not take("?"):
            return self._close(self._read_either(flags), start)
        if take("#"):
            end = self.cursor.text.find(")", self.cursor.index)
            if end < 0:
                self.cursor.fail("a comment that is not closed", at=start)
            self.cursor.index = end + 1
            return None
        if take("P<") or re.compile(r"<(?![=!])").match(self.cursor.text, self.cursor.index):
            take("<")
            self._read_group_name(start)
            return self._close(self._read_either(flags), start)
        if take("=") or take("!"):
            is_negative = self.cursor.text[self.cursor.index - 1] == "!"
            return _Look(is_negative, self._close(self._read_either(flags), start), self.cursor.place(start))
        self._refuse_irregular(start)
        flags = self._read_group_flags(flags, start)
        return self._close(self._read_either(flags), start)

    def _close(self, raw: _Raw, start: int) -> _Raw:
        if not self.cursor.take(")"):
            self.cursor.fail("an opening bracket that is never closed", at=start)
        # A row of its own, so that a repetition may follow that of the inside.
        return raw if not isinstance(raw, (_RawRepeat, _Anchor)) else _RawRow((raw,))

    def _read_group_name(self, start: int) -> None:
        end = self.cursor.text.find(">", self.cursor.index)
        name = self.cursor.text[self.cursor.index : max(end, self.cursor.index)]
        if not name.isidentifier():
            self.cursor.fail("a group name that is no identifier", at=start)
        if name in self._group_names:
            self.cursor.fail(f"a second group of the name {name!r}", at=start)
        self._group_names.add(name)
        self.cursor.index = end + 1

    def _refuse_irregular(self, start: int) -> None:
        for opener, name in (("<=", "look-behind"), ("<!", "look-behind"), (">", "an atomic group"), ("P=", "a back-reference")):
            if self.cursor.take(opener):
                self.cursor.fail(name, at=start, hint=_NOT_REGULAR, kind=UnsupportedGrammarError)
        if self.cursor.take("("):
            self.cursor.fail("a conditional group", at=start, hint=_NOT_REGULAR, kind=UnsupportedGrammarError)

    def _read_group_flags(self, flags: _Flags, start: int) -> _Flags:
        match = re.compile(r"([aimsux]*)(?:-([imsx]+))?:").match(self.cursor.text, self.cursor.index)
        if match is None:
            self.cursor.fail("an unknown kind of group", at=start, hint=self._group_hint())
        added, taken = match[1], match[2] or ""
        if set(added) & set(taken) or {"a", "u"} <= set(added):
            self.cursor.fail("flags that contradict each other", at=start)
        self.cursor.index = match.end()
        if "u" in added:
            flags = replace(flags, is_ascii=False)
        return self._add_flags(self._add_flags(flags, added), taken, value=False)

    def _group_hint(self) -> str:
        rest = self.cursor.text[self.cursor.index :]
        return "global flags stand at the very start" if re.match(r"[aiLmsux]+\)", rest[:16]) else "this is Python's syntax"

    def _read_escape(self, flags: _Flags, start: int) -> _Raw:
        char = self.cursor.peek()
        if char and char in "dDwWsS":
            self.cursor.index += 1
            return Chars(class_ranges(char, is_ascii=flags.is_ascii))
        if char and char in "AZz":
            self.cursor.index += 1
            return _Anchor(f"\\{char}", char != "A", self.cursor.place(start))
        if char and char in "pP":
            return Chars(self._read_property(start, flags))
        if char and char in "bB":
            self.cursor.fail("a word boundary", at=start, hint=_NOT_REGULAR, kind=UnsupportedGrammarError)
        return _char(self._read_escaped_char(start, in_class=False), flags)

    def _read_escaped_char(self, start: int, *, in_class: bool) -> int:
        char = self.cursor.peek()
        if not char:
            self.cursor.fail("a backslash at the end", at=start)
        if char in _DIGITS:
            return self._read_octal(start, in_class=in_class)
        self.cursor.index += 1
        if char in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[char]
        if in_class and char == "b":
            return 8
        if char in _HEX_LENGTHS:
            braced = _BRACED_HEX.match(self.cursor.text, self.cursor.index) if char != "U" else None
            return self._read_hex(start, _HEX_LENGTHS[char]) if braced is None else self._take_braced_hex(braced, start)
        if char == "N":
            return self._read_named(start)
        if char.isascii() and char.isalpha():
            self.cursor.fail(f"an unknown escape \\{char}", at=start, hint="this is Python's syntax")
        return ord(char)

    def _read_octal(self, start: int, *, in_class: bool) -> int:
        match = re.compile("0[0-7]{0,2}|[0-7]{3}").match(self.cursor.text, self.cursor.index)
        if match is None and in_class:
            match = re.compile("[0-7]{1,3}").match(self.cursor.text, self.cursor.index)
        if match is None:
            if in_class:
                self.cursor.fail("an escaped digit that is not octal", at=start)
            self.cursor.fail("a back-reference", at=start, hint=_NOT_REGULAR, kind=UnsupportedGrammarError)
        value = int(match[0], 8)
        if value > 0o377:
            self.cursor.fail("an octal escape above 377", at=start)
        self.cursor.index = match.end()
        return value

    def _read_hex(self, start: int, length: int) -> int:
        digits = self.cursor.peek(length)
        if not re.fullmatch(f"[0-9A-Fa-f]{{{length}}}", digits):
            self.cursor.fail(f"an escape that wants {length} hexadecimal digits", at=start)
        value = int(digits, 16)
        if value > MAX_CODE_POINT:
            self.cursor.fail("an escape beyond the last character", at=start)
        self.cursor.index += length
        return value

    def _take_braced_hex(self, braced: re.Match[str], start: int) -> int:
        value = int(braced[1], 16)
        if value > MAX_CODE_POINT:
            self.cursor.fail("an escape beyond the last character", at=start)
        self.cursor.index = braced.end()
        return value

    def _read_property(self, start: int, flags: _Flags) -> Ranges:
        r"""Read what follows a backslash: `p{L}`, `pL` or `P{...}`, a general category of Unicode."""
        is_negated = self.cursor.next() == "P"
        match = _PROPERTY.match(self.cursor.text, self.cursor.index)
        ranges = merge(category_ranges(match[1] or match[2])) if match else ()
        if match is None or not ranges:
            self.cursor.fail(
                "a property that is no general category of Unicode", at=start, hint=r"there are \p{L}, \p{Lu}, \p{Nd}, ..."
            )
        self.cursor.index = match.end()
        ranges = fold_case(ranges) if flags.ignores_case else ranges
        return negate(ranges) if is_negated else ranges

    def _read_named(self, start: int) -> int:
        match = re.compile(r"\{([^}]{1,100})\}").match(self.cursor.text, self.cursor.index)
        try:
            value = ord(unicodedata.lookup(match[1])) if match else -1
        except (KeyError, TypeError):
            value = -1
        if match is None or value < 0:
            self.cursor.fail("a character name that Unicode does not know", at=start)
        self.cursor.index = match.end()
        return value

    def _read_class(self, flags: _Flags, start: int) -> Chars:
        is_negated = self.cursor.take("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or self.cursor.peek() != "]":
            if self.cursor.is_done:
                self.cursor.fail("a character class that is never closed", at=start)
            is_first = False
            ranges.extend(self._read_class_part(flags))
        self.cursor.index += 1
        merged = merge(ranges)
        merged = fold_case(merged) if flags.ignores_case else merged
        return Chars(negate(merged) if is_negated else merged)

    def _read_class_part(self, flags: _Flags) -> Ranges:
        start = self.cursor.index
        low = self._read_class_atom(flags)
        if self.cursor.peek() != "-" or self.cursor.peek(2) in ("-]", "-"):
            return low if isinstance(low, tuple) else ((low, low),)
        self.cursor.index += 1
        high = self._read_class_atom(flags)
        if isinstance(low, tuple) or isinstance(high, tuple):
            self.cursor.fail("a range whose end is a class", at=start)
        if low > high:
            self.cursor.fail("a range that runs backwards", at=start)
        return ((low, high),)

    def _read_class_atom(self, flags: _Flags) -> int | Ranges:
        start = self.cursor.index
        posix = _POSIX_CLASS.match(self.cursor.text, start)
        if posix is not None and posix[1] in _POSIX:
            self.cursor.index = posix.end()
            return _POSIX[posix[1]]
        char = self.cursor.next()
        if char != "\\":
            return ord(char)
        escaped = self.cursor.peek()
        if escaped and escaped in "dDwWsS":
            self.cursor.index += 1
            return class_ranges(escaped, is_ascii=flags.is_ascii)
        if escaped and escaped in "pP":
            return self._read_property(start, flags)
        return self._read_escaped_char(start, in_class=True)


def _char(code_point: int, flags: _Flags) -> Chars:
    ranges = merge([(code_point, code_point)])
    return Chars(fold_case(ranges) if flags.ignores_case else ranges)


class _Settler:
    """Takes anchors and look-aheads out: what is left is plain."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def settle(self, raw: _Raw, *, is_start: bool, is_end: bool) -> Node:
        """Give the plain node; `is_start` and `is_end`: nothing can stand before or after it."""
        match raw:
            case _RawRow(items):
                return self._settle_row(items, is_start=is_start, is_end=is_end)
            case _RawEither(items):
                return Either(tuple(self.settle(item, is_start=is_start, is_end=is_end) for item in items))
            case _RawRepeat(item, low, high):
                is_once = high == 1
                inner = self.settle(item, is_start=is_start and is_once, is_end=is_end and is_once)
                return make_repeat(inner, low, high)
            case _Anchor():
                return self._settle_anchor(raw, is_start=is_start, is_end=is_end)
            case _Look():
                return self._settle_row((raw,), is_start=is_start, is_end=is_end)
            case _:
                return raw

    def _settle_row(self, items: tuple[_Raw, ...], *, is_start: bool, is_end: bool) -> Node:
        look = next((index for index, item in enumerate(items) if isinstance(item, _Look)), None)
        if look is not None:
            return self._settle_look(items, look, is_start=is_start, is_end=is_end)
        first = next((index for index, item in enumerate(items) if not isinstance(item, _Anchor)), len(items))
        last = next((index for index in reversed(range(len(items))) if not isinstance(items[index], _Anchor)), -1)
        settled = [
            self.settle(item, is_start=is_start and index <= first, is_end=is_end and index >= last)
            for index, item in enumerate(items)
        ]
        return join_row(settled)

    def _settle_anchor(self, anchor: _Anchor, *, is_start: bool, is_end: bool) -> Node:
        if is_end if anchor.is_end else is_start:
            return EMPTY
        if anchor.is_of_line:
            self._cursor.fail(
                f"`{anchor.text}` of the multi-line flag", at=anchor.place, hint=_NOT_REGULAR, kind=UnsupportedGrammarError
            )
        side = "end" if anchor.is_end else "start"
        self._cursor.fail(
            f"`{anchor.text}` away from the {side}",
            at=anchor.place,
            hint="the whole text is matched anyway",
            kind=UnsupportedGrammarError,
        )

    def _settle_look(self, items: tuple[_Raw, ...], look: int, *, is_start: bool, is_end: bool) -> Node:
        found = items[look]
        assert isinstance(found, _Look)
        if not is_end:
            self._cursor.fail(
                "look-ahead with something after its group", at=found.place, hint=_NOT_REGULAR, kind=UnsupportedGrammarError
            )
        before = self._settle_row(items[:look], is_start=is_start, is_end=False)
        is_start = is_start and all(isinstance(item, _Anchor) for item in items[:look])
        rest = self._settle_row(items[look + 1 :], is_start=is_start, is_end=True)
        seen = self._settle_seen(found)
        return join_row([before, Both((rest, Other(seen) if found.is_negative else seen))])

    def _settle_seen(self, look: _Look) -> Node:
        """Give the texts that begin with what a look-ahead wants; an anchor at its end is about the end of the text."""
        inner = look.node.items if isinstance(look.node, _RawRow) else (look.node,)
        rest: Node = _REST
        if inner and isinstance(inner[-1], _Anchor) and inner[-1].is_end:
            # `$` holds before a line break at the very end, too; of a line, before any.
            line_break = Chars(((10, 10),))
            after = Row((line_break, _REST)) if inner[-1].is_of_line else line_break
            rest = Repeat(after, 0, 1) if inner[-1].text == "$" else EMPTY
            inner = inner[:-1]
        return join_row([self._settle_row(inner, is_start=False, is_end=False), rest])


def join_row(items: list[Node]) -> Node:
    """Make a row, flat, with neighbouring single characters joined to a text."""
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Row) else (item,))
    joined: list[Node] = []
    for item in flat:
        text = single_text(item)
        if text is not None and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + text)
        elif text is not None:
            joined.append(Text(text))
        else:
            joined.append(item)
    return joined[0] if len(joined) == 1 else Row(tuple(joined))


def single_text(node: Node) -> str | None:
    """Give the one text that a node matches if it is a text or a class of one character."""
    if isinstance(node, Text):
        return node.text
    if isinstance(node, Chars) and len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1]:
        return chr(node.ranges[0][0])
    return None
