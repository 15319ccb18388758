"""What follows from the model and the machine: the KV cache and its size, and the tokens of a step."""

from __future__ import annotations

import logging
from typing import Any

import torch

from .config import EngineConfig
from .errors import InvalidRequestError
from .free_memory import free_memory_bytes, total_memory_bytes
from .kv_cache import PagedKVCache
from .model_loader import LoadedModel

logger = logging.getLogger(__name__)

CPU_SHARE = 0.25
CUDA_SHARE = 0.9
BLOCK_SIZE = 16
CUDA_BLOCK_SIZE = 256
STEP_TOKENS = 256
"""About as many rows as keep a core's matrix units busy; more only makes the others wait longer."""
CUDA_STEP_TOKENS = 2048


def plan_num_blocks(config: EngineConfig, loaded: LoadedModel, *, beside: LoadedModel | None = None) -> int:
    """Give the number of blocks; at least one sequence of `loaded.max_model_len` fits.

    Args:
        config: Settings.
        loaded: The model.
        beside: A model whose cache shares the free memory, each by what a token takes.

    Raises:
        InvalidRequestError: The cache, or the memory, is too small for one sequence.
    """
    block_size = pick_block_size(config, loaded.device)
    block_bytes = block_size * bytes_per_token(loaded)
    num_wanted = config.max_num_seqs * _blocks_for(loaded.max_model_len, block_size)
    budget = config.kv_cache_bytes
    if budget is None:
        own, other = bytes_per_token(loaded), 0 if beside is None else bytes_per_token(beside)
        budget = _free_bytes(loaded.device) * own // (own + other)
    num_blocks = min(num_wanted, budget // block_bytes)
    if not num_blocks and block_size > loaded.max_model_len:
        raise InvalidRequestError(
            f"one block of {block_size} tokens is more than a KV cache of {budget} bytes holds", param="kv_block_size"
        )
    if num_blocks * block_size < loaded.max_model_len:
        raise InvalidRequestError(
            f"a KV cache of {budget} bytes holds {num_blocks * block_size} tokens, but one request may have "
            f"{loaded.max_model_len}",
            param="kv_cache_bytes" if config.kv_cache_bytes is not None else "max_model_len",
            hint="set max_model_len lower or kv_cache_bytes higher",
        )
    if num_blocks * block_bytes > (there := _all_bytes(loaded.device)):
        raise InvalidRequestError(
            f"kv_cache_bytes {budget} is more than the memory there is: {there} bytes", param="kv_cache_bytes"
        )
    logger.info("KV cache: %d blocks of %d tokens, up to %.1f GiB", num_blocks, block_size, num_blocks * block_bytes / 2**30)
    return num_blocks


def make_kv_cache(
    config: EngineConfig, loaded: LoadedModel, *, prefix_caching: bool, beside: LoadedModel | None = None
) -> PagedKVCache:
    """Make the cache for a model, and leave room for that of `beside`, which is made later.

    Raises:
        InvalidRequestError: As `plan_num_blocks`.
    """
    return PagedKVCache(
        num_layers=loaded.model.config.get_text_config().num_hidden_layers,
        num_blocks=plan_num_blocks(config, loaded, beside=beside),
        block_size=pick_block_size(config, loaded.device),
        device=loaded.device,
        prefix_caching=prefix_caching,
    )


def pick_block_size(config: EngineConfig, device: torch.device) -> int:
    """Give the tokens of a block."""
    if config.kv_block_size is not None:
        return config.kv_block_size
    return CUDA_BLOCK_SIZE if device.type == "cuda" else BLOCK_SIZE


def pick_token_budget(config: EngineConfig, device: torch.device) -> int:
    """Give the tokens that one step may compute."""
    if config.max_num_batched_tokens is not None:
        return config.max_num_batched_tokens
    return config.max_num_seqs + (CUDA_STEP_TOKENS if device.type == "cuda" else STEP_TOKENS)


def bytes_per_token(loaded: LoadedModel) -> int:
    """Give the bytes of one token's keys and values, as far as the model's config tells."""
    text_config: Any = loaded.model.config.get_text_config()
    num_heads = text_config.num_attention_heads
    num_kv_heads = getattr(text_config, "num_key_value_heads", None) or num_heads
    head_dim = getattr(text_config, "head_dim", None) or text_config.hidden_size // num_heads
    itemsize: int = loaded.model.dtype.itemsize
    return int(2 * text_config.num_hidden_layers * num_kv_heads * head_dim * itemsize)


def _blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def _all_bytes(device: torch.device) -> int:
    """Memory that a cache could take at most: on the CPU its pages are backed when they are first used, on CUDA at once."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else total_memory_bytes()


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(CUDA_SHARE * torch.cuda.mem_get_info(device)[0])
    return int(CPU_SHARE * free_memory_bytes())
