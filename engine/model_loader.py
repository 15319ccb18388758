"""Find a model by name and load it and its tokenizer through transformers."""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .config import EngineConfig
from .errors import InvalidRequestError, ModelLoadError, UnknownModelError
from .model_files import read_model

logger = logging.getLogger(__name__)

POCKET_MODEL = "pocket-r1"
DEFAULT_MAX_MODEL_LEN = 4096
"""Length taken for a model that declares none."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, with what its files say about it.

    Attributes:
        model: The transformers module, in eval mode, on its device. Its config stays good; some of its weights may be gone once a
            runner holds them in another layout.
        tokenizer: Its tokenizer.
        device: Where it computes.
        vocab_size: Columns of the logits.
        max_model_len: Tokens a sequence can have.
        stop_token_ids: Ids that end an answer, from the model config, the generation config, the tokenizer and the chat template
            together.
        window: Positions that sliding layers see, if sequences can be longer than that.
        cache_argument: Name under which `forward` takes the cache.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    vocab_size: int
    max_model_len: int
    stop_token_ids: tuple[int, ...]
    cache_argument: str
    window: int | None = None

    def with_stop_token_id(self, token_id: int | None) -> LoadedModel:
        """Give the same model with one more id that ends an answer; None changes nothing."""
        if token_id is None or token_id in self.stop_token_ids or token_id >= self.vocab_size:
            return self
        return replace(self, stop_token_ids=tuple(sorted((*self.stop_token_ids, token_id))))


def resolve_model(name: str) -> str:
    """Turn a model name into a folder, a hub id, or either with a GGUF file behind it.

    Raises:
        UnknownModelError: The name looks like a folder and is none, or a plain name that nothing is known by.
    """
    if name == POCKET_MODEL:
        return str(Path(__file__).parent / "pocket" / "model")
    path = Path(name).expanduser()
    if name and (path.is_dir() or (path.is_file() and path.suffix == ".gguf")):
        return str(path)
    if name.startswith((".", "/", "~")):
        raise UnknownModelError(f"no folder {name!r}", hint="give a GGUF file, or a folder with config.json and weights")
    if name.count("/") != (2 if name.endswith(".gguf") else 1):
        raise UnknownModelError(
            f"no model is called {name!r}", hint=f"use {POCKET_MODEL}, a folder, a GGUF file, or a hub id like Qwen/Qwen3-0.6B"
        )
    return name


def load_model(config: EngineConfig) -> LoadedModel:
    """Load weights and tokenizer.

    Raises:
        UnknownModelError: No such model.
        ModelLoadError: The files cannot be loaded, or the engine would compute this model wrongly.
        InvalidRequestError: The device does not exist.
    """
    device = _pick_device(config.device)
    files = read_model(resolve_model(config.model), dtype=config.dtype, device=device)
    model_config, tokenizer = files.config, files.tokenizer
    text_config = model_config.get_text_config()
    max_model_len = _max_model_len(config, text_config)
    window = _reached_window(text_config, max_model_len)
    model = files.model.to(device).eval()
    vocab_size = model.get_output_embeddings().weight.shape[0]
    logger.info("loaded %s on %s as %s, %d logits columns", config.model, device, model.dtype, vocab_size)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        device=device,
        vocab_size=vocab_size,
        max_model_len=max_model_len,
        stop_token_ids=all_stop_token_ids(model_config, model.generation_config, tokenizer, vocab_size),
        window=window,
        cache_argument="cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values",
    )


def _pick_device(name: str) -> torch.device:
    if name == "auto":
        found = "cuda" if torch.cuda.is_available() else "cpu"
        logger.info("device auto: %s", "CUDA is here" if found == "cuda" else "no CUDA here, so the CPU")
        return torch.device(found)
    try:
        device = torch.device(name)
        torch.zeros(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidRequestError(f"no device {name!r} here", param="device", hint="use auto or cpu") from error
    return device


def _max_model_len(config: EngineConfig, text_config: Any) -> int:
    declared = getattr(text_config, "max_position_embeddings", None) or DEFAULT_MAX_MODEL_LEN
    if config.max_model_len is None:
        return int(declared)
    if config.max_model_len < 2:
        raise InvalidRequestError("max_model_len must leave room for a prompt and an answer: at least 2", param="max_model_len")
    if config.max_model_len > declared:
        raise InvalidRequestError(f"the model is made for {declared} tokens, not {config.max_model_len}", param="max_model_len")
    return config.max_model_len


def _reached_window(text_config: Any, max_model_len: int) -> int | None:
    """Give the window that some layers slide over, or None where no sequence is long enough to reach it."""
    kinds = set(getattr(text_config, "layer_types", None) or ["full_attention"])
    window = getattr(text_config, "sliding_window", None)
    if not kinds <= {"full_attention", "sliding_attention"}:
        raise ModelLoadError(f"layers of kind {', '.join(sorted(kinds))} need a cache that this engine does not have")
    if kinds == {"full_attention"} and not getattr(text_config, "use_sliding_window", False) and _has_no_window(text_config):
        return None
    return None if window is None or max_model_len <= window else int(window)


def _has_no_window(text_config: Any) -> bool:
    # A model that lists its layers' kinds has said which of them slide; one that does not slides everywhere if it has a window.
    return bool(getattr(text_config, "layer_types", None)) or getattr(text_config, "sliding_window", None) is None


def all_stop_token_ids(
    model_config: Any, generation_config: Any, tokenizer: PreTrainedTokenizerBase, vocab_size: int
) -> tuple[int, ...]:
    """Collect the ids that end an answer from every configuration that declares one; what is no token of the model is told."""
    ids: set[int] = set()
    for declared in (model_config.eos_token_id, getattr(generation_config, "eos_token_id", None), tokenizer.eos_token_id):
        for token_id in declared if isinstance(declared, (list, tuple)) else [] if declared is None else [declared]:
            if isinstance(token_id, int) and 0 <= token_id < vocab_size:
                ids.add(token_id)
            else:
                logger.warning("the declared stop id %r is none of the model's %d tokens; left out", token_id, vocab_size)
    return tuple(sorted(ids))
