"""Benches as modules: they are scripts, in no package, and import each other by plain names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_BENCH = Path(__file__).parent / "bench"


def load_bench(name: str) -> ModuleType:
    """Give a bench, loaded once; those that it imports have to be loaded before it."""
    if name not in sys.modules:
        location = importlib.util.spec_from_file_location(name, _BENCH / f"{name}.py")
        assert location is not None
        assert location.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(location)
        location.loader.exec_module(sys.modules[name])
    return sys.modules[name]
