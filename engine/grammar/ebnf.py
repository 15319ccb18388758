"""EBNF: the dialects of xgrammar and of GBNF (https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md).

The start rule is `root`. An alternative may be empty and `.` is any character, as in GBNF. `ebnf_writer.py` is the way back.
"""

from __future__ import annotations

import re

from ..errors import UnsupportedGrammarError
from .char_classes import class_ranges
from .cursor import Cursor
from .nodes import (
    EMPTY,
    MAX_CODE_POINT,
    MAX_DEPTH,
    Chars,
    Either,
    Node,
    Place,
    Ranges,
    Ref,
    Row,
    Rule,
    Rules,
    Text,
    Tokens,
    make_repeat,
    merge_ranges,
    negate_ranges,
)

ROOT = "root"
_SUBJECT = "ebnf"
MAX_REPEAT = 2**16
_SPACES = frozenset(" \t\r\n")
_NAME = re.compile(r"[A-Za-z_.\-][A-Za-z0-9_.\-]*")
_ANY = re.compile(r"\.(?![A-Za-z0-9_.\-]*[A-Za-z0-9_])")
"""A dot that begins no name."""
_NUMBER = re.compile(r"[0-9]{1,15}")
_TOKEN_IDS = re.compile(r"\(\s*([0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*)\s*\)")
_GBNF_TOKEN = re.compile(r"(!?)<(?:\[([0-9]{1,9})\]|[^\s<>]+)>")
_ESCAPES = {"n": 10, "r": 13, "t": 9, "\\": 92, '"': 34, "'": 39, "0": 0, "a": 7, "b": 8, "f": 12, "v": 11, "?": 63, "e": 27}
_PUNCTUATION = frozenset("^$\\.*+?()[]{}|/-")
_HEX_ESCAPE = re.compile(r"x([0-9A-Fa-f]{1,8})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
MACROS = frozenset("TagDispatch TokenTagDispatch ExcludeToken".split())


def parse_ebnf(text: str) -> Rules:
    """Read an EBNF grammar.

    Raises:
        InvalidGrammarError: Not in the dialect; `line` and `column` name the place.
        UnsupportedGrammarError: A macro of a backend that is not passed through.
    """
    return _Reader(Cursor(text, _SUBJECT)).read_all()


class _Reader:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._depth = 0

    def read_all(self) -> Rules:
        rules: dict[str, Rule] = {}
        self._skip_space()
        while not self.cursor.is_done:
            rule = self._read_rule()
            if rule.name in rules:
                self.cursor.fail(f"the rule {rule.name} is defined twice", at=rule.place)
            rules[rule.name] = rule
            self._skip_space()
        if not rules:
            self.cursor.fail("no rule")
        return Rules(rules, ROOT)

    def _read_rule(self) -> Rule:
        place = self.cursor.place()
        name = self._read_name()
        if name is None:
            self.cursor.fail("a rule must begin here", hint='rules look like root ::= "text" | other')
        self._skip_space()
        if not self.cursor.take("::="):
            hint = "this looks like Lark" if self.cursor.peek() == ":" else None
            self.cursor.fail(f"`::=` must follow the name {name}", hint=hint)
        start = self.cursor.index
        self._skip_space()
        says_nothing = self.cursor.is_done or self._is_at_rule()
        if says_nothing:
            self.cursor.fail(f"the rule {name} says nothing", at=start, hint='write the empty text as ""')
        node = self._read_either()
        if not self.cursor.is_done and not self._is_at_rule():
            self.cursor.fail(f"unexpected {self.cursor.peek()!r}", hint=self._hint())
        return Rule(name, node, place)

    def _hint(self) -> str | None:
        return "texts stand in double quotes" if self.cursor.peek() in ("'", "/", "<", ".") else None

    def _read_name(self) -> str | None:
        match = _NAME.match(self.cursor.text, self.cursor.index)
        if match is None:
            return None
        self.cursor.index = match.end()
        return match[0]

    def _is_at_rule(self) -> bool:
        """Whether a rule's head, `name ::=`, comes next."""
        start = self.cursor.index
        if self._read_name() is None:
            return False
        self.cursor.take_while(_SPACES)
        found = self.cursor.peek(3) == "::="
        self.cursor.index = start
        return found

    def _skip_space(self) -> None:
        while self.cursor.take_while(_SPACES) or self.cursor.peek() == "#":
            if self.cursor.take("#"):
                end = self.cursor.text.find("\n", self.cursor.index)
                self.cursor.index = len(self.cursor.text) if end < 0 else end

    def _read_either(self) -> Node:
        items = [self._read_row()]
        while self.cursor.take("|"):
            items.append(self._read_row())
        return items[0] if len(items) == 1 else Either(tuple(items))

    def _read_row(self) -> Node:
        items: list[Node] = []
        self._skip_space()
        while not self.cursor.is_done and self.cursor.peek() not in "|)" and not self._is_at_rule():
            item = self._read_item()
            if item is None:
                self.cursor.fail(f"unexpected {self.cursor.peek()!r}", hint=self._hint())
            items.append(self._read_quantifiers(item))
            self._skip_space()
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _read_item(self) -> Node | None:
        cursor = self.cursor
        place = cursor.place()
        char = cursor.peek()
        if char == '"':
            return self._read_text()
        if char == "[":
            return self._read_class()
        if char == "(":
            return self._read_group()
        if char in ("<", "!"):
            return self._read_gbnf_token(place)
        if _ANY.match(cursor.text, cursor.index):
            cursor.index += 1
            return Chars(negate_ranges(()))
        name = self._read_name()
        if name is None:
            return None
        if name == "Token":
            return self._read_token(place)
        if name in MACROS:
            cursor.fail(f"the macro {name}", at=place, hint="use a structural tag", kind=UnsupportedGrammarError)
        return Ref(name, place)

    def _read_group(self) -> Node:
        start = self.cursor.index
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.cursor.fail(f"nested deeper than {MAX_DEPTH} levels")
        self.cursor.index += 1
        if self.cursor.peek() == "=":
            self.cursor.fail("look-ahead in a grammar", at=start, kind=UnsupportedGrammarError)
        node = self._read_either()
        if not self.cursor.take(")"):
            if self.cursor.is_done or self._is_at_rule():
                self.cursor.fail("an opening bracket that is never closed", at=start)
            self.cursor.fail(f"unexpected {self.cursor.peek()!r}", hint=self._hint())
        self._depth -= 1
        return node

    def _read_token(self, place: Place) -> Node:
        match = _TOKEN_IDS.match(self.cursor.text, self.cursor.index)
        if match is None:
            self.cursor.fail("Token wants token ids in brackets", hint="Token(151668) or Token(1, 2)")
        self.cursor.index = match.end()
        ids = sorted({int(token_id) for token_id in match[1].split(",")})
        return Tokens(tuple((token_id, token_id) for token_id in ids), False, "", place)

    def _read_gbnf_token(self, place: Place) -> Node | None:
        match = _GBNF_TOKEN.match(self.cursor.text, self.cursor.index)
        if match is None:
            return None
        if match[1] or match[2] is None:
            self.cursor.fail(
                "a token by name, or all tokens but one", hint="name tokens by id: <[151668]>", kind=UnsupportedGrammarError
            )
        self.cursor.index = match.end()
        return Tokens(((int(match[2]), int(match[2])),), False, "", place)

    def _read_quantifiers(self, item: Node) -> Node:
        count = 0
        while (bounds := self._read_bounds()) is not None:
            count += 1
            if count > 2:
                self.cursor.fail("too many repetitions of one item")
            item = make_repeat(item, *bounds)
        return item

    def _read_bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.cursor.take(sign):
                return bounds
        if self.cursor.peek() != "{":
            return None
        start = self.cursor.index
        self.cursor.index += 1
        self.cursor.take_while(_SPACES)
        low = 0 if self.cursor.peek() == "," else self._read_number()
        high: int | None = low
        if self._take_spaced(","):
            high = None if self._take_spaced("}") else self._read_number()
            if high is None:
                return self._checked(low, None, start)
        if not self._take_spaced("}"):
            self.cursor.fail("a repetition looks like {2}, {2,} or {2,5}", at=start)
        return self._checked(low, high, start)

    def _take_spaced(self, wanted: str) -> bool:
        self.cursor.take_while(_SPACES)
        return self.cursor.take(wanted)

    def _read_number(self) -> int:
        self.cursor.take_while(_SPACES)
        match = _NUMBER.match(self.cursor.text, self.cursor.index)
        if match is None:
            self.cursor.fail("a number must stand here")
        self.cursor.index = match.end()
        return int(match[0])

    def _checked(self, low: int, high: int | None, start: int) -> tuple[int, int | None]:
        if max(low, high or 0) > MAX_REPEAT:
            self.cursor.fail(f"more than {MAX_REPEAT} repetitions", at=start)
        if high is not None and low > high:
            self.cursor.fail("the least number of repetitions is larger than the most", at=start)
        return low, high

    def _read_text(self) -> Node:
        start = self.cursor.index
        self.cursor.index += 1
        chars: list[str] = []
        while not self.cursor.take('"'):
            if self.cursor.peek() in ("", "\n", "\r"):
                self.cursor.fail("a text that is never closed", at=start, hint=r"write a line break as \n")
            chars.append(chr(self._read_char(in_class=False)))
        return Text("".join(chars)) if chars else EMPTY

    def _read_char(self, *, in_class: bool) -> int:
        start = self.cursor.index
        char = self.cursor.next()
        if char != "\\":
            return ord(char)
        match = _HEX_ESCAPE.match(self.cursor.text, self.cursor.index)
        if match:
            value = int(match[1] or match[2] or match[3], 16)
            if value > MAX_CODE_POINT or 0xD800 <= value <= 0xDFFF:
                self.cursor.fail("an escape that is no character", at=start)
            self.cursor.index = match.end()
            return value
        char = self.cursor.next()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char in _PUNCTUATION:
            return ord(char)
        hint = rf"it stands in a class here: [\{char}]" if not in_class and char in "dDwWsS" else None
        self.cursor.fail(f"an unknown escape \\{char}", at=start, hint=hint)

    def _read_class(self) -> Node:
        start = self.cursor.index
        self.cursor.index += 1
        is_negated = self.cursor.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.cursor.take("]"):
            if self.cursor.peek() in ("", "\n", "\r"):
                self.cursor.fail("a character class that is never closed", at=start, hint=r"write a line break as \n")
            ranges.extend(self._read_class_part())
        merged = merge_ranges(ranges)
        return Chars(negate_ranges(merged) if is_negated else merged)

    def _read_class_part(self) -> Ranges:
        start = self.cursor.index
        if self.cursor.peek() == "\\" and self.cursor.peek(2)[1:] in tuple("dDwWsS"):
            self.cursor.index += 2
            return class_ranges(self.cursor.text[start + 1], is_ascii=True)
        low = self._read_char(in_class=True)
        if self.cursor.peek() != "-" or self.cursor.peek(2) in ("-]", "-"):
            return ((low, low),)
        self.cursor.index += 1
        high = self._read_char(in_class=True)
        if low > high:
            self.cursor.fail("a range that runs backwards", at=start)
        return ((low, high),)
