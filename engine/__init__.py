"""Constrained sampling for models that think first: token ids and a grammar in, token ids that obey it after the gate opened out.

Start reading at `llm_engine.py`. The package knows nothing of pydantic models, HTTP or providers; that is `middleware`.
"""

from __future__ import annotations

from .async_engine import AsyncLLMEngine, RequestStream
from .config import EngineConfig
from .cut import Cut
from .errors import (
    BackendLoadError,
    EngineBusyError,
    EngineClosedError,
    EngineError,
    EngineStepError,
    GrammarCompileError,
    GrammarDeadEndError,
    GrammarError,
    GrammarLimitError,
    InvalidGrammarError,
    InvalidRequestError,
    ModelLoadError,
    UnknownBackendError,
    UnknownModelError,
    UnsupportedGrammarError,
)
from .grammar import GrammarSpec, Whitespace
from .inspection import Inspection, inspect_tokenizer
from .llm_engine import LLMEngine
from .model_loader import POCKET_MODEL, resolve_model
from .sampling_params import SamplingParams
from .sequence import RequestOutput, StopReason

__all__ = [
    "POCKET_MODEL",
    "AsyncLLMEngine",
    "BackendLoadError",
    "Cut",
    "EngineBusyError",
    "EngineClosedError",
    "EngineConfig",
    "EngineError",
    "EngineStepError",
    "GrammarCompileError",
    "GrammarDeadEndError",
    "GrammarError",
    "GrammarLimitError",
    "GrammarSpec",
    "Inspection",
    "InvalidGrammarError",
    "InvalidRequestError",
    "LLMEngine",
    "ModelLoadError",
    "RequestOutput",
    "RequestStream",
    "SamplingParams",
    "StopReason",
    "UnknownBackendError",
    "UnknownModelError",
    "UnsupportedGrammarError",
    "Whitespace",
    "inspect_tokenizer",
    "resolve_model",
]
