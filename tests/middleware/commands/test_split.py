from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from middleware import cli

TEXT = '<think>is it 1?\n</think>\n{"a":1}\n'
Pipe = Callable[[str | bytes], None]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """Give a function that puts text on standard input."""

    def put(text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)), encoding="utf-8"))

    return put


def test_split_prints_both_parts(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe(TEXT)
    assert cli.main(["split", "--family", "qwen3"]) == 0
    assert capsys.readouterr() == ('--- reasoning\nis it 1?\n--- content\n{"a":1}\n', "")


def test_split_says_what_there_is_none_of(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe("hello")
    assert cli.main(["split", "--family", "qwen3"]) == 0
    assert capsys.readouterr().out == "--- reasoning: none\n--- content\nhello\n"


def test_split_prints_exact_texts_as_json(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe(TEXT)
    assert cli.main(["split", "--family", "qwen3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"reasoning": "is it 1?\n", "content": '\n{"a":1}\n'}
    pipe("")
    assert cli.main(["split", "--family", "qwen3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"reasoning": None, "content": None}


@pytest.mark.parametrize(("state", "reasoning", "content"), [("open", "a", "b"), ("ended", None, "a</think>b")])
def test_split_is_told_what_the_prompt_said(
    state: str, reasoning: str | None, content: str, pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe("a</think>b")
    assert cli.main(["split", "--family", "qwen3", "--prompt-state", state, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"reasoning": reasoning, "content": content}


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_split_streams_the_same_split_in_deltas(size: int, pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe(TEXT)
    assert cli.main(["split", "--family", "qwen3", "--json", "--stream", str(size)]) == 0
    deltas = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "".join(delta["reasoning"] for delta in deltas) == "is it 1?\n"
    assert "".join(delta["content"] for delta in deltas) == '\n{"a":1}\n'
    assert (len(deltas) == 1) is (size == 1000)


def test_split_shows_deltas_one_a_line(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe("<think>a\n</think>b <")
    assert cli.main(["split", "--family", "qwen3", "--stream", "9"]) == 0
    assert capsys.readouterr().out.splitlines() == ['reasoning  "a\\n"', 'content    "b"', 'content    " <"']


def test_split_shows_what_was_held_back_until_the_end(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe("<think>a</thi")
    assert cli.main(["split", "--family", "qwen3", "--stream", "4"]) == 0
    assert capsys.readouterr().out.splitlines() == ['reasoning  "a"', 'reasoning  "</thi"']


def test_split_replaces_bytes_that_are_no_utf8(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    pipe("\u00e9\U0001f642".encode()[:-1] + b"\xff")
    assert cli.main(["split", "--family", "qwen3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["content"] == "\u00e9\ufffd\ufffd"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("qwen33", "did you mean qwen3", id="near"),
        pytest.param("gpt-oss", "its format is not supported yet: Harmony channels", id="not-supported-yet"),
    ],
)
def test_split_refuses_a_family_that_is_not_there(
    name: str, message: str, pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(TEXT)
    assert cli.main(["split", "--family", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "hint: `thinkgate parsers` lists the families" in captured.err


def test_split_asks_for_text_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert cli.main(["split", "--family", "qwen3"]) == 2
    assert "hint: pipe the output of a model in" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["split"], ["split", "--family", "qwen3", "--prompt-state", "x"], ["split", "--family", "qwen3", "--stream", "0"]],
    ids=" ".join,
)
def test_split_refuses_wrong_arguments(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize("command", ["parsers", "split"])
def test_help_of_the_commands(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    assert f"thinkgate {command}" in capsys.readouterr().out
