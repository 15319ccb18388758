"""Where thinking ends: on text (`get_parser`) and on token ids (`ReasoningGate`), for any family that a row describes.

Standard library only. Reading order: `family.py` (a row), `families.py` (the rows), `delimited.py` and `channel_parser.py` (text
formats), `gate.py` (token ids).
"""

from __future__ import annotations

from .base import PromptState, ReasoningDelta, ReasoningParser, ReasoningSplit
from .channel_parser import ChannelParser
from .channels import Channels
from .default_registry import get_family, installed_registry, list_families, load_registry, register_family
from .delimited import DelimitedParser
from .detection import Confidence, Detection, detect_family, teach_family
from .errors import (
    DuplicateFamilyError,
    FamilySourceError,
    InvalidOptionError,
    MarkerError,
    ReasoningParserError,
    TemplateReadError,
    UnknownFamilyError,
    UnknownPromptStateError,
)
from .exits import Content
from .factory import get_parser
from .family import ReasoningFamily
from .family_fit import is_named
from .family_sources import ENTRY_POINT_GROUP, PlacedFamily, build_registry, read_entry_points, read_families
from .gate import Bounds, OnUnknown, ReasoningGate
from .markers import TokenMarkers
from .registry import FamilyRegistry
from .response_template import family_from_response_template
from .scanner import EndMarker
from .symbols import TokenSymbols
from .template_switches import Switch
from .tokenizer_facts import PROBE_TEXT, TokenizerFacts

__all__ = [
    "ENTRY_POINT_GROUP",
    "PROBE_TEXT",
    "Bounds",
    "ChannelParser",
    "Channels",
    "Confidence",
    "Content",
    "DelimitedParser",
    "Detection",
    "DuplicateFamilyError",
    "EndMarker",
    "FamilyRegistry",
    "FamilySourceError",
    "InvalidOptionError",
    "MarkerError",
    "OnUnknown",
    "PlacedFamily",
    "PromptState",
    "ReasoningDelta",
    "ReasoningFamily",
    "ReasoningGate",
    "ReasoningParser",
    "ReasoningParserError",
    "ReasoningSplit",
    "Switch",
    "TemplateReadError",
    "TokenMarkers",
    "TokenSymbols",
    "TokenizerFacts",
    "UnknownFamilyError",
    "UnknownPromptStateError",
    "build_registry",
    "detect_family",
    "family_from_response_template",
    "get_family",
    "get_parser",
    "installed_registry",
    "is_named",
    "list_families",
    "load_registry",
    "read_entry_points",
    "read_families",
    "register_family",
    "teach_family",
]
