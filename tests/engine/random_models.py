"""Two-layer random models of any architecture, saved as folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def save_random_model(folder: Path, tokenizer: Any, kind: str, **sizes: Any) -> Any:
    """A two-layer model of any architecture with the pocket model's tokenizer."""
    torch.manual_seed(3)
    common: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if kind == "gpt2":
        common = {"n_embd": 32, "n_layer": 2, "n_head": 4}
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    config = AutoConfig.for_model(kind, vocab_size=1088, initializer_range=0.5, **special, **common | sizes)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model
