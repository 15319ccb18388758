"""Compiled grammars on disk: what is kept, what is refused, and that nothing on a disk can break a request."""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from engine import GrammarSpec
from engine.grammar import disk_cache
from engine.grammar.disk_cache import DiskCache, default_folder

SPEC = GrammarSpec.from_json_schema({"type": "integer"})
TEXT = '{"grammar": "é"}' * 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def make(folder: Path, *, max_bytes: int = 10**6, identity: str = "xgrammar 1 abc") -> DiskCache:
    return DiskCache(folder, max_bytes=max_bytes, identity=identity)


def offer(cache: DiskCache, spec: GrammarSpec = SPEC, text: str = TEXT) -> bool:
    return cache.offer(spec, text, compile_s=10.0, load_s=0.1)


def test_grammar_is_given_back_also_by_another_cache_over_the_folder(folder: Path) -> None:
    assert offer(make(folder))
    assert SPEC in make(folder)
    assert make(folder).get(SPEC) == TEXT
    assert (folder.stat().st_mode & 0o777) == 0o700


@pytest.mark.parametrize(
    ("compile_s", "load_s", "is_kept"),
    [(10.0, 0.1, True), (0.5, 0.001, False), (3.0, 2.0, False)],
    ids=["long", "short", "load_takes_as_long"],
)
def test_only_what_pays_is_kept(folder: Path, compile_s: float, load_s: float, is_kept: bool) -> None:
    assert make(folder).offer(SPEC, TEXT, compile_s=compile_s, load_s=load_s) is is_kept


@pytest.mark.parametrize(
    "other",
    [
        GrammarSpec.from_json_schema({"type": "number"}),
        GrammarSpec.from_json_schema({"type": "integer"}, any_whitespace=True),
        GrammarSpec.from_json_schema({"type": "integer"}, max_number_digits=None),
    ],
    ids=["schema", "whitespace", "digits"],
)
def test_another_spec_is_another_entry(folder: Path, other: GrammarSpec) -> None:
    offer(make(folder))
    assert make(folder).get(other) is None


def test_property_order_matters_and_annotations_do_not(folder: Path) -> None:
    def schema(*names: str, **more: str) -> GrammarSpec:
        return GrammarSpec.from_json_schema({**more, "type": "object", "properties": {name: {"type": "null"} for name in names}})

    offer(make(folder), schema("a", "b"))
    assert make(folder).get(schema("a", "b", title="T", description="D")) == TEXT
    assert make(folder).get(replace(schema("a", "b"), backend="xgrammar")) == TEXT
    assert make(folder).get(schema("b", "a")) is None


@pytest.mark.parametrize(
    "identity", ["xgrammar 2 abc", "xgrammar 1 abd", "llguidance 1 abc"], ids=["version", "vocabulary", "backend"]
)
def test_grammar_of_another_backend_version_or_vocabulary_is_not_given(folder: Path, identity: str) -> None:
    offer(make(folder))
    assert make(folder, identity=identity).get(SPEC) is None


def test_grammar_made_by_other_code_of_ours_is_not_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(make(folder))
    monkeypatch.setattr(disk_cache, "_code_digest", lambda: "another")
    assert make(folder).get(SPEC) is None


def halve(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip_last_byte(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def claim_another_key(data: bytes) -> bytes:
    line, _, body = data.partition(b"\n")
    return json.dumps(json.loads(line) | {"key": "0" * 64}).encode() + b"\n" + body


@pytest.mark.parametrize(
    "damage",
    [lambda _: b"", halve, flip_last_byte, lambda _: b"\x80\x04pickle", lambda _: b"[1]\n", claim_another_key],
    ids=["empty", "truncated", "flipped", "foreign", "no_header", "other_key"],
)
def test_E9_damaged_or_foreign_entry_is_removed(folder: Path, damage: object, caplog: pytest.LogCaptureFixture) -> None:
    cache = make(folder)
    offer(cache)
    [path] = folder.iterdir()
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(SPEC) is None
    assert not path.exists()
    assert "damaged" in caplog.text
    assert offer(cache)
    assert cache.get(SPEC) == TEXT


def test_E9_folder_stays_within_its_cap_and_the_least_recently_read_go(folder: Path) -> None:
    specs = [GrammarSpec.from_json_schema({"const": number}) for number in range(40)]
    texts = [os.urandom(500).hex() for _ in specs]
    cache = make(folder, max_bytes=5000)
    for number, (spec, text) in enumerate(zip(specs, texts, strict=True)):
        assert offer(cache, spec, text)
        for age, path in enumerate(sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
            os.utime(path, (1000 * number + age, 1000 * number + age))
        assert cache.get(specs[0]) == texts[0]
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 5000
    assert cache.get(specs[1]) is None


def test_entry_larger_than_the_cap_is_not_kept(folder: Path) -> None:
    assert not offer(make(folder, max_bytes=100), text=os.urandom(500).hex())
    assert list(folder.iterdir()) == []


def test_disk_that_cannot_be_written_costs_a_log_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = make(folder)

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert not offer(cache)
    assert "No space left" in caplog.text
    assert list(folder.iterdir()) == []


def test_folder_that_cannot_be_made_costs_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    cache = make(tmp_path / "file" / "cache")
    assert not offer(cache)
    assert cache.get(SPEC) is None
    assert SPEC not in cache
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert not offer(make(folder))


def test_readers_see_whole_entries_while_others_write(folder: Path) -> None:
    text = os.urandom(200_000).hex()
    writers = [threading.Thread(target=lambda: [offer(make(folder), text=text) for _ in range(5)]) for _ in range(3)]
    for writer in writers:
        writer.start()
    reader = make(folder)
    while any(writer.is_alive() for writer in writers):
        assert reader.get(SPEC) in (None, text)
    assert reader.get(SPEC) == text


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "thinkgate" / "grammars"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == Path.home() / ".cache" / "thinkgate" / "grammars"
