"""Families of your own: rows in a TOML or JSON file, and rows that installed distributions bring as entry points.

A file holds tables `family` whose keys are the fields of `ReasoningFamily`; docs/own_families.md shows one. An entry point of the
group `thinkgate.reasoning_families` is a row, an iterable of rows, or a function that gives them. Every error names the place.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .errors import DuplicateFamilyError, FamilySourceError, ReasoningParserError
from .families import FAMILIES
from .family import ReasoningFamily
from .registry import FamilyRegistry, normalize_name

ENTRY_POINT_GROUP = "thinkgate.reasoning_families"
_SHIPPED = "thinkgate's own families"
_TABLE = "family"
_HEADER = re.compile(rf"\s*\[\[\s*{_TABLE}\s*\]\]")


@dataclass(frozen=True, slots=True)
class PlacedFamily:
    """A row and where it was read."""

    family: ReasoningFamily
    place: str


def read_families(path: str | Path) -> tuple[PlacedFamily, ...]:
    """Read the rows of a TOML or JSON file.

    Raises:
        FamilySourceError: The file cannot be read, or a row in it is wrong; with the file and the line or key.
    """
    path = Path(path)
    text, data = _parse(path)
    unknown = [key for key in data if key != _TABLE]
    if unknown or not isinstance(data.get(_TABLE), list):
        found = f"the key {unknown[0]!r}" if unknown else f"no list {_TABLE!r}"
        hint = f"a TOML file has tables [[{_TABLE}]], a JSON file an object with a list {_TABLE!r}"
        raise FamilySourceError(str(path), f"has {found}", hint=hint)
    return tuple(_read_row(row, _Places(path, text, index)) for index, row in enumerate(data[_TABLE]))


def read_entry_points() -> tuple[PlacedFamily, ...]:
    """Read the rows that installed distributions bring.

    Raises:
        FamilySourceError: An entry point cannot be loaded, or gives something else than rows.
    """
    found: list[PlacedFamily] = []
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        place = f"entry point {entry_point.name!r}"
        if entry_point.dist is not None:
            place += f" of {entry_point.dist.name}"
        try:
            rows = entry_point.load()
            rows = rows() if callable(rows) else rows
            rows = (rows,) if isinstance(rows, ReasoningFamily) else tuple(rows)
        except Exception as error:  # the code of somebody else's distribution
            raise FamilySourceError(place, f"cannot be loaded: {type(error).__name__}: {error}") from error
        for row in rows:
            if not isinstance(row, ReasoningFamily):
                raise FamilySourceError(place, f"gives {type(row).__name__}, not ReasoningFamily")
            found.append(PlacedFamily(row, place))
    return tuple(found)


def build_registry(*sources: Iterable[PlacedFamily]) -> FamilyRegistry:
    """Return the families that ship together with these.

    Raises:
        DuplicateFamilyError: Two rows claim one name; names both places.
    """
    placed = [PlacedFamily(family, _SHIPPED) for family in FAMILIES]
    placed += [entry for source in sources for entry in source]
    taken: dict[str, PlacedFamily] = {}
    for entry in placed:
        for name in (entry.family.name, *entry.family.aliases):
            other = taken.setdefault(normalize_name(name), entry)
            if other is not entry:
                raise DuplicateFamilyError(
                    name, other.family.name, entry.family.name, existing_place=other.place, new_place=entry.place
                )
    return FamilyRegistry(entry.family for entry in placed)


class _Places:
    """Names places in a file: the line in TOML, the key in JSON."""

    def __init__(self, path: Path, text: str, index: int) -> None:
        self._path = path
        self._index = index
        self._lines: dict[str, int] = {}
        if path.suffix == ".toml":
            self._find_lines(text)

    def of(self, key: str = "") -> str:
        """The place of a key of this row, or of the row."""
        line = self._lines.get(key, self._lines.get(""))
        if line is not None:
            return f"{self._path}, line {line}"
        return f"{self._path}, {_TABLE}[{self._index}]{f'.{key}' if key else ''}"

    def _find_lines(self, text: str) -> None:
        row = -1
        for number, line in enumerate(text.splitlines(), 1):
            if _HEADER.match(line):
                row += 1
                if row == self._index:
                    self._lines[""] = number
            elif row == self._index and (key := re.match(r"\s*(?:\[family\.)?([\w-]+)\s*[=\].]", line)):
                self._lines.setdefault(key[1], number)


def _parse(path: Path) -> tuple[str, dict[str, Any]]:
    if path.suffix not in (".toml", ".json"):
        raise FamilySourceError(str(path), "is no .toml and no .json file")
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise FamilySourceError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FamilySourceError(str(path), f"is not valid: {error}") from error
    if not isinstance(data, dict):
        raise FamilySourceError(str(path), "holds no object")
    return text, data


def _read_row(row: object, places: _Places) -> PlacedFamily:
    if not isinstance(row, dict):
        raise FamilySourceError(places.of(), "is no table")
    try:
        family = _make(ReasoningFamily, row, places, "")
    except FamilySourceError:
        raise
    except ReasoningParserError as error:
        raise FamilySourceError(places.of(getattr(error, "field", None) or ""), str(error)) from error
    return PlacedFamily(family, places.of())


def _make(kind: Callable[..., Any], row: Mapping[str, object], places: _Places, above: str) -> Any:
    """Make a dataclass of a table; `above` is the key that holds the table."""
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the fields are {', '.join(known)}"
            raise FamilySourceError(places.of(above or key), f"{key!r} is no field of a family", hint=hint)
    values = {key: _convert(value, hints[key], places, above or key) for key, value in row.items()}
    try:
        return kind(**values)
    except TypeError as error:
        missing = ", ".join(re.findall(r"'(\w+)'", str(error)))
        raise FamilySourceError(places.of(above), f"lacks {missing}") from error


def _convert(value: object, hint: Any, places: _Places, key: str) -> Any:
    """Check a value of the file against the type of its field; arrays become tuples."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        if is_dataclass(option) and isinstance(value, dict):
            return _make(option, value, places, key)  # type: ignore[arg-type]
        if get_origin(option) is tuple and isinstance(value, list):
            inner = get_args(option)
            kinds = [inner[0]] * len(value) if inner[1:] == (...,) else list(inner)
            if len(kinds) != len(value):
                raise FamilySourceError(places.of(key), f"{key} wants arrays of {len(kinds)} texts, not of {len(value)}")
            return tuple(_convert(item, kind, places, key) for item, kind in zip(value, kinds, strict=True))
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if option in (str, bool) and type(value) is option:
            return value
    raise FamilySourceError(places.of(key), f"{key} cannot be {json.dumps(value, default=str)}; it wants {_spell(hint)}")


def _spell(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_spell(option) for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is tuple:
        return f"an array of {'arrays of texts' if get_origin(get_args(hint)[0]) is tuple else 'texts'}"
    if get_origin(hint) is Literal:
        return " or ".join(json.dumps(value) for value in get_args(hint))
    return {str: "text", bool: "true or false"}.get(hint, "a table")
