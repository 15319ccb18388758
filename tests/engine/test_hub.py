"""A hub that cannot be reached is told at once, and is not asked for what was fetched before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.errors import OfflineModeIsEnabled

from engine import EngineConfig, LLMEngine, ModelLoadError, hub, inspect_tokenizer


class NoNetwork(Exception):
    """What an HTTP library raises."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids that the hub was asked about; it is not there."""
    ids: list[str] = []

    def model_info(self: object, repo_id: str, **options: Any) -> None:
        ids.append(repo_id)
        raise NoNetwork("no route")

    monkeypatch.setattr(HfApi, "model_info", model_info)
    return ids


def test_unreachable_hub_is_asked_once(asked: list[str]) -> None:
    for load in (lambda: inspect_tokenizer("acme/none"), lambda: LLMEngine(EngineConfig(model="acme/none"))):
        with pytest.raises(ModelLoadError, match="hub cannot be reached: no route") as caught:
            load()
        assert caught.value.retryable
    assert asked == ["acme/none"] * 2


def test_hub_is_not_asked_for_folders_and_what_is_there(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.check_reachable(str(tmp_path))
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda source, file: str(tmp_path / file))
    hub.check_reachable("acme/fetched")
    assert asked == []


@pytest.mark.parametrize("source", ["acme/none", "not an id/at all/"])
def test_what_the_hub_says_is_left_to_the_loader(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    def model_info(self: object, repo_id: str, **options: Any) -> None:
        raise OfflineModeIsEnabled

    monkeypatch.setattr(HfApi, "model_info", model_info)
    hub.check_reachable(source)
