from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable

import pytest

from middleware import cli
from reasoning_parsers import ReasoningFamily, list_families
from tests.reasoning_parsers.cases import write_message

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
        pytest.param("zzz", "known: deepseek_r1", id="unlike-any"),
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


@pytest.mark.parametrize("family", list_families(), ids=lambda family: family.name)
def test_split_works_for_every_family(family: ReasoningFamily, pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_message(family, "plan", "answer")
    whole = {"reasoning": "plan", "content": "answer"}
    if family.keeps_reasoning_in_content:
        whole = {"reasoning": "", "content": text}
    for options in ([], ["--stream", "3"]):
        pipe(text.encode())
        assert cli.main(["split", "--family", family.name, "--json", *options]) == 0
        deltas = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for key, expected in whole.items():
            assert "".join(delta[key] or "" for delta in deltas) == expected


@pytest.mark.parametrize("options", [(), ("--stream", "4"), ("--json",)], ids=["whole", "stream", "json"])
def test_a21_split_tells_that_the_answer_was_not_reached(
    options: tuple[str, ...], pipe: Pipe, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe("<|channel|>analysis<|message|>I think")
    assert cli.main(["split", "--family", "gpt-oss", *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == "the text ends before the answer\n"
    assert "I " in captured.out


def test_split_takes_tools_and_effort(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    text = "<ifm|think_fast>r<ifm|tool_calls>[]"
    for options, content in (((), None), (("--tools",), "<ifm|tool_calls>[]"), (("--tools", "--effort", "low"), text)):
        pipe(text)
        assert cli.main(["split", "--family", "k2_horizon", "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out)["content"] == content
    pipe(text)
    assert cli.main(["split", "--family", "k2_horizon", "--effort", "none"]) == 2
    assert "it has high, medium, low" in capsys.readouterr().err
