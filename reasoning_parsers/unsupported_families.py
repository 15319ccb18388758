"""Names that vLLM 0.33 and SGLang 0.5.23 know and this package does not yet: name to what its format needs, data only.

The registry looks here when a name has no row, so that the error says what is missing instead of "unknown". A row of that
name in a registry of your own comes first. Delete an entry when its row is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_RESPONSE_TEMPLATE = "markers that the tokenizer ships in its response template"
_EFFORT = "markers with a suffix from the tokenizer, switched by the reasoning effort"
_BLOCKS = "typed blocks"
_MUSE = "channels addressed with to="

UNSUPPORTED_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "beam": _RESPONSE_TEMPLATE,
        "ernie45": "a <response> wrapper around the content",
        "gemma4": "a channel label to strip",
        "gpt_oss": "Harmony channels",
        "granite": "phrases in place of markers (Granite 3.2)",
        "hf": _RESPONSE_TEMPLATE,
        "hunyuan": _EFFORT,
        "hunyuan_a13b": "an <answer> wrapper around the content",
        "hy_v3": _EFFORT,
        "hy_v4": _EFFORT,
        "hyperclovax": "a role suffix in place of a start marker",
        "inkling": _BLOCKS,
        "iquest_q1": "a format of its own",
        "k2_horizon": "markers chosen by the reasoning effort",
        "kimi_k3": "channels that wrap the content too",
        "minimax_append_think": "thinking that stays inside the content",
        "minimax_m2_append_think": "thinking that stays inside the content",
        "muse": _MUSE,
        "muse_glimmer": _MUSE,
        "musespark1x": _MUSE,
        "olmo3": "markers that are ordinary text, glued to their neighbours by the tokenizer",
        "openai_gptoss": "Harmony channels",
        "response_template": _RESPONSE_TEMPLATE,
    }
)
