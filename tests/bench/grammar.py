"""Everything that is measured of grammars, both raw backends beside ours in the same run.

Parts:
  coverage    what schemas let through, lose or refuse (`grammar_coverage.py`)
  compile     time to the first mask, cold and warm, and what compiles do to other requests (`grammar_compile.py`)
  fill        a row of the mask by class of schemas: raw xgrammar, raw llguidance, and ours with its own choice of a backend
  batch       64 rows one by one and in one call, with what two threads can gain on this machine at this moment
Reading them: "times better raw" should be at most 1.2. "times faster" of a batch should be 1.7 on two free cores, where the rows
are worth sharing: compare it with "two threads" of the same line, which a plain checksum gained in the same moments.

    python tests/bench/schema_sources.py    # once: fetches the real schemas
    make tokenizers                         # once: fetches the tokenizers
    python tests/bench/grammar.py [--quick] [--json FILE] [--parts coverage,compile,fill,batch]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench_vocabulary import BenchVocabulary
from grammar_fill import measure_batch, measure_rows
from reporting import make_parser, print_table, write_json

PARTS = ("coverage", "compile", "fill", "batch")
SCRIPTS = {"coverage": ["grammar_coverage.py"], "compile": ["grammar_compile.py", "--parts", "first_mask,admission"]}
"""Parts that are scripts of their own; each runs in a process of its own, so that none measures what another left behind."""


def run_script(command: list[str], *, is_quick: bool) -> Any:
    """Run another bench, which prints its own table, and give its figures; an error in words where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        script, *options = command
        arguments = [sys.executable, str(Path(__file__).with_name(script)), *options, "--json", str(path)]
        done = subprocess.run(arguments + ["--quick"] * is_quick, check=False)
        if done.returncode or not path.is_file():
            return {"error": f"{script} ended with status {done.returncode}"}
        return json.loads(path.read_text(encoding="utf-8"))["figures"]


def run_part(name: str, vocabulary: BenchVocabulary | None, *, is_quick: bool) -> Any:
    """Measure one part and print its table."""
    if name in SCRIPTS or vocabulary is None:
        return run_script(SCRIPTS[name], is_quick=is_quick)
    rows = (measure_rows if name == "fill" else measure_batch)(vocabulary, is_quick=is_quick)
    print_table("A row of the mask, microseconds" if name == "fill" else "64 rows of the mask", rows)
    return rows


def main() -> None:
    """Run the command line."""
    parser = make_parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts to run (default %(default)s)")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    unknown = set(parts).difference(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    vocabulary = BenchVocabulary() if {"fill", "batch"} & set(parts) else None
    figures = {name: run_part(name, vocabulary, is_quick=arguments.quick) for name in parts}
    write_json(arguments.json, "grammar", figures, is_quick=arguments.quick)
    failed = [name for name, figure in figures.items() if isinstance(figure, dict) and "error" in figure]
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
