"""Where thinking ends: on text (`get_parser`) and on token ids (`ReasoningGate`), for any family that a row describes.

Standard library only. Reading order: `family.py` (a row), `families.py` (the rows), `delimited.py` (text), `gate.py` (token ids).
"""

from __future__ import annotations

from .base import PromptState, ReasoningDelta, ReasoningParser, ReasoningSplit
from .channels import Channels
from .delimited import DelimitedParser
from .errors import (
    DuplicateFamilyError,
    InvalidOptionError,
    MarkerError,
    ReasoningParserError,
    UnknownFamilyError,
    UnknownPromptStateError,
)
from .exits import Content
from .factory import get_parser
from .family import ReasoningFamily
from .gate import Bounds, OnUnknown, ReasoningGate
from .markers import TokenMarkers
from .registry import FamilyRegistry, get_family, list_families, register_family
from .scanner import EndMarker
from .symbols import TokenSymbols
from .unsupported_families import UNSUPPORTED_FAMILIES

__all__ = [
    "UNSUPPORTED_FAMILIES",
    "Bounds",
    "Channels",
    "Content",
    "DelimitedParser",
    "DuplicateFamilyError",
    "EndMarker",
    "FamilyRegistry",
    "InvalidOptionError",
    "MarkerError",
    "OnUnknown",
    "PromptState",
    "ReasoningDelta",
    "ReasoningFamily",
    "ReasoningGate",
    "ReasoningParser",
    "ReasoningParserError",
    "ReasoningSplit",
    "TokenMarkers",
    "TokenSymbols",
    "UnknownFamilyError",
    "UnknownPromptStateError",
    "get_family",
    "get_parser",
    "list_families",
    "register_family",
]
