"""What the `model_type` of a model's configuration says of its family, data only.

Types that stand for thinking and other models alike (`llama`, `qwen2`, `deepseek_v3`) are left out: they say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FAMILIES_BY_MODEL_TYPE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "apertus": ("apertus2509",),
        "cohere2": ("cohere_command3",),
        "cohere2_moe": ("cohere_command3",),
        "deepseek_v4": ("deepseek_v4",),
        "dots1": ("dots",),
        "ernie4_5": ("ernie45",),
        "ernie4_5_moe": ("ernie45",),
        "exaone4": ("exaone4",),
        "exaone_moe": ("exaone4",),
        "gemma4": ("gemma4",),
        "gemma4_text": ("gemma4",),
        "glm4_moe": ("glm45",),
        "glm4v_moe": ("glm45",),
        "gpt_oss": ("gpt_oss",),
        "granitemoehybrid": ("granite_thinking_parser",),
        "hunyuan_v1_dense": ("hunyuan_a13b",),
        "hunyuan_v1_moe": ("hunyuan_a13b",),
        "interns1": ("interns1",),
        "interns1_pro": ("interns1",),
        "kimi_k2": ("kimi_k2",),
        "kimi_k25": ("kimi_k2",),
        "kimi_k3": ("kimi_k3",),
        "longcat_flash": ("longcat",),
        "mimo": ("mimo",),
        "mimo_v2": ("mimo",),
        "mimo_v2_flash": ("mimo",),
        "minicpmv": ("minicpmv",),
        "minimax_m2": ("minimax_m2",),
        "minimax_m3": ("minimax_m3",),
        "nemotron_h": ("nemotron_v3",),
        "olmo3": ("olmo3",),
        "plamo3": ("plamo3",),
        "qwen3": ("qwen3", "qwen3_thinking"),
        "qwen3_5": ("qwen3", "qwen3_thinking"),
        "qwen3_5_moe": ("qwen3", "qwen3_thinking"),
        "qwen3_moe": ("qwen3", "qwen3_thinking"),
        "qwen3_next": ("qwen3", "qwen3_thinking"),
        "qwen3_vl": ("qwen3", "qwen3_thinking"),
        "qwen3_vl_moe": ("qwen3", "qwen3_thinking"),
        "seed_oss": ("seed_oss",),
        "step3_vl": ("step3",),
        "step3p5": ("step3p5",),
    }
)
