"""Constraints: what they are, how they are checked, compiled, and turned into token bitmasks."""

from __future__ import annotations

from .bitmask import apply_token_bitmask_inplace, bitmask_width, new_bitmask
from .compile_settings import CompileSettings
from .manager import GrammarManager
from .matcher import CompiledGrammar, GrammarBackend, Matcher, fill_bitmasks
from .prepared import PreparedGrammar
from .spec import GrammarSpec
from .whitespace import Whitespace

__all__ = [
    "CompileSettings",
    "CompiledGrammar",
    "GrammarBackend",
    "GrammarManager",
    "GrammarSpec",
    "Matcher",
    "PreparedGrammar",
    "Whitespace",
    "apply_token_bitmask_inplace",
    "bitmask_width",
    "fill_bitmasks",
    "new_bitmask",
]
