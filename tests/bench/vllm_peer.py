"""vLLM on the CPU as a peer: a process in its own virtual environment that does one round whenever it is told to.

Imported by the benches it gives `VllmPeer`; run by vLLM's own Python (`setup_vllm_cpu.py`) it is the process. Lines of JSON go
both ways: prompts in, the number of tokens out. The engine runs inside that process and its threads sleep as soon as a round is
over, or they would slow down whoever is measured next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

MARK = "@@"
"""Begins the lines that are for us; vLLM prints many others."""


class VllmPeer:
    """A model in vLLM, in another process.

    Args:
        python: Python of the environment that has vLLM.
        model: Folder.
        dtype: As vLLM names it.
        max_model_len: Tokens of one sequence.
    """

    def __init__(self, python: Path, model: str, dtype: str, *, max_model_len: int = 2048) -> None:
        # Nothing of ours may be imported there: other versions of the same libraries.
        own = {"PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS"}
        env = {name: value for name, value in os.environ.items() if name not in own} | {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "KMP_BLOCKTIME": "1",
        }
        command = [str(python), str(Path(__file__).resolve()), model, dtype, str(max_model_len)]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def generate(
        self, prompts: Sequence[Sequence[int]], num_tokens: int | Sequence[int], schema: dict[str, Any] | None = None
    ) -> int:
        """Run prompts together, greedily; with a schema to the answers' ends. Gives the number of tokens that came out."""
        request = {"prompts": [list(prompt) for prompt in prompts], "num_tokens": num_tokens, "schema": schema}
        print(json.dumps(request), file=_open(self._process.stdin), flush=True)
        return int(self._answer())

    def close(self) -> None:
        """End the process."""
        _open(self._process.stdin).close()
        self._process.wait(30)

    def _answer(self) -> str:
        for line in _open(self._process.stdout):
            if line.startswith(MARK):
                return line.removeprefix(MARK)
        raise RuntimeError(f"vLLM ended with status {self._process.wait()}")


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _serve(model: str, dtype: str, max_model_len: str) -> None:
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found,unused-ignore]
    from vllm.sampling_params import StructuredOutputsParams  # type: ignore[import-not-found,unused-ignore]

    engine = LLM(model, dtype=dtype, max_model_len=int(max_model_len), max_num_seqs=32, enable_prefix_caching=False, seed=0)
    print(MARK, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        wanted, schema = request["num_tokens"], request["schema"]
        counts = wanted if isinstance(wanted, list) else [wanted] * len(request["prompts"])
        params = [
            SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
            if schema is None
            else SamplingParams(temperature=0, max_tokens=count, structured_outputs=StructuredOutputsParams(json=schema))
            for count in counts
        ]
        prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
        outputs = engine.generate(prompts, params, use_tqdm=False)
        print(f"{MARK}{sum(len(output.outputs[0].token_ids) for output in outputs)}", flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
