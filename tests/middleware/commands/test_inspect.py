"""`thinkgate inspect`: what it prints for people and as JSON, for local and remote models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from middleware import cli
from middleware.upstreams import local

pytestmark = pytest.mark.usefixtures("_columns")


@pytest.fixture
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["inspect", *arguments]) == 0
    return capsys.readouterr().out


def inspect_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(inspect(capsys, *arguments, "--json"))


def test_local_model_is_shown_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    out = inspect(capsys, "pocket-r1")
    for line in (
        "family       pocket_r1 (certain)",
        "switch       enable_thinking: True turns the thinking on, False off; on by default",
        "start      <think>        1005",
        "end        </think>       1006",
        'by default   "<|end|><|assistant|><think>"',
        "             the prompt opens the thinking",
        '             after a thought the answer is constrained from the token after "</think>" (1006) on',
        "             the same prompt as by default",
        "thinking off with enable_thinking=False",
        "             the prompt closes the thinking: the answer is constrained from its first token on",
    ):
        assert line in out.splitlines()
    assert "warning" not in out
    assert all(len(line) <= 120 for line in out.splitlines())


def test_lines_fit_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in inspect(capsys, "pocket-r1").splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", ["pocket-r1", "local/pocket-r1"])
def test_local_model_as_json(capsys: pytest.CaptureFixture[str], name: str) -> None:
    found = inspect_json(capsys, name)
    assert (found["model"], found["remote"], found["asked_for"]) == ("pocket-r1", False, "auto")
    assert found["detection"]["family"]["end"] == "</think>"
    assert found["detection"]["switches"] == [{"name": "enable_thinking", "on": True, "off": False, "default": True}]
    assert [prompt["state"] for prompt in found["prompts"]] == ["open", "open", "ended"]
    assert found["prompts"][0]["opening"] == {"token_id": 1006, "token": "</think>", "leftover": ""}


def test_family_that_is_named_is_said_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    out = inspect(capsys, "pocket-r1", "--family", "deepseek-r1")
    assert "family       deepseek_r1 (as you said)" in out
    out = inspect(capsys, "pocket-r1", "--family", "none")
    assert "family       none, as you said" in out
    assert "no thinking: the answer is constrained from its first token on" in out


def test_family_of_a_file_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "families.toml"
    path.write_text("[[family]]\nname = 'acme'\nstart = '<think>'\nend = '</think>'\nturn_boundaries = ['<|user|>', '<|end|>']\n")
    found = inspect_json(capsys, "pocket-r1", "--family", "ACME", "--families", str(path))
    assert found["detection"]["family"]["name"] == "acme"


PROMPT: dict[str, Any] = {"thinking": None, "variables": {}, "tail": "x", "differs_before": False, "state": "unknown"}
PROMPT |= {"opening": None, "problem": ""}
GUESS = {"family": {"name": "f"}, "confidence": "guess", "evidence": ["e"], "warnings": ["a", "b"], "switches": []}
NONE = {"family": None, "confidence": "certain", "evidence": ["e"], "warnings": [], "switches": []}
GLUED = {"token_id": 7, "token": '>{"', "leftover": '{"'}


def given(**changes: Any) -> dict[str, Any]:
    """What the engine says of a tokenizer, with changes."""
    found: dict[str, Any] = {"source": "s", "tokenizer": "T", "num_tokens": 9, "model_type": None, "detection": GUESS}
    found |= {"markers": [{"role": "start", "text": "a\n", "token_ids": [1, 2]}], "prompts": [PROMPT]}
    return {**found, **changes}


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (
            given(
                detection={**GUESS, "family": {"name": "f", "format": "channels", "end": "<h>"}},
                prompts=[{**PROMPT, "state": "open"}],
            ),
            ["             thinking and answer have headers of their own; the answer's is like <h>"],
        ),
        (given(), ["tokenizer    T, 9 tokens", "because      e", "switch       there is none", "warning      - a"]),
        (given(), ["             - b", "start   a\\n   1 2", "             the prompt says nothing, and thinking is off:"]),
        (
            given(prompts=[{**PROMPT, "opening": GLUED}]),
            ['             after a thought the answer is constrained from the token after ">{\\"" (7) on; here that token'],
        ),
        (given(prompts=[{**PROMPT, "problem": "no template"}]), ["by default   no template"]),
        (given(prompts=[{**PROMPT, "state": None, "problem": "cannot"}]), ["by default   cannot"]),
        (
            given(prompts=[PROMPT, {**PROMPT, "thinking": False, "differs_before": True}]),
            ["             the prompt also differs before the question"],
        ),
        (
            given(detection=NONE, markers=[]),
            ["family       none (certain)", "             no thinking: the answer is constrained from its first token on"],
        ),
    ],
    ids=["headers", "guess", "unknown prompt", "glued", "no template", "no prompt", "differs", "no family"],
)
def test_everything_that_can_be_found_has_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], lines: list[str]
) -> None:
    monkeypatch.setattr(local, "inspect_local", lambda *_, **__: found)
    out = inspect(capsys, "pocket-r1").splitlines()
    for line in lines:
        assert any(text.startswith(line) for text in out), line


def test_remote_model_says_what_its_name_tells(capsys: pytest.CaptureFixture[str]) -> None:
    out = inspect(capsys, "hosted_vllm/Kimi-K2", "--base-url", "http://localhost:1/v1")
    assert "hosted_vllm/Kimi-K2, behind hosted_vllm; nothing was asked of the server" in out
    assert "kimi_k2, by the model's name" in out
    assert "thinking=True or False goes to the server's chat template" in out
    assert "thinkgate inspect local/hosted_vllm/Kimi-K2" not in out


def test_remote_model_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = inspect_json(capsys, "openai/gpt-5")
    assert (found["remote"], found["provider"], found["schema_mode"]) == (True, "openai", "native")
    assert found["fallbacks"] == ["json_object", "prompted"]
    assert found["thinking_control"] == "effort"


def test_remote_model_whose_name_tells_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the name tells nothing, so qwen3's markers are looked for" in inspect(capsys, "openai/gpt-5")
    assert "none, as you said" in inspect(capsys, "openai/gpt-5", "--family", "none")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nosuch"], 2, "no model is called 'nosuch'"),
        (["local/"], 2, "hint: for example local/pocket-r1"),
        (["./nosuch"], 2, "no folder './nosuch'"),
        ([str(Path(__file__).parent)], 1, "no tokenizer in"),
        (["pocket-r1", "--family", "qwen33"], 2, "did you mean qwen3?"),
        (["pocket-r1", "--families", "nosuch.toml"], 2, "nosuch.toml: cannot be read"),
        (["foo/bar", "--base-url", "http://localhost:1"], 2, "LLM Provider NOT provided"),
    ],
)
def test_wrong_call_says_what_to_do(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    assert cli.main(["inspect", *arguments]) == code
    assert said in capsys.readouterr().err
