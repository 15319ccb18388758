"""A compiled llguidance grammar, and one sequence in it.

Hidden here: llguidance ends at an end event, of which this matcher never tells it; its errors are sticky, so that after one the
state is made anew from the tokens so far; all copies of a matcher grow one automaton, whose limits one sequence could use up for
all, so that it then gets one of its own; and it takes tokens only, so that loose bytes are spelled in tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import llguidance
import numpy as np
import numpy.typing as npt
import torch

from ...errors import GrammarError, GrammarLimitError
from ..bitmask import bitmask_width, clear_bits_inplace, set_bits_inplace
from ..forced import spell_forced
from ..matcher import Matcher
from ..number_cap import START, NumberCap, State

if TYPE_CHECKING:
    from .llguidance_backend import LLGuidanceBackend


_BYTES_PER_SOURCE_BYTE = 24
_BASE_BYTES = 64 * 1024


class LLGuidanceCompiled:
    """See the protocol `CompiledGrammar`."""

    def __init__(self, backend: LLGuidanceBackend, source: str, raw: llguidance.LLMatcher, cap: NumberCap | None) -> None:
        self.backend = backend
        self.cap = cap
        self._source = source
        self._pristine: llguidance.LLMatcher | None = raw

    @property
    def memory_size_bytes(self) -> int:
        # The library does not say; a rough estimate, without what the automaton grows by in use.
        return _BASE_BYTES + _BYTES_PER_SOURCE_BYTE * len(self._source)

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        return LLGuidanceMatcher(self, self.shared_raw(), frozenset(stop_token_ids))

    def shared_raw(self) -> llguidance.LLMatcher:
        """Make a matcher at the start that shares its automaton with the others."""
        pristine = self._pristine
        if pristine is None:
            pristine = self._pristine = self.own_raw()
        return pristine.deep_copy()

    def own_raw(self) -> llguidance.LLMatcher:
        """Make a matcher at the start with an automaton of its own; takes as long as a compile."""
        return self.backend.new_raw(self._source)

    def drop_shared(self) -> None:
        """Let the shared automaton go, whose limits are used up."""
        self._pristine = None


class LLGuidanceMatcher:
    """See the protocol `Matcher`.

    Attributes:
        backend: The backend that made it.
        raw: llguidance's matcher; for the backend's batched fill.
    """

    def __init__(self, compiled: LLGuidanceCompiled, raw: llguidance.LLMatcher, stop_token_ids: frozenset[int]) -> None:
        self.backend = compiled.backend
        self.raw = raw
        self._compiled = compiled
        self._cap = compiled.cap
        self._stop_token_ids = stop_token_ids
        self._owns_automaton = False
        self._token_ids: list[int] = []
        # Per step its text tokens (0 for a stop id), and where in a number the text stands after it.
        self._step_lengths: list[int] = []
        self._number_states: list[State] = [START]
        self._is_terminated = False
        self._error: GrammarError | None = None

    @property
    def error(self) -> GrammarError | None:
        return self._error

    def accept_tokens(self, token_ids: Sequence[int]) -> bool:
        count = self._advance(token_ids)
        if count < len(token_ids):
            self.rollback(count)
        return count == len(token_ids)

    def accept_bytes(self, data: bytes) -> bool:
        if not data:
            return True
        token_ids = self.backend.vocabulary.index.spell(data)
        return token_ids is not None and self.can_move() and self._step(token_ids, data)

    def validate_tokens(self, token_ids: Sequence[int]) -> int:
        count = self._advance(token_ids)
        self.rollback(count)
        return count

    def rollback(self, num_steps: int) -> None:
        if num_steps > len(self._step_lengths):
            raise ValueError(f"cannot undo {num_steps} of {len(self._step_lengths)} steps")
        if not num_steps:
            return
        num_tokens = sum(self._step_lengths[-num_steps:])
        del self._step_lengths[-num_steps:]
        del self._number_states[-num_steps:]
        if num_tokens:
            del self._token_ids[-num_tokens:]
        self._is_terminated = False
        if self._error is not None or (num_tokens and not self.raw.rollback(num_tokens)):
            self._make_anew()

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        words = np.zeros(bitmask_width(self.backend.vocabulary.vocab_size + 1), dtype=np.int32)
        self._compute(words)
        self.finish_row(words, bitmask.numpy()[row])

    def finish_row(self, words: npt.NDArray[np.int32], row: npt.NDArray[np.int32]) -> None:
        """Copy llguidance's mask, int32 over the vocabulary and its end, to a row of the engine's table.

        The end becomes the stop ids of this request.
        """
        if self._must_try_again():
            self._compute(words)
            self._must_try_again()
        row[:] = 0
        if self._error is not None:
            return
        width = min(len(row), self.backend.width)
        row[:width] = words[:width]
        clear_bits_inplace(row, (*self._stop_token_ids, self.backend.vocabulary.vocab_size))
        if self._cap is not None:
            self._cap.deny_inplace(self._number_states[-1], row)
        if self.is_completed():
            set_bits_inplace(row, tuple(self._stop_token_ids))

    def forced_tokens(self) -> list[int]:
        if not self.can_move() or self.is_completed():
            return []
        return spell_forced(self, self.raw.compute_ff_bytes(), self.backend.vocabulary)

    def is_completed(self) -> bool:
        return self._is_terminated or (self._error is None and bool(self.raw.is_accepting()))

    def is_terminated(self) -> bool:
        return self._is_terminated

    def fork(self) -> Matcher:
        twin = LLGuidanceMatcher(self._compiled, self.raw.deep_copy(), self._stop_token_ids)
        twin._owns_automaton = self._owns_automaton
        twin._token_ids = self._token_ids.copy()
        twin._step_lengths = self._step_lengths.copy()
        twin._number_states = self._number_states.copy()
        twin._is_terminated = self._is_terminated
        twin._error = self._error
        return twin

    def reset(self) -> None:
        self.rollback(len(self._step_lengths))

    def can_move(self) -> bool:
        """Whether text may follow, as far as that is known without a mask."""
        return not self._is_terminated and self._error is None and not self.raw.is_stopped()

    def _advance(self, token_ids: Sequence[int]) -> int:
        """Accept the longest prefix that the grammar takes, and give its length."""
        for count, token_id in enumerate(token_ids):
            if not self._accept(token_id):
                return count
        return len(token_ids)

    def _accept(self, token_id: int) -> bool:
        if token_id in self._stop_token_ids:
            if self._is_terminated or not self.is_completed():
                return False
            self._step_lengths.append(0)
            self._number_states.append(self._number_states[-1])
            self._is_terminated = True
            return True
        if not 0 <= token_id < self.backend.vocabulary.vocab_size or not self.can_move():
            return False
        return self._step([token_id], self.backend.vocabulary.token_bytes[token_id])

    def _step(self, token_ids: list[int], data: bytes) -> bool:
        state: State | None = self._number_states[-1]
        if self._cap is not None and state is not None:
            state = self._cap.advance(state, data)
        if state is None:
            return False
        count = self.raw.try_consume_tokens(token_ids)
        if self._must_try_again():
            count = self.raw.try_consume_tokens(token_ids)
            self._must_try_again()
        if count < len(token_ids):
            if count and self._error is None:
                self.raw.rollback(count)
            return False
        self._token_ids += token_ids
        self._step_lengths.append(len(token_ids))
        self._number_states.append(state)
        return True

    def _compute(self, words: npt.NDArray[np.int32]) -> None:
        words[:] = 0
        if self.can_move():
            self.raw.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)

    def _must_try_again(self) -> bool:
        """Look for an error of the last call; whether it was one of the shared automaton, so that the call is worth another try.

        An error of an automaton of its own is the error of this sequence.
        """
        if self._error is not None or not self.raw.is_error():
            return False
        reason = self.raw.get_error().partition("\n")[0]
        if reason.startswith("NoExtension"):
            # A state without a legal token is an error to llguidance; here it is an empty row.
            return False
        if self._owns_automaton:
            self._error = GrammarLimitError(
                f"the constraint is too complex for llguidance: {reason}", hint="simplify the constraint, or use xgrammar"
            )
            return False
        self._compiled.drop_shared()
        self._make_anew()
        return self._error is None

    def _make_anew(self) -> None:
        """Come back to the tokens so far, with an automaton of its own."""
        self.raw = self._compiled.own_raw()
        self._owns_automaton = True
        self._error = None
        self.raw.try_consume_tokens(self._token_ids)
        self._must_try_again()
