"""Drafts for one sequence: what its grammar forces, and between that what prompt lookup finds, cut where the grammar refuses.

The length adapts to how many drafts the model took lately. Whatever is proposed is verified, so a bad draft costs time only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..grammar import Matcher
from .ngram import NgramIndex

MIN_LOOKUP = 2
MAX_LOOKUP = 16


class Drafter:
    """Proposes drafts and learns from what became of them.

    Args:
        prompt_token_ids: Where prompt lookup begins to look.
        use_lookup: Whether to look runs up at all.
    """

    def __init__(self, prompt_token_ids: Sequence[int], *, use_lookup: bool = True) -> None:
        self._index = NgramIndex()
        self._use_lookup = use_lookup
        if use_lookup:
            self._index.extend(prompt_token_ids)
        self._lookup_limit = MIN_LOOKUP * 2
        # Drafts of the last proposal that came from lookup: (first index, length) within it.
        self._lookups: list[tuple[int, int]] = []
        self._suggested: list[int] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take tokens that were committed."""
        if self._use_lookup:
            self._index.extend(token_ids)

    def suggest(self, token_ids: Sequence[int]) -> None:
        """Take what a draft model expects next; counts for the next proposal only, where nothing is forced."""
        self._suggested = list(token_ids)

    def propose(self, matcher: Matcher | None, limit: int) -> list[int]:
        """Give up to `limit` drafts for the tokens that come next.

        Args:
            matcher: The grammar that rules all of them, or None where none rules any; its state is as before afterwards.
            limit: At least 0.
        """
        self._lookups = []
        suggested, self._suggested = self._suggested, []
        if matcher is None:
            return suggested[:limit] or self._look_up([], limit)
        drafts: list[int] = []
        while len(drafts) < limit and not matcher.is_terminated():
            more = matcher.forced_tokens()[: limit - len(drafts)]
            if not more and suggested and not drafts:
                more = suggested[: min(limit, matcher.validate_tokens(suggested))]
            if not more:
                found = self._look_up(drafts, limit - len(drafts))
                more = found[: matcher.validate_tokens(found)] if found else []
                if not more:
                    break
                self._lookups[-1] = (len(drafts), len(more))
            if not matcher.accept_tokens(more):
                break
            drafts += more
        matcher.rollback(len(drafts))
        return drafts

    def learn(self, num_accepted: int) -> None:
        """Take how many drafts of the last proposal the model took.

        A look-up that was taken whole doubles the next ones, one that was not halves them.
        """
        for first, length in self._lookups:
            if num_accepted < first:
                return
            taken_whole = num_accepted >= first + length
            wanted = self._lookup_limit * 2 if taken_whole else self._lookup_limit // 2
            self._lookup_limit = max(MIN_LOOKUP, min(MAX_LOOKUP, wanted))

    def _look_up(self, drafts: list[int], limit: int) -> list[int]:
        if not self._use_lookup:
            return []
        found = self._index.propose(drafts, min(limit, self._lookup_limit))
        if found:
            self._lookups.append((len(drafts), len(found)))
        return found
