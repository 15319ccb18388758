"""One request inside the engine: its tokens, its gate, its grammar and its text so far."""

from __future__ import annotations

import secrets
import time
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NamedTuple

from reasoning_parsers import PromptState, ReasoningGate

from .answer_budget import ClosingGuard, Limit, ThinkingBudget
from .cut import Cut
from .detokenizer import TokenDecoder
from .errors import EngineError
from .grammar import GrammarSpec, Matcher, PreparedGrammar
from .grammar.prepared import CacheUse
from .kv_cache import BlockTable
from .logit_rules import LogitRules
from .logprobs import TokenLogprobs
from .metrics import RequestStats
from .sampling_params import SamplingParams
from .speculative import Drafter, Found
from .split_text import make_split
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
        prompt_state: What the prompt says of the thinking; where that is `unknown`, `on_unknown` and the request's switch
            decided. None for a model without a reasoning family, whose output is an answer from the first token on.
        is_constrained: Whether the request has a grammar.
        unenforced: JSON pointers of schema keywords that the masks did not enforce; none where there were no masks yet.
        backend: Name of the grammar backend; None until the grammar is there, and without one.
        backend_reason: Why this backend.
        compile_s: Seconds that compiling the grammar took when it was done; None as for `backend`.
        grammar_cache: Where the compiled grammar was found; `none` if it was compiled for this request.
        limits_hit: Limits that changed what the model would have written, in the order in which they did.
        cut: What the token limit cut off, where `stop_reason` is `length`. A constrained answer that is a whole value by then has
            ended with `stop`, whether or not there was room for its stop id.
        matched_stop: The stop id or stop string that ended the answer; None where it ended without.
        new_logprobs: One per id of `new_token_ids`, where the request asked for them.
        answer_start: Index of the answer's first id in `token_ids`; None while there is none.
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
    prompt_state: PromptState | None
    is_constrained: bool
    unenforced: tuple[str, ...]
    backend: str | None
    backend_reason: str
    compile_s: float | None
    grammar_cache: CacheUse | None
    limits_hit: tuple[Limit, ...]
    cut: Cut | None
    matched_stop: int | str | None
    new_logprobs: list[TokenLogprobs]
    answer_start: int | None
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
        budget: ThinkingBudget | None = None,
        priority: int = 0,
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.gate = gate
        self.spec = spec
        self.rules = rules
        self.budget = budget or ThinkingBudget(params.max_reasoning_tokens, "max_reasoning_tokens")
        self.new_logprobs: list[TokenLogprobs] = []
        self.stop_token_ids = stop_token_ids
        self.token_ids: list[int] = []
        self.status = SequenceStatus.WAITING
        self.stop_reason: StopReason | None = None
        self.error: EngineError | None = None
        self.blocks = BlockTable()
        self.num_cached_tokens = 0
        self.grammar_future: Future[PreparedGrammar] | None = None
        self.grammar: PreparedGrammar | None = None
        self.matcher: Matcher | None = None
        self.drafter: Drafter | None = None
        self.guard: ClosingGuard | None = None
        self.limits_hit: list[Limit] = []
        self.cut: Cut | None = None
        self.added_at = time.monotonic()
        self.first_token_at: float | None = None
        self.grammar_ready_at: float | None = None
        self.priority = priority
        self.seed = params.seed if params.seed is not None else secrets.randbits(63)
        stops = StopStringFilter(params.stop, keep=params.include_stop_in_output) if params.stop else None
        self._text = make_split(gate, tokenizer, stop_token_ids, stops, is_constrained=spec is not None)

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
    def num_tokens_left(self) -> int:
        """Tokens that the request's own limit leaves."""
        return self.params.max_tokens - len(self.token_ids)

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
        # What a token that ends the thinking holds of the answer comes before the tokens that follow it.
        leftover = self.gate.leftover_in(token_ids)
        # Negative where earlier ids turn out to be content: those of a start marker that broke off, or of a tool opener.
        answer_start = len(self.token_ids) + self.gate.commit(token_ids).grammar_start
        self.token_ids += token_ids
        if self.first_token_at is None:
            self.first_token_at = time.monotonic()
        if self.drafter is not None:
            self.drafter.extend(token_ids)
        self._text.update(self.token_ids)
        answer = self.token_ids[answer_start:]
        if self.matcher is None or not (leftover or answer):
            return True
        if self.drafter is not None:
            self.drafter.extend_answer(leftover, answer)
        return self.matcher.accept_bytes(leftover) and self.matcher.accept_tokens(answer)

    def note_limit(self, limit: Limit) -> None:
        """Note that a limit changed what the model would have written."""
        if limit not in self.limits_hit:
            self.limits_hit.append(limit)

    def propose_drafts(self, limit: int) -> tuple[int, ...]:
        """Guess the next tokens, `limit` at most and none beyond a limit of the request's own; does not change what it is."""
        gate = self.gate
        limit = min(limit, self.params.max_tokens - len(self.token_ids) - 1)
        if self.drafter is None or limit <= 0 or gate.reasoning_ended is None or gate.forced_token_id() is not None:
            return ()
        if self.matcher is not None and gate.should_fill_bitmask():
            return tuple(self.drafter.propose(self.matcher, limit))
        if gate.is_thinking and self.budget.max_reasoning_tokens is not None:
            # The budget forces the token after the last thinking one, which no draft may stand for.
            limit = min(limit, self.budget.max_reasoning_tokens - gate.num_reasoning_tokens - 1)
        drafts = self.drafter.propose(None, max(0, limit))
        if self.matcher is not None:
            # Behind the end of the thinking the grammar rules; its own drafts come in the next step.
            drafts = drafts[: gate.bounds(drafts).constraint_start]
        return tuple(drafts)

    def drafts_found(self, num_drafts: int) -> Found:
        """Say what the first so many of the drafts that were proposed last are."""
        assert self.drafter is not None
        return replace(self.drafter.found, sources=self.drafter.found.sources[:num_drafts])

    def finish(self, reason: StopReason, error: EngineError | None = None) -> None:
        """End the sequence; text that was held back is let out."""
        self.status = SequenceStatus.FINISHED
        self.stop_reason = reason
        self.error = error
        self._text.flush(self.token_ids)

    def stats(self) -> RequestStats:
        """Make the record of a finished sequence."""
        return RequestStats(
            stop_reason=self.stop_reason,
            total_s=time.monotonic() - self.added_at,
            first_token_s=None if self.first_token_at is None else self.first_token_at - self.added_at,
            grammar_wait_s=None if self.grammar_ready_at is None else self.grammar_ready_at - self.added_at,
            compile_s=None if self.grammar is None else self.grammar.compile_s,
            grammar_cache=None if self.grammar is None else self.grammar.cache,
            backend=None if self.grammar is None else self.grammar.backend,
            num_prompt_tokens=len(self.prompt_token_ids),
            num_tokens=len(self.token_ids),
            num_reasoning_tokens=self.gate.num_reasoning_tokens,
            limits_hit=tuple(self.limits_hit),
        )

    def take_output(self, new_token_ids: list[int]) -> RequestOutput:
        """Make the output of this step; the deltas are handed out once."""
        grammar = self.grammar
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
            reasoning_ended=True if self._text.is_answer else self.gate.reasoning_ended,
            prompt_state=None if self.gate.markers is None else self.gate.prompt_state,
            is_constrained=self.is_constrained,
            unenforced=grammar.unenforced if grammar else (),
            backend=grammar.backend if grammar else None,
            backend_reason=grammar.reason if grammar else "",
            compile_s=grammar.compile_s if grammar else None,
            grammar_cache=grammar.cache if grammar else None,
            limits_hit=tuple(self.limits_hit),
            cut=self.cut,
            matched_stop=self.matched_stop if self.stop_reason == "stop" else None,
            new_logprobs=new_logprobs,
            answer_start=self.gate.reasoning_end_index,
            so_far=SoFar(
                self.token_ids,
                len(self.token_ids),
                self._text.reasoning.pieces,
                len(self._text.reasoning.pieces),
                self._text.content.pieces,
                len(self._text.content.pieces),
            ),
        )
