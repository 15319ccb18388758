"""Backends by name, and backends of other packages: used, refused, named in the error."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from engine import BackendLoadError, UnknownBackendError
from engine.grammar.backends import registry
from engine.grammar.backends.registry import ENTRY_POINT_GROUP, backend_names, load_backend
from tests.engine.grammar_backends import SMALL, accepts, new_matcher, schema_spec


class Upper:
    """A backend of another package."""

    name = "upper"

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary

    def check(self, spec: Any) -> None: ...

    def compile(self, spec: Any) -> Any: ...

    def fill_bitmasks(self, matchers: Any, bitmask: Any, rows: Any) -> None: ...


class Mute(Upper):
    fill_bitmasks = None  # type: ignore[assignment]


class Misnamed(Upper):
    name = "lower"


def broken(vocabulary: Any) -> Any:
    raise OSError("no library")


def offer(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, str]) -> None:
    entries = [EntryPoint(name, f"{__name__}:{attribute}", ENTRY_POINT_GROUP) for name, attribute in pairs]
    here = {attribute: globals()[attribute] for _, attribute in pairs if attribute in globals()}

    def load(self: EntryPoint) -> Any:
        return here[self.attr] if self.attr in here else importlib.import_module(self.module)

    monkeypatch.setattr(EntryPoint, "load", load)
    monkeypatch.setattr(registry, "entry_points", lambda group: entries if group == ENTRY_POINT_GROUP else [])


@pytest.mark.parametrize("name", ["xgrammar", "llguidance"])
def test_shipped_backends_load(name: str) -> None:
    backend = load_backend(name, SMALL)
    assert backend.name == name
    assert accepts(new_matcher(backend, schema_spec({"const": 1})), "1")


def test_backend_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("upper", "Upper"))
    assert backend_names() == ("xgrammar", "llguidance", "upper")
    assert isinstance(load_backend("upper", SMALL), Upper)


def test_unknown_backend_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownBackendError, match="'outlines'") as caught:
        load_backend("outlines", SMALL)
    assert caught.value.hint == "there are xgrammar, llguidance"


@pytest.mark.parametrize(
    ("name", "attribute", "words"),
    [
        ("upper", "broken", "does not load: OSError"),
        ("upper", "Mute", "cannot fill_bitmasks"),
        ("upper", "Misnamed", "calls itself 'lower'"),
        ("upper", "nothing", "does not load"),
    ],
    ids=["raises", "lacks-a-verb", "other-name", "not-there"],
)
def test_broken_backend_is_named(monkeypatch: pytest.MonkeyPatch, name: str, attribute: str, words: str) -> None:
    offer(monkeypatch, (name, attribute))
    monkeypatch.setattr(importlib, "import_module", _no_module)
    with pytest.raises(BackendLoadError, match=words) as caught:
        load_backend(name, SMALL)
    assert "'upper'" in str(caught.value)


def _no_module(name: str) -> Any:
    raise ImportError(name)


def test_name_that_two_packages_claim_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("upper", "Upper"), ("upper", "Misnamed"))
    with pytest.raises(BackendLoadError, match="several packages"):
        load_backend("upper", SMALL)


def test_shipped_names_cannot_be_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("xgrammar", "Upper"))
    assert not isinstance(load_backend("xgrammar", SMALL), Upper)
    assert backend_names() == ("xgrammar", "llguidance")
