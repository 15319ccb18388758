"""What the token limit cut off, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CutPhase = Literal["thinking", "answer"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the token limit came before there was a whole answer.

    Attributes:
        phase: Whether the model was still thinking.
        num_answer_tokens: Tokens that were left for the answer, all of them written.
        shortest_len: Tokens of the shortest answer that is known for the constraint; None for free text, or if none was found.
    """

    phase: CutPhase
    num_answer_tokens: int = 0
    shortest_len: int | None = None

    @property
    def message(self) -> str:
        """What happened, in a sentence."""
        if self.phase == "thinking":
            return "the token limit came inside the thinking"
        if self.shortest_len is not None and self.shortest_len > self.num_answer_tokens:
            return (
                f"no whole answer fits: the shortest that is known takes {self.shortest_len} tokens, "
                f"{self.num_answer_tokens} were left"
            )
        return "the token limit came inside the answer" if self.num_answer_tokens else "the token limit came before the answer"

    @property
    def hint(self) -> str:
        """What to do about it."""
        needed = f"; the answer takes {self.shortest_len} at least" if self.shortest_len else ""
        if self.phase == "thinking":
            return f"raise max_tokens, or set max_reasoning_tokens or reserve, so that tokens are left for the answer{needed}"
        return "raise max_tokens, or let the model think less: max_reasoning_tokens or reserve"
