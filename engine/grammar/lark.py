"""Read Lark grammars, in the dialect of llguidance (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md).

Regular expressions in them are Python's, as in Lark itself. Aliases and priorities are read and dropped: they change trees, not
texts. What no backend has (templates, `%declare`, `%override`, imports of other files) is refused with its place. The way back is
`lark_writer.py`.
"""

from __future__ import annotations

import json
import re
import string
from typing import Any

from ..errors import GrammarError, UnsupportedGrammarError
from .char_classes import fold_case
from .cursor import Cursor, raise_at
from .inner_schemas import read_inner_schema, rewritten_inner_schema
from .lark_common import COMMON_TERMINALS
from .nodes import (
    EMPTY,
    MAX_CODE_POINT,
    MAX_DEPTH,
    Both,
    Chars,
    Either,
    Foreign,
    Lexeme,
    Node,
    Other,
    Place,
    Ref,
    Row,
    Rule,
    Rules,
    Text,
    Tokens,
    make_repeat,
    merge_ranges,
    walk,
)
from .regex_check import parse_regex

START = "start"
_SUBJECT = "lark"
MAX_REPEAT = 2**16
_INLINE = frozenset(" \t\r")
_RULE_HEAD = re.compile(r"([!?]{0,2})(_?[a-z][_a-z0-9\-]*|_?[A-Z][_A-Z0-9\-]*)(\.-?[0-9]{1,9})?")
_NAME = re.compile(r"_?[a-z][_a-z0-9\-]*|_?[A-Z][_A-Z0-9\-]*")
_NUMBER = re.compile(r"[0-9]{1,9}")
_REGEX = re.compile(r"/((?:\\.|[^/\\\n])+)/([imslux]*)")
_TOKEN = re.compile(r"<([^<>\s]{1,200})>")
_TOKEN_RANGES = re.compile(r"\[(\^?)([0-9,\-]+|\*)\]")
_OPTIONS = re.compile(r'\[\s*(lazy|suffix\s*=\s*(?:"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|[A-Z][_A-Z0-9\-]*))\s*\]')
_HEX = {"u": 4, "x": 2, "U": 8}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
# Rust's spelling of classes and characters, which Python does not have: passed on.
_RUST_ONLY = re.compile(r"\\[pP](?:\{|[A-Z])|\\[xuU]\{")
_COMPACT_JSON = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


def parse_lark(text: str) -> Rules:
    """Read a Lark grammar.

    Raises:
        InvalidGrammarError: Not in the dialect; `line` and `column` name the place.
        UnsupportedGrammarError: A feature that no backend has.
    """
    return _Reader(Cursor(text, _SUBJECT)).read_all()


