"""`thinkgate check`: would the engine take a schema or a grammar, and what would its masks enforce? For people and as JSON.

Exit codes: 0 it is taken, 1 it is refused, 2 a wrong call.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidRequestError
from ..upstreams.local import check_local

KINDS = ("json_schema", "regex", "choice", "ebnf", "lark", "structural_tag")
_SUFFIXES = {".lark": "lark", ".ebnf": "ebnf", ".gbnf": "ebnf", ".json": "json_schema"}
_MAX_LINE = 120
_MAX_PATH_CHARS = 4096


def run(source: str, *, kind: str | None, backend: str, strict: bool, as_json: bool) -> int:
    """Print what becomes of a constraint, and return the exit code.

    Args:
        source: The constraint, a file that holds it, or `-` for standard input.
        kind: What it is; None: what the name of the file says, else a JSON schema.
        backend: Name of a grammar backend, or `auto`.
        strict: Refuse what the masks do not enforce.
        as_json: Print one JSON object.

    Raises:
        InvalidRequestError: The file cannot be read, or a choice is no JSON list.
        MissingExtraError: The engine is not installed.
    """
    text, path = _read(source)
    kind = kind or _SUFFIXES.get(path.suffix if path else "", "json_schema")
    if kind == "choice":
        _check_list(text)
    found = check_local(kind, text, backend=backend, strict=strict)
    if as_json:
        print(json.dumps({"kind": kind, "admitted": found["error"] is None, **found}, ensure_ascii=False, indent=2))
    else:
        lines = _error_lines(found["error"], text) if found["error"] else _report_lines(kind, found)
        print("\n".join(lines))
    return 1 if found["error"] else 0


def _read(source: str) -> tuple[str, Path | None]:
    if source == "-":
        return sys.stdin.read(), None
    path = Path(source)
    try:
        is_file = len(source) < _MAX_PATH_CHARS and path.is_file()
    except (OSError, ValueError):  # no name that a file could have
        is_file = False
    if not is_file:
        # A slip in a file's name would else be read as the text, and called no JSON.
        if path.suffix in _SUFFIXES and not any(char in source for char in ' \n{["'):
            raise InvalidRequestError(f"there is no file {source}", param="source")
        return source, None
    try:
        return path.read_text(encoding="utf-8"), path
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{source} cannot be read: {error}", param="source") from error


def _check_list(text: str) -> None:
    try:
        is_list = isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        is_list = False
    if not is_list:
        raise InvalidRequestError("a choice is a JSON list of texts", param="source", hint="""as in '["yes", "no"]'""")


def _error_lines(error: Mapping[str, Any], text: str) -> Iterator[str]:
    yield f"refused: {error['message']}"
    if error["line"] is not None and error["column"] is not None:
        yield from _caret_lines(text, error["line"], error["column"])
    elif error["pointer"] is not None:
        yield f"at:      {error['pointer']}"
    if error["hint"]:
        yield f"hint:    {error['hint']}"


def _caret_lines(text: str, line: int, column: int) -> Iterator[str]:
    lines = text.split("\n")
    if line > len(lines):
        return
    # A window around the place, tabs and control characters one column wide.
    shown = "".join(char if char.isprintable() else " " for char in lines[line - 1])
    start = max(0, min(column - 1 - _MAX_LINE // 2, len(shown) - _MAX_LINE))
    yield f"  {shown[start : start + _MAX_LINE]}"
    yield "  " + " " * (column - 1 - start) + "^"


def _report_lines(kind: str, found: Mapping[str, Any]) -> Iterator[str]:
    entries: Sequence[Mapping[str, Any]] = found["entries"]
    yield f"taken: {kind.replace('_', ' ')}"
    names = list(entries[0]["status"]) if entries else []
    for name in names:
        counts = Counter(entry["status"][name] for entry in entries)
        yield f"  {name:<11} " + ", ".join(
            f"{counts[status]} {status}" for status in ("masked", "checked", "refused") if counts[status]
        )
    open_entries = [entry for entry in entries if entry["note"] or set(entry["status"].values()) != {"masked"}]
    if open_entries:
        yield "not just so in every mask (checked: on the finished answer; refused: that backend is not used):"
    for entry in open_entries:
        statuses = ", ".join(f"{name} {entry['status'][name]}" for name in names)
        yield f"  {entry['pointer']}  {statuses}" + (f"  ({entry['note']})" if entry["note"] else "")
    if found["may_repeat_names"]:
        yield "names: a mask lets an undeclared one come twice; the check of the finished answer refuses that"
