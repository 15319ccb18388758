"""One request inside the engine: its tokens, its gate, its grammar and its text so far."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal

import torch

from reasoning_parsers import ReasoningGate

from .detokenizer import IncrementalDetokenizer
from .errors import EngineError
from .grammar import CompiledGrammar, GrammarSpec, Matcher
from .sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
        token_ids: All generated ids, markers and the stop id included.
        reasoning_delta: Thinking text that became certain in this step, without markers.
        content_delta: Answer text that became certain in this step, without stop tokens.
        reasoning: Thinking text so far.
        content: Answer text so far.
        finished: Whether this is the last output of the request.
        stop_reason: How it ended, or None.
        error: Why it failed, when `stop_reason` is `error`.
        num_reasoning_tokens: Thinking tokens, markers not counted.
        reasoning_ended: Whether the thinking is over; None while that is not known.
        is_constrained: Whether the request has a grammar.
        unenforced: JSON pointers of schema keywords that the masks did not enforce.
    """

    request_id: str
    prompt_token_ids: list[int]
    new_token_ids: list[int]
    token_ids: list[int]
    reasoning_delta: str
    content_delta: str
    reasoning: str
    content: str
    finished: bool
    stop_reason: StopReason | None
    error: EngineError | None
    num_reasoning_tokens: int
    reasoning_ended: bool | None
    is_constrained: bool
    unenforced: tuple[str, ...]


class Sequence:
    """State of one request; owned by the engine, changed only by `append` and `finish`."""

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        gate: ReasoningGate,
        tokenizer: PreTrainedTokenizerBase,
        stop_token_ids: frozenset[int],
        spec: GrammarSpec | None,
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.gate = gate
        self.spec = spec
        self.stop_token_ids = stop_token_ids
        self.token_ids: list[int] = []
        self.status = SequenceStatus.WAITING
        self.stop_reason: StopReason | None = None
        self.error: EngineError | None = None
        self.slot: int | None = None
        self.num_cached_tokens = 0
        self.grammar_future: Future[CompiledGrammar] | None = None
        self.matcher: Matcher | None = None
        self.added_at = time.monotonic()
        self.generator = torch.Generator().manual_seed(
            params.seed if params.seed is not None else int(torch.randint(2**62, ()).item())
        )
        self._text = _SplitText(gate, tokenizer, stop_token_ids)

    @property
    def is_constrained(self) -> bool:
        """Whether the request has a grammar, compiled or not."""
        return self.spec is not None

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        return len(self.prompt_token_ids) + len(self.token_ids)

    def pending_token_ids(self) -> list[int]:
        """Give the ids whose keys and values are not in the cache yet."""
        if self.num_cached_tokens < len(self.prompt_token_ids):
            return self.prompt_token_ids[self.num_cached_tokens :] + self.token_ids
        return self.token_ids[self.num_cached_tokens - len(self.prompt_token_ids) :]

    def append(self, token_ids: list[int]) -> bool:
        """Commit sampled ids to gate, grammar and text; False if the grammar refused one of them."""
        grammar_start = self.gate.commit(token_ids).grammar_start
        self.token_ids += token_ids
        self._text.feed(token_ids, grammar_start)
        answer = token_ids[grammar_start:]
        return self.matcher is None or not answer or self.matcher.accept_tokens(answer)

    def finish(self, reason: StopReason, error: EngineError | None = None) -> None:
        """End the sequence; text that was held back is let out."""
        self.status = SequenceStatus.FINISHED
        self.stop_reason = reason
        self.error = error
        self._text.flush()

    def take_output(self, new_token_ids: list[int]) -> RequestOutput:
        """Make the output of this step; the deltas are handed out once."""
        reasoning_delta, content_delta = self._text.take()
        return RequestOutput(
            request_id=self.request_id,
            prompt_token_ids=self.prompt_token_ids,
            new_token_ids=new_token_ids,
            token_ids=list(self.token_ids),
            reasoning_delta=reasoning_delta,
            content_delta=content_delta,
            reasoning=self._text.reasoning.text,
            content=self._text.content.text,
            finished=self.status is SequenceStatus.FINISHED,
            stop_reason=self.stop_reason,
            error=self.error,
            num_reasoning_tokens=self.gate.num_reasoning_tokens,
            reasoning_ended=self.gate.reasoning_ended,
            is_constrained=self.is_constrained,
            unenforced=self.spec.unenforced if self.spec is not None else (),
        )


@dataclass(slots=True)
class _Channel:
    detokenizer: IncrementalDetokenizer
    text: str = ""
    delta: str = ""

    def add(self, piece: str) -> None:
        self.text += piece
        self.delta += piece

    def take(self) -> str:
        piece, self.delta = self.delta, ""
        return piece


@dataclass(slots=True)
class _SplitText:
    """Sends each token's text to reasoning or content, as the gate says; markers and stop ids go to neither."""

    gate: ReasoningGate
    tokenizer: PreTrainedTokenizerBase
    stop_token_ids: frozenset[int]
    reasoning: _Channel = field(init=False)
    content: _Channel = field(init=False)
    # Thinking tokens that may still turn out to be part of a marker.
    _held: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.reasoning = _Channel(IncrementalDetokenizer(self.tokenizer))
        self.content = _Channel(IncrementalDetokenizer(self.tokenizer))

    def feed(self, token_ids: list[int], content_start: int) -> None:
        self._held += token_ids[:content_start]
        self._release()
        answer = [token_id for token_id in token_ids[content_start:] if token_id not in self.stop_token_ids]
        self.content.add(self.content.detokenizer.feed(answer))

    def flush(self) -> None:
        self._let_out(len(self._held))
        for channel in (self.reasoning, self.content):
            channel.add(channel.detokenizer.flush())

    def take(self) -> tuple[str, str]:
        return self.reasoning.take(), self.content.take()

    def _release(self) -> None:
        raise NotImplementedError

    def _let_out(self, count: int) -> None:
        text_ids = [token_id for token_id in self._held[:count] if token_id not in self.stop_token_ids]
        del self._held[:count]
        self.reasoning.add(self.reasoning.detokenizer.feed(text_ids))
