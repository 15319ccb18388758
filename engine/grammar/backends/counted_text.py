"""Whether one answer spells out or counts more text than a backend keeps track of.

llguidance's lexer takes about one state for every such character. States are made as an answer is written, so that without
this look a long constant fails in its middle. Counted is the longest way through every text that the constraint spells out, with
as few repeats and characters as it asks for; how many there *may* be is not, since hardly any answer gets there. All options of
an enum together are no state of one answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import EngineError, UnsupportedGrammarError
from ..nodes import Chars, Node, Ref, Repeat, Row, Rule, Text, Tokens, children, walk
from ..regex_check import parse_regex
from ..rewrite.graph import escape_pointer
from ..schema_check import walk_schemas
from ..sources import read_rules
from ..spec import GrammarSpec

MAX_COUNTED = 55_000
_MAY_BE_LONG = re.compile(r"[0-9]{3}")
"""Numbers that lengths and repeats would need in a short text."""
_MOST_DEEP = 200
_FAR = 10**9


class _Count(NamedTuple):
    states: int
    pointer: str


def refuse_many_states(spec: GrammarSpec) -> None:
    """Refuse what takes more states than there are.

    Raises:
        UnsupportedGrammarError: With the place, where it is one.
    """
    if len(spec.source) <= MAX_COUNTED and not _MAY_BE_LONG.search(spec.source):
        return
    pointer: str | None = None
    if spec.kind == "json_schema":
        states, pointer = _Schemas(json.loads(spec.source)).count()
    else:
        rules = read_rules(spec.kind, spec.source)
        states = _longest(rules.rules[rules.start].node, rules.rules, {rules.start: 0})
    if states > MAX_COUNTED:
        raise UnsupportedGrammarError(
            f"an answer may spell out or count {min(states, _FAR)} characters; llguidance keeps track of {MAX_COUNTED}",
            pointer=pointer,
            hint="shorten it, or use xgrammar",
        )


def refuse_long_strings(spec: GrammarSpec) -> None:
    """Refuse strings that must be longer than any backend counts: xgrammar takes gigabytes for them.

    Raises:
        UnsupportedGrammarError: With the place.
    """
    if spec.kind != "json_schema" or not _MAY_BE_LONG.search(spec.source):
        return
    for place in walk_schemas(json.loads(spec.source)):
        least = place.schema.get("minLength", 0) if isinstance(place.schema, Mapping) else 0
        if isinstance(least, (int, float)) and least > MAX_COUNTED:
            raise UnsupportedGrammarError(
                f"a string of at least {least} characters; {MAX_COUNTED} are counted", pointer=f"{place.pointer}/minLength"
            )


class _Schemas:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def count(self) -> _Count:
        """Give the states of the whole, and the deepest place that takes too many by itself."""
        return self._count(self._root, "#", 0)

    def _count(self, schema: Any, pointer: str, depth: int) -> _Count:
        if not isinstance(schema, Mapping) or depth > _MOST_DEEP:
            return _Count(0, pointer)
        known = self._known.get(id(schema))
        if known is not None:
            return _Count(known, pointer)
        self._known[id(schema)] = 0  # for branches that lead back
        found = self._own(schema, pointer, depth)
        self._known[id(schema)] = found.states
        return found

    def _own(self, schema: Mapping[str, Any], pointer: str, depth: int) -> _Count:
        def of(key: str, child: Any, more: str = "") -> _Count:
            return self._count(child, f"{pointer}/{key}{more}", depth + 1)

        if "const" in schema or "enum" in schema:
            key = "const" if "const" in schema else "enum"
            values = [schema["const"]] if key == "const" else schema["enum"]
            return _Count(max((_length(value) for value in values), default=0), f"{pointer}/{key}")
        alone = [self._text(schema, pointer)]
        for key in ("anyOf", "oneOf", "allOf"):
            alone += [of(key, branch, f"/{index}") for index, branch in enumerate(schema.get(key, ()))]
        for key in ("additionalProperties", "items", "contains", "additionalItems", "propertyNames"):
            alone += [of(key, schema[key])] if isinstance(schema.get(key), Mapping) else []
        if isinstance(schema.get("$ref"), str):
            alone.append(self._referred(schema["$ref"], depth))
        together = [of("prefixItems", item, f"/{index}") for index, item in enumerate(schema.get("prefixItems", ()))]
        required = set(schema.get("required", ()))
        for name, child in schema.get("properties", {}).items():
            place = of("properties", child, f"/{escape_pointer(name)}")
            # Hardly any answer writes all that it may leave out.
            (together if name in required else alone).append(_Count(place.states + _length(name), place.pointer))
        worst = max((*alone, *together), key=lambda count: count.states)
        total = max(sum(count.states for count in together), *(count.states for count in alone))
        return _Count(total, worst.pointer if worst.states > MAX_COUNTED else pointer)

    def _text(self, schema: Mapping[str, Any], pointer: str) -> _Count:
        least = schema.get("minLength", 0)
        found = _Count(int(least) if isinstance(least, (int, float)) else 0, f"{pointer}/minLength")
        pattern = schema.get("pattern")
        if not isinstance(pattern, str):
            return found
        try:
            states = _longest(parse_regex(pattern), {}, {})
        except EngineError:  # of another dialect: it is read elsewhere, or not at all
            states = 0
        return max(found, _Count(states, f"{pointer}/pattern"))

    def _referred(self, reference: str, depth: int) -> _Count:
        place = self._root
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(place, Mapping) or name not in place:
                return _Count(0, reference)
            place = place[name]
        return self._count(place, reference, depth + 1)


def _length(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _longest(node: Node, rules: Mapping[str, Rule], known: dict[str, int], depth: int = 0) -> int:
    """Give the most characters that a text of the node spells out or counts; a loop begins anew with every round.

    Args:
        node: What is looked at.
        rules: What references in it mean.
        known: Of rules what was found; filled on the way.
        depth: Nodes above; what lies deeper than `_MOST_DEEP` is not counted.
    """
    if depth > _MOST_DEEP:
        return 0

    def of(node: Node) -> int:
        return _longest(node, rules, known, depth + 1)

    match node:
        case Text(text):
            return len(text.encode())
        case Chars() | Tokens():
            return 1
        case Row(items):
            return min(_FAR, sum(map(of, items)))
        case Repeat(item, low):
            # Rounds of rules are counted by the parser.
            rounds = 1 if any(isinstance(part, Ref) for part in walk(item)) else max(low, 1)
            return min(_FAR, rounds * of(item))
        case Ref(name) if name in rules:
            if name not in known:
                known[name] = 0  # for rules that lead back
                known[name] = of(rules[name].node)
            return known[name]
        case _:
            return max(map(of, children(node)), default=0)
