"""Log-probabilities of the engine, read as those of the answer's tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..result import IMPOSSIBLE, TokenLogprob


class StepOutput(Protocol):
    """The part of the engine's `RequestOutput` that is read here."""

    @property
    def matched_stop(self) -> int | str | None:
        """What ended the answer."""
        ...

    @property
    def new_logprobs(self) -> Sequence[Any]:
        """Of each new token: itself, and the likeliest ones."""
        ...

    @property
    def answer_start(self) -> int | None:
        """Index of the answer's first token."""
        ...


class AnswerLogprobs:
    """Those of one request: thinking, markers and stop ids are left out.

    Args:
        spell: Gives the bytes of a token id.
    """

    def __init__(self, spell: Callable[[int], bytes]) -> None:
        self._spell = spell
        # Of all tokens: ids of a marker that breaks off turn out to be the answer's later.
        self._all: list[TokenLogprob] = []
        self._num_given = 0

    def feed(self, output: StepOutput) -> tuple[TokenLogprob, ...]:
        """Take what a step brought, and give what has become certain."""
        for chosen, top in output.new_logprobs:
            likeliest = tuple(self._read(token_id, logprob) for token_id, logprob in top)
            token_id, logprob = chosen
            self._all.append(self._read(token_id, logprob, likeliest))
        if isinstance(output.matched_stop, int) and self._all:
            self._all.pop()
        if output.answer_start is None:
            return ()
        start = max(output.answer_start, self._num_given)
        self._num_given = max(start, len(self._all))
        return tuple(self._all[start:])

    def _read(self, token_id: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        data = self._spell(token_id)
        return TokenLogprob(data.decode("utf-8", "replace"), max(logprob, IMPOSSIBLE), data, top)
