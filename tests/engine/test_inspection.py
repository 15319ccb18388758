"""Looking at tokenizers without their models: family, ids, prompts, and where the gate would open."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine import InvalidRequestError, ModelLoadError, UnknownModelError, inspect_tokenizer, resolve_model
from engine.inspection import Opening
from reasoning_parsers import FamilyRegistry, ReasoningFamily

THOUGHT_END = Opening(1006, "</think>", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The pocket model's tokenizer in a folder of its own, without the model."""
    target = tmp_path / "tokenizer"
    target.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(Path(resolve_model("pocket-r1")) / name, target / name)
    return target


def test_pocket_model_is_looked_at_whole() -> None:
    found = inspect_tokenizer("pocket-r1")
    assert found.detection is not None
    assert found.detection.family is not None
    assert (found.detection.family.name, found.detection.confidence, found.model_type) == ("pocket_r1", "certain", "llama")
    assert found.num_tokens == 1007
    ids = {(marker.role, marker.text): marker.token_ids for marker in found.markers}
    assert ids["start", "<think>"] == (1005,)
    assert ids["end", "</think>"] == (1006,)
    assert ids["turn", "<|assistant|>"] == (1004,)
    by_default, on, off = found.prompts
    assert [prompt.state for prompt in found.prompts] == ["open", "open", "ended"]
    assert [prompt.opening for prompt in found.prompts] == [THOUGHT_END, THOUGHT_END, None]
    assert by_default.tail == on.tail == "<|end|><|assistant|><think>"
    assert off.tail == "<|end|><|assistant|><think></think>"
    assert (by_default.variables, on.variables, off.variables) == ({}, {"enable_thinking": True}, {"enable_thinking": False})
    assert not any(prompt.differs_before for prompt in found.prompts)


@pytest.mark.parametrize("by_file", [False, True], ids=["folder", "file"])
def test_tokenizer_without_a_model_is_enough(folder: Path, by_file: bool) -> None:
    found = inspect_tokenizer(str(folder / "tokenizer.json" if by_file else folder))
    assert found.detection is not None
    assert found.detection.family is not None
    assert (found.detection.family.name, found.model_type) == ("pocket_r1", None)
    assert found.source == str(folder)


def edit_template(folder: Path, old: str, new: str) -> None:
    path = folder / "chat_template.jinja"
    source = path.read_text(encoding="utf-8")
    assert old in source
    path.write_text(source.replace(old, new), encoding="utf-8")


def test_switch_that_changes_the_users_turn_is_told(folder: Path) -> None:
    edit_template(
        folder,
        "{%- for message in messages -%}",
        "{{ '<|system|>off<|end|>' if enable_thinking is false }}{%- for message in messages -%}",
    )
    found = inspect_tokenizer(str(folder))
    assert [prompt.differs_before for prompt in found.prompts] == [False, False, True]


def test_template_without_a_switch_is_told(folder: Path) -> None:
    edit_template(folder, "enable_thinking is defined and not enable_thinking", "false")
    found = inspect_tokenizer(str(folder))
    assert found.prompts[2].problem == "this model's thinking cannot be switched off"
    assert found.prompts[2].state is None
    assert found.prompts[1].tail == found.prompts[0].tail


def test_prompt_that_says_nothing_leaves_it_to_the_first_token(folder: Path) -> None:
    edit_template(folder, "'<|assistant|><think>'", "'<|assistant|>'")
    found = inspect_tokenizer(str(folder))
    assert [prompt.state for prompt in found.prompts] == ["unknown", "unknown", "ended"]
    assert found.prompts[0].opening == THOUGHT_END


def test_tokenizer_without_a_template_is_told(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    found = inspect_tokenizer(str(folder))
    (prompt,) = found.prompts
    assert "there is no chat template" in prompt.problem
    assert (prompt.state, prompt.opening) == ("unknown", THOUGHT_END)


def test_model_that_does_not_think_has_one_prompt() -> None:
    found = inspect_tokenizer("pocket-r1", family="none")
    assert found.detection is None
    assert found.markers == ()
    (prompt,) = found.prompts
    assert (prompt.state, prompt.opening) == ("ended", None)


def test_family_can_be_named_and_be_ones_own() -> None:
    registry = FamilyRegistry([ReasoningFamily(name="mine", start="<think>", end="</think>")])
    for family in ("mine", "auto"):
        found = inspect_tokenizer("pocket-r1", family=family, families=registry)
        assert found.detection is not None
        assert found.detection.family is not None
        assert (found.detection.family.name, found.detection.family.thinking_switch) == ("mine", "enable_thinking")


@pytest.mark.parametrize(
    ("name", "family", "error", "said"),
    [
        ("nosuch", "auto", UnknownModelError, "no model is called 'nosuch'"),
        ("./nosuch", "auto", UnknownModelError, "no folder './nosuch'"),
        (str(Path(__file__).parent), "auto", ModelLoadError, "no tokenizer in"),
        ("pocket-r1", "qwen33", InvalidRequestError, "did you mean qwen3"),
    ],
)
def test_what_cannot_be_looked_at_is_an_error(name: str, family: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        inspect_tokenizer(name, family=family)


def test_broken_tokenizer_file_is_an_error(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    with pytest.raises(ModelLoadError, match="cannot load the tokenizer") as caught:
        inspect_tokenizer(str(folder))
    assert caught.value.hint == "are its files whole?"
    assert "\n" not in str(caught.value)


def test_hub_that_is_not_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str) -> Any:
        raise OSError("no connection\nand more")

    monkeypatch.setattr("engine.inspection.check_reachable", lambda source: None)
    monkeypatch.setattr("engine.inspection.AutoTokenizer.from_pretrained", refuse)
    with pytest.raises(ModelLoadError, match=r"no connection$") as caught:
        inspect_tokenizer("Qwen/Qwen3-0.6B")
    assert caught.value.hint is not None
    assert "is the model hub reached?" in caught.value.hint
