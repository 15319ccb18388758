"""Drafts for one sequence: what its grammar forces, values from the text before the answer, and what prompt lookup finds.

The length adapts to how many drafts the model took lately. Whatever is proposed is verified, so a bad draft costs time only.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..grammar import Matcher
from .copying import Copying, ValueCopier
from .gain import DraftGain, DraftSource, Found
from .habits import Habits
from .ngram import NgramIndex
from .spellings import GuessedTexts, Spellings

MIN_LOOKUP = 2
MAX_LOOKUP = 16
MIN_REPEATED = 2
"""Tokens of a value that stand in an earlier one."""


class Drafter:
    """Proposes drafts and learns from what became of them.

    Args:
        prompt_token_ids: Where prompt lookup begins to look.
        use_lookup: Whether to look runs up at all.
        gain: What drafts cost and bring in this engine; None takes every draft that there is.
        habits: What the engine's model was seen to do; None takes forced text as the grammar gives it, and guesses no values.
        is_json: Whether what a grammar rules is JSON.
    """

    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        *,
        use_lookup: bool = True,
        gain: DraftGain | None = None,
        habits: Habits | None = None,
        is_json: bool = False,
    ) -> None:
        self._gain = gain or DraftGain(is_adaptive=False)
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
        self._habits = habits
        self._spellings: Spellings | None = None
        self._texts: GuessedTexts | None = None
        self._copier: ValueCopier | None = None
        # Tokens before the answer; None until it begins.
        self._num_before: int | None = None
        if habits is not None:
            self._spellings = habits.spellings.of_request()
            self._texts = GuessedTexts(self._spellings)
            self._copier = ValueCopier(habits, self._spellings, self._read_source) if is_json and use_lookup else None

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take tokens that were committed."""
        if self._texts is not None:
            self._texts.note_written(token_ids)
        if self._use_lookup:
            self._index.extend(token_ids)

    def extend_answer(self, data: bytes, token_ids: Sequence[int]) -> None:
        """Take what of the committed text is the answer's: the rest of a token that ended the thinking, and the last tokens."""
        if self._num_before is None:
            self._num_before = len(self._index) - len(token_ids)
        if self._copier is not None:
            self._copier.follow(data, token_ids)

    def suggest(self, token_ids: Sequence[int]) -> None:
        """Take what a draft model expects next; counts for the next proposal only, where nothing is forced."""
        self._suggested = list(token_ids)

    def propose(self, matcher: Matcher | None, limit: int) -> list[int]:
        """Give up to `limit` drafts for the tokens that come next.

        Args:
            matcher: The grammar that rules all of them, or None where none rules any; its state is as before afterwards.
            limit: At least 0.
        """
        self._lookups, self._sources = [], []
        if self._texts is not None:
            self._texts.begin()
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
        if self._num_before is None:
            self._num_before = len(self._index)
        copying = None if self._copier is None else self._copier.begin()
        try:
            while len(drafts) < limit and not matcher.is_terminated():
                more = self._go_on(matcher, drafts, suggested, limit - len(drafts), copying)
                if not more:
                    break
                drafts += more
                if copying is not None:
                    copying.follow(more)
        finally:
            # Also behind a guess that failed: the answer goes on from where it is.
            matcher.rollback(len(drafts))
        return drafts

    def _go_on(self, matcher: Matcher, drafts: list[int], suggested: list[int], limit: int, copying: Copying | None) -> list[int]:
        """Let the matcher take what comes behind the drafts; gives it, empty where nothing is guessed."""
        if forced := self._spell_forced(matcher, len(drafts), limit):
            return self._take(matcher, forced, "forced")
        if suggested and not drafts and (taken := self._take(matcher, suggested[:limit], "model")):
            return taken
        guess = None if copying is None or self._repeats(copying, drafts) else copying.guess(matcher, limit)
        if guess is not None:
            if guess.text_ids is not None and self._texts is not None:
                self._texts.add(len(drafts), len(guess.token_ids), guess.text_ids)
            self._sources += guess.sources
            return guess.token_ids
        found = self._look_up(drafts, limit)
        taken = self._take(matcher, found, "quoted")
        if taken:
            self._lookups[-1] = (len(drafts), len(taken))
        return taken

    def _repeats(self, copying: Copying, drafts: list[int]) -> bool:
        """Whether a value goes on as one before it in the answer did, so that look-up knows its rest."""
        start, length = self._index.find(drafts)
        if start is None or length < MIN_REPEATED or start - length < (self._num_before or 0):
            return False
        return copying.is_inside(self._index.token_ids(start - length, start))

    def _take(self, matcher: Matcher, token_ids: list[int], source: DraftSource) -> list[int]:
        """Let the matcher take the longest prefix that goes; gives it."""
        num_taken = 0
        while num_taken < len(token_ids) and matcher.accept_tokens(token_ids[num_taken : num_taken + 1]):
            num_taken += 1
        self._sources += [source] * num_taken
        return token_ids[:num_taken]

    def learn(self, num_accepted: int, *, num_verified: int) -> None:
        """Take how many drafts of the last proposal the model took, of those that it was asked about.

        A look-up that was taken whole doubles the next ones, one that was not halves them.
        """
        del self._sources[num_verified:]
        self._gain.note_verified(self._sources, num_accepted)
        if self._texts is not None and num_accepted < num_verified:
            self._texts.note_refused(num_accepted)
        for first, length in self._lookups:
            if num_accepted < first or len(self._sources) < first + length:
                return  # not reached, or cut: neither taken whole nor refused
            taken_whole = num_accepted >= first + length
            wanted = self._lookup_limit * 2 if taken_whole else self._lookup_limit // 2
            self._lookup_limit = max(MIN_LOOKUP, min(MAX_LOOKUP, wanted))

    def _spell_forced(self, matcher: Matcher, first: int, limit: int) -> list[int]:
        """Give up to `limit` tokens of the text that is forced after the drafts so far, as the model writes it."""
        token_ids = matcher.forced_tokens()
        if self._spellings is None or self._texts is None or not token_ids:
            return token_ids[:limit]
        spelled = self._spellings.spell(token_ids)[:limit]
        if matcher.validate_tokens(spelled[:1]) == 0:
            spelled = token_ids[:limit]
        self._texts.add(first, len(spelled), token_ids)
        return spelled

    def _look_up(self, drafts: list[int], limit: int) -> list[int]:
        if not self._use_lookup:
            return []
        found = self._index.propose(drafts, min(limit, self._lookup_limit))
        if found:
            self._lookups.append((len(drafts), len(found)))
        return found

    def _read_source(self) -> bytes:
        """Give the text before the answer, with NUL for what is no text."""
        assert self._habits is not None
        token_bytes = self._habits.vocabulary.token_bytes
        return b"".join(token_bytes[token_id] or b"\0" for token_id in self._index.token_ids(0, self._num_before))