class _Reader:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._depth = 0
        self._in_terminal = False
        self._rules: dict[str, Rule] = {}
        self._ignored: list[Node] = []

    def read_all(self) -> Rules:
        self._skip_lines()
        while not self.cursor.is_done:
            if self.cursor.peek() == "%":
                self._read_statement()
            else:
                self._add(self._read_rule())
            self._end_line()
        return Rules(self._rules, START, tuple(self._ignored))

    def _add(self, rule: Rule) -> None:
        if rule.name in self._rules:
            self.cursor.fail(f"{rule.name} is defined twice", at=rule.place)
        self._rules[rule.name] = rule

    def _end_line(self) -> None:
        self._skip_inline()
        if not self.cursor.is_done and self.cursor.peek() != "\n":
            self.cursor.fail(f"unexpected {self.cursor.peek()!r}", hint=self._hint())
        self._skip_lines()

    def _hint(self) -> str | None:
        char = self.cursor.peek()
        if char == "'":
            return "texts stand in double quotes"
        return "this looks like EBNF" if char == ":" else None

    def _skip_inline(self) -> None:
        cursor = self.cursor
        while cursor.take_while(_INLINE) or cursor.peek() == "#" or cursor.peek(2) == "//":
            if cursor.peek() == "#" or cursor.peek(2) == "//":
                end = cursor.text.find("\n", cursor.index)
                cursor.index = len(cursor.text) if end < 0 else end

    def _skip_lines(self) -> None:
        self._skip_inline()
        while self.cursor.take("\n"):
            self._skip_inline()

    def _read_rule(self) -> Rule:
        cursor = self.cursor
        place = cursor.place()
        match = _RULE_HEAD.match(cursor.text, cursor.index)
        if match is None:
            cursor.fail("a rule or a directive must begin here", hint='rules look like start: "text" | other')
        name = match[2]
        cursor.index = match.end()
        is_terminal = name.lstrip("_")[0].isupper()
        if cursor.peek() == "{":
            cursor.fail("templates", kind=UnsupportedGrammarError, hint="write the rule out")
        options = self._read_options(is_terminal=is_terminal)
        self._skip_inline()
        if not cursor.take(":"):
            cursor.fail(f"`:` must follow the name {name}", hint="names are all lower or all upper case")
        if cursor.peek() in (":", "="):
            cursor.fail("`::`", hint="rules look like start: ...; this looks like EBNF")
        self._in_terminal = is_terminal
        return Rule(name, self._read_either(), place, is_terminal, options)

    def _read_options(self, *, is_terminal: bool) -> str:
        if self.cursor.peek() != "[":
            return ""
        match = _OPTIONS.match(self.cursor.text, self.cursor.index)
        if match is None or is_terminal:
            self.cursor.fail(
                "options of a rule other than [lazy] and [suffix=...]", kind=UnsupportedGrammarError, hint="leave them out"
            )
        self.cursor.index = match.end()
        return match[0]

    def _read_statement(self) -> None:
        cursor = self.cursor
        start = cursor.index
        if cursor.take("%ignore"):
            self._in_terminal = True
            self._ignored.append(self._read_either())
        elif cursor.take("%import"):
            self._read_import(start)
        elif cursor.take("%llguidance"):
            if self._read_json(start) != {}:
                cursor.fail("options of llguidance are not passed on", at=start, kind=UnsupportedGrammarError)
        else:
            word = re.match(r"%\w*", cursor.text[start : start + 40])
            found = word[0] if word else "%"
            cursor.fail(f"the directive {found}", kind=UnsupportedGrammarError, hint="there are %ignore and %import common")

    def _read_import(self, start: int) -> None:
        self._skip_inline()
        if not self.cursor.take("common"):
            self.cursor.fail(
                "an import from another file", at=start, kind=UnsupportedGrammarError, hint="only %import common.NAME is known"
            )
        if self.cursor.take("."):
            place = self.cursor.place()
            name = self._read_name("the name of a terminal")
            self._skip_inline()
            alias = name
            if self.cursor.take("->"):
                self._skip_inline()
                alias = self._read_name("the new name")
            self._import(name, alias, place)
            return
        self._skip_inline()
        if not self.cursor.take("("):
            self.cursor.fail("`.NAME` or `(NAME, NAME)` must follow common")
        while True:
            self._skip_inline()
            place = self.cursor.place()
            name = self._read_name("the name of a terminal")
            self._import(name, name, place)
            self._skip_inline()
            if not self.cursor.take(","):
                break
        if not self.cursor.take(")"):
            self.cursor.fail("a closing bracket must stand here")

    def _import(self, name: str, alias: str, place: Place) -> None:
        if name not in COMMON_TERMINALS:
            self.cursor.fail(f"common has no {name}", at=place, hint=", ".join(COMMON_TERMINALS))
        if not alias.lstrip("_")[0].isupper():
            self.cursor.fail("a terminal's name is upper case", at=place)
        self._add(Rule(alias, Lexeme(parse_regex(COMMON_TERMINALS[name])), place, is_terminal=True))

    def _read_name(self, wanted: str) -> str:
        match = _NAME.match(self.cursor.text, self.cursor.index)
        if match is None:
            self.cursor.fail(f"{wanted} must stand here")
        self.cursor.index = match.end()
        return match[0]

    def _read_json(self, start: int) -> Any:
        self._skip_inline()
        at = self.cursor.index
        try:
            value, self.cursor.index = json.JSONDecoder().raw_decode(self.cursor.text, at)
        except (ValueError, RecursionError) as error:
            where = error.pos if isinstance(error, json.JSONDecodeError) else at
            self.cursor.fail(f"not JSON: {getattr(error, 'msg', 'nested too deeply')}", at=where)
        if not isinstance(value, dict):
            self.cursor.fail("a JSON object must follow", at=start)
        return value

    def _read_either(self) -> Node:
        items = [self._read_both()]
        while self._take_bar():
            items.append(self._read_both())
        return items[0] if len(items) == 1 else Either(tuple(items))

    def _take_bar(self) -> bool:
        """Read `|`, also at the head of the next line."""
        self._skip_inline()
        start = self.cursor.index
        self._skip_lines()
        if self.cursor.take("|"):
            return True
        if self._depth == 0:
            self.cursor.index = start
        return False

    def _read_both(self) -> Node:
        items = [self._read_row()]
        while self.cursor.peek() == "&":
            if not self._in_terminal:
                self.cursor.fail("`&` outside a terminal", hint="put it in a rule with an upper-case name")
            self.cursor.index += 1
            items.append(self._read_row())
        return items[0] if len(items) == 1 else Both(tuple(items))

    def _read_row(self) -> Node:
        items: list[Node] = []
        while True:
            self._skip_lines() if self._depth else self._skip_inline()
            if self.cursor.take("->"):
                self._skip_inline()
                self._read_name("an alias")
                self._skip_lines() if self._depth else self._skip_inline()
                break
            if self.cursor.is_done or self.cursor.peek() in "\n|&)]":
                break
            items.append(self._read_expression())
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _read_expression(self) -> Node:
        is_other = False
        while self.cursor.peek() == "~":
            if not self._in_terminal:
                self.cursor.fail("`~` outside a terminal", hint="put it in a rule with an upper-case name")
            self.cursor.index += 1
            is_other = not is_other
        node = self._read_atom()
        node = Other(node) if is_other else node
        bounds = self._read_bounds()
        return node if bounds is None else make_repeat(node, *bounds)

    def _read_bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.cursor.take(sign):
                return bounds
        start = self.cursor.index
        text = self.cursor.text[start : start + 60]
        match = re.match(r"\s*~\s*([0-9]{1,9})(?:\s*(\.\.)\s*([0-9]{1,9}))?", text)
        if match is None:
            match = re.match(r"\s*\{\s*([0-9]{0,9})\s*(?:(,)\s*([0-9]{0,9})\s*)?\}", text)
        if match is None or not (match[1] or match[3]):
            if self.cursor.peek() == "{":
                self.cursor.fail("a repetition looks like {2}, {2,} or {2,5}")
            return None
        self.cursor.index += match.end()
        low = int(match[1] or 0)
        high = low if match[2] is None else int(match[3]) if match[3] else None
        if max(low, high or 0) > MAX_REPEAT:
            self.cursor.fail(f"more than {MAX_REPEAT} repetitions", at=start)
        if high is not None and low > high:
            self.cursor.fail("the least number of repetitions is larger than the most", at=start)
        return low, high

    def _read_atom(self) -> Node:
        cursor = self.cursor
        place = cursor.place()
        char = cursor.peek()
        if char in ("(", "["):
            return self._read_group(char)
        if char == '"':
            return self._read_literal()
        if char == "/":
            return self._read_regex(place)
        if char == "<":
            return self._read_token(place)
        if char == "%":
            return self._read_inline(place)
        if char == "@":
            cursor.fail("references to other grammars", kind=UnsupportedGrammarError, hint="put the rules in one text")
        match = _NAME.match(cursor.text, cursor.index)
        if match is None:
            cursor.fail(f"unexpected {char!r}" if char else "it ends too early", hint=self._hint())
        cursor.index = match.end()
        if cursor.peek() == "{" and not re.match(r"\{\s*[0-9,]", cursor.text[cursor.index : cursor.index + 40]):
            cursor.fail("templates", kind=UnsupportedGrammarError, hint="write the rule out")
        return Ref(match[0], place)

    def _read_group(self, opener: str) -> Node:
        start = self.cursor.index
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.cursor.fail(f"nested deeper than {MAX_DEPTH} levels")
        self.cursor.index += 1
        node = self._read_either()
        if not self.cursor.take(")" if opener == "(" else "]"):
            if self.cursor.is_done:
                self.cursor.fail("an opening bracket that is never closed", at=start)
            self.cursor.fail(f"unexpected {self.cursor.peek()!r}", hint=self._hint())
        self._depth -= 1
        return node if opener == "(" else make_repeat(node, 0, 1)

    def _read_literal(self) -> Node:
        start = self.cursor.index
        text = self._read_text()
        if self.cursor.take(".."):
            if self.cursor.peek() != '"':
                self.cursor.fail("a range wants a text on either side")
            high = self._read_text()
            if len(text) != 1 or len(high) != 1 or text > high:
                self.cursor.fail("a range wants two single characters in order", at=start)
            return Chars(merge_ranges([(ord(text), ord(high))]))
        if self.cursor.take("i"):
            return Lexeme(Row(tuple(Chars(fold_case(((ord(char), ord(char)),))) for char in text)))
        return Text(text) if text else EMPTY

    def _read_text(self) -> str:
        start = self.cursor.index
        self.cursor.index += 1
        chars: list[str] = []
        while not self.cursor.take('"'):
            if self.cursor.peek() in ("", "\n"):
                self.cursor.fail("a text that is never closed", at=start, hint=r"write a line break as \n")
            chars.append(self._read_char())
        # The two halves of a character that JSON escapes apart.
        text = "".join(chars).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if any("\ud800" <= char <= "\udfff" for char in "".join(chars)) and "\ufffd" in text:
            self.cursor.fail("half a character (a lone surrogate), which no text holds", at=start)
        return text

    def _read_char(self) -> str:
        start = self.cursor.index
        char = self.cursor.next()
        if char != "\\":
            return char
        char = self.cursor.next()
        if char in _ESCAPES:
            return _ESCAPES[char]
        digits = self.cursor.peek(_HEX.get(char, 0))
        if char not in _HEX or len(digits) < _HEX[char] or not all(digit in string.hexdigits for digit in digits):
            self.cursor.fail(f"an unknown escape \\{char}", at=start)
        self.cursor.index += len(digits)
        if int(digits, 16) > MAX_CODE_POINT:
            self.cursor.fail("an escape beyond the last character", at=start)
        return chr(int(digits, 16))

    def _read_regex(self, place: Place) -> Node:
        match = _REGEX.match(self.cursor.text, self.cursor.index)
        if match is None:
            self.cursor.fail("a regular expression that is never closed")
        self.cursor.index = match.end()
        pattern, flags = match[1], match[2].replace("l", "")
        if _RUST_ONLY.search(pattern):
            return Foreign(match[0], r"\p{...} or \u{...} in a regular expression", "llguidance", place)
        origin = Place(place.line, place.column + 1)
        node = parse_regex(pattern, subject=_SUBJECT, flags=flags, origin=origin)
        if self._in_terminal or not any(isinstance(item, (Both, Other)) for item in walk(node)):
            return Lexeme(node)
        # Look-ahead became an intersection, which only terminals may hold.
        name = f"LOOK_AHEAD_{len(self._rules)}"
        self._add(Rule(name, node, place, is_terminal=True))
        return Ref(name, place)

    def _read_token(self, place: Place) -> Node:
        match = _TOKEN.match(self.cursor.text, self.cursor.index)
        if match is None:
            self.cursor.fail("a special token looks like <|name|> or <[151668]>")
        self.cursor.index = match.end()
        if not match[1].startswith("["):
            return Tokens((), False, match[0], place)
        ranges = _TOKEN_RANGES.fullmatch(match[1])
        pairs = [] if ranges is None else [_token_range(piece) for piece in ranges[2].split(",")]
        if ranges is None or None in pairs:
            raise_at(_SUBJECT, place, "token ids look like <[1]>, <[1-5,8]>, <[^1]> or <[*]>")
        return Tokens(tuple(sorted(pair for pair in pairs if pair)), bool(ranges[1]), "", place)

    def _read_inline(self, place: Place) -> Node:
        start = self.cursor.index
        if self.cursor.take("%json"):
            schema = self._read_json(start)
            try:
                schema = rewritten_inner_schema(read_inner_schema(schema), "llguidance")
            except GrammarError as error:
                pointer = error.pointer or "#"
                raise_at(_SUBJECT, place, f"%json, at {pointer}: {error}", hint=error.hint, kind=type(error))
            schema = (schema if isinstance(schema, dict) else {}) | {"x-guidance": _COMPACT_JSON}
            return Foreign("%json " + json.dumps(schema), "%json", "llguidance", place)
        if self.cursor.take("%regex"):
            return Foreign("%regex " + json.dumps(self._read_json(start)), "%regex", "llguidance", place)
        self.cursor.fail("an unknown directive", hint="there are %json and %regex")


def _token_range(text: str) -> tuple[int, int] | None:
    if text == "*":
        return (0, 2**31 - 1)
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        return None
    return (int(match[1]), int(match[2] or match[1]))
