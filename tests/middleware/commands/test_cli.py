from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from middleware import AsyncClient, Choice, Client, Regex, UnknownModelError, cli
from middleware.commands import generate, serve
from middleware.commands.demo_orders import load_demo_orders
from middleware.commands.plain import as_json
from middleware.testing import Reply, ScriptedUpstream, reply


class Aliased(BaseModel):
    x: int = Field(alias="theX")


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a function that scripts the replies of the next client."""
    upstreams: list[ScriptedUpstream] = []

    def script(*replies: Reply) -> ScriptedUpstream:
        upstream = ScriptedUpstream(replies)
        upstreams.append(upstream)
        monkeypatch.setattr(cli, "Client", lambda model, **_: Client(model, upstream=upstream))
        return upstream

    yield script
    assert all(upstream.is_closed for upstream in upstreams)


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def _answer(index: int) -> str:
    return load_demo_orders()[index].answer.model_dump_json()


def test_demo_prints_one_json_object_a_line(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("thinking", _answer(0)), reply("thinking", _answer(0)))
    assert cli.main(["demo", "--count", "2", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["right"] for line in lines] == [True, False]
    assert lines[0]["output"] == load_demo_orders()[0].answer.model_dump()
    assert (lines[0]["reasoning"], lines[0]["valid"], lines[0]["usage"]["reasoning_tokens"]) == ("thinking", True, 2)


def test_demo_shows_orders_thinking_objects_and_a_table(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("eight mugs are", _answer(0)), reply("still thinking", "", finish_reason="length"))
    assert cli.main(["demo", "--count", "2"]) == 1
    out = capsys.readouterr().out
    for text in (
        "Loading local/pocket-r1",
        "Order 1 of 2",
        "eight mugs are",
        '"currency": "USD"',
        "ReasoningTruncatedError",
        "thinking tokens",
    ):
        assert text in out
    rows = [line for line in out.splitlines() if line.lstrip("│ ").startswith("order ")]
    assert [("yes" in row, "no" in row) for row in rows] == [(True, False), (False, True)]


def test_demo_json_line_says_what_went_wrong(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("still thinking", "", finish_reason="length"))
    assert cli.main(["demo", "--count", "1", "--json"]) == 1
    line = json.loads(capsys.readouterr().out)
    assert (line["output"], line["valid"], line["reasoning"]) == (None, False, "still thinking")
    assert line["error"]["type"] == "ReasoningTruncatedError"


def test_demo_refuses_more_orders_than_there_are(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    play()
    assert cli.main(["demo", "--count", "1000"]) == 2
    assert "--count must be between 1 and 40" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--count", "0"],
        ["demo", "--count", "x"],
        ["serve", "--port", "70000"],
        ["serve", "--timeout-s", "0"],
        ["serve", "--timeout-s", "inf"],
        ["serve", "--max-concurrency", "-1"],
        [],
    ],
    ids=" ".join,
)
def test_main_refuses_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "--max-tokens", "x", "p"], "argument --max-tokens: invalid int value: 'x'"),
        (["serve", "--port", "1.5"], "argument --port: invalid int value: '1.5'"),
        (["serve", "--timeout-s", "soon"], "argument --timeout-s: invalid float value: 'soon'"),
    ],
)
def test_main_says_which_number_is_none(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert words in capsys.readouterr().err


def test_generate_writes_free_text(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    upstream = play(reply("t", "hello there"))
    assert cli.main(["generate", "hi", "--max-tokens", "9", "--temperature", "0.5", "--seed", "3", "--no-thinking"]) == 0
    assert capsys.readouterr() == ("hello there\n", "")
    request = upstream.requests[0]
    assert list(request.messages) == [{"role": "user", "content": "hi"}]
    settings = request.settings
    assert (settings.max_tokens, settings.temperature, settings.seed, settings.thinking) == (9, 0.5, 3, False)


def test_generate_reads_standard_input_and_a_schema_file(
    play: Any, schema_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = play(reply("t", '{"a":1}'))
    monkeypatch.setattr(sys, "stdin", io.StringIO("from a pipe"))
    assert cli.main(["generate", "--schema", schema_file]) == 0
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    assert upstream.requests[0].messages[0]["content"] == "from a pipe"
    assert upstream.requests[0].schema == SCHEMA


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--regex", "[a-z]+"], Regex("[a-z]+")),
        (["--choice", "yes", "--choice", "no"], Choice(("yes", "no"))),
    ],
    ids=["regex", "choice"],
)
def test_generate_binds_a_text_and_prints_it_bare(
    play: Any, options: list[str], wanted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = play(reply("t", "yes"))
    assert cli.main(["generate", *options, "hi"]) == 0
    assert capsys.readouterr().out == "yes\n"
    assert upstream.requests[0].text_type == wanted


def test_generate_binds_an_answer_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["generate", "--regex", "a", "--schema", "{}", "hi"])
    assert "not allowed with" in capsys.readouterr().err


def test_generate_takes_a_schema_as_text() -> None:
    assert generate.load_output_type(' {"type": "integer"}') == {"type": "integer"}


def test_generate_loads_a_class_and_streams_to_standard_error(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("a long thought", _answer(0)))
    assert cli.main(["generate", "--schema", "middleware.commands.demo_orders:Order", "--stream", "hi"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["currency"] == "USD"
    assert "a long thought" in captured.err


def test_generate_writes_the_names_of_the_schema() -> None:
    assert as_json(Aliased(theX=1)) == '{"theX": 1}'


def test_generate_prints_a_json_line(play: Any, schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("t", '{"a":1}'))
    assert cli.main(["generate", "--schema", schema_file, "--json", "hi"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["output"], line["reasoning"], line["valid"], line["finish_reason"]) == ({"a": 1}, "t", True, "stop")


def test_generate_json_line_carries_the_error(play: Any, schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("t", '{"a', finish_reason="length"))
    assert cli.main(["generate", "--schema", schema_file, "--json", "hi"]) == 1
    line = json.loads(capsys.readouterr().out)
    assert (line["valid"], line["error"]["type"], line["error"]["phase"]) == (False, "AnswerTruncatedError", "answer")


def test_generate_prints_a_typed_error_with_its_hint(play: Any, schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    play(reply("on and on", "", finish_reason="length"))
    assert cli.main(["generate", "--schema", schema_file, "hi"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("thinkgate: the token limit came inside the thinking\nhint: raise max_tokens")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        pytest.param("nothing.json", "cannot read nothing.json", id="no-file"),
        pytest.param("nothing", "neither a schema, nor its file, nor module:Class", id="neither"),
        pytest.param("no_such_module:Order", "No module named 'no_such_module'", id="no-module"),
        pytest.param("middleware:Nothing", "has no attribute 'Nothing'", id="no-class"),
        pytest.param("LIST", "holds no JSON object", id="list"),
        pytest.param("BROKEN", "is not JSON", id="broken"),
        pytest.param('{"type":', "the schema is not JSON", id="broken-text"),
    ],
)
def test_generate_names_what_is_wrong_with_the_schema(
    schema: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "LIST").write_text("[]")
    (tmp_path / "BROKEN").write_text("{")
    path = tmp_path / schema
    assert cli.main(["generate", "--schema", str(path) if path.exists() else schema, "hi"]) == 2
    assert message in capsys.readouterr().err


def test_generate_refuses_an_empty_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", " "]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


def test_generate_asks_for_a_prompt_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert cli.main(["generate"]) == 2
    assert "hint: give one as an argument, or pipe one in" in capsys.readouterr().err


def test_main_prints_an_unknown_model_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(model: str, **_: Any) -> Client:
        raise UnknownModelError(f"no model {model}", hint="try another")

    monkeypatch.setattr(cli, "Client", refuse)
    assert cli.main(["generate", "--model", "x/y", "hi"]) == 2
    assert capsys.readouterr().err == "thinkgate: no model x/y\nhint: try another\n"


def test_main_ends_quietly_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(model: str, **_: Any) -> Client:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "Client", interrupt)
    assert cli.main(["generate", "hi"]) == 130


@pytest.mark.parametrize(("command", "extra", "module"), [("demo", "cli", "rich.console"), ("serve", "proxy", "uvicorn")])
def test_main_hints_at_the_extra_that_is_missing(
    command: str, extra: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("middleware.proxy", "middleware.commands.display"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main([command]) == 1
    assert f'hint: pip install "thinkgate[{extra}]"' in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"]]
    + [[name, "--help"] for name in ("demo", "generate", "serve", "parsers", "inspect", "check", "split")],
    ids=" ".join,
)
def test_main_helps(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "thinkgate" in out
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_serve_reads_keys_from_file_and_environment(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# a comment\none\n\n two \n")
    assert serve.read_keys(path, {serve.KEYS_VARIABLE: "three, four,"}) == ["three", "four", "one", "two"]
    assert serve.read_keys(None, {}) == []


def test_serve_refuses_a_key_file_without_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "keys"
    path.write_text("\n# nothing\n")
    assert cli.main(["serve", "--api-key-file", str(path)]) == 2
    assert cli.main(["serve", "--api-key-file", str(tmp_path / "absent")]) == 2
    assert "holds no key" in capsys.readouterr().err


def test_serve_refuses_one_name_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--model", "a=local/x", "--model", "a=local/y"]) == 2
    assert "two models are called 'a'" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_serve_runs_until_it_is_told_to_stop(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from middleware.proxy import ServedModel, server

    upstream = ScriptedUpstream([])
    said: list[str] = []

    def scripted_models(specs: object, **_: object) -> list[ServedModel]:
        return [ServedModel("m", "local/m", AsyncClient("local/m", upstream=upstream))]

    def stop_when_ready(text: str) -> None:
        said.append(text)
        if "serves" in text:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(server, "open_models", scripted_models)
    monkeypatch.setattr(serve, "_say", stop_when_ready)
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    assert cli.main(["serve", "--host", host, "--port", "0", "--timeout-s", "5"]) == 0
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert said[:1] == ["loading local/m ..."]
    assert f"thinkgate serves m on http://{host}:" in said[1]
    assert any("no API keys are set" in text for text in said) is (host == "0.0.0.0")
    assert upstream.is_closed


def test_serve_opens_models_under_their_names() -> None:
    from middleware.proxy.server import open_models

    models = open_models(["local/x", "big=hosted_vllm/y"], base_url="http://localhost:1/v1")
    assert [(model.id, model.model, model.is_local) for model in models] == [
        ("local/x", "local/x", True),
        ("big", "hosted_vllm/y", False),
    ]


def test_token_counts_of_an_upstream_that_does_not_tell_are_question_marks() -> None:
    from middleware import Usage
    from middleware.commands.plain import token_counts

    assert token_counts(Usage(1, 2, None)) == ("?", "?")


def test_main_ends_quietly_when_the_reader_of_a_pipe_leaves() -> None:
    code = (
        "import sys\nfrom middleware import Client, cli\nfrom middleware.testing import ScriptedUpstream, reply\n"
        "cli.Client = lambda model, **_: Client(model, upstream=ScriptedUpstream([reply('', 'x' * 1_000_000)]))\n"
        "sys.exit(cli.main(['generate', 'hi']))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_serve_names_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    from middleware.proxy.server import listen

    with listen("127.0.0.1", 0) as taken:
        assert cli.main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err
