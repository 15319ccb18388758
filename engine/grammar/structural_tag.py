"""Structural tags in xgrammar's format, read and checked by us (https://xgrammar.mlc.ai/docs/structural_tag/structural_tag_api.html).

Errors name the place as a JSON pointer. Schemas, regular expressions and grammars inside are checked as if they stood alone. The
older form (`structures` and `triggers`) is read too, and errors name its places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from ..errors import GrammarError, InvalidGrammarError, UnsupportedGrammarError
from .ebnf import parse_ebnf
from .inner_schemas import read_inner_schema
from .lark import parse_lark
from .nodes import MAX_DEPTH
from .regex_check import parse_regex
from .rewrite.graph import escape_pointer
from .rules_check import check_rules

MAX_CHARS = 2**22
_MAX_COUNT = 2**31 - 1


class _Field(NamedTuple):
    check: Callable[[_Walker, Any, str], None]
    is_required: bool = True


class _Walker:
    """Checks values at pointers; formats wait in a list, so that depth costs no stack."""

    def __init__(self, name_place: Callable[[str], str]) -> None:
        self.waiting: list[tuple[Any, str, int]] = []
        self.depth = 0
        self._name_place = name_place

    def fail(
        self, problem: str, pointer: str, *, kind: type[GrammarError] = InvalidGrammarError, hint: str | None = None
    ) -> NoReturn:
        place = self._name_place(pointer)
        raise kind(f"structural tag, at {place}: {problem}", pointer=place, hint=hint)

    def check_all(self, value: Any, pointer: str) -> None:
        self.format(value, pointer)
        while self.waiting:
            value, pointer, self.depth = self.waiting.pop()
            if self.depth > MAX_DEPTH:
                self.fail(f"nested deeper than {MAX_DEPTH} levels", pointer)
            self._check_format(value, pointer)

    def format(self, value: Any, pointer: str) -> None:
        self.waiting.append((value, pointer, self.depth + 1))

    def formats(self, value: Any, pointer: str) -> None:
        for index, item in enumerate(self._list(value, pointer)):
            self.format(item, f"{pointer}/{index}")

    def tags(self, value: Any, pointer: str) -> None:
        for index, item in enumerate(self._list(value, pointer)):
            if not isinstance(item, Mapping) or item.get("type", "tag") != "tag":
                self.fail("a tag must stand here", f"{pointer}/{index}")
            self.format({"type": "tag", **item}, f"{pointer}/{index}")

    def text(self, value: Any, pointer: str) -> None:
        if not isinstance(value, str):
            self.fail(f"a text must stand here, not {type(value).__name__}", pointer)
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            self.fail("a NUL byte or half a character", pointer)

    def texts(self, value: Any, pointer: str) -> None:
        for index, item in enumerate(self._list(value, pointer, can_be_empty=True)):
            self.text(item, f"{pointer}/{index}")
            if not item:
                self.fail("an empty text", f"{pointer}/{index}")

    def triggers(self, value: Any, pointer: str) -> None:
        self._list(value, pointer)
        self.texts(value, pointer)

    def flag(self, value: Any, pointer: str) -> None:
        if not isinstance(value, bool):
            self.fail("true or false must stand here", pointer)

    def count(self, value: Any, pointer: str) -> None:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= _MAX_COUNT):
            self.fail("a whole number must stand here", pointer)

    def token(self, value: Any, pointer: str) -> None:
        if isinstance(value, str) and value:
            return self.text(value, pointer)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
            self.fail("a token id or the text of a token must stand here", pointer)

    def tokens(self, value: Any, pointer: str) -> None:
        for index, item in enumerate(self._list(value, pointer, can_be_empty=True)):
            self.token(item, f"{pointer}/{index}")

    def edge(self, value: Any, pointer: str) -> None:
        """A text or a token at the begin or end of a tag."""
        if isinstance(value, Mapping):
            if value.get("type") != "token" or set(value) != {"type", "token"}:
                self.fail("a text or a token must stand here", pointer)
            return self.token(value["token"], f"{pointer}/token")
        self.text(value, pointer)

    def edges(self, value: Any, pointer: str) -> None:
        if isinstance(value, list):
            for index, item in enumerate(self._list(value, pointer)):
                self.text(item, f"{pointer}/{index}")
            return
        self.edge(value, pointer)

    def schema(self, value: Any, pointer: str) -> None:
        try:
            read_inner_schema(value)
        except GrammarError as error:
            self.fail(str(error), pointer + (error.pointer or "#")[1:], kind=type(error), hint=error.hint)

    def dispatches(self, value: Any, pointer: str, *, is_token: bool = False) -> None:
        for index, item in enumerate(self._list(value, pointer)):
            if not isinstance(item, (list, tuple)) or len(item) != 2:
                self.fail("a pair of a pattern and a format must stand here", f"{pointer}/{index}")
            (self.token if is_token else self.text)(item[0], f"{pointer}/{index}/0")
            self.format(item[1], f"{pointer}/{index}/1")

    def token_dispatches(self, value: Any, pointer: str) -> None:
        self.dispatches(value, pointer, is_token=True)

    def _list(self, value: Any, pointer: str, *, can_be_empty: bool = False) -> list[Any]:
        if not isinstance(value, list) or not (value or can_be_empty):
            self.fail("a list must stand here" if can_be_empty else "a list of one or more must stand here", pointer)
        return value

    def _check_format(self, value: Any, pointer: str) -> None:
        if not isinstance(value, Mapping):
            self.fail(f"a format must be an object, not {type(value).__name__}", pointer)
        kind = value.get("type")
        fields = _FORMATS.get(kind) if isinstance(kind, str) else None
        if fields is None:
            self.fail(f"the format {kind!r} is not known; there are {', '.join(_FORMATS)}", pointer)
        for name in value:
            if name != "type" and name not in fields:
                self.fail(f"a {kind} has no {name!r}", f"{pointer}/{escape_pointer(str(name))}")
        for name, field in fields.items():
            if name in value:
                field.check(self, value[name], f"{pointer}/{name}")
            elif field.is_required:
                self.fail(f"a {kind} wants {name!r}", pointer)
        if kind in _EXTRA_CHECKS:
            _EXTRA_CHECKS[kind](self, value, pointer)


def _check_regex(walker: _Walker, value: Mapping[str, Any], pointer: str) -> None:
    try:
        parse_regex(value["pattern"])
    except GrammarError as error:
        walker.fail(str(error), f"{pointer}/pattern", kind=type(error), hint=error.hint)


def _check_grammar(walker: _Walker, value: Mapping[str, Any], pointer: str) -> None:
    syntax = value.get("syntax", "ebnf")
    if syntax not in ("ebnf", "lark"):
        walker.fail("the syntax is ebnf or lark", f"{pointer}/syntax")
    try:
        check_rules(parse_ebnf(value["grammar"]) if syntax == "ebnf" else parse_lark(value["grammar"]), syntax)
    except GrammarError as error:
        walker.fail(str(error), f"{pointer}/grammar", kind=type(error), hint=error.hint)


def _check_style(walker: _Walker, value: Mapping[str, Any], pointer: str) -> None:
    if value.get("style", "json") not in _STYLES:
        walker.fail(f"the style is one of {', '.join(sorted(_STYLES))}", f"{pointer}/style")


def _check_repeat(walker: _Walker, value: Mapping[str, Any], pointer: str) -> None:
    low, high = value["min"], value["max"]
    if low is None or low < 0 or high is None or (high != -1 and high < low):
        walker.fail("min must be at least 0, and max at least min or -1", pointer)


def _check_triggers(walker: _Walker, value: Mapping[str, Any], pointer: str) -> None:
    for index, tag in enumerate(value["tags"]):
        begin = tag.get("begin")
        if not isinstance(begin, str):
            walker.fail("a triggered tag begins with a text", f"{pointer}/tags/{index}/begin")
        if sum(begin.startswith(trigger) for trigger in value["triggers"]) != 1:
            walker.fail(f"{begin!r} must begin with exactly one of the triggers", f"{pointer}/tags/{index}/begin")


def _check_token_triggers(walker: _Walker, value: Mapping[str, Any], pointer: str) -> None:
    for index, tag in enumerate(value["tags"]):
        begin = tag.get("begin")
        if not isinstance(begin, Mapping) or begin.get("token") not in value["trigger_tokens"]:
            walker.fail("a tag here begins with one of the trigger tokens", f"{pointer}/tags/{index}/begin")


_STYLES = frozenset(
    "json qwen_xml minimax_xml minimax_m3_xml deepseek_xml glm_xml cohere_xml kimi_k3_xml deepseek_v4_1_xml gemma".split()
)
_OPTIONAL_TEXTS = _Field(_Walker.texts, False)
_OPTIONAL_TOKENS = _Field(_Walker.tokens, False)
_OPTIONAL_FLAG = _Field(_Walker.flag, False)
_OPTIONAL_COUNT = _Field(_Walker.count, False)
_HOW_MANY = {"at_least_one": _OPTIONAL_FLAG, "stop_after_first": _OPTIONAL_FLAG}
_FORMATS: dict[str, dict[str, _Field]] = {
    "const_string": {"value": _Field(_Walker.text)},
    "json_schema": {
        "json_schema": _Field(_Walker.schema),
        "style": _Field(_Walker.text, False),
        "any_order": _OPTIONAL_FLAG,
        "max_whitespace_cnt": _OPTIONAL_COUNT,
        "excludes": _OPTIONAL_TEXTS,
    },
    "qwen_xml_parameter": {"json_schema": _Field(_Walker.schema)},
    "any_text": {"excludes": _OPTIONAL_TEXTS, "max_tokens": _OPTIONAL_COUNT, "max_chars": _OPTIONAL_COUNT},
    "token": {"token": _Field(_Walker.token)},
    "exclude_token": {"exclude_tokens": _OPTIONAL_TOKENS},
    "any_tokens": {"exclude_tokens": _OPTIONAL_TOKENS, "max_tokens": _OPTIONAL_COUNT},
    "grammar": {"grammar": _Field(_Walker.text), "syntax": _Field(_Walker.text, False)},
    "regex": {"pattern": _Field(_Walker.text)},
    "sequence": {"elements": _Field(_Walker.formats)},
    "or": {"elements": _Field(_Walker.formats)},
    "tag": {"begin": _Field(_Walker.edge), "content": _Field(_Walker.format), "end": _Field(_Walker.edges)},
    "triggered_tags": {
        "triggers": _Field(_Walker.triggers), "tags": _Field(_Walker.tags), "excludes": _OPTIONAL_TEXTS, **_HOW_MANY,
    },
    "token_triggered_tags": {
        "trigger_tokens": _Field(_Walker.tokens), "tags": _Field(_Walker.tags), "exclude_tokens": _OPTIONAL_TOKENS, **_HOW_MANY,
    },
    "tags_with_separator": {"tags": _Field(_Walker.tags), "separator": _Field(_Walker.text), **_HOW_MANY},
    "optional": {"content": _Field(_Walker.format)},
    "plus": {"content": _Field(_Walker.format)},
    "star": {"content": _Field(_Walker.format)},
    "repeat": {"min": _Field(_Walker.count), "max": _Field(_Walker.count), "content": _Field(_Walker.format)},
    "dispatch": {"rules": _Field(_Walker.dispatches), "loop": _OPTIONAL_FLAG, "excludes": _OPTIONAL_TEXTS},
    "token_dispatch": {"rules": _Field(_Walker.token_dispatches), "loop": _OPTIONAL_FLAG, "exclude_tokens": _OPTIONAL_TOKENS},
}  # fmt: skip
_EXTRA_CHECKS: dict[str, Callable[[_Walker, Mapping[str, Any], str], None]] = {
    "regex": _check_regex,
    "grammar": _check_grammar,
    "json_schema": _check_style,
    "repeat": _check_repeat,
    "triggered_tags": _check_triggers,
    "token_triggered_tags": _check_token_triggers,
}


def check_structural_tag(tag: Any) -> str:
    """Check a structural tag, and give its canonical JSON text in today's form.

    Raises:
        InvalidGrammarError: Not one; `pointer` names the place.
        UnsupportedGrammarError: Something inside that no backend has.
    """
    try:
        text = json.dumps(tag, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidGrammarError(f"the structural tag is not JSON: {error}", pointer="#") from error
    if len(text) > MAX_CHARS:
        raise InvalidGrammarError(f"the structural tag is longer than {MAX_CHARS} characters", pointer="#")
    tag = json.loads(text)
    if not isinstance(tag, dict):
        raise InvalidGrammarError("a structural tag is an object", pointer="#")
    name_place: Callable[[str], str] = str
    if "structures" in tag:
        tag, name_place = _from_older_form(tag), _older_place
    if tag.get("type", "structural_tag") != "structural_tag" or "format" not in tag:
        raise InvalidGrammarError('a structural tag looks like {"type": "structural_tag", "format": {...}}', pointer="#")
    _Walker(name_place).check_all(tag["format"], "#/format")
    read = map_formats({"type": "structural_tag", "format": tag["format"]}, _with_schema_read)
    return json.dumps(read, ensure_ascii=False, separators=(",", ":"))


def _with_schema_read(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "json_schema": read_inner_schema(found["json_schema"])} if "json_schema" in found else found


def tag_schemas(source: str) -> Iterator[tuple[str, Any]]:
    """Give the schemas inside a tag that was checked, each with the pointer of its place."""
    waiting: list[tuple[str, Any]] = [("#/format", json.loads(source)["format"])]
    while waiting:
        pointer, value = waiting.pop()
        items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
        for key, item in items:
            place = f"{pointer}/{key}"
            if key == "json_schema":
                yield place, item
            elif key not in _TEXT_FIELDS:
                waiting.append((place, item))


def _from_older_form(tag: Mapping[str, Any]) -> dict[str, Any]:
    structures = tag["structures"]
    if not isinstance(structures, list) or not structures:
        raise InvalidGrammarError("structures is a list of one or more", pointer="#/structures")
    tags = []
    for index, item in enumerate(structures):
        if not isinstance(item, dict) or not {"begin", "schema", "end"} <= set(item):
            raise InvalidGrammarError("a structure has begin, schema and end", pointer=f"#/structures/{index}")
        schema = item["schema"]
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise InvalidGrammarError(f"the schema is not JSON: {error}", pointer=f"#/structures/{index}/schema") from error
        content = {"type": "json_schema", "json_schema": schema}
        tags.append({"type": "tag", "begin": item["begin"], "content": content, "end": item["end"]})
    return {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": tag.get("triggers"), "tags": tags}}


def _older_place(pointer: str) -> str:
    """Give the place in the older form of a place in today's."""
    place = re.sub("^#/format/tags(?=/|$)", "#/structures", pointer)
    place = re.sub("^(#/structures/[0-9]+)/content/json_schema", r"\1/schema", place)
    return re.sub("^#/format(?=/|$)", "#", place)


