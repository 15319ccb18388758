"""A compiled llguidance grammar, and one sequence in it.

Hidden here: llguidance ends at an end event, of which this matcher never tells it; its errors are sticky, so that after one the
state is made anew from the tokens so far; all copies of a matcher grow one automaton, whose limits one sequence could use up for
all, so that it then gets one of its own; and it takes tokens only, so that loose bytes are spelled in tokens.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import llguidance
import numpy as np
import numpy.typing as npt
import torch

from ...errors import GrammarError, GrammarLimitError
from ..bitmask import clear_bits_inplace, set_bits_inplace
from ..forced import spell_forced
from ..matcher import Matcher, Stepper
from ..number_cap import START, NumberCap, State
from .lanes import RowCost

if TYPE_CHECKING:
    from .llguidance_backend import LLGuidanceBackend


_BYTES_PER_SOURCE_BYTE = 24
_BASE_BYTES = 64 * 1024
_CROWD = 4
"""Sequences at a time of one grammar from which on a second automaton pays."""
_QUICK_BUILD_S = 0.02
_AUTOMATA = itertools.count()


class LLGuidanceCompiled:
    """See the protocol `CompiledGrammar`.

    Copies of one automaton compute one after the other, whatever threads there are. So with many sequences there are as many
    automata as the backend has threads, and new sequences go to each in turn.

    Attributes:
        cost: What a row takes.
    """

    def __init__(
        self, backend: LLGuidanceBackend, source: str, raw: llguidance.LLMatcher, cap: NumberCap | None, *, build_s: float
    ) -> None:
        self.backend = backend
        self.cap = cap
        self._build_s = build_s
        self.cost = RowCost()
        self._source = source
        self._pristine: list[tuple[int, llguidance.LLMatcher]] = [(next(_AUTOMATA), raw)]
        self._matchers: weakref.WeakSet[LLGuidanceMatcher] = weakref.WeakSet()
        # Sequences begin in the engine's thread, samples in one that compiles.
        self._lock = Lock()

    @property
    def memory_size_bytes(self) -> int:
        # The library does not say; a rough estimate, without what the automaton grows by in use.
        return _BASE_BYTES + _BYTES_PER_SOURCE_BYTE * len(self._source)

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        with self._lock:
            if not self._pristine or self._is_crowded():
                self._pristine.append((next(_AUTOMATA), self.own_raw()))
            users = Counter(matcher.automaton for matcher in self._matchers)
            automaton, raw = min(self._pristine, key=lambda pair: users[pair[0]])
            matcher = LLGuidanceMatcher(self, raw.deep_copy(), frozenset(stop_token_ids), automaton)
            self._matchers.add(matcher)
        return matcher

    def own_raw(self) -> llguidance.LLMatcher:
        """Make a matcher at the start with an automaton of its own; takes as long as a compile."""
        return self.backend.new_raw(self._source)

    def copy_of(self, automaton: int) -> llguidance.LLMatcher | None:
        """Give a matcher at the start with a shared automaton; None where it was let go."""
        with self._lock:
            raw = dict(self._pristine).get(automaton)
        return None if raw is None else raw.deep_copy()

    def drop_shared(self, automaton: int) -> None:
        """Let a shared automaton go, whose limits are used up."""
        with self._lock:
            self._pristine = [pair for pair in self._pristine if pair[0] != automaton]

    def _is_crowded(self) -> bool:
        # Making one more must be nothing that a step would notice.
        num_automata = len(self._pristine)
        may_grow = num_automata < self.backend.num_threads and self._build_s < _QUICK_BUILD_S
        return may_grow and len(self._matchers) >= _CROWD * num_automata


class LLGuidanceMatcher(Stepper):
    """See the protocol `Matcher`.

    Attributes:
        backend: The backend that made it.
        compiled: The grammar.
        raw: llguidance's matcher; for the backend's batched fill.
        automaton: Which automaton it is a copy of.
    """

    def __init__(
        self, compiled: LLGuidanceCompiled, raw: llguidance.LLMatcher, stop_token_ids: frozenset[int], automaton: int
    ) -> None:
        self.backend = compiled.backend
        self.compiled = compiled
        self.raw = raw
        self.automaton = automaton
        self._cap = compiled.cap
        self._stop_token_ids = stop_token_ids
        # Stop ids of a request can be text, which llguidance would allow as such.
        token_bytes = self.backend.vocabulary.token_bytes
        self._text_stop_ids = tuple(i for i in stop_token_ids if i < len(token_bytes) and token_bytes[i])
        self._owns_automaton = False
        self._token_ids: list[int] = []
        # Per step its text tokens (0 for a stop id), and where in a number the text stands after it.
        self._step_lengths: list[int] = []
        self._number_states: list[State] = [START]
        self._is_terminated = False
        self._error: GrammarError | None = None
        # Tokens up to the last mask that are still there, and whether others followed them then.
        self._mask_length = 0
        self._is_mask_left = False

    @property
    def error(self) -> GrammarError | None:
        return self._error

    def accept_bytes(self, data: bytes) -> bool:
        if not data:
            return True
        token_ids = self.backend.vocabulary.index.spell(data)
        return token_ids is not None and self.can_move() and self._step(token_ids, data)

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
        if len(self._token_ids) < self._mask_length:
            self._mask_length = len(self._token_ids)
            self._is_mask_left = True
        self._is_terminated = False
        if self._error is not None:
            self._make_anew()
        elif num_tokens and not self.raw.rollback(num_tokens):
            self._begin_again()

    def fill_bitmask(self, bitmask: torch.Tensor, row: int) -> None:
        if self.can_move():
            self.compute_row(bitmask, row)
            self.finish_row(bitmask, row)
        else:
            self._write_end(bitmask, row)

    def finish_row(self, bitmask: torch.Tensor, row: int) -> None:
        """Make llguidance's mask of a row the engine's: numbers capped, and its end the stop ids of this request."""
        if self.raw.is_error() and self._must_try_again():
            if self.can_move():
                self.compute_row(bitmask, row)
            else:
                bitmask[row] = 0
            self._must_try_again()
        if self._error is not None:
            bitmask[row] = 0
            return
        kept = self._cap.kept(self._number_states[-1]) if self._cap is not None else None
        is_completed = self.raw.is_accepting()
        # Where nothing leads on llguidance allows its end too.
        if kept is None and not is_completed and not self._text_stop_ids and not self.raw.is_stopped():
            return
        words = bitmask.numpy()[row]
        if kept is not None:
            width = min(len(words), len(kept))
            np.bitwise_and(words[:width], kept[:width], out=words[:width])
        clear_bits_inplace(words, (*self._text_stop_ids, self.backend.end_token_id))
        if is_completed:
            set_bits_inplace(words, tuple(self._stop_token_ids))

    def forced_tokens(self) -> list[int]:
        if not self.can_move() or self.is_completed():
            return []
        return spell_forced(self, self.raw.compute_ff_bytes(), self.backend.vocabulary)

    def is_completed(self) -> bool:
        return self._is_terminated or (self._error is None and bool(self.raw.is_accepting()))

    def is_terminated(self) -> bool:
        return self._is_terminated

    def _part(self) -> None:
        self.raw = self.raw.deep_copy()
        self._token_ids = self._token_ids.copy()
        self._step_lengths = self._step_lengths.copy()
        self._number_states = self._number_states.copy()

    def reset(self) -> None:
        self.rollback(len(self._step_lengths))

    def can_move(self) -> bool:
        """Whether text may follow, as far as that is known without a mask."""
        return not self._is_terminated and self._error is None and not self.raw.is_stopped()

    def _advance(self, token_ids: Sequence[int]) -> int:
        """Accept the longest prefix that the grammar takes, and give its length."""
        if self._stop_token_ids.isdisjoint(token_ids):
            return self._accept_text(token_ids)
        count = 0
        while count < len(token_ids):
            if token_ids[count] in self._stop_token_ids:
                num_taken = num_wanted = self._accept_stop()
            else:
                end = next((i for i in range(count, len(token_ids)) if token_ids[i] in self._stop_token_ids), len(token_ids))
                num_wanted = end - count
                num_taken = self._accept_text(token_ids[count:end])
            count += num_taken
            if not num_taken or num_taken < num_wanted:
                break
        return count

    def _accept_stop(self) -> int:
        if self._is_terminated or not self.is_completed():
            return 0
        self._step_lengths.append(0)
        self._number_states.append(self._number_states[-1])
        self._is_terminated = True
        return 1

    def _accept_text(self, token_ids: Sequence[int]) -> int:
        """Take tokens that are no stop ids, all in one call of the library; give how many of them the grammar took."""
        vocabulary, end_id = self.backend.vocabulary, self.backend.end_token_id
        states: list[State] = []
        state = self._number_states[-1]
        for token_id in token_ids:
            if not 0 <= token_id < vocabulary.vocab_size or token_id == end_id:
                break
            if self._cap is not None:
                after = self._cap.advance(state, vocabulary.token_bytes[token_id])
                if after is None:
                    break
                state = after
            states.append(state)
        count = self._consume(list(token_ids[: len(states)]))
        self._token_ids += token_ids[:count]
        self._step_lengths += [1] * count
        self._number_states += states[:count]
        return count

    def _step(self, token_ids: list[int], data: bytes) -> bool:
        """Take tokens that spell `data`, as one step."""
        state: State | None = self._number_states[-1]
        if self._cap is not None and state is not None:
            state = self._cap.advance(state, data)
        if state is None:
            return False
        count = self._consume(token_ids)
        if count < len(token_ids):
            if count and self._error is None:
                self.raw.rollback(count)
            return False
        self._token_ids += token_ids
        self._step_lengths.append(len(token_ids))
        self._number_states.append(state)
        return True

    def _consume(self, token_ids: list[int]) -> int:
        """Let llguidance take tokens; give how many it took."""
        if not token_ids or not self.can_move():
            return 0
        count: int = self.raw.try_consume_tokens(token_ids)
        if self.raw.is_error() and self._must_try_again():
            count = self.raw.try_consume_tokens(token_ids)
            self._must_try_again()
        return count

    def compute_row(self, bitmask: torch.Tensor, row: int) -> None:
        """Let llguidance write its mask, straight into the row where that is as wide; for a matcher that can move."""
        num_words = self.backend.mask_words
        if self._is_mask_left:
            self._renew_mask()
        self._mask_length = len(self._token_ids)
        if bitmask.is_contiguous() and bitmask.shape[1] == num_words:
            self.raw.unsafe_compute_mask_ptr(bitmask.data_ptr() + 4 * row * num_words, 4 * num_words)
        else:
            words = np.empty(num_words, dtype=np.int32)
            self.raw.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            copy_row(words, bitmask, row)

    def _renew_mask(self) -> None:
        """Have llguidance compute a mask where the way to its last one was left.

        It gives the last one again in a state that looks alike (as many lexemes, and the same one begun), also behind a rollback
        to another way, where other lexemes may follow.
        """
        tail = self._token_ids[self._mask_length :]
        if tail:
            self.raw.rollback(len(tail))
            words = np.empty(self.backend.mask_words, dtype=np.int32)
            self.raw.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            self.raw.try_consume_tokens(tail)
        self._is_mask_left = False

    def _write_end(self, bitmask: torch.Tensor, row: int) -> None:
        """Fill the row of a matcher that takes no more text."""
        words = bitmask.numpy()[row]
        words[:] = 0
        if self.is_completed():
            set_bits_inplace(words, tuple(self._stop_token_ids))

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
        self.compiled.drop_shared(self.automaton)
        self._make_anew()
        return self._error is None

    def _begin_again(self) -> None:
        """Come back to the tokens so far behind a dead end, which llguidance does not roll back from; the automaton is kept."""
        raw = self.compiled.copy_of(self.automaton)
        if raw is None:
            self._make_anew()
            return
        self.raw = raw
        self._is_mask_left = False
        self.raw.try_consume_tokens(self._token_ids)
        self._must_try_again()

    def _make_anew(self) -> None:
        """Come back to the tokens so far, with an automaton of its own."""
        self.raw = self.compiled.own_raw()
        self.automaton = next(_AUTOMATA)
        self._owns_automaton = True
        self._error = None
        self._is_mask_left = False
        self.raw.try_consume_tokens(self._token_ids)
        self._must_try_again()


def copy_row(words: npt.NDArray[np.int32], bitmask: torch.Tensor, row: int) -> None:
    """Copy a mask of llguidance to a row of another width, without columns that are not the vocabulary's."""
    target = bitmask.numpy()[row]
    width = min(len(target), len(words))
    target[:width] = words[:width]
    target[width:] = 0
