"""One request inside the engine: its tokens, its gate, its grammar and its text so far."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

from reasoning_parsers import ReasoningGate

from .detokenizer import IncrementalDetokenizer, TokenDecoder
from .errors import EngineError
from .grammar import CompiledGrammar, GrammarSpec, Matcher
from .kv_cache import BlockTable
from .logit_rules import LogitRules
from .logprobs import TokenLogprobs
from .sampling_params import SamplingParams
from .stop import StopStringFilter

StopReason = Literal["stop", "length", "abort", "error"]


class SequenceStatus(Enum):
    """Where a sequence stands."""

    WAITING_FOR_GRAMMAR = "waiting_for_grammar"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True)
class RequestOutput:
    """What a step did for one request.

    Attributes:
        request_id: The request.
        prompt_token_ids: Ids of the prompt.
        new_token_ids: Ids of this step.
        reasoning_delta: Thinking text that became certain in this step, without markers.
        content_delta: Answer text that became certain in this step, without stop tokens.
        finished: Whether this is the last output of the request.
        stop_reason: How it ended, or None.
        error: Why it failed, when `stop_reason` is `error`.
        num_reasoning_tokens: Thinking tokens, markers not counted.
        reasoning_ended: Whether the thinking is over; None while that is not known.
        is_constrained: Whether the request has a grammar.
        unenforced: JSON pointers of schema keywords that the masks did not enforce.
        matched_stop: The stop id or stop string that ended the answer.
        new_logprobs: One per id of `new_token_ids`, where the request asked for them.
        so_far: Everything up to this step, for `token_ids`, `reasoning` and `content`.
    """

    request_id: str
    prompt_token_ids: list[int]
    new_token_ids: list[int]
    reasoning_delta: str
    content_delta: str
    finished: bool
    stop_reason: StopReason | None
    error: EngineError | None
    num_reasoning_tokens: int
    reasoning_ended: bool | None
    is_constrained: bool
    unenforced: tuple[str, ...]
    matched_stop: int | str | None
    new_logprobs: list[TokenLogprobs]
    so_far: SoFar = field(repr=False)

    @property
    def token_ids(self) -> list[int]:
        """All generated ids, markers and the stop id included."""
        return self.so_far.token_ids[: self.so_far.num_tokens]

    @property
    def reasoning(self) -> str:
        """Thinking text so far."""
        return "".join(self.so_far.reasoning[: self.so_far.num_reasoning_pieces])

    @property
    def content(self) -> str:
        """Answer text so far."""
        return "".join(self.so_far.content[: self.so_far.num_content_pieces])


class SoFar(NamedTuple):
    """A sequence's growing lists and how long they were: shared, so that a long answer is not copied at every step."""

    token_ids: list[int]
    num_tokens: int
    reasoning: list[str]
    num_reasoning_pieces: int
    content: list[str]
    num_content_pieces: int


