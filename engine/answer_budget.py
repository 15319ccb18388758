"""An answer within the limits: how long a request may think, and how a value is brought to its end when tokens run out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from reasoning_parsers import TokenMarkers

from .errors import InvalidRequestError
from .grammar import Matcher
from .grammar.byte_lru import ByteLRU
from .sampling_params import SamplingParams

Limit = Literal["max_reasoning_tokens", "reserve", "shortest_completion", "dead_end"]
"""A limit that changed what the model would have written."""

MayGoOn = Callable[[Matcher], bool]
"""Whether anything but the end may follow a whole value."""

FindClosing = Callable[[Matcher, int], list[int] | None]
"""Gives the shortest way it knows from a matcher's state to a whole value, of at most so many tokens, or None."""

EndingsBehind = Callable[[list[int], int], Iterable[list[int]]]
"""Gives guesses for the ending behind a token, out of an ending from in front of it, the likeliest first."""

ALWAYS_LOOK = 32
"""Tokens before the known end of an answer from which on each token is looked at."""
FIRST_ENDINGS_BYTES = 512 * 2**10
LONGEST_FIRST_ENDING = 4096
"""Ids of an ending that is kept for all requests, at most."""
_ENDING_BYTES = 200
"""What an ending takes besides its ids: its key, and its place in the order."""
RETRY_AFTER = 8
"""Tokens until the next look where no ending was found."""


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


class FirstEndings:
    """Endings from the starts of grammars, which many requests share: looked for once each, the latest kept."""

    def __init__(self, find_closing: FindClosing) -> None:
        self._find_closing = find_closing
        self._endings: ByteLRU[int, tuple[int, ...]] = ByteLRU(FIRST_ENDINGS_BYTES)

    def find(self, key: int, matcher: Matcher, limit: int) -> list[int] | None:
        """Give an ending from where the matcher stands, as `find_closing` does.

        Args:
            key: Names the grammar. What is known is tried before it is given, so that two with one key do no harm.
            matcher: At the start of the answer; does not change.
            limit: Most ids of the ending.
        """
        ending: Sequence[int] | None = self._endings.get(key)
        if ending is None or not _is_ending(matcher, ending):
            # Always with the same limit: what a request gets must not depend on the limits of those before it.
            ending = self._find_closing(matcher, LONGEST_FIRST_ENDING)
            if ending is not None:
                self._endings.put(key, tuple(ending), _ENDING_BYTES + 8 * len(ending))
        return list(ending) if ending is not None and len(ending) <= limit else self._find_closing(matcher, limit)


def _is_ending(matcher: Matcher, token_ids: Sequence[int]) -> bool:
    """Whether ids lead to a whole value; the matcher is left as it was."""
    if not matcher.accept_tokens(token_ids):
        return False
    is_whole = matcher.is_completed()
    matcher.rollback(len(token_ids))
    return is_whole


class ClosingGuard:
    """Keeps a constrained answer able to end within its limit.

    It looks at each token before it is committed, once the limit is near: a token after which the value could no longer be
    finished is replaced by the next one of the shortest ending that is known. So `max_tokens` does not cut JSON in two.

    With a vocabulary that lacks tokens for some bytes it looks at every token from the first one on: the grammar can be led
    where no token leads out, into a string that cannot be closed for one.

    A search is dear, so the known ending is kept as long as it can be: a token that is its first one leaves the rest of it, and
    behind another one the guesses of `endings_behind` are tried, which the grammar does at once.

    Args:
        find_closing: Finds a shortest ending.
        stop_token_id: What ends the answer after the value.
        endings_behind: Guesses what is left of a known ending.
        looks_always: Whether the vocabulary is such a one.
        find_first: Finds one from the start of the answer; None looks for it like for any other.
        may_go_on: See `may_go_on`.
    """

    def __init__(
        self,
        find_closing: FindClosing,
        stop_token_id: int,
        *,
        endings_behind: EndingsBehind = lambda ending, _: [ending],
        looks_always: bool = False,
        find_first: FindClosing | None = None,
        may_go_on: MayGoOn = lambda matcher: True,
    ) -> None:
        self._find_closing = find_closing
        self._find_first = find_first or find_closing
        self.may_go_on = may_go_on
        self._endings_behind = endings_behind
        self._stop_token_id = stop_token_id
        self._looks_always = looks_always
        # The ending from where the matcher stands, when it was looked for; the answer can be ended by it.
        self._ending: list[int] | None = None
        self._look_at = -1

    def choose(self, matcher: Matcher, token_id: int, num_left: int, *, is_first: bool = False) -> int:
        """Give the token to commit: `token_id`, or the one that leads to the end.

        Args:
            matcher: The grammar's state before the token; does not change.
            token_id: What the model would write; the grammar takes it.
            num_left: Tokens that may still be written, this one among them. A value that takes all of them has no stop id.
            is_first: Whether the matcher stands at the start of its grammar.
        """
        if not self.has_looked:
            # What is kept for all requests is an ending from the start; the first id may have been taken before the gate decided.
            self._look(self._find_first if is_first else self._find_closing, matcher, num_left)
        if token_id == self._stop_token_id or not self._must_look(num_left):
            self._ending = None
            return token_id
        if self._ending is None:
            self._look(self._find_closing, matcher, num_left)
        if self._ending is None:
            return token_id  # no ending is known that fits: nothing to lead to
        ending = self._ending_after(matcher, token_id, num_left - 1)
        if ending is not None:
            self._ending = ending
            self._look_at = _look_at(ending, num_left - 1)
            return token_id
        return self._ending.pop(0) if self._ending else self._stop_token_id

    @property
    def has_looked(self) -> bool:
        """Whether an ending was looked for, so that it does not matter any more whether the matcher stands at the start."""
        return self._look_at >= 0

    def limit_at(self, num_left: int) -> Limit:
        """Give the reason for which a token was replaced with so many tokens left."""
        return "shortest_completion" if num_left <= self._look_at else "dead_end"

    def shortest_len(self, matcher: Matcher) -> int | None:
        """Give the ids of the shortest answer that is found from the start of the matcher's grammar; None if none is found."""
        start = matcher.fork()
        start.reset()
        ending = self._find_first(start, LONGEST_FIRST_ENDING)
        return None if ending is None else len(ending)

    def _must_look(self, num_left: int) -> bool:
        return num_left <= self._look_at or (self._looks_always and self._ending is not None)

    def _ending_after(self, matcher: Matcher, token_id: int, limit: int) -> list[int] | None:
        """Give an ending of at most `limit` tokens from behind the token, if one is known or found."""
        known = self._ending or []
        if known and token_id == known[0] and len(known) - 1 <= limit:
            return known[1:]
        after = matcher.fork()
        if not after.accept_tokens([token_id]):
            return None
        for guess in self._endings_behind(known, token_id):
            if len(guess) <= limit and _is_ending(after, guess):
                return guess
        return self._find_closing(after, limit)

    def _look(self, find_closing: FindClosing, matcher: Matcher, num_left: int) -> None:
        self._ending = find_closing(matcher, num_left)
        self._look_at = _look_at(self._ending, num_left)


def _look_at(ending: list[int] | None, num_left: int) -> int:
    """From how many tokens left on each token is looked at again.

    A token can open something that takes long to close, hence well before the known ending; and again at half of what is left,
    since the ending grows while nobody looks.
    """
    return num_left - RETRY_AFTER if ending is None else max(2 * len(ending) + ALWAYS_LOOK, num_left // 2)
