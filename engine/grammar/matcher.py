"""What a grammar backend offers to the engine: the same verbs and the same meaning, whichever library is behind them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from copy import copy
from typing import Protocol, Self

import torch

from ..errors import GrammarError
from .spec import GrammarSpec


class Matcher(Protocol):
    """State of one sequence in its grammar.

    Every verb takes token ids of the answer only; thinking and markers never reach a matcher. A *step* is one accepted token, or
    one call of `accept_bytes`; `rollback` counts steps.
    """

    @property
    def backend(self) -> RowFiller:
        """What fills the rows of many matchers like this one at once: as a rule the backend that made it."""
        ...

    @property
    def error(self) -> GrammarError | None:
        """Why the matcher can go no further (a limit of the backend was hit), or None.

        A matcher with an error takes no token and its rows are empty, until it is rolled back or reset. A token that the grammar
        does not take is no error.
        """
        ...

    @property
    def state(self) -> Hashable:
        """What all that may follow depends on, equal for matchers of one compiled grammar that go on alike; None if not known."""
        ...

    def accept_tokens(self, token_ids: Sequence[int]) -> bool:
        """Advance over `token_ids`; False, with the state as before, if one of them is not in the grammar."""
        ...

    def accept_bytes(self, data: bytes) -> bool:
        """Advance over answer text that is a part of a token; one step for `rollback`, none if `data` is empty.

        False, with the state as before, if the grammar does not take it.
        """
        ...

    def validate_tokens(self, token_ids: Sequence[int]) -> int:
        """Give the length of the longest prefix that the grammar takes; does not change state."""
        ...

    def rollback(self, num_steps: int) -> None:
        """Undo the last `num_steps` steps, the accepted stop id among them.

        Raises:
            ValueError: There are not that many.
        """
        ...

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        """Write the allowed next tokens to `bitmask[row]`, int32 on the CPU; does not change state.

        A stop id is allowed where the value is complete; after termination only stop ids are.
        """
        ...

    def forced_tokens(self) -> list[int]:
        """Give the ids that spell the text which the grammar forces from here; empty if it forces none; does not change state.

        The *text* is forced, not each id: the row may allow other ids that spell the same text. A last id that could be the head
        of a longer token is left out. Good as drafts: the grammar takes all of them. Where the value is complete nothing is
        forced, since a stop id may follow.
        """
        ...

    def is_completed(self) -> bool:
        """Whether the text so far is a whole value, so that a stop id may follow."""
        ...

    def is_terminated(self) -> bool:
        """Whether a stop id was accepted."""
        ...

    def fork(self) -> Matcher:
        """Give an independent matcher in the same state, with the same steps to roll back."""
        ...

    def reset(self) -> None:
        """Go back to the start of the grammar."""
        ...


class Stepper(ABC):
    """Verbs that every matcher has for the same reason: it advances as far as the grammar goes, and can go back."""

    @property
    def state(self) -> Hashable:
        """See `Matcher.state`."""
        return None

    @abstractmethod
    def rollback(self, num_steps: int) -> None:
        """See `Matcher.rollback`."""

    @abstractmethod
    def _part(self) -> None:
        """Make one's own whatever changes in place, for a twin that was copied as it is."""

    @abstractmethod
    def _advance(self, token_ids: Sequence[int]) -> int:
        """Accept the longest prefix that the grammar takes, and give its length."""

    def fork(self) -> Self:
        """See `Matcher.fork`."""
        twin = copy(self)
        twin._part()
        return twin

    def accept_tokens(self, token_ids: Sequence[int]) -> bool:
        """See `Matcher.accept_tokens`."""
        count = self._advance(token_ids)
        if count < len(token_ids):
            self.rollback(count)
        return count == len(token_ids)

    def validate_tokens(self, token_ids: Sequence[int]) -> int:
        """See `Matcher.validate_tokens`."""
        count = self._advance(token_ids)
        self.rollback(count)
        return count


class CompiledGrammar(Protocol):
    """A compiled constraint, shared by all sequences that use it; not changed by them."""

    @property
    def memory_size_bytes(self) -> int:
        """Memory that the compiled grammar holds."""
        ...

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        """Make a matcher at the start of the grammar that ends at any of `stop_token_ids`."""
        ...


class RowFiller(Protocol):
    """Fills the rows of a batch."""

    def fill_bitmasks(self, matchers: Sequence[Matcher], bitmask: torch.Tensor, rows: Sequence[int]) -> None:
        """Do `matchers[i].fill_bitmask(bitmask, rows[i])` for all `i`, on several threads where that pays.

        Args:
            matchers: Different matchers of this filler.
            bitmask: int32 `(num_rows, words)`, contiguous, on the CPU.
            rows: Different rows, one per matcher.
        """
        ...


class GrammarBackend(RowFiller, Protocol):
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


def fill_bitmasks(matchers: Sequence[Matcher], bitmask: torch.Tensor, rows: Sequence[int]) -> None:
    """Fill one row for each matcher, whichever backends they are of; see `RowFiller.fill_bitmasks`."""
    by_filler: dict[int, tuple[RowFiller, list[Matcher], list[int]]] = {}
    for matcher, row in zip(matchers, rows, strict=True):
        filler = matcher.backend
        _, its_matchers, its_rows = by_filler.setdefault(id(filler), (filler, [], []))
        its_matchers.append(matcher)
        its_rows.append(row)
    for filler, its_matchers, its_rows in by_filler.values():
        filler.fill_bitmasks(its_matchers, bitmask, its_rows)
