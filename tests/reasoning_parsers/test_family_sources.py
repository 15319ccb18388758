"""Families of one's own: TOML and JSON files, entry points, and errors that name the places."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoning_parsers import (
    DuplicateFamilyError,
    FamilySourceError,
    ReasoningFamily,
    build_registry,
    get_family,
    get_parser,
    installed_registry,
    list_families,
    load_registry,
    read_entry_points,
    read_families,
    register_family,
)

ROW: dict[str, Any] = {
    "name": "acme",
    "start": "<acme>",
    "end": "</acme>",
    "aliases": ["acme-2"],
    "thinking_switch": "deep",
    "switch_off": "no",
    "template_opens": True,
    "content_wrappers": [["<out>", "</out>"]],
}
TOML = """\
# ours
[[family]]
name = "acme"
start = "<acme>"
end = "</acme>"
aliases = ["acme-2"]
thinking_switch = "deep"
switch_off = "no"
template_opens = true
content_wrappers = [["<out>", "</out>"]]
"""


def write(folder: Path, text: str, name: str = "families.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["families.toml", "families.json"])
def test_row_of_a_file_is_a_row(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, TOML if name.endswith("toml") else json.dumps({"family": [ROW]}), name)
    (placed,) = read_families(str(path))
    assert placed.family == ReasoningFamily(
        name="acme",
        start="<acme>",
        end="</acme>",
        aliases=("acme-2",),
        thinking_switch="deep",
        switch_off="no",
        template_opens=True,
        content_wrappers=(("<out>", "</out>"),),
    )
    registry = load_registry(path)
    assert registry.get_family("ACME_2") is registry.get_family("acme")
    assert registry.get_family("qwen3") is get_family("qwen3")
    assert get_parser(registry.get_family("acme"), prompt_state="open").split("a</acme>b").content == "b"


def test_channels_of_a_file_are_channels(tmp_path: Path) -> None:
    row = {"name": "acme", "start": "<c>think<m>", "end": "<c>say<m>", "format": "channels"}
    channels = {"openers": ["<c>"], "header_end": "<m>", "closers": ["<e>"], "reasoning": ["think"], "content": ["say"]}
    path = write(tmp_path, json.dumps({"family": [{**row, "channels": channels}]}), "f.json")
    family = read_families(path)[0].family
    assert family.channels is not None
    assert family.channels.openers == ("<c>",)
    with pytest.raises(FamilySourceError, match=r"family\[0\].channels: 'opener' is no field.*did you mean openers"):
        read_families(write(tmp_path, json.dumps({"family": [{**row, "channels": {"opener": ["<c>"]}}]}), "f.json"))


HEAD = "# a comment\n[[family]]\nname = 'a'\nstart = '<a>'\nend = '</a>'\n"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (HEAD + "strat = 1\n", "line 6", "'strat' is no field of a family (did you mean start"),
        ("[[family]]\nname = 'a'\nzzz = 1\n", "line 3", "the fields are name, start, end"),
        ("[[family]]\nname = 'a'\nstart = '<a>'\n", "line 1", "lacks end"),
        ("[[family]]\nname = 'a'\n", "line 1", "lacks start, end"),
        (HEAD + "template_opens = 'yes'\n", "line 6", 'template_opens cannot be "yes"; it wants true or false'),
        (HEAD + "aliases = 'b'\n", "line 6", 'aliases cannot be "b"; it wants an array of texts'),
        (HEAD + "aliases = [1]\n", "line 6", "aliases cannot be 1; it wants text"),
        (HEAD + "switch_off = 0\n", "line 6", "switch_off cannot be 0; it wants true or false or text"),
        (HEAD + "content_wrappers = [['a']]\n", "line 6", "content_wrappers wants arrays of 2 texts, not of 1"),
        (HEAD + "content_wrappers = 'a'\n", "line 6", "it wants an array of arrays of texts"),
        (HEAD + "format = 'tabs'\n", "line 6", 'it wants "delimited" or "channels"'),
        (HEAD + "channels = 3\n", "line 6", "it wants a table"),
        (HEAD + "implicit_ends = ['<a>']\n", "line 5", "ends thinking and occurs inside the start marker"),
        (HEAD + "\n[[family]]\nname = 'b'\nstart = ' <b>'\nend = '</b>'\n", "line 9", "begins with white space"),
    ],
)  # fmt: skip
def test_wrong_row_is_an_error_with_its_line(tmp_path: Path, text: str, place: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FamilySourceError) as caught:
        read_families(path)
    assert said in str(caught.value)
    assert caught.value.place.startswith(f"{path}, {place}")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("f.yaml", "", "is no .toml and no .json file"),
        ("f.toml", "a =", "is not valid: "),
        ("f.json", "[", "is not valid: "),
        ("f.json", "[]", "holds no object"),
        ("f.json", "{}", "has no list 'family'"),
        ("f.json", '{"family": {}}', "has no list 'family'"),
        ("f.json", '{"families": []}', "has the key 'families'"),
        ("f.json", '{"family": [3]}', "family[0]: is no table"),
        ("f.json", '{"family": [{"name": 3}]}', "family[0].name: name cannot be 3; it wants text"),
        ("f.json", '{"family": [{"name": "a", "start": "<a>", "end": "<a>"}]}', "family[0]"),
        ("f.toml", None, "cannot be read: No such file"),
    ],
)  # fmt: skip
def test_file_that_holds_no_rows_is_an_error(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    path = tmp_path / name if text is None else write(tmp_path, text, name)
    with pytest.raises(FamilySourceError) as caught:
        read_families(path)
    assert said in str(caught.value)


def test_name_that_is_taken_is_an_error_that_names_both_places(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + "[[family]]\nname = 'b'\naliases = ['A']\nstart = '<b>'\nend = '</b>'\n")
    with pytest.raises(DuplicateFamilyError) as caught:
        build_registry(read_families(path))
    assert (caught.value.existing_place, caught.value.new_place) == (f"{path}, line 2", f"{path}, line 6")
    assert f"'a' ({path}, line 2) and 'b' ({path}, line 6) both claim the name 'A'" in str(caught.value)
    path = write(tmp_path, HEAD.replace("'a'", "'Qwen3'"))
    with pytest.raises(DuplicateFamilyError, match=r"'qwen3' \(thinkgate's own families\) and 'Qwen3' \(.*line 2\)"):
        load_registry(path)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install a distribution that is nothing but a module and an entry point."""

    def install(code: str, value: str = "acme_rows:ROWS") -> None:
        (tmp_path / "acme_rows.py").write_text("from reasoning_parsers import ReasoningFamily\n" + code)
        info = tmp_path / "acme-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[thinkgate.reasoning_families]\nours = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        installed_registry.cache_clear()

    yield install
    sys.modules.pop("acme_rows", None)
    monkeypatch.undo()
    installed_registry.cache_clear()