_TEXT_FIELDS = ("json_schema", "grammar", "pattern")
"""What a schema or a text holds is no format."""


def map_formats(tag: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Give a copy of a checked tag in which `change` was applied to every format, inner ones first."""

    def apply(value: Any) -> Any:
        if isinstance(value, list):
            return [apply(item) for item in value]
        if not isinstance(value, dict):
            return value
        inner = {key: item if key in _TEXT_FIELDS else apply(item) for key, item in value.items()}
        return change(inner) if "type" in inner else inner

    return {**tag, "format": apply(tag["format"])}


_TOKEN_LISTS = ("exclude_tokens", "trigger_tokens")


def named_tokens(tag: dict[str, Any]) -> list[int | str]:
    """Give every token that a checked tag names, by id or by text."""
    found: list[int | str] = []

    def look(token: int | str) -> int | str:
        found.append(token)
        return token

    _map_tokens(tag, look)
    return found


def name_tokens(tag: dict[str, Any], token_ids: Mapping[str, int]) -> dict[str, Any]:
    """Give a copy of a checked tag in which tokens stand as ids."""
    return _map_tokens(tag, lambda token: token_ids.get(token, token) if isinstance(token, str) else token)


def _map_tokens(tag: dict[str, Any], change: Callable[[int | str], int | str]) -> dict[str, Any]:
    def apply(found: dict[str, Any]) -> dict[str, Any]:
        changed = dict(found)
        for key in _TOKEN_LISTS:
            if key in found:
                changed[key] = [change(token) for token in found[key]]
        if found["type"] == "token":
            changed["token"] = change(found["token"])
        if found["type"] == "token_dispatch":
            changed["rules"] = [[change(rule[0]), rule[1]] for rule in found["rules"]]
        return changed

    return map_formats(tag, apply)


def check_tag_tokens(source: str, vocab_size: int, names: Mapping[str, int]) -> None:
    """Refuse tokens that the vocabulary does not have.

    Raises:
        UnsupportedGrammarError: Naming the token.
    """
    for token in named_tokens(json.loads(source)):
        is_known = token in names if isinstance(token, str) else token < vocab_size
        if not is_known:
            raise UnsupportedGrammarError(
                f"the structural tag names the token {token!r}, which this vocabulary of {vocab_size} does not have", pointer="#"
            )
