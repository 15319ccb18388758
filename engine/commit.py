"""Commit what a step chose for a sequence, token by token, up to the end of its answer."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from .answer_budget import answer_room
from .errors import EngineStepError
from .sequence import Sequence, StopReason


def commit(sequence: Sequence, token_ids: SequenceOf[int], max_model_len: int) -> StopReason | None:
    """Append tokens to the sequence's gate, grammar and text.

    It stops behind the token that ends the answer, and behind one that was replaced so that the answer can end in time: what was
    chosen after that is not the sequence's.

    Args:
        sequence: Running.
        token_ids: Chosen for it: drafts that hold and the token after them.
        max_model_len: Tokens that prompt and answer together may have.

    Returns:
        How the sequence ended, or None if it goes on.

    Raises:
        EngineStepError: The grammar refused a token, which its mask should have forbidden.
    """
    for token_id in token_ids:
        kept = _keep_closable(sequence, token_id, max_model_len)
        if not sequence.append([kept]):
            raise EngineStepError("the grammar refused a token that its mask allowed", request_id=sequence.request_id)
        reason = _stop_reason(sequence, max_model_len)
        if reason is not None or kept != token_id:
            return reason
    return None


def _keep_closable(sequence: Sequence, token_id: int, max_model_len: int) -> int:
    """Give the token, or the one that ends the answer in time where this one would not."""
    if sequence.guard is None or sequence.matcher is None or not sequence.gate.reasoning_ended:
        return token_id
    num_left = answer_room(sequence.params, len(sequence.prompt_token_ids), max_model_len) - len(sequence.token_ids)
    kept = sequence.guard.choose(sequence.matcher, token_id, num_left)
    if kept != token_id:
        sequence.note_limit(sequence.guard.limit_at(num_left))
    return kept


def _stop_reason(sequence: Sequence, max_model_len: int) -> StopReason | None:
    if sequence.matched_stop is not None:
        return "stop"
    if len(sequence.token_ids) >= sequence.params.max_tokens or sequence.num_tokens >= max_model_len:
        return "length"
    return None
