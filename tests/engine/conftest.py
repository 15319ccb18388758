"""A tiny random model with the pocket model's tokenizer, for tests of mechanism; the pocket model itself for tests of meaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from engine import EngineConfig, LLMEngine, resolve_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def pocket_tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(resolve_model("pocket-r1"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, pocket_tokenizer: Any) -> Path:
    """A random two-layer Llama; its head is wider than the tokenizer, as real ones are."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=1088,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.6,
        eos_token_id=pocket_tokenizer.eos_token_id,
        pad_token_id=pocket_tokenizer.pad_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    pocket_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_engine(tiny_model: Path) -> Iterator[LLMEngine]:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=8))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def pocket_engine() -> Iterator[LLMEngine]:
    engine = LLMEngine(EngineConfig(model="pocket-r1", max_num_seqs=32))
    yield engine
    engine.close()
