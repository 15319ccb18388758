"""The examples of docs/engine.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "engine.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=["limits", "metrics", "transformers"])
def test_python_of_the_page_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "docs/engine.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out
