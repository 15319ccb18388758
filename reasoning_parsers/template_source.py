"""The source of a chat template as a tree: text, outputs, assignments, conditions. Jinja, as far as chat templates use it.

Nothing is run here; `template_walk.py` follows the tree. White space control is not followed: no marker begins or ends with white
space that a template trims. Syntax: https://jinja.palletsprojects.com/en/stable/templates/.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import TemplateReadError

_OPENINGS = re.compile(r"\{\{|\{%|\{#")
_CODE = re.compile(
    r"""(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<operator>==|!=|<=|>=|//|\*\*|[-+*/%~|.,:()\[\]{}<>=])
    |(?P<space>\s+)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"{{": "}}", "{%": "%}"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_END_OF_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of code: its kind (`string`, `number`, `name`, `operator`) and its text; of a string the text it stands for."""

    kind: str
    text: str


Code = tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Text that is written as it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """An expression whose value is written."""

    code: Code


@dataclass(frozen=True, slots=True)
class Assignment:
    """`set`: a variable (`a` or `a.b`), and the expression or the block that gives its value; other targets have no name."""

    target: str
    code: Code
    body: tuple[Node, ...] | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """`if`: the branches in order, each with its condition; `else` has none."""

    branches: tuple[tuple[Code | None, tuple[Node, ...]], ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`for`: names that it sets, the rest of its head, and its body."""

    targets: tuple[str, ...]
    code: Code
    body: tuple[Node, ...]


Node = Text | Output | Assignment | Condition | Loop


def read_source(source: str) -> tuple[Node, ...]:
    """Read the source of a template. Macros are left out: they write nothing where they stand.

    Raises:
        TemplateReadError: It is no Jinja, or has syntax that this reader does not know.
    """
    reader = _Reader(source)
    nodes, end = reader.read_until(())
    assert end is None
    return nodes


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._pieces = self._split()

    def read_until(self, ends: tuple[str, ...]) -> tuple[tuple[Node, ...], Code | None]:
        """Read nodes up to a tag of one of these names, which is taken and returned; None at the end of the source."""
        nodes: list[Node] = []
        for opening, code in self._pieces:
            if opening == "":
                nodes.append(Text(code[0].text))
            elif opening == "{{":
                nodes.append(Output(code))
            elif code and code[0].text in ends:
                return tuple(nodes), code
            else:
                nodes.extend(self._read_tag(code))
        if ends:
            raise TemplateReadError(f"no {' or '.join(ends)} before the end of the chat template")
        return tuple(nodes), None

    def _read_tag(self, code: Code) -> tuple[Node, ...]:
        name = code[0].text if code else ""
        if name == "if":
            return (self._read_if(code[1:]),)
        if name == "for":
            return (self._read_for(code[1:]),)
        if name == "set":
            return (self._read_set(code[1:]),)
        if name == "macro":
            self.read_until(("endmacro",))
            return ()
        if name in ("generation", "filter", "call", "with", "block", "autoescape"):
            return self.read_until((f"end{name}",))[0]
        if name in ("break", "continue", "do", "import", "from", "include", "extends"):
            return ()
        raise TemplateReadError(f"the chat template has a tag that is not known here: {name or 'an empty one'}")

    def _read_if(self, code: Code) -> Condition:
        branches: list[tuple[Code | None, tuple[Node, ...]]] = []
        condition: Code | None = code
        while True:
            body, end = self.read_until(("elif", "else", "endif"))
            branches.append((condition, body))
            assert end is not None
            if end[0].text == "endif":
                return Condition(tuple(branches))
            condition = end[1:] if end[0].text == "elif" else None

    def _read_for(self, code: Code) -> Loop:
        names = [token.text for token in code]
        cut = names.index("in") if "in" in names else len(code)
        targets = tuple(token.text for token in code[:cut] if token.kind == "name")
        body, end = self.read_until(("else", "endfor"))
        assert end is not None
        if end[0].text == "else":
            body += self.read_until(("endfor",))[0]
        return Loop(targets, code[cut + 1 :], body)

    def _read_set(self, code: Code) -> Assignment:
        names = [token.text for token in code]
        if "=" not in names:
            body, _ = self.read_until(("endset",))
            return Assignment("".join(names), (), body)
        cut = names.index("=")
        target = "".join(names[:cut])
        return Assignment(target if "," not in target else "", code[cut + 1 :])

    def _split(self) -> Iterator[tuple[str, Code]]:
        """Pieces in order: text (as one token), outputs and tags."""
        position = 0
        while position < len(self._source):
            found = _OPENINGS.search(self._source, position)
            stop = found.start() if found else len(self._source)
            if stop > position:
                yield "", (Token("text", self._source[position:stop]),)
            if found is None:
                return
            if found[0] == "{#":
                position = self._find("#}", found.end()) + 2
                continue
            has_sign = self._source[found.end() : found.end() + 1] in ("-", "+")
            code, position = self._lex(found.end() + has_sign, _CLOSING[found[0]])
            if found[0] == "{%" and code and code[0].text == "raw":
                end = _END_OF_RAW.search(self._source, position)
                if end is None:
                    raise TemplateReadError("no endraw before the end of the chat template")
                yield "", (Token("text", self._source[position : end.start()]),)
                position = end.end()
                continue
            yield found[0], code

    def _find(self, text: str, start: int) -> int:
        index = self._source.find(text, start)
        if index < 0:
            raise TemplateReadError(f"line {self._line(start)} of the chat template: no {text}")
        return index

    def _line(self, position: int) -> int:
        return self._source.count("\n", 0, position) + 1

    def _lex(self, start: int, closing: str) -> tuple[Code, int]:
        """Tokens from `start` to the closing delimiter, and the position after it."""
        tokens: list[Token] = []
        open_brackets: list[str] = []
        position = start
        while True:
            rest = self._source[position : position + 3].lstrip("-+")
            if not open_brackets and rest.startswith(closing):
                return tuple(tokens), self._source.index(closing, position) + 2
            found = _CODE.match(self._source, position)
            if found is None:
                raise TemplateReadError(f"line {self._line(position)} of the chat template cannot be read")
            position = found.end()
            kind = str(found.lastgroup)
            if kind == "operator" and found[0] in _PAIRS:
                open_brackets.append(_PAIRS[found[0]])
            elif open_brackets and found[0] == open_brackets[-1]:
                open_brackets.pop()
            if kind == "string":
                tokens.append(Token(kind, _unescape(found[0][1:-1])))
            elif kind != "space":
                tokens.append(Token(kind, found[0]))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return text.encode("ascii", "backslashreplace").decode("unicode-escape")
    except UnicodeDecodeError:
        return text
