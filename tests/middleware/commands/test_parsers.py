from __future__ import annotations

import json
from pathlib import Path

import pytest

from middleware import cli
from reasoning_parsers import list_families

PAGE = Path(__file__).resolve().parents[3] / "docs" / "families.md"


def test_parsers_lists_every_family(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "180")
    assert cli.main(["parsers"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for family in list_families():
        assert family.start.replace("\n", "\\n") in lines[family.name]
        assert lines[family.name].endswith(family.source[-20:])
        assert ("* " in lines[family.name]) == family.is_second_hand
    assert "step5" in lines["deepseek_r1"]
    assert "enable_thinking (off)" in lines["exaone4"]
    assert "thinking_mode" in lines["minimax_m3"]
    assert "enabled/disabled (on)" in out
    assert "thinking/enable_thinking" in lines["deepseek_v3"]
    assert all(len(line) <= 180 for line in out.splitlines())


@pytest.mark.parametrize(("columns", "left_out"), [(80, "source, aliases, template opens"), (130, "source")])
def test_parsers_fits_into_a_narrow_terminal(
    columns: int, left_out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert cli.main(["parsers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > columns] == []
    assert lines[-1].startswith(f"Too narrow for: {left_out}.")
    names = {line.split()[0] for line in lines if line.strip()}
    assert {family.name for family in list_families()} <= names


def test_parsers_prints_json_with_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["parsers", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {family.name for family in list_families()}
    assert rows["kimi"]["start"] == "\u25c1think\u25b7"
    assert rows["glm45"]["implicit_ends"] == ["<tool_call>"]
    assert rows["glm45"]["checked"]
    assert rows["gpt_oss"]["channels"]["content"] == ["final"]
    assert rows["k2_horizon"]["effort_markers"][0] == ["high", "<ifm|think>", "</ifm|think>"]


def test_page_of_the_families_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["parsers", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page == PAGE.read_text(encoding="utf-8"), "run: thinkgate parsers --markdown > docs/families.md"
    assert "`<\\|inner_prefix\\|>`" in page
    assert "label `thought\\n`" in page
    assert "`Here is my thought process:`" in page


def test_parsers_prints_one_shape_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["parsers", "--json", "--markdown"])
    assert "not allowed with" in capsys.readouterr().err
