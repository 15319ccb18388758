"""GGUF files, written here from the tiny model: whole and quantized weights, tokenizer and chat template from the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import EngineConfig, LLMEngine, SamplingParams
from tests.engine.test_llm_engine import SPEC, TEXTS, prompt, reference

gguf: Any = pytest.importorskip("gguf")
pytest.importorskip("accelerate")

_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_ONCE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_gguf_file_is_a_model(tiny_model: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "tiny.gguf"
    write_gguf(tiny_model, file, kind)
    engine = LLMEngine(EngineConfig(model=str(file)))
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32)
    assert engine.family is not None
    assert engine.family.name == "pocket_r1"
    prompts = [prompt(engine, text) for text in TEXTS]
    assert prompts[0] == AutoTokenizer.from_pretrained(tiny_model).apply_chat_template(
        [{"role": "user", "content": TEXTS[0]}], add_generation_prompt=True, return_dict=False, enable_thinking=True
    )
    for ids, output in zip(prompts, engine.generate(prompts, SamplingParams(max_tokens=20)), strict=True):
        assert output.token_ids == reference(model, ids, 20)
    params = SamplingParams(max_tokens=60, max_reasoning_tokens=5)
    for output in engine.generate(prompts, params, grammars=SPEC):
        assert set(json.loads(output.content)) == {"kind", "ok"}
    engine.close()


def test_half_a_gguf_file_is_a_load_error(tiny_model: Path, tmp_path: Path) -> None:
    from engine import ModelLoadError

    file = tmp_path / "tiny.gguf"
    write_gguf(tiny_model, file, "F32")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ModelLoadError) as caught:
        LLMEngine(EngineConfig(model=str(file)))
    assert caught.value.hint


def write_gguf(folder: Path, file: Path, kind: str) -> None:
    """Write a Llama of a folder as llama.cpp's converter does. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    config = model.config
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer, config.vocab_size)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        if (num_heads := heads.get(name.split(".")[-2])) is not None:
            # llama.cpp rotates neighbours, transformers halves.
            halves = values.reshape(num_heads, 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        is_matrix = values.ndim == 2
        quantized = gguf.GGMLQuantizationType[kind if is_matrix else "F32"]
        data = gguf.quants.quantize(values, quantized) if kind != "F32" and is_matrix else values
        writer.add_tensor(_gguf_name(name), data, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: Any, tokenizer: Any, vocab_size: int) -> None:
    unused, control, normal = 5, 3, 1
    added = set(tokenizer.get_added_vocab().values())
    names = [tokenizer.convert_ids_to_tokens(token_id) or f"[PAD{token_id}]" for token_id in range(vocab_size)]
    kinds = [control if token_id in added else normal if token_id < len(tokenizer) else unused for token_id in range(vocab_size)]
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _gguf_name(name: str) -> str:
    path = name.removesuffix(".weight")
    if path in _ONCE:
        return f"{_ONCE[path]}.weight"
    _, _, layer, part = path.split(".", maxsplit=3)
    return f"blk.{layer}.{_LAYER[part]}.weight"
