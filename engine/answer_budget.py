"""An answer within the limits: how long a request may think, and how a value is brought to its end when tokens run out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from reasoning_parsers import TokenMarkers

from .errors import InvalidRequestError
from .grammar import Matcher
from .grammar.closing import WayOut, is_ending
from .grammar.endings import LONGEST_WAY_OUT, Endings
from .sampling_params import SamplingParams

Limit = Literal["max_reasoning_tokens", "reserve", "shortest_completion", "dead_end"]
"""A limit that changed what the model would have written."""

MayGoOn = Callable[[Matcher], bool]
"""Whether anything but the end may follow a whole value."""

ALWAYS_LOOK = 32
"""Tokens before the known end of an answer from which on each token is looked at."""
STATES_AT_LEAST, STATES_PER_SPARE_TOKEN = 4, 8
"""States that the search for the ending behind one token may look at: the more, the more tokens there are to spare."""
LOOK_AT_ONCE = 256
"""With more tokens left the first look is put off until an eighth of them is written: the way out is searched for meanwhile, a
piece in each step, and most answers end before."""
RETRY_AFTER = 8
"""Tokens until the next look where no ending was found, at least."""
FAR = 2**31


def answer_room(params: SamplingParams, prompt_len: int, max_model_len: int) -> int:
    """Give the tokens that a request may generate, thinking included."""
    return min(params.max_tokens, max_model_len - prompt_len)


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """How many tokens a request may think.

    Attributes:
        max_reasoning_tokens: Markers not counted; None is no limit.
        limit: The setting that the number comes from.
        transition_token_ids: What is written before the end, when the budget is used up.
    """

    max_reasoning_tokens: int | None
    limit: Limit
    transition_token_ids: tuple[int, ...] = ()

    @classmethod
    def plan(
        cls, params: SamplingParams, markers: TokenMarkers | None, *, room: int, transition_token_ids: Sequence[int]
    ) -> ThinkingBudget:
        """Take the smaller of the caller's budget and what the reserve leaves.

        Args:
            params: The request's settings.
            markers: The model's markers, or None for a model that does not think.
            room: Tokens that may be generated at all.
            transition_token_ids: `params.transition` in tokens.

        Raises:
            InvalidRequestError: The reserve is all there is.
        """
        transition = tuple(transition_token_ids)
        if params.reserve >= room:
            raise InvalidRequestError(f"a reserve of {params.reserve} tokens leaves nothing of {room}", param="reserve")
        if markers is None or not params.reserve:
            return cls(params.max_reasoning_tokens, "max_reasoning_tokens", transition)
        # Both markers and the transition are written out of what is left.
        left = max(0, room - params.reserve - len(markers.start) - len(transition) - len(markers.forced_end))
        if params.max_reasoning_tokens is not None and params.max_reasoning_tokens <= left:
            return cls(params.max_reasoning_tokens, "max_reasoning_tokens", transition)
        return cls(left, "reserve", transition)


class ClosingGuard:
    """Keeps a constrained answer able to end within its limit.

    It looks at each token before it is committed, once the limit is near: a token after which the value could no longer be
    finished is replaced by the next one of the shortest ending that is known. So `max_tokens` does not cut JSON in two.

    With a vocabulary that lacks tokens for some bytes it looks at every token from the first one on: the grammar can be led
    where no token leads out, into a string that cannot be closed for one.

    A search is dear, so the known ending is kept as long as it can be: a token that is its first one leaves the rest of it, and
    behind another one guesses are tried, which the grammar does at once. A search for the ending behind one token may take as
    many states as there are tokens to spare: where there are none, only another ending of the same length would do. And where no
    ending fits, more are only searched for when the model has made up for half of what is missing.

    Args:
        endings: What gives endings.
        key: Names the grammar there.
        stop_token_id: What ends the answer after the value.
        looks_always: Whether the vocabulary is such a one.
        may_go_on: See `may_go_on`.
    """

    def __init__(
        self,
        endings: Endings,
        key: int,
        stop_token_id: int,
        *,
        looks_always: bool = False,
        may_go_on: MayGoOn = lambda matcher: True,
    ) -> None:
        self._endings = endings
        self._key = key
        self.may_go_on = may_go_on
        self._stop_token_id = stop_token_id
        self._looks_always = looks_always
        # The way from the start of the grammar, whether it was asked for, and whether it is the short one, for where the other
        # does not fit.
        self._way_out: WayOut | None = None
        self._has_way = False
        self._has_short_way = False
        # The ending from where the matcher stands, when it was looked for; one that does not fit only where it always looks.
        self._ending: list[int] | None = None
        # Tokens left from which on it is looked; None before the first look.
        self._look_at: int | None = None
        # Tokens that were missing when no ending that fits was found, and how long to wait where there was none at all.
        self._num_missing = FAR
        self._wait = RETRY_AFTER

    def prepare(self, matcher: Matcher) -> None:
        """Begin to search for the way out; the matcher stands at the start of its grammar and does not change."""
        self._endings.begin(self._key, matcher)

    def choose(self, matcher: Matcher, token_id: int, num_left: int, *, is_first: bool = False) -> int:
        """Give the token to commit: `token_id`, or the one that leads to the end.

        Args:
            matcher: The grammar's state before the token; does not change.
            token_id: What the model would write; the grammar takes it.
            num_left: Tokens that may still be written, this one among them. A value that takes all of them has no stop id.
            is_first: Whether the matcher stands at the start of its grammar.
        """
        if self._look_at is None:
            # At a place that depends on this request alone, whether the way is known already or not.
            self._look_at = num_left if num_left <= LOOK_AT_ONCE or self._looks_always else num_left - num_left // 8
        if token_id == self._stop_token_id or not self._must_look(num_left):
            self._ending = None
            return token_id
        if not self._has_way:
            self._take_way_out(matcher, is_first=is_first)
            self._look(matcher, num_left, is_first=is_first)
            if not self._must_look(num_left):
                self._ending = None
                return token_id
        elif self._ending is None or (len(self._ending) > num_left and self._is_near(num_left)):
            self._look(matcher, num_left, is_first=is_first)
        if self._ending is None:
            return token_id  # no ending is known that fits: nothing to lead to
        fits = len(self._ending) <= num_left
        ending = self._ending_after(matcher, token_id, num_left - 1 if fits else LONGEST_WAY_OUT)
        if ending is not None:
            self._ending = ending
            if fits:
                self._look_at = _look_at(ending, num_left - 1)
            return token_id
        return self._ending.pop(0) if self._ending else self._stop_token_id

    @property
    def has_looked(self) -> bool:
        """Whether an ending was looked for, so that it does not matter any more whether the matcher stands at the start."""
        return self._look_at is not None

    def limit_at(self, num_left: int) -> Limit:
        """Give the reason for which a token was replaced with so many tokens left."""
        return "shortest_completion" if self._is_near(num_left) else "dead_end"

    def shortest_len(self, matcher: Matcher) -> int | None:
        """Give the ids of the shortest answer that is found from the start of the matcher's grammar; None if none is found."""
        self._take_way_out(matcher, is_first=False, is_short=True)
        return None if self._way_out is None else len(self._way_out.token_ids)

    def _must_look(self, num_left: int) -> bool:
        return self._is_near(num_left) or (self._looks_always and self._ending is not None)

    def _is_near(self, num_left: int) -> bool:
        return self._look_at is None or num_left <= self._look_at

    def _take_way_out(self, matcher: Matcher, *, is_first: bool, is_short: bool = False) -> None:
        """Take the way from the start; the matcher need not stand there, where the first id came before the gate decided."""
        start = matcher
        if not is_first:
            start = matcher.fork()
            start.reset()
        self._has_way, self._has_short_way = True, is_short
        self._way_out = self._endings.from_start(self._key, start, is_short=is_short)

    def _ending_after(self, matcher: Matcher, token_id: int, limit: int) -> list[int] | None:
        """Give an ending of at most `limit` tokens from behind the token, if one is known or found."""
        known = self._ending or []
        if known and token_id == known[0] and len(known) - 1 <= limit:
            return known[1:]
        if not matcher.accept_tokens([token_id]):
            return None
        try:
            for guess in self._endings.behind(known, token_id):
                if len(guess) <= limit and is_ending(matcher, guess):
                    return guess
            num_spare = limit + 1 - len(known)
            return self._endings.find(
                matcher, limit, self._way_out, max_states=STATES_AT_LEAST + STATES_PER_SPARE_TOKEN * num_spare
            )
        finally:
            matcher.rollback(1)

    def _look(self, matcher: Matcher, num_left: int, *, is_first: bool) -> None:
        """Look for an ending that fits, and decide when to look again."""
        ending = self._search(matcher, is_first=is_first)
        if self._way_out is not None and not self._has_short_way and (ending is None or len(ending) > num_left):
            self._take_way_out(matcher, is_first=is_first, is_short=True)
            ending = self._search(matcher, is_first=is_first)
        self._ending = ending if ending is not None and len(ending) <= num_left else None
        if self._ending is None and self._may_fit(ending, num_left, is_first=is_first):
            self._ending = self._endings.find(matcher, num_left, self._way_out)
        if self._ending is not None:
            self._look_at = _look_at(self._ending, num_left)
            return
        if self._looks_always:
            self._ending = ending  # it leads out of a dead end at least
        if ending is not None:
            self._look_at = num_left - max(RETRY_AFTER, (len(ending) - num_left) // 2)
        else:
            self._look_at = num_left - min(self._wait, max(RETRY_AFTER, num_left // 2))
            self._wait *= 2

    def _may_fit(self, ending: list[int] | None, num_left: int, *, is_first: bool) -> bool:
        """Whether it is worth a search for an ending that fits, where the known one does not."""
        if ending is None:
            return True
        num_missing = len(ending) - num_left
        is_nearer = 2 * num_missing <= self._num_missing
        if is_nearer:
            self._num_missing = num_missing
        # From the start the short way is what many searches gave.
        return is_nearer and not is_first

    def _search(self, matcher: Matcher, *, is_first: bool) -> list[int] | None:
        if is_first:
            return None if self._way_out is None else list(self._way_out.token_ids)
        return self._endings.find(matcher, way_out=self._way_out)


def _look_at(ending: list[int], num_left: int) -> int:
    """From how many tokens left on each token is looked at again.

    A token can open something that takes long to close, hence well before the known ending; and again at half of what is left,
    since the ending grows while nobody looks.
    """
    return max(2 * len(ending) + ALWAYS_LOOK, num_left // 2)
