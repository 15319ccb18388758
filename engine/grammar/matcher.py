"""What a grammar backend offers to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from .spec import GrammarSpec


class Matcher(Protocol):
    """State of one sequence in its grammar.

    Every verb takes token ids of the answer only; thinking and markers never reach a matcher.
    """

    def accept_tokens(self, token_ids: Sequence[int]) -> bool:
        """Advance over `token_ids`; False, with the state as before, if one of them is not in the grammar."""
        ...

    def validate_tokens(self, token_ids: Sequence[int]) -> int:
        """Give the length of the longest prefix that the grammar takes; does not change state."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Undo the last `num_tokens` accepted tokens."""
        ...

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        """Write the allowed next tokens to `bitmask[row]`, int32 on the CPU; does not change state.

        After termination only stop ids are allowed.
        """
        ...

    def is_completed(self) -> bool:
        """Whether the text so far is a whole value, so that a stop id may follow."""
        ...

    def is_terminated(self) -> bool:
        """Whether a stop id was accepted."""
        ...

    def reset(self) -> None:
        """Go back to the start of the grammar."""
        ...


class CompiledGrammar(Protocol):
    """A compiled constraint, shared by all sequences that use it; not changed by them."""

    @property
    def memory_size_bytes(self) -> int:
        """Memory that the compiled grammar holds."""
        ...

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        """Make a matcher at the start of the grammar that ends at any of `stop_token_ids`."""
        ...


class GrammarBackend(Protocol):
    """Turns specs into compiled grammars for one vocabulary."""

    name: str

    def check(self, spec: GrammarSpec) -> None:
        """Parse only, build no mask.

        Raises:
            UnsupportedGrammarError: The backend cannot compile this constraint.
        """
        ...

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Compile; may take long, may run on any thread, several at a time.

        Raises:
            GrammarCompileError: The backend failed.
        """
        ...
