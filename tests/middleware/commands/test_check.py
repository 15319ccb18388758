"""`thinkgate check`: what is taken, what is refused and where, for people and for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from middleware.cli import main

SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"]}


def test_schema_is_taken_and_its_open_keywords_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", json.dumps(SCHEMA)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("taken: json schema")
    assert "#/properties/a/uniqueItems" in out
    assert "xgrammar" in out


def test_names_that_may_repeat_and_texts_that_are_not_written_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", '{"type": "object", "properties": {"a": {"type": "string", "pattern": "^.$"}}}']) == 0
    out = capsys.readouterr().out
    assert "come twice" in out
    assert "#/properties/a/pattern" in out
    assert "escapes" in out
    assert main(["check", '{"type": "string", "maxLength": 3}']) == 0
    assert "twice" not in capsys.readouterr().out


def test_report_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA), encoding="utf-8")
    assert main(["check", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["admitted"], found["error"]) == ("json_schema", True, None)
    entry = next(entry for entry in found["entries"] if entry["keyword"] == "uniqueItems")
    assert entry["status"]["xgrammar"] == "checked"


def test_strict_refuses_what_is_checked_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--strict", json.dumps(SCHEMA)]) == 1
    assert "uniqueItems" in capsys.readouterr().out
    assert main(["check", "--strict", '{"type": "integer"}']) == 0


# (arguments, text of the line above the caret, column of the caret, words)
CARETS = {
    "regex": (["--regex", "ab(c"], "  ab(c", 5, "never closed"),
    "tab": (["--lark", 'start:\t"a"\n\t|\tb\n'], "   | b", 6, "line 2, column 4"),
    "ebnf": (["--ebnf", "root ::= 'a'"], "  root ::= 'a'", 12, "double quotes"),
    "long": (["--regex", "a" * 300 + ")"], "  " + "a" * 119 + ")", 122, "column 301"),
}


@pytest.mark.parametrize(("arguments", "line", "column", "words"), CARETS.values(), ids=CARETS)
def test_caret_stands_under_the_column(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str, column: int, words: str
) -> None:
    assert main(["check", *arguments]) == 1
    out = capsys.readouterr().out
    assert words in out
    shown, caret = out.splitlines()[1:3]
    assert shown == line
    assert caret == " " * (column - 1) + "^"


def test_pointer_stands_below_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", '{"properties": {"a": {"type": "strnig"}}}']) == 1
    out = capsys.readouterr().out
    assert "at:      #/properties/a/type" in out
    assert "types are array," in out


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["--choice", '["yes", "no"]'], 0),
        (["--choice", "[]"], 1),
        (["--choice", "yes"], 2),
        (["--tag", '{"format": {"type": "any_text"}}'], 0),
        (["--ebnf", 'root ::= "(" root ")" | ""'], 0),
        (["--ebnf", 'root ::= "(" root ")" | ""', "--backend", "llguidance"], 1),
        (["--regex", "(?!a)b", "--backend", "xgrammar"], 1),
        (["--regex", "(?!a)[ab]", "--backend", "llguidance"], 0),
        (["no-such-file.json"], 2),
    ],
    ids=str,
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], arguments: list[str], exit_code: int) -> None:
    assert main(["check", *arguments]) == exit_code


def test_name_of_a_file_tells_its_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, text in (("a.lark", 'start: "a"'), ("a.gbnf", 'root ::= "a"')):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert main(["check", str(tmp_path / name)]) == 0
    assert "taken: ebnf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["nothing.json"], "there is no file nothing.json", id="no-file"),
        pytest.param(["--backend", "nothing", "{}"], "there is no grammar backend 'nothing'", id="no-backend"),
    ],
)
def test_slip_of_the_caller_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_standard_input_and_unreadable_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"type": "null"}'))
    assert main(["check", "-"]) == 0
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    assert main(["check", str(tmp_path / "bytes.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
