"""The script for a GPU runs from end to end, on stand-ins; it has to work at once when somebody has a GPU at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine import resolve_model
from tests.bench_modules import load_bench

load_bench("reporting")
checks = load_bench("gpu_checks")
script = load_bench("gpu_check")


def test_rehearsal_runs_every_check(tmp_path: Path) -> None:
    """In a process of its own, as a user does: Triton's interpreter is switched on before triton is imported."""
    command = [sys.executable, str(script.__file__), "--device", "cpu", "--quick", "--json", "found.json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    rows = json.loads((tmp_path / "found.json").read_text())["figures"]
    assert [row["verdict"] for row in rows] == ["right"] * 6
    found = {row["check"]: row["result"] for row in rows}
    assert "triton" in found["bitmask kernels against NumPy"]
    assert "8 answers equal" in found["greedy float32 against transformers"]
    assert "rehearsal on the CPU" in done.stdout


def test_graphs_that_are_not_captured_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no capture")

    monkeypatch.setattr(checks, "capture_on_cpu", fail)
    rehearsal = checks.GpuChecks(resolve_model("pocket-r1"), torch.device("cpu"), is_quick=True)
    [row] = script.run_checks({"graphs": rehearsal.check_graphs})
    assert row["verdict"] == "WRONG"
    assert "only graphs of [] sequences were captured" in row["result"]


def test_attention_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = checks.varlen_on_cpu
    monkeypatch.setattr(checks, "varlen_on_cpu", lambda *args, **options: right(*args, **options | {"window_size": (3, 0)}))
    rehearsal = checks.GpuChecks(resolve_model("pocket-r1"), torch.device("cpu"), is_quick=True)
    rows = script.run_checks({"attention": rehearsal.check_attention, "another": lambda: "fine"})
    assert [row["verdict"] for row in rows] == ["WRONG", "right"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_device_nothing_is_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 1
    assert "nothing was checked" in capsys.readouterr().err
