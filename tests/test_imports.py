"""Dependencies point one way, and importing the client is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", sorted((ROOT / "reasoning_parsers").rglob("*.py")), ids=lambda path: path.stem)
def test_reasoning_parsers_import_the_standard_library_only(path: Path) -> None:
    assert _imported(path) <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("package", ["reasoning_parsers", "engine", "middleware"])
def test_packages_import_themselves_relatively(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        assert package not in _imported(path), path


def test_importing_the_client_loads_neither_torch_nor_the_engine() -> None:
    code = (
        "import sys, middleware, middleware.cli\n"
        "heavy = {'torch', 'transformers', 'xgrammar', 'litellm', 'engine', 'rich', 'starlette', 'uvicorn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_is_named_after_a_package() -> None:
    files = [path.name for package in ("reasoning_parsers", "engine", "middleware") for path in (ROOT / package).rglob("*.py")]
    assert not {"engine.py", "middleware.py", "reasoning_parsers.py", "utils.py", "common.py"} & set(files)
