from __future__ import annotations

import json
from pathlib import Path

import pytest

from middleware import cli
from reasoning_parsers import UNSUPPORTED_FAMILIES, list_families

PAGE = Path(__file__).resolve().parents[3] / "docs" / "families.md"


def test_parsers_lists_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["parsers"]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for family in list_families():
        assert family.start in lines[family.name]
        assert lines[family.name].endswith(family.source.removeprefix("https://"))
    assert "step5" in lines["deepseek_r1"]
    assert "enable_thinking (off)" in lines["poolside_v1"]
    assert all(len(line) <= 165 for line in out.splitlines())
    for name in UNSUPPORTED_FAMILIES:
        assert name in out[out.index("not supported yet") :]


def test_parsers_prints_json_with_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["parsers", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {family.name for family in list_families()}
    assert rows["kimi"]["start"] == "\u25c1think\u25b7"
    assert rows["glm45"]["implicit_ends"] == ["<tool_call>"]
    assert rows["glm45"]["checked"]


def test_page_of_the_families_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["parsers", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page == PAGE.read_text(encoding="utf-8"), "run: thinkgate parsers --markdown > docs/families.md"
    assert "`<\\|inner_prefix\\|>`" in page


def test_parsers_prints_one_shape_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["parsers", "--json", "--markdown"])
    assert "not allowed with" in capsys.readouterr().err
