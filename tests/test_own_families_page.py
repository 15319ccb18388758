"""The examples of docs/own_families.md run."""

from __future__ import annotations

import io
import re
import sys
import tomllib
from pathlib import Path

import pytest

from middleware import cli
from reasoning_parsers import list_families, read_families

PAGE = (Path(__file__).parent.parent / "docs" / "own_families.md").read_text(encoding="utf-8")
BLOCKS = [(kind, code) for kind, code in re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)]


def blocks(kind: str) -> list[str]:
    return [code for found, code in BLOCKS if found == kind]


@pytest.fixture
def families_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "families.toml"
    path.write_text(blocks("toml")[0], encoding="utf-8")
    return path


def test_table_of_the_page_is_a_row(families_file: Path) -> None:
    (placed,) = read_families(families_file)
    assert placed.family.name == "acme"
    # Every field that the page shows is set to something else than its default.
    assert placed.family.content_wrappers == (("<reply>", "</reply>"),)


@pytest.mark.usefixtures("families_file")
def test_python_of_the_page_runs() -> None:
    for code in blocks("python"):
        exec(compile(code, "docs/own_families.md", "exec"), {})


def test_commands_of_the_page_run(
    families_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    for line in blocks("sh")[0].splitlines():
        text, _, command = line.rpartition(" | ")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.removeprefix("echo ").strip("'").encode())))
        assert cli.main(command.split()[1:]) == 0
    out = capfd.readouterr().out
    assert "acme-2" in out
    assert "--- content\n42" in out


def test_entry_point_of_the_page_is_in_the_group() -> None:
    (group,) = tomllib.loads(blocks("toml")[1])["project"]["entry-points"]
    assert group == "thinkgate.reasoning_families"
    assert "acme" not in {family.name for family in list_families()}
