"""What an engine is started with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reasoning_parsers import FamilyRegistry

from .errors import InvalidRequestError
from .grammar.compile_settings import CompileSettings
from .grammar.disk_cache import default_folder

_COUNTS = (
    "max_num_seqs",
    "max_model_len",
    "max_num_batched_tokens",
    "kv_cache_bytes",
    "kv_block_size",
    "max_queue",
    "grammar_workers",
    "grammar_cache_bytes",
    "grammar_memory_bytes",
    "grammar_queue",
    "grammar_disk_cache_bytes",
    "grammar_upgrade_after",
    "grammar_memo_bytes",
    "num_threads",
)
_OPTIONAL_COUNTS = frozenset(
    {
        "max_model_len",
        "max_num_batched_tokens",
        "kv_cache_bytes",
        "kv_block_size",
        "grammar_workers",
        "grammar_upgrade_after",
        "grammar_memo_bytes",
        "num_threads",
    }
)
MAX_THREADS = 1024
"""More end the process where torch makes them."""
MAX_COUNT = 10**15
"""Of everything that is counted: products of two settings, and what a system call takes, stay whole numbers of 64 bits."""
MAX_TIMEOUT_S = 10**7
"""Some months; a thread cannot wait for ever longer times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine.

    Attributes:
        model: `pocket-r1`, a folder in the transformers format, a hub id, or either followed by `/NAME.gguf`.
        device: `auto` (CUDA where there is one, else CPU) or a torch device name.
        dtype: `auto`, `float32`, `bfloat16` or `float16`. `auto` is the checkpoint's own on CUDA and, where it fits into
            memory, float32 on the CPU: bfloat16 logits depend on the batch they were computed in.
        max_num_seqs: Sequences in one batch, at least 1.
        max_model_len: Longest prompt plus answer in tokens; None takes what the model declares.
        max_num_batched_tokens: Tokens computed in one step, more than `max_num_seqs`; a longer prompt is computed in pieces, so
            that it does not hold up the others. None is 256 on the CPU and 2,048 on CUDA, and `max_num_seqs` more.
        kv_cache_bytes: Size of the KV cache; None takes what `max_num_seqs` sequences of full length need, within a quarter of
            the free memory on the CPU and nine tenths on CUDA.
        kv_block_size: Tokens of a block of the KV cache; only full blocks are shared. None is 16, and 256 on CUDA, where flash
            attention wants multiples of it.
        prefix_caching: Whether requests with the same beginning share its keys and values.
        max_queue: Requests that may wait (for a grammar or a batch slot) before new ones are refused as busy.
        family: Name of the reasoning family, `auto`, or `none` for a model that does not think.
        families: The families to look in; None takes those that ship and those that are installed.
        grammar_backends: Grammar backends in order of preference; which one a request gets is chosen by its constraint. Others
            than the two that ship come from installed packages, and must be asked for by the request.
        grammar_workers: Grammars that compile at the same time; None takes half of the cores, as the scheduler needs its share.
        grammar_cache_bytes: Cap of the compiled-grammar cache in memory.
        grammar_timeout_s: A request whose grammar is not compiled by then fails, and the compile is stopped.
        grammar_memory_bytes: Memory that one compile may take in the compile process.
        grammar_queue: Grammars that may wait or compile before requests with new ones are refused as busy.
        grammar_disk_cache: Folder for compiled grammars that took long; `auto` is `$XDG_CACHE_HOME/thinkgate/grammars` (or
            `~/.cache/thinkgate/grammars`), None keeps nothing on disk. Nobody else may be able to write to it.
        grammar_disk_cache_bytes: Cap of that folder.
        grammar_upgrade_after: From this request with the same constraint on, a backend that may have faster masks is compiled in
            the background and compared with the one in use; later requests get the faster one. Backends differ in small things
            (digits of a number, white space), so with None, or a fixed backend, a seed gives the same answer each time.
        grammar_memo_bytes: Cap of the masks that are kept per state of an answer, for all requests with the same schema; None
            keeps none.
        num_threads: Threads of torch's CPU kernels, set while a step runs and put back after it; None leaves torch's choice.
        max_draft_tokens: Tokens that are guessed ahead for one sequence in one step, from its grammar and its own text, and
            verified in the same pass; they never change what comes out. 0 guesses none.
        adapt_drafts: Whether drafts are made only where this engine measures that they gain time; False makes all that there are.
        draft_model: A smaller model with the same tokenizer that guesses too, or None.
    """

    model: str
    device: str = "auto"
    dtype: str = "auto"
    max_num_seqs: int = 16
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_bytes: int | None = None
    kv_block_size: int | None = None
    prefix_caching: bool = True
    max_queue: int = 256
    family: str = "auto"
    families: FamilyRegistry | None = None
    grammar_backends: tuple[str, ...] = ("xgrammar", "llguidance")
    grammar_workers: int | None = None
    grammar_cache_bytes: int = 512 * 2**20
    grammar_timeout_s: float = 60.0
    grammar_memory_bytes: int = 2 * 2**30
    grammar_queue: int = 128
    grammar_disk_cache: str | Path | None = None
    grammar_disk_cache_bytes: int = 2 * 2**30
    grammar_upgrade_after: int | None = 2
    grammar_memo_bytes: int | None = 128 * 2**20
    num_threads: int | None = None
    max_draft_tokens: int = 12
    adapt_drafts: bool = True
    draft_model: str | None = None

    def __post_init__(self) -> None:
        for name, is_right, wanted in self._checks():
            if not is_right:
                raise InvalidRequestError(f"{name} must be {wanted}, not {getattr(self, name)!r}", param=name)
        if self.max_num_batched_tokens is not None and self.max_num_batched_tokens <= self.max_num_seqs:
            raise InvalidRequestError(
                f"max_num_batched_tokens must be more than max_num_seqs ({self.max_num_seqs}), not {self.max_num_batched_tokens}",
                param="max_num_batched_tokens",
            )
        if self.draft_model is not None and not self.max_draft_tokens:
            raise InvalidRequestError("a draft model needs max_draft_tokens above 0", param="draft_model")

    def _checks(self) -> Iterator[tuple[str, bool, str]]:
        for name in _COUNTS:
            value = getattr(self, name)
            is_optional = name in _OPTIONAL_COUNTS
            is_right = (value is None and is_optional) or (_is_int(value) and value >= 1)
            yield name, is_right, "a whole number of at least 1" + (", or None" if is_optional else "")
            yield name, value is None or value <= MAX_COUNT, f"at most {MAX_COUNT:,}"
        yield "num_threads", self.num_threads is None or self.num_threads <= MAX_THREADS, f"at most {MAX_THREADS}"
        yield "max_draft_tokens", _is_int(self.max_draft_tokens) and self.max_draft_tokens >= 0, "a whole number of at least 0"
        yield "max_draft_tokens", self.max_draft_tokens <= MAX_COUNT, f"at most {MAX_COUNT:,}"
        seconds: object = self.grammar_timeout_s
        is_time = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds <= MAX_TIMEOUT_S
        yield "grammar_timeout_s", is_time, f"a positive number of seconds, at most {MAX_TIMEOUT_S:,}"
        for name in ("model", "device", "family"):
            yield name, isinstance(getattr(self, name), str), "a text"
        yield "dtype", self.dtype in _DTYPES, f"one of {', '.join(_DTYPES)}"
        yield "draft_model", self.draft_model is None or isinstance(self.draft_model, str), "a text, or None"
        for name in ("prefix_caching", "adapt_drafts"):
            yield name, isinstance(getattr(self, name), bool), "a bool"
        names: object = self.grammar_backends
        is_names = isinstance(names, (tuple, list)) and bool(names) and all(isinstance(name, str) for name in names)
        yield "grammar_backends", is_names, "a tuple of names, not empty"
        folder = self.grammar_disk_cache
        yield "grammar_disk_cache", folder is None or isinstance(folder, (str, os.PathLike)), "a folder, auto, or None"
        yield "families", self.families is None or isinstance(self.families, FamilyRegistry), "a FamilyRegistry, or None"

    def compile_settings(self) -> CompileSettings:
        """Give the part that the grammar manager takes."""
        folder = self.grammar_disk_cache
        return CompileSettings(
            num_workers=self.grammar_workers,
            timeout_s=self.grammar_timeout_s,
            memory_bytes=self.grammar_memory_bytes,
            max_waiting=self.grammar_queue,
            cache_bytes=self.grammar_cache_bytes,
            disk_cache=default_folder() if folder == "auto" else Path(folder) if folder is not None else None,
            disk_cache_bytes=self.grammar_disk_cache_bytes,
            upgrade_after=self.grammar_upgrade_after,
            memo_bytes=self.grammar_memo_bytes,
        )


_DTYPES = ("auto", "float32", "bfloat16", "float16")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