class Sequence:
    """State of one request; owned by the engine, changed only by `append` and `finish`."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        gate: ReasoningGate,
        tokenizer: TokenDecoder,
        stop_token_ids: frozenset[int],
        spec: GrammarSpec | None,
        rules: LogitRules | None = None,
        *,
        priority: int = 0,
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.gate = gate
        self.spec = spec
        self.rules = rules
        self.new_logprobs: list[TokenLogprobs] = []
        self.stop_token_ids = stop_token_ids
        self.token_ids: list[int] = []
        self.status = SequenceStatus.WAITING
        self.stop_reason: StopReason | None = None
        self.error: EngineError | None = None
        self.blocks = BlockTable()
        self.num_cached_tokens = 0
        self.grammar_future: Future[CompiledGrammar] | None = None
        self.matcher: Matcher | None = None
        self.added_at = time.monotonic()
        self.priority = priority
        self.seed = params.seed if params.seed is not None else secrets.randbits(63)
        stops = StopStringFilter(params.stop, keep=params.include_stop_in_output) if params.stop else None
        self._text = _SplitText(gate, tokenizer, stop_token_ids, stops)

    @property
    def is_constrained(self) -> bool:
        """Whether the request has a grammar, compiled or not."""
        return self.spec is not None

    @property
    def matched_stop(self) -> int | str | None:
        """The stop id or the stop string that ends the answer, once it is there."""
        if self.token_ids and self.token_ids[-1] in self.stop_token_ids:
            return self.token_ids[-1]
        return self._text.content.matched_stop

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        return len(self.prompt_token_ids) + len(self.token_ids)

    @property
    def num_pending_tokens(self) -> int:
        """Tokens whose keys and values are not in the cache yet; 1 for a sequence that decodes."""
        return self.num_tokens - self.num_cached_tokens

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        """Give the ids at positions `start` to `stop - 1`, prompt and generated alike."""
        num_prompt = len(self.prompt_token_ids)
        if start >= num_prompt:
            return self.token_ids[start - num_prompt : stop - num_prompt]
        return self.prompt_token_ids[start:stop] + self.token_ids[: max(0, stop - num_prompt)]

    def append(self, token_ids: list[int]) -> bool:
        """Commit sampled ids to gate, grammar and text; False if the grammar refused one of them."""
        # Negative where a start marker of several ids broke off: earlier ids turn out to be content.
        answer_start = len(self.token_ids) + self.gate.commit(token_ids).grammar_start
        self.token_ids += token_ids
        self._text.update(self.token_ids)
        answer = self.token_ids[answer_start:]
        return self.matcher is None or not answer or self.matcher.accept_tokens(answer)

    def finish(self, reason: StopReason, error: EngineError | None = None) -> None:
        """End the sequence; text that was held back is let out."""
        self.status = SequenceStatus.FINISHED
        self.stop_reason = reason
        self.error = error
        self._text.flush(self.token_ids)

    def take_output(self, new_token_ids: list[int]) -> RequestOutput:
        """Make the output of this step; the deltas are handed out once."""
        reasoning_delta, content_delta = self._text.take()
        new_logprobs, self.new_logprobs = self.new_logprobs, []
        return RequestOutput(
            request_id=self.request_id,
            prompt_token_ids=self.prompt_token_ids,
            new_token_ids=new_token_ids,
            reasoning_delta=reasoning_delta,
            content_delta=content_delta,
            finished=self.status is SequenceStatus.FINISHED,
            stop_reason=self.stop_reason,
            error=self.error,
            num_reasoning_tokens=self.gate.num_reasoning_tokens,
            reasoning_ended=self.gate.reasoning_ended,
            is_constrained=self.is_constrained,
            unenforced=self.spec.unenforced if self.spec is not None else (),
            matched_stop=self.matched_stop if self.stop_reason == "stop" else None,
            new_logprobs=new_logprobs,
            so_far=SoFar(
                self.token_ids,
                len(self.token_ids),
                self._text.reasoning.pieces,
                len(self._text.reasoning.pieces),
                self._text.content.pieces,
                len(self._text.content.pieces),
            ),
        )


@dataclass(slots=True)
class _Channel:
    detokenizer: IncrementalDetokenizer
    stops: StopStringFilter | None = None
    pieces: list[str] = field(default_factory=list)
    num_taken: int = 0
    # Index after the last generated token that was looked at.
    num_seen: int = 0

    @property
    def matched_stop(self) -> str | None:
        return self.stops.matched if self.stops is not None else None

    def add(self, piece: str) -> None:
        if self.stops is not None:
            piece = self.stops.feed(piece)
        if piece:
            self.pieces.append(piece)

    def flush(self) -> None:
        self.add(self.detokenizer.flush())
        if self.stops is not None and (held := self.stops.flush()):
            self.pieces.append(held)

    def take(self) -> str:
        delta = "".join(self.pieces[self.num_taken :])
        self.num_taken = len(self.pieces)
        return delta


class _SplitText:
    """Text of a sequence by channel, as the gate says; markers and stop ids go to neither."""

    def __init__(
        self, gate: ReasoningGate, tokenizer: TokenDecoder, stop_token_ids: frozenset[int], stops: StopStringFilter | None
    ) -> None:
        self.reasoning = _Channel(IncrementalDetokenizer(tokenizer))
        self.content = _Channel(IncrementalDetokenizer(tokenizer), stops)
        self._gate = gate
        self._stop_token_ids = stop_token_ids

    def update(self, token_ids: list[int]) -> None:
        """Take what has become certain; `token_ids` are all generated ids, committed to the gate."""
        self._extend(self.reasoning, token_ids, *self._gate.reasoning_span)
        content_start = self._gate.reasoning_end_index
        if content_start is not None:
            self._extend(self.content, token_ids, content_start, len(token_ids))

    def flush(self, token_ids: list[int]) -> None:
        """Let out what was held back: half an end marker is thinking text after all when nothing follows."""
        if self._gate.is_thinking:
            self._extend(self.reasoning, token_ids, self._gate.reasoning_span[0], len(token_ids))
        for channel in (self.reasoning, self.content):
            channel.flush()

    def take(self) -> tuple[str, str]:
        """Give the deltas of both channels, once."""
        return self.reasoning.take(), self.content.take()

    def _extend(self, channel: _Channel, token_ids: list[int], first: int, last: int) -> None:
        start = max(first, channel.num_seen)
        if last > start:
            text_ids = [token_id for token_id in token_ids[start:last] if token_id not in self._stop_token_ids]
            channel.add(channel.detokenizer.feed(text_ids))
            channel.num_seen = last
