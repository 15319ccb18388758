"""Write a regular language as a pattern that a backend reads, anchored at both ends.

xgrammar matches a pattern with the JSON text between the quotes and allows no escapes there, so a character that JSON escapes is
left out; llguidance escapes it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from .regular import LAST, Automaton, Language, Languages, Ranges, TooLargeError, build, join_ranges

MAX_LENGTH = 12_000
"""Characters of a printed pattern."""
MAX_STATES = 150
MAX_REMEMBERED_SETS = 256
"""Classes of characters come again at every edge of an automaton, and a category of Unicode is 10,000 characters of text."""
_SPECIAL = frozenset("\\^$.|?*+()[]{}-/&~#\"' <>,=!:")
_JSON_ESCAPED: Ranges = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
# xgrammar 0.2.9 takes spellings in UTF-8 that are too long where one range holds characters of more lengths than one.
_LAST_OF_LENGTH = (0x7FF, 0xFFFF)
_LENGTHS = ((0, 0x7FF), (0x800, 0xFFFF), (0x10000, LAST))
PrintSet = Callable[[Ranges], str]


def print_language(languages: Languages, language: Language, *, as_json_text: bool) -> str:
    """Write a language as a pattern.

    Args:
        languages: What made it.
        language: The texts.
        as_json_text: Match the JSON text between the quotes, without escapes, instead of the string.

    Raises:
        TooLargeError: The pattern would be too long, or the language is empty.
    """
    print_set = print_json_set if as_json_text else print_plain_set
    if _is_plain(language):
        body = _Printer(print_set).write(language)
    else:
        automaton = build(languages, language, max_states=MAX_STATES)
        if automaton.is_empty:
            raise TooLargeError
        body = eliminate(automaton, print_set)
    if len(body) > MAX_LENGTH:
        raise TooLargeError
    return f"^(?:{body})$"


def loses_escapes(languages: Languages, language: Language) -> bool:
    """Whether a language written as JSON text lacks texts that it has: those with characters that JSON escapes.

    Raises:
        TooLargeError: As `print_language`.
    """
    if _is_plain(language):
        sets = [part.ranges for part in _parts(language)]
    else:
        automaton = build(languages, language, max_states=MAX_STATES)
        sets = [ranges for targets in automaton.moves for ranges in targets.values()]
    return any(_subtract(ranges, _JSON_ESCAPED) != ranges for ranges in sets)


def _parts(language: Language) -> Iterator[Language]:
    seen = {language}
    stack = [language]
    while stack:
        part = stack.pop()
        yield part
        new = [inner for inner in part.parts if inner not in seen]
        seen.update(new)
        stack += new


def _is_plain(language: Language) -> bool:
    return all(part.kind not in ("and", "not", "none") for part in _parts(language))


class _Printer:
    def __init__(self, print_set: PrintSet) -> None:
        self._print_set = print_set

    def write(self, language: Language) -> str:
        if language.kind == "set":
            return self._print_set(language.ranges)
        if language.kind == "empty":
            return ""
        if language.kind == "cat":
            parts = []
            while language.kind == "cat":
                parts.append(self._inner(language.parts[0]))
                language = language.parts[1]
            return "".join([*parts, self._inner(language)])
        if language.kind == "or":
            return "|".join(self.write(part) for part in language.parts)
        inner = self._inner(language.parts[0])
        if (language.low, language.high) == (0, 1):
            return _optional(inner)
        return _group(inner) + _quantifier(language.low, language.high)

    def _inner(self, language: Language) -> str:
        text = self.write(language)
        return f"(?:{text})" if language.kind == "or" else text


def _group(text: str) -> str:
    is_one = len(text) == 1 or (text.startswith("[") and text.find("]") == len(text) - 1) or (len(text) == 2 and text[0] == "\\")
    return text if is_one else f"(?:{text})"


def _quantifier(low: int, high: int | None) -> str:
    if high is None and low < 2:
        return "+" if low else "*"
    end = "" if high is None else str(high)
    return f"{{{low}}}" if low == high else f"{{{low},{end}}}"


@lru_cache(maxsize=MAX_REMEMBERED_SETS)
def print_plain_set(ranges: Ranges) -> str:
    """Write characters as a class in the words of llguidance."""
    if _holds(ranges, 0, 0x1F) and not (_holds(ranges, 0x22, 0x22) and _holds(ranges, 0x5C, 0x5C)):
        # llguidance 1.9.1 takes a class with all control characters for one with all characters that JSON escapes.
        ranges = _subtract(ranges, ((0, 0),))
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    body = "".join(_character(low) if low == high else f"{_character(low)}-{_character(high)}" for low, high in ranges)
    return f"[{body}]"


def _holds(ranges: Ranges, first: int, last: int) -> bool:
    return any(low <= first and last <= high for low, high in ranges)


def _character(code: int) -> str:
    letter = chr(code)
    if letter in _SPECIAL:
        return rf"\x{code:02x}" if letter in "&~#\"' <>,=!:" else "\\" + letter
    if 0x20 < code < 0x7F:
        return letter
    return rf"\x{code:02x}" if code < 0x100 else rf"\u{code:04x}" if code < 0x10000 else rf"\U{code:08x}"


@lru_cache(maxsize=MAX_REMEMBERED_SETS)
def print_json_set(ranges: Ranges) -> str:
    """Write characters as they stand in JSON text; those that JSON escapes are left out."""
    plain = _subtract(ranges, _JSON_ESCAPED)
    if not plain:
        raise TooLargeError
    if not any(low <= last < high for low, high in plain for last in _LAST_OF_LENGTH):
        return _print_xgrammar_class(plain)
    parts = (tuple(_within(plain, first, last)) for first, last in _LENGTHS)
    return "(?:" + "|".join(_print_xgrammar_class(part) for part in parts if part) + ")"


def _within(ranges: Ranges, first: int, last: int) -> Iterator[tuple[int, int]]:
    return ((max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first)


def _print_xgrammar_class(ranges: Ranges) -> str:
    body = "".join(_plain_letter(low) if low == high else f"{_plain_letter(low)}-{_plain_letter(high)}" for low, high in ranges)
    return f"[{body}]"


def _plain_letter(code: int) -> str:
    letter = chr(code)
    if letter in "\\]^-[":
        return "\\" + letter
    return letter if 0x20 <= code < 0x7F else rf"\u{code:04x}" if code < 0x10000 else rf"\u{{{code:x}}}"


def _subtract(ranges: Ranges, other: Ranges) -> Ranges:
    found = []
    for low, high in ranges:
        for first, last in other:
            if low > high or last < low or first > high:
                continue
            if first > low:
                found.append((low, first - 1))
            low = last + 1
        if low <= high:
            found.append((low, high))
    return join_ranges(found)


def eliminate(automaton: Automaton, print_set: PrintSet) -> str:
    """Write an automaton as an expression, by taking its states out one by one."""
    start, end = -1, -2
    graph = _Graph()
    graph.put(start, 0, "")
    for state, targets in enumerate(automaton.moves):
        for target, ranges in targets.items():
            graph.put(state, target, print_set(ranges))
        if state in automaton.accepting:
            graph.put(state, end, "")
    waiting = [state for state in graph.out if state != start]
    while waiting:
        state = min(waiting, key=graph.weight)
        waiting.remove(state)
        _take_out(graph, state)
    return graph.out[start][end]


class _Graph:
    """Edges with texts, found from both ends, and per state what taking it out would write."""

    def __init__(self) -> None:
        self.out: dict[int, dict[int, str]] = {}
        self.into: dict[int, dict[int, str]] = {}
        self._out_len: dict[int, int] = {}
        self._into_len: dict[int, int] = {}

    def put(self, source: int, target: int, text: str) -> None:
        known = self.out.setdefault(source, {}).get(target)
        self.out[source][target] = self.into.setdefault(target, {})[source] = text
        if source != target:
            more = len(text) - (0 if known is None else len(known))
            self._out_len[source] = self._out_len.get(source, 0) + more
            self._into_len[target] = self._into_len.get(target, 0) + more

    def drop(self, source: int, target: int) -> str:
        text = self.out[source].pop(target)
        del self.into[target][source]
        if source != target:
            self._out_len[source] -= len(text)
            self._into_len[target] -= len(text)
        return text

    def weight(self, state: int) -> int:
        into, out = self.into.get(state, {}), self.out[state]
        num_into, num_out = len(into) - (state in into), len(out) - (state in out)
        return self._into_len.get(state, 0) * num_out + self._out_len.get(state, 0) * num_into


def _take_out(graph: _Graph, state: int) -> None:
    loop = graph.drop(state, state) if state in graph.out[state] else None
    middle = "" if loop is None else f"(?:{loop})*" if not _is_atom(loop) else f"{loop}*"
    paths = [(target, _safe(graph.drop(state, target))) for target in list(graph.out[state])]
    for source in list(graph.into.get(state, ())):
        into = _safe(graph.drop(source, state)) + middle
        for target, out in paths:
            known = graph.out[source].get(target)
            text = into + out if known is None else _join(known, into + out)
            if len(text) > MAX_LENGTH:
                raise TooLargeError
            graph.put(source, target, text)


def _join(first: str, second: str) -> str:
    if first == second:
        return first
    if not first or not second:
        text = first or second
        return _optional(text)
    return f"{first}|{second}"


def _optional(text: str) -> str:
    # xgrammar 0.2.9 takes `(ab|c)?` for `(ab|c|a)?`.
    return f"{text}?" if _is_atom(text) else f"(?:{text}|)"


def _is_atom(text: str) -> bool:
    return len(text) == 1 or (text.startswith("[") and text.find("]") == len(text) - 1)


def _safe(text: str) -> str:
    """Group a text that has a choice at its outermost level."""
    depth = 0
    in_class = is_escaped = False
    for letter in text:
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = True
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "|" and depth == 0:
            return f"(?:{text})"
    return text
