"""Every standard type of pydantic: the table of the documentation is true, and what the masks allow is valid as the object."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parent / "bench"


def load(name: str) -> ModuleType:
    location = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert location is not None
    assert location.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(location)
    location.loader.exec_module(sys.modules[name])
    return sys.modules[name]


load("reporting")
types = load("pydantic_types")
LINES = {
    line.split("`")[1].replace("\\|", "|"): line
    for line in types.TABLE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
}


@pytest.fixture(scope="module")
def backend() -> object:
    return types.LLGuidanceBackend(types.BYTES, num_threads=1)


@pytest.mark.parametrize("name", types.TYPES)
def test_type_is_what_the_table_says(backend: object, name: str) -> None:
    figure = types.measure(name, types.TYPES[name], backend)
    assert LINES[name] == types.table_row(figure)


def test_table_lists_every_type() -> None:
    assert list(LINES) == list(types.TYPES)
