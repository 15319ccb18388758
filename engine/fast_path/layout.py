"""Which models have Llama's layout, and their weights, fused.

Llama, Mistral, Qwen2 and Qwen3 (SmolLM2 is a Llama) differ in biases, in norms of queries and keys, and in which layers see
a window only. The config decides; whether the weights are understood rightly is seen by comparing logits, as for every way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..model_loader import LoadedModel
from .linear import Linear, MakeProduct

MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotations that depend on the position alone, not on how long the sequence is by now."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer.

    Attributes:
        input_norm: `(hidden_size,)`, before attention.
        qkv: To queries, keys and values, one after the other.
        query_norm: `(head_dim,)`, or None where the model has no such norm.
        key_norm: As `query_norm`.
        output: From the heads back.
        mlp_norm: `(hidden_size,)`, before the MLP.
        gate_up: To the gate and the values that it gates.
        down: From the MLP back.
        window: Positions that a token sees, or None for all.
    """

    input_norm: torch.Tensor
    qkv: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: Linear
    mlp_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    window: int | None


@dataclass(frozen=True, slots=True)
class Layout:
    """A model in Llama's layout.

    Attributes:
        embedding: `(vocab_size, hidden_size)`.
        layers: In order.
        norm: `(hidden_size,)`, the last one.
        head: To the logits.
        cos: float32 `(max_model_len, head_dim / 2)`, the model's own factor of it included.
        sin: As `cos`.
        eps: Of all norms.
    """

    embedding: torch.Tensor
    layers: list[Layer]
    norm: torch.Tensor
    head: Linear
    cos: torch.Tensor
    sin: torch.Tensor
    eps: float
    num_heads: int
    num_kv_heads: int
    head_dim: int


def why_not(loaded: LoadedModel) -> str | None:
    """Say why this model is not taken; None if it is."""
    config = loaded.model.config
    if config.model_type not in MODEL_TYPES:
        return f"{config.model_type} is not laid out like Llama"
    if config.hidden_act != "silu":
        return f"its MLP uses {config.hidden_act}"
    rope = config.rope_parameters.get("rope_type", "default")
    if rope not in ROPE_TYPES:
        return f"its positions are rotated as {rope}"
    if any(parameter.dtype != loaded.model.dtype for parameter in loaded.model.parameters()):
        return "its weights are of several dtypes"
    return None


def read_layout(loaded: LoadedModel, make_product: MakeProduct) -> Layout:
    """Fuse the weights of a model that `why_not` has nothing against."""
    model, config = loaded.model, loaded.model.config
    base = model.model
    head_dim = base.layers[0].self_attn.head_dim
    places = torch.arange(loaded.max_model_len, device=loaded.device)[None]
    cos, sin = base.rotary_emb(torch.zeros(1, device=loaded.device), position_ids=places)
    return Layout(
        embedding=base.embed_tokens.weight.detach(),
        layers=[_read_layer(layer, make_product) for layer in base.layers],
        norm=base.norm.weight.detach(),
        head=Linear([model.lm_head], make_product),
        cos=cos[0, :, : head_dim // 2].contiguous(),
        sin=sin[0, :, : head_dim // 2].contiguous(),
        eps=float(config.rms_norm_eps),
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
    )


def _read_layer(layer: Any, make_product: MakeProduct) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        input_norm=layer.input_layernorm.weight.detach(),
        qkv=Linear([attention.q_proj, attention.k_proj, attention.v_proj], make_product),
        query_norm=_norm_weight(attention, "q_norm"),
        key_norm=_norm_weight(attention, "k_norm"),
        output=Linear([attention.o_proj], make_product),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=Linear([mlp.gate_proj, mlp.up_proj], make_product),
        down=Linear([mlp.down_proj], make_product),
        window=_window(attention),
    )


def read_windows(loaded: LoadedModel) -> list[int | None]:
    """Give the window of each layer as the model has it now, or None where a layer sees everything."""
    return [_window(layer.self_attn) for layer in loaded.model.model.layers]


def _norm_weight(attention: Any, name: str) -> torch.Tensor | None:
    norm = getattr(attention, name, None)
    return None if norm is None else norm.weight.detach()


def _window(attention: Any) -> int | None:
    # Mistral reads it from its config at every call; the others keep it by layer.
    holder = attention.config if attention.config.model_type == "mistral" else attention
    return getattr(holder, "sliding_window", None)
