"""Commit what a step chose for a sequence, token by token, up to the end of its answer."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from .answer_budget import answer_room
from .cut import Cut
from .errors import EngineError, EngineStepError
from .sequence import Sequence, StopReason


def commit(sequence: Sequence, token_ids: SequenceOf[int], max_model_len: int) -> StopReason | None:
    """Append tokens to the sequence's gate, grammar and text; at the token limit, note what it cut off.

    It stops behind the token that ends the answer, and behind one that was replaced so that the answer can end in time: what was
    chosen after that is not the sequence's.

    Args:
        sequence: Running.
        token_ids: Chosen for it: drafts that hold and the token after them.
        max_model_len: Tokens that prompt and answer together may have.

    Returns:
        How the sequence ended, or None if it goes on.

    Raises:
        GrammarError: The grammar gave up at a token.
        EngineStepError: The grammar refused a token, which its mask should have forbidden.
    """
    for token_id in token_ids:
        kept = _keep_closable(sequence, token_id, max_model_len)
        if not sequence.append([kept]):
            raise _why_refused(sequence)
        reason = _stop_reason(sequence, max_model_len)
        if reason is not None or kept != token_id:
            return reason
    return None


def _why_refused(sequence: Sequence) -> EngineError:
    """Give the matcher's own error where it has one: its limits may be met at a token that the mask allowed before."""
    error = sequence.matcher.error if sequence.matcher is not None else None
    return error or EngineStepError("the grammar refused a token that its mask allowed", request_id=sequence.request_id)


def _keep_closable(sequence: Sequence, token_id: int, max_model_len: int) -> int:
    """Give the token, or the one that ends the answer in time where this one would not."""
    gate, guard = sequence.gate, sequence.guard
    if guard is None or sequence.matcher is None or not gate.reasoning_ended:
        return token_id
    num_left = answer_room(sequence.params, len(sequence.prompt_token_ids), max_model_len) - len(sequence.token_ids)
    is_first = not guard.has_looked and gate.reasoning_end_index == len(sequence.token_ids) and not gate.leftover
    kept = guard.choose(sequence.matcher, token_id, num_left, is_first=is_first)
    if kept != token_id:
        sequence.note_limit(guard.limit_at(num_left))
    return kept


def _stop_reason(sequence: Sequence, max_model_len: int) -> StopReason | None:
    if sequence.matched_stop is not None:
        return "stop"
    if len(sequence.token_ids) < sequence.params.max_tokens and sequence.num_tokens < max_model_len:
        return None
    if _is_whole(sequence):
        return "stop"
    sequence.cut = _cut(sequence)
    return "length"


def _is_whole(sequence: Sequence) -> bool:
    """Whether a constrained answer is a whole value, for whose stop id there is no room; notes it if the value could go on."""
    if sequence.matcher is None or not sequence.gate.reasoning_ended or not sequence.matcher.is_completed():
        return False
    if sequence.guard is not None and sequence.guard.may_go_on(sequence.matcher):
        sequence.note_limit("shortest_completion")
    return True


def _cut(sequence: Sequence) -> Cut:
    shortest_len = None
    if sequence.guard is not None and sequence.matcher is not None:
        shortest_len = sequence.guard.shortest_len(sequence.matcher)
    if not sequence.gate.reasoning_ended:
        return Cut("thinking", shortest_len=shortest_len)
    answer_start = sequence.gate.reasoning_end_index or 0
    return Cut("answer", len(sequence.token_ids) - answer_start, shortest_len)
