"""What every bench shares: the command line, the table for people, the JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "xgrammar")


def make_parser(description: str) -> argparse.ArgumentParser:
    """Build the options that all benches take: `--quick` and `--json FILE`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smaller run that ends within 40 seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE as JSON")
    return parser


def machine() -> dict[str, Any]:
    """Say what the figures were measured on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(), "versions": versions}


def print_table(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows with the same keys as a Markdown table, columns aligned."""
    headings = list(rows[0])
    cells = [[str(row[heading]) for heading in headings] for row in rows]
    widths = [max(len(heading), *(len(line[column]) for line in cells)) for column, heading in enumerate(headings)]

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(value.ljust(width) for value, width in zip(values, widths, strict=True)) + " |"

    print(f"\n{title}\n")
    print(line(headings))
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for values in cells:
        print(line(values))


def write_json(path: Path | None, name: str, figures: Any, *, is_quick: bool) -> None:
    """Write the figures of one bench; `path` None writes nothing."""
    if path is not None:
        document = {"bench": name, "quick": is_quick, "machine": machine(), "figures": figures}
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
