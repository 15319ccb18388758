#!/usr/bin/env bash
# Build the wheel, install it in a fresh environment, and use it from another folder.
# Usage: wheel_smoke.sh PYTHON   (a Python that has the package `build`)
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
python="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

"$python" -m build --wheel --outdir "$work/dist" "$root" > "$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
wheel="$(echo "$work"/dist/*.whl)"
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --disable-pip-version-check --quiet --constraint "$root/constraints.txt" "$wheel[engine,cli]"

cd "$work"
"$work/venv/bin/python" -W error::ImportWarning - "$work/venv" <<'PYTHON'
import sys
from importlib import import_module, resources
from pathlib import Path

venv = Path(sys.argv[1]).resolve()
for name in ("reasoning_parsers", "engine", "middleware"):
    found = Path(str(import_module(name).__file__)).resolve()
    assert venv in found.parents, f"{name} was imported from {found}, not from the wheel"
    assert resources.files(name).joinpath("py.typed").is_file(), f"{name} ships no py.typed"
    print(f"{name}: {found.relative_to(venv)}")
PYTHON
"$work/venv/bin/thinkgate" --version
cp "$root/examples/quickstart.py" "$work/quickstart.py"
"$work/venv/bin/python" "$work/quickstart.py"
echo "wheel smoke: passed"
