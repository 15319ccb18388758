"""The training script runs, resumes and writes a folder that transformers loads; what it learns is the bench's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM


def train(out: Path, *options: str) -> None:
    # A process of its own: the script flips torch's denormal switch.
    command = [sys.executable, "-m", "engine.pocket.train", "--out", str(out), "--batch-size", "2", "--no-compile", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=250, cwd=Path(__file__).parents[2])


def test_training_runs_and_resumes(tmp_path: Path) -> None:
    train(tmp_path / "first", "--steps", "50", "--stop-after", "2")
    train(tmp_path / "second", "--steps", "3", "--resume", str(tmp_path / "first"), "--seed", "8")
    rows = [json.loads(line) for line in (tmp_path / "second" / "loss.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 4]
    assert all(3 < row["loss"] < 9 for row in rows)
    assert (tmp_path / "second" / "loss.png").stat().st_size > 1000
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "second")
    assert model.config.num_hidden_layers == 4