MAKE = "ReasoningFamily(name='acme', start='<acme>', end='</acme>')"


@pytest.mark.parametrize(
    "code",
    [f"ROWS = {MAKE}\n", f"ROWS = [{MAKE}]\n", f"def ROWS():\n    return {MAKE}\n", f"def ROWS():\n    yield {MAKE}\n"],
    ids=["row", "rows", "function", "generator"],
)
def test_rows_of_an_entry_point_are_families(installed: Any, code: str) -> None:
    installed(code)
    assert get_family("acme").start == "<acme>"
    assert list_families()[-1].name == "acme"
    assert register_family(ReasoningFamily(name="b", start="<b>", end="</b>")).get_family("acme").end == "</acme>"
    assert read_entry_points()[0].place == "entry point 'ours' of acme"


@pytest.mark.parametrize(
    ("code", "value", "said"),
    [
        ("ROWS = 3\n", "acme_rows:ROWS", "cannot be loaded: TypeError"),
        ("ROWS = ['a']\n", "acme_rows:ROWS", "gives str, not ReasoningFamily"),
        ("", "acme_rows:NOTHING", "cannot be loaded: AttributeError"),
        ("", "acme_missing:ROWS", "cannot be loaded: ModuleNotFoundError"),
        ("ROWS = ReasoningFamily(name='acme', start='', end='x')\n", "acme_rows:ROWS", "cannot be loaded: MarkerError"),
    ],
)
def test_broken_entry_point_is_an_error_that_names_it(installed: Any, code: str, value: str, said: str) -> None:
    installed(code, value)
    with pytest.raises(FamilySourceError, match=f"entry point 'ours' of acme: {said}"):
        get_family("qwen3")


def test_entry_point_without_a_distribution_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    entry_point = EntryPoint("ours", "acme_missing:ROWS", "thinkgate.reasoning_families")
    monkeypatch.setattr("reasoning_parsers.family_sources.metadata.entry_points", lambda group: [entry_point])
    with pytest.raises(FamilySourceError, match=r"^entry point 'ours': cannot be loaded"):
        read_entry_points()


def test_entry_point_and_file_with_one_name_are_both_named(installed: Any, tmp_path: Path) -> None:
    installed(f"ROWS = {MAKE}\n")
    path = write(tmp_path, TOML)
    with pytest.raises(
        DuplicateFamilyError, match=r"'acme' \(entry point 'ours' of acme\) and 'acme' \(.*families.toml, line 2\)"
    ):
        load_registry(path)
