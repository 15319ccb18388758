"""What a request asks of its logits before the grammar speaks: penalties, bias, bad words, a least length.

The grammar is applied after these and wins: a bias cannot bring a denied token back, and where the bans here leave nothing that
the grammar allows, they are lifted for that token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from .sampling_params import SamplingParams

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Bans:
    """What was banned in one row.

    Attributes:
        token_ids: int64 `(n,)`.
        values: `(n,)`, the logits that they had, penalties and bias included.
    """

    token_ids: torch.Tensor
    values: torch.Tensor

    def lift(self, logits: torch.Tensor) -> None:
        """Give the row its values back, in place."""
        logits[self.token_ids] = self.values


class LogitRules:
    """The rules of one request, with the counts that its penalties need.

    Args:
        params: The request's settings.
        prompt_token_ids: Ids of the prompt; the repetition penalty counts them, the other two do not.
        stop_token_ids: Ids that `min_tokens` and `ignore_eos` hold back.
        bad_word_ids: Sequences of ids of which the last may not follow the others.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        *,
        stop_token_ids: Iterable[int],
        bad_word_ids: Iterable[tuple[int, ...]] = (),
    ) -> None:
        self._params = params
        self._stop_token_ids = sorted(stop_token_ids)
        self._bad_word_ids = tuple(bad_word_ids)
        self._longest_bad_word = max(map(len, self._bad_word_ids), default=1)
        self._seen = set(prompt_token_ids) if params.repetition_penalty != 1 else set()
        self._counts: Counter[int] = Counter()
        self._num_counted = 0

    @property
    def is_empty(self) -> bool:
        """Whether `apply` never changes anything."""
        params = self._params
        return self.only_bans and not (self._bad_word_ids or params.min_tokens or params.ignore_eos)

    @property
    def only_bans(self) -> bool:
        """Whether no logit changes but those of `banned` tokens."""
        params = self._params
        has_penalty = params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty
        return not (has_penalty or params.logit_bias)

    def apply(self, logits: torch.Tensor, token_ids: Sequence[int], draft_token_ids: Sequence[int] = ()) -> Bans | None:
        """Change one row in place.

        Args:
            logits: float `(vocab_size,)`.
            token_ids: Ids generated so far; from call to call they only grow.
            draft_token_ids: Ids that stand between those and this row, if they are accepted. Not remembered.

        Returns:
            What was banned, or None if nothing was.
        """
        self._count(token_ids)
        counts = self._counts + Counter(draft_token_ids) if draft_token_ids else self._counts
        self._penalize(logits, counts)
        if self._params.logit_bias:
            ids = torch.tensor(list(self._params.logit_bias), device=logits.device)
            values = torch.tensor(list(self._params.logit_bias.values()), dtype=logits.dtype, device=logits.device)
            logits.index_add_(0, ids, values)
        banned = self.banned(token_ids, draft_token_ids)
        if not banned:
            return None
        ids = torch.tensor(sorted(set(banned)), device=logits.device)
        bans = Bans(ids, logits[ids])
        logits[ids] = NEVER
        return bans

    def banned(self, token_ids: Sequence[int], draft_token_ids: Sequence[int] = ()) -> list[int]:
        """Give the ids that may not come next; arguments as for `apply`. Changes nothing."""
        num_tokens = len(token_ids) + len(draft_token_ids)
        banned = []
        if self._bad_word_ids:
            tail = (*token_ids[-self._longest_bad_word :], *draft_token_ids)
            banned = [word[-1] for word in self._bad_word_ids if tail[len(tail) - len(word) + 1 :] == word[:-1]]
        if self._params.ignore_eos or num_tokens < self._params.min_tokens:
            banned += self._stop_token_ids
        return banned

    def _count(self, token_ids: Sequence[int]) -> None:
        self._counts.update(token_ids[self._num_counted :])
        self._num_counted = len(token_ids)

    def _penalize(self, logits: torch.Tensor, counts: Counter[int]) -> None:
        params = self._params
        if params.repetition_penalty != 1:
            ids = torch.tensor(sorted(self._seen | counts.keys()), dtype=torch.long, device=logits.device)
            values = logits[ids]
            # https://arxiv.org/abs/1909.05858 section 4.1, with the sign handled as transformers does.
            logits[ids] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
        if (params.presence_penalty or params.frequency_penalty) and counts:
            ids = torch.tensor(list(counts), dtype=torch.long, device=logits.device)
            times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
            # https://platform.openai.com/docs/api-reference/chat/create
            logits[ids] -= params.presence_penalty + params.frequency_penalty * times
