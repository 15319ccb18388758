"""Drafts for one sequence: what its grammar forces, and between that what prompt lookup finds, cut where the grammar refuses.

The length adapts to how many drafts the model took lately. Whatever is proposed is verified, so a bad draft costs time only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..grammar import Matcher
from .gain import DraftGain, DraftSource, Found
from .ngram import NgramIndex
from .spellings import Spellings

MIN_LOOKUP = 2
MAX_LOOKUP = 16


@dataclass(slots=True)
class _Forced:
    """Text that was forced: its tokens as the grammar gives them, and as they are written.

    Attributes:
        first: Index of its first token among the drafts, then among the tokens that come next.
        token_ids: As the grammar gives them.
        num_drafted: Drafts that stand for it.
        written: Its tokens so far.
    """

    first: int
    token_ids: list[int]
    num_drafted: int
    written: list[int]


class Drafter:
    """Proposes drafts and learns from what became of them.

    Args:
        prompt_token_ids: Where prompt lookup begins to look.
        use_lookup: Whether to look runs up at all.
        gain: What drafts cost and bring in this engine; None takes every draft that there is.
        spellings: How the engine's model spells forced text; None takes it as the grammar gives it.
    """

    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        *,
        use_lookup: bool = True,
        gain: DraftGain | None = None,
        spellings: Spellings | None = None,
    ) -> None:
        self._gain = gain or DraftGain(is_adaptive=False)
        self._spellings = None if spellings is None else spellings.of_request()
        # Forced texts of the last proposal, and the one of which a token was refused and the rest is not written yet.
        self._forced: list[_Forced] = []
        self._respelled: _Forced | None = None
        self._index = NgramIndex()
        self._use_lookup = use_lookup
        if use_lookup:
            self._index.extend(prompt_token_ids)
        self._lookup_limit = MIN_LOOKUP * 2
        # Drafts of the last proposal that came from lookup: (first index, length) within it.
        self._lookups: list[tuple[int, int]] = []
        # Where each draft of the last proposal came from.
        self._sources: list[DraftSource] = []
        self.found = Found((), is_constrained=False)
        self._suggested: list[int] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take tokens that were committed."""
        self._learn_spelling(token_ids)
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
        self._lookups, self._sources, self._forced = [], [], []
        suggested, self._suggested = self._suggested, []
        is_constrained = matcher is not None
        # What a draft model expects is at hand already.
        if not suggested and not self._gain.may_look(is_constrained=is_constrained):
            return []
        drafts = self._find_free(suggested, limit) if matcher is None else self._find_allowed(matcher, suggested, limit)
        if suggested:
            self._gain.note_suggested(is_used="model" in self._sources)
        self.found = Found(self._sources, is_constrained)
        return drafts

    def _find_free(self, suggested: list[int], limit: int) -> list[int]:
        if drafts := suggested[:limit]:
            self._sources += ["model"] * len(drafts)
            return drafts
        drafts = self._look_up([], limit)
        self._sources += ["lookup"] * len(drafts)
        return drafts

    def _find_allowed(self, matcher: Matcher, suggested: list[int], limit: int) -> list[int]:
        """Drafts that the grammar allows; the matcher is as before afterwards."""
        drafts: list[int] = []
        while len(drafts) < limit and not matcher.is_terminated():
            source: DraftSource = "forced"
            more = self._spell_forced(matcher, len(drafts), limit - len(drafts))
            if not more and suggested and not drafts:
                source = "model"
                more = suggested[: min(limit, matcher.validate_tokens(suggested))]
            if not more:
                source = "quoted"
                found = self._look_up(drafts, limit - len(drafts))
                more = found[: matcher.validate_tokens(found)] if found else []
                if not more:
                    break
                self._lookups[-1] = (len(drafts), len(more))
            if not matcher.accept_tokens(more):
                break
            drafts += more
            self._sources += [source] * len(more)
        matcher.rollback(len(drafts))
        return drafts

    def learn(self, num_accepted: int, *, num_verified: int) -> None:
        """Take how many drafts of the last proposal the model took, of those that it was asked about.

        A look-up that was taken whole doubles the next ones, one that was not halves them.
        """
        del self._sources[num_verified:]
        self._gain.note_verified(self._sources, num_accepted)
        self._find_respelled(num_accepted, num_verified)
        for first, length in self._lookups:
            if num_accepted < first or len(self._sources) < first + length:
                return  # not reached, or cut: neither taken whole nor refused
            taken_whole = num_accepted >= first + length
            wanted = self._lookup_limit * 2 if taken_whole else self._lookup_limit // 2
            self._lookup_limit = max(MIN_LOOKUP, min(MAX_LOOKUP, wanted))

    def _spell_forced(self, matcher: Matcher, first: int, limit: int) -> list[int]:
        """Give up to `limit` tokens of the text that is forced after the drafts so far, as the model writes it."""
        token_ids = matcher.forced_tokens()
        if self._spellings is None or not token_ids:
            return token_ids[:limit]
        spelled = self._spellings.spell(token_ids)[:limit]
        if matcher.validate_tokens(spelled) < len(spelled):
            spelled = token_ids[:limit]
        self._forced.append(_Forced(first, token_ids, len(spelled), []))
        return spelled

    def _find_respelled(self, num_accepted: int, num_verified: int) -> None:
        """Keep the forced text of which a token was refused: what is written instead spells it."""
        if self._respelled is None and num_accepted < num_verified:
            for forced in self._forced:
                if forced.first <= num_accepted < forced.first + forced.num_drafted:
                    self._respelled = forced

    def _learn_spelling(self, token_ids: Sequence[int]) -> None:
        forced = self._respelled
        if forced is None or self._spellings is None:
            return
        forced.written += token_ids[forced.first :]
        forced.first = max(0, forced.first - len(token_ids))
        if forced.written and self._spellings.learn(forced.token_ids, forced.written):
            self._respelled = None

    def _look_up(self, drafts: list[int], limit: int) -> list[int]:
        if not self._use_lookup:
            return []
        found = self._index.propose(drafts, min(limit, self._lookup_limit))
        if found:
            self._lookups.append((len(drafts), len(found)))
        return found
