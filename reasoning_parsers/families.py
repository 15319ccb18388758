"""The rows that ship: one per model family, data only.

The order matters where a tokenizer or a model's name fits several rows equally well: the earlier one is taken, so the widely
used come first. What a source does not say is left at the default of `ReasoningFamily`; where vLLM and SGLang differ, the
row says which was followed.
"""

from __future__ import annotations

from .channel_families import CHANNEL_FAMILIES
from .family import ReasoningFamily
from .own_marker_families import OWN_MARKER_FAMILIES
from .special_families import SPECIAL_FAMILIES
from .think_families import THINK_FAMILIES

FAMILIES: tuple[ReasoningFamily, ...] = (*THINK_FAMILIES, *OWN_MARKER_FAMILIES, *CHANNEL_FAMILIES, *SPECIAL_FAMILIES)
