"""Fixtures that tests of several folders share: a real `thinkgate serve` in front of the pocket model, and real tokenizers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.real_tokenizers import TokenizerMissingError, load_tokenizer


@dataclass(frozen=True)
class PocketServer:
    """A server process and its address."""

    base_url: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="session")
def pocket_server() -> Iterator[PocketServer]:
    command = [sys.executable, "-m", "middleware.cli", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r" on (http\S+)/v1$", line.strip()):
                break
        else:
            pytest.fail(f"the server did not start:\n{''.join(said)}")
        try:
            yield PocketServer(found[1], process)
        finally:
            process.terminate()
            rest = process.stderr.read()
            process.wait()
    assert process.returncode == 0, rest
    assert rest == ""


@pytest.fixture(scope="session")
def real_tokenizer() -> Callable[[str], Any]:
    """Load a real tokenizer by its name in `real_tokenizers.py`; without its files the test skips (with `CI` set: fails)."""

    def load(name: str) -> Any:
        try:
            return load_tokenizer(name)
        except TokenizerMissingError as error:
            if os.environ.get("CI"):
                pytest.fail(str(error))
            pytest.skip(str(error))

    return load
