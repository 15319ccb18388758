"""What the README shows is run: its Python blocks here, its curl command against a real server, its paths on the disk."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PocketServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("code", _blocks("python"), ids=lambda code: code.splitlines()[0][:40])
def test_readme_python_block_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_readme_curl_block_answers_as_shown(pocket_server: PocketServer) -> None:
    (block,) = [block for block in _blocks("bash") if "curl" in block]
    command = block[block.index("curl") :].replace("http://localhost:8000", pocket_server.base_url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=True)
    message = json.loads(done.stdout)["choices"][0]["message"]
    assert json.loads(message["content"])["total"] > 0
    assert message["reasoning_content"]


def test_readme_starts_with_the_two_commands() -> None:
    first = _blocks("bash")[0]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]


def test_readme_points_at_files_that_exist() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", README) if not target.startswith("http")]
    assert "docs/gate.svg" in targets
    assert [target for target in targets if not (ROOT / target).exists() and target != "ARCHITECTURE.md"] == []
