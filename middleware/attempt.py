"""What one failed try looked like: the problems found in an answer, with the text that had them.

Knows nothing about how problems are found (`validation.py`) or what happens next (`generation.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .result import FinishReason, Usage

MAX_SHOWN = 400
"""Characters of a message that people and models are shown."""
ProblemKind = Literal["json", "schema", "type", "text", "missing"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why an answer is not valid.

    Attributes:
        pointer: Place in the answer as a JSON pointer in URI fragment form, `#` for the whole answer.
        message: What is wrong there, in words that a model can act on.
        kind: `json` (not strict JSON), `schema` (JSON Schema keyword), `type` (the Python type refused it), `text` (not a
            text that was asked for), `missing` (no answer).
    """

    pointer: str
    message: str
    kind: ProblemKind = "schema"

    def __str__(self) -> str:
        # A keyword's value is quoted whole, a pattern of many thousand characters too.
        message = self.message if len(self.message) <= MAX_SHOWN else f"{self.message[:MAX_SHOWN]}..."
        return f"{self.pointer}: {message}"


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One answer that was not accepted, kept whole."""

    reasoning: str | None
    raw_content: str
    problems: tuple[Problem, ...]
    finish_reason: FinishReason
    usage: Usage
