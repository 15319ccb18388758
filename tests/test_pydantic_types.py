"""Every standard type of pydantic: the table of the documentation is true, and what the masks allow is valid as the object."""

from __future__ import annotations

import pytest

from tests.bench_modules import load_bench

load_bench("reporting")
types = load_bench("pydantic_types")
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
