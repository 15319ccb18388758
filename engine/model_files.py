"""Read a model's files through transformers: folders, hub ids and GGUF files, whole or not at all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as hf_logging

from .errors import ModelLoadError
from .free_memory import free_memory_bytes
from .hub import check_reachable

logger = logging.getLogger(__name__)

FLOAT32_SHARE = 0.6
"""Share of the free memory that float32 weights may take on the CPU before the checkpoint's own dtype is kept."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What was read.

    Attributes:
        config: transformers' config.
        tokenizer: The tokenizer.
        model: The module, on the CPU, its weights all from the files.
    """

    config: Any
    tokenizer: PreTrainedTokenizerBase
    model: Any


def read_model(source: str, *, dtype: str, device: torch.device) -> ModelFiles:
    """Read config, tokenizer and weights.

    Args:
        source: A folder, a hub id, or either followed by `/NAME.gguf`.
        dtype: As in `EngineConfig`.
        device: Where the model will compute; decides what `auto` is.

    Raises:
        ModelLoadError: Something is missing, broken, or does not fit together.
    """
    name, options = _split_gguf(source)
    check_reachable(name)
    wanted: Any = "auto" if dtype == "auto" else getattr(torch, dtype)
    config = _read(source, "the config", lambda: AutoConfig.from_pretrained(name, **options))
    tokenizer = _read(source, "the tokenizer", lambda: AutoTokenizer.from_pretrained(name, **options))
    model, report = _read(
        source,
        "the weights",
        lambda: AutoModelForCausalLM.from_pretrained(name, dtype=wanted, output_loading_info=True, **options),
    )
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills them with random numbers and goes on.
        raise ModelLoadError(
            f"{len(missing)} weights of {source!r} are missing, {missing[0]} for one",
            hint="the files are incomplete, or of another architecture than the config says",
        )
    if dtype == "auto" and device.type == "cpu":
        model = _widen_if_it_fits(model)
    return ModelFiles(config, tokenizer, model)


def _split_gguf(source: str) -> tuple[str, dict[str, str]]:
    if not source.endswith(".gguf"):
        return source, {}
    folder, _, file = source.rpartition("/")
    return folder or ".", {"gguf_file": file}


def _read(source: str, what: str, read: Any) -> Any:
    try:
        with _without_progress_bars():
            return read()
    except Exception as error:  # transformers raises OSError, ValueError, ImportError and hub errors alike
        reason = str(error).strip()
        raise ModelLoadError(f"cannot load {what} of {source!r}: {reason}", hint=_hint(source, what, reason)) from error


def _hint(source: str, what: str, reason: str) -> str:
    if source.endswith(".gguf") and "gguf" in reason and "install" in reason:
        return "pip install 'thinkgate[gguf]'"
    if not Path(source).exists():
        return "is the id right, and is the model hub reached?"
    if what == "the tokenizer":
        return "without its tokenizer a model cannot be constrained; put the tokenizer's files into the folder"
    return "is it a causal LM in the transformers format?"


def _widen_if_it_fits(model: Any) -> Any:
    if model.dtype == torch.float32:
        return model
    if getattr(model, "is_quantized", False):
        # transformers refuses to widen one that is loaded.
        logger.warning("the weights are quantized and compute in %s; dtype='float32' makes greedy answers steadier", model.dtype)
        return model
    needed, free = 4 * sum(parameter.numel() for parameter in model.parameters()), free_memory_bytes()
    if needed > FLOAT32_SHARE * free:
        logger.warning(
            "the weights stay %s: float32 would take %.1f GiB of %.1f that are free. Greedy answers may depend on the batch",
            model.dtype,
            needed / 2**30,
            free / 2**30,
        )
        return model
    logger.info(
        "float32 on the CPU, although the files hold %s: its logits do not depend on the batch. dtype='bfloat16' is faster",
        model.dtype,
    )
    return model.float()


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    # A library does not draw on its user's terminal; the command line has a progress display of its own.
    were_enabled = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_enabled:
            hf_logging.enable_progress_bar()
