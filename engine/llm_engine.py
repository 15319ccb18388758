"""The engine, top to bottom: admit requests, run steps, hand out what each step brought.

`LLMEngine` belongs to one thread. `AsyncLLMEngine` puts one behind a thread of its own.
"""

from __future__ import annotations

import itertools
import logging
import operator
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from functools import partial
from typing import Any

from reasoning_parsers import OnUnknown, ReasoningFamily, ReasoningGate, ReasoningParserError

from .answer_budget import ClosingGuard, ThinkingBudget
from .attention import Chunk
from .chat import ChatFormat
from .config import EngineConfig
from .errors import EngineClosedError, EngineError, EngineStepError, InvalidRequestError
from .grammar import GrammarManager, GrammarSpec, Matcher
from .grammar.backends.registry import load_backend
from .grammar.bitmask import BitmaskPool
from .grammar.closing import MAX_STATES, MAX_STATES_OFTEN, closing_tokens, endings_behind
from .grammar.vocabulary import read_vocabulary
from .kv_cache import PagedKVCache
from .kv_cache_size import pick_block_size, pick_token_budget, plan_num_blocks
from .logit_rules import LogitRules
from .mask_filler import MaskFiller
from .metrics import EngineTotals, MetricsRecorder, Observer, StepClock, StepStats
from .model_loader import load_model
from .model_runner import ModelRunner
from .request_checks import check_is_grammar, check_prompt, check_request, check_transition, one_per_prompt
from .sampling_params import SamplingParams
from .scheduler import ScheduledStep, Scheduler
from .selection import Chosen, SequenceWindow, choose_tokens
from .sequence import RequestOutput, Sequence, StopReason
from .speculative import Drafter, DraftGain
from .speculative.draft_model import DraftModel
from .threads import torch_threads

logger = logging.getLogger(__name__)

POLL_S = 0.001
"""Pause of `generate` while every request waits for its grammar."""


class LLMEngine:
    """Constrained sampling over any causal LM of transformers.

    Args:
        config: Settings.
        observer: Is told of every step and every finished request; see `metrics`.

    Raises:
        ModelLoadError: The model cannot be loaded.
        InvalidRequestError: A setting does not fit the model.
    """

    def __init__(self, config: EngineConfig, *, observer: Observer | None = None) -> None:
        self.config = config
        self._loaded = load_model(config)
        self._chat = ChatFormat(
            self._loaded.tokenizer,
            config.family,
            families=config.families,
            model_config={"model_type": self._loaded.model.config.model_type, "_name_or_path": config.model},
        )
        self._chat.log_detection()
        self._loaded = self._loaded.with_stop_token_id(self._chat.find_turn_end())
        self._vocabulary = read_vocabulary(
            self._loaded.tokenizer, vocab_size=self._loaded.vocab_size, stop_token_ids=self._loaded.stop_token_ids
        )
        backends = [load_backend(name, self._vocabulary) for name in config.grammar_backends]
        self._grammars = GrammarManager(backends, config.compile_settings())
        is_on_cuda = self._loaded.device.type == "cuda"
        num_rows = config.max_num_seqs * (1 + config.max_draft_tokens)
        bitmasks = BitmaskPool(num_rows, self._loaded.vocab_size, pin_memory=is_on_cuda)
        self._filler = MaskFiller(self._loaded.vocab_size, bitmasks, is_device_apart=is_on_cuda)
        self._kv_cache = PagedKVCache(
            num_layers=self._loaded.model.config.get_text_config().num_hidden_layers,
            num_blocks=plan_num_blocks(config, self._loaded),
            block_size=pick_block_size(config, self._loaded.device),
            device=self._loaded.device,
            prefix_caching=config.prefix_caching,
        )
        with torch_threads(config.num_threads):
            self._runner = ModelRunner(self._loaded, self._kv_cache)
        self._draft_gain = DraftGain(is_adaptive=config.adapt_drafts)
        self._scheduler = Scheduler(
            self._kv_cache,
            self._grammars,
            max_num_seqs=config.max_num_seqs,
            max_model_len=self._loaded.max_model_len,
            max_num_batched_tokens=pick_token_budget(config, self._loaded.device),
            max_queue=config.max_queue,
            grammar_timeout_s=config.grammar_timeout_s,
            max_draft_tokens=config.max_draft_tokens,
            gain=self._draft_gain,
        )
        self._draft_model = DraftModel(config, self._loaded) if config.draft_model is not None else None
        self._metrics = MetricsRecorder(observer)
        self._sequences: dict[str, Sequence] = {}
        self._is_closed = False

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._loaded.tokenizer

    @property
    def family(self) -> ReasoningFamily | None:
        """The reasoning family in use, or None for a model that does not think."""
        return self._chat.family

    @property
    def max_model_len(self) -> int:
        """Tokens that prompt and answer together may have."""
        return self._loaded.max_model_len

    def spell_token(self, token_id: int) -> bytes:
        """Give the bytes of a token; for one that is no text its name, and nothing where it has none."""
        data = self._vocabulary.token_bytes[token_id]
        return data or self._vocabulary.names.get(token_id, "").encode()

    def totals(self) -> EngineTotals:
        """Give sums since the engine was made, and where it stands; cheap."""
        metrics = self._metrics
        return EngineTotals(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_free_blocks=self._kv_cache.num_free_blocks,
            num_blocks=self._kv_cache.num_blocks,
            num_steps=metrics.num_steps,
            num_finished=metrics.num_finished,
            num_new_tokens=metrics.num_new_tokens,
            num_reasoning_tokens=metrics.num_reasoning_tokens,
            num_draft_tokens=metrics.num_draft_tokens,
            num_accepted_draft_tokens=metrics.num_accepted_draft_tokens,
            num_prefix_hit_tokens=self._kv_cache.num_prefix_hit_tokens,
            num_preemptions=self._scheduler.num_preemptions,
            num_grammar_compiles=self._grammars.num_compiles,
            num_limits_hit=metrics.num_limits_hit,
        )

    def render(
        self, messages: SequenceOf[Mapping[str, Any]], *, thinking: bool | None = None, **template_kwargs: Any
    ) -> list[int]:
        """Render messages to prompt ids; see `ChatFormat.render`."""
        return self._chat.render(messages, thinking=thinking, **template_kwargs)

    def check_grammar(self, grammar: GrammarSpec) -> None:
        """Refuse a constraint that cannot be compiled; may be called from any thread, and makes admission quick.

        Raises:
            UnsupportedGrammarError: The backend cannot compile the constraint.
            InvalidRequestError: It is no `GrammarSpec`.
        """
        check_is_grammar(grammar)
        self._grammars.check(grammar)

    def add_request(
        self,
        request_id: str,
        prompt: str | SequenceOf[int],
        sampling_params: SamplingParams | None = None,
        *,
        grammar: GrammarSpec | None = None,
        on_unknown: OnUnknown = "first_token",
        thinking: bool | None = None,
        tools_offered: bool = False,
        priority: int = 0,
    ) -> None:
        """Admit a request; everything that can be wrong with it is said here, before anything is queued.

        Args:
            request_id: Not in use by an unfinished request.
            prompt: Ids of the rendered prompt, or its text, which is encoded as it stands, without special tokens added.
            sampling_params: None is greedy with the default `max_tokens`.
            grammar: Constraint on the answer, or None for free text. It begins where the thinking ends.
            on_unknown: What to do when the prompt does not say whether thinking is under way.
            thinking: The request's own switch, where the prompt does not show it.
            tools_offered: Whether a tool call may end the thinking.
            priority: Lower goes first; see `scheduler.PRIORITY_S`.

        Raises:
            InvalidRequestError: With the parameter's name.
            UnsupportedGrammarError: The backend cannot compile the constraint.
            EngineBusyError: The queue is full.
            EngineClosedError: The engine was closed.
        """
        if self._is_closed:
            raise EngineClosedError("the engine is closed")
        check_request(
            request_id,
            sampling_params,
            on_unknown=on_unknown,
            thinking=thinking,
            tools_offered=tools_offered,
            priority=priority,
        )
        if grammar is not None:
            check_is_grammar(grammar)
        if request_id in self._sequences:
            raise InvalidRequestError(f"request {request_id!r} is running already", param="request_id")
        self._scheduler.check_room(grammar)
        params = sampling_params or SamplingParams()
        prompt_ids = self._encode(prompt)
        stop_ids = frozenset(self._loaded.stop_token_ids) | frozenset(params.stop_token_ids)
        self._check_ids(params.stop_token_ids, "stop_token_ids")
        self._check_ids(params.logit_bias, "logit_bias")
        if params.n != 1:
            raise InvalidRequestError(
                "one request gives one answer", param="n", hint="use `generate`, or n requests with seeds of their own"
            )
        if grammar is not None:
            if params.stop:
                raise InvalidRequestError(
                    "stop strings would cut the constrained answer", param="stop", hint="the grammar says where the answer ends"
                )
            self._check_end_is_no_stop(stop_ids)
            self.check_grammar(grammar)
        transition_token_ids = self.tokenizer.encode(params.transition, add_special_tokens=False)
        check_transition(transition_token_ids, stop_ids, self._chat.markers)
        budget = ThinkingBudget.plan(
            params,
            self._chat.markers,
            room=self._room(params, prompt_ids),
            transition_token_ids=transition_token_ids,
        )
        gate = ReasoningGate(
            self._chat.markers,
            on_unknown=on_unknown,
            thinking_enabled=thinking,
            tools_offered=tools_offered,
            max_reasoning_tokens=budget.max_reasoning_tokens,
            transition_token_ids=budget.transition_token_ids,
        )
        gate.start(prompt_ids)
        try:
            _ = gate.reasoning_ended
        except ReasoningParserError as error:
            raise InvalidRequestError(str(error), param="on_unknown") from error
        rules = LogitRules(
            params, prompt_ids, stop_token_ids=stop_ids, bad_word_ids=_bad_word_ids(self._loaded.tokenizer, params.bad_words)
        )
        sequence = Sequence(
            request_id,
            prompt_ids,
            params,
            gate,
            self._loaded.tokenizer,
            stop_ids,
            grammar,
            None if rules.is_empty else rules,
            budget=budget,
            priority=priority,
        )
        if grammar is not None:
            has_gaps = bool(self._vocabulary.missing_bytes)
            sequence.guard = ClosingGuard(
                self._find_closing,
                min(self._loaded.stop_token_ids or stop_ids),
                endings_behind=partial(endings_behind, self._vocabulary),
                looks_always=has_gaps,
            )
        if self.config.max_draft_tokens:
            sequence.drafter = Drafter(prompt_ids, gain=self._draft_gain)
        self._sequences[request_id] = sequence
        self._scheduler.add(sequence)

    def step(self) -> list[RequestOutput]:
        """Run one scheduler step: one forward pass, a token or more for every sequence whose prompt is computed by then.

        Returns:
            An output per sequence that got a token or ended; empty while all requests wait for their grammars, and in a step
            that computes pieces of prompts only.
        """
        clock = StepClock()
        with clock.part("schedule"):
            self._run_ahead()
            step = self._scheduler.schedule()
        outputs = [self._retire(sequence) for sequence in step.failed]
        if not step.chunks:
            return outputs
        sampled = step.sampled
        windows = [SequenceWindow(sequence, chunk.draft_token_ids) for sequence, chunk in sampled]
        try:
            with torch_threads(self.config.num_threads):
                finish_masks = self._filler.start(windows, clock)
                try:
                    with clock.part("forward"):
                        logits = self._runner.run(step.chunks)
                finally:
                    # Whatever the model did: nobody else may touch the matchers before.
                    with clock.part("mask_wait"):
                        masks = finish_masks()
                with clock.part("select"):
                    chosen = choose_tokens(logits, windows, masks, clock)
        except Exception as error:  # whatever the model, the device or a kernel raises ends this batch, not the engine
            logger.exception("a step failed")
            return outputs + [self._fail(sequence, error) for sequence in step.batch]
        with clock.part("advance"):
            advanced = [self._advance(chunk, sequence, own) for (sequence, chunk), own in zip(sampled, chosen, strict=True)]
        self._note_step(clock, step, chosen, advanced)
        return outputs + advanced

    def abort(self, request_id: str) -> bool:
        """End a request wherever it stands; False if it is not known (any more). Gives no output."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        sequence.finish("abort")
        self._forget(sequence)
        return True

    def has_unfinished(self) -> bool:
        """Whether any request waits or runs."""
        return bool(self._sequences)

    def is_idle(self) -> bool:
        """Whether a step would have nothing to run: every unfinished request waits for its grammar."""
        return self._scheduler.num_running == 0

    def generate(
        self,
        prompts: SequenceOf[str | SequenceOf[int]],
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        grammars: GrammarSpec | SequenceOf[GrammarSpec | None] | None = None,
        on_unknown: OnUnknown = "first_token",
        thinking: bool | None = None,
    ) -> list[RequestOutput]:
        """Run `prompts` together to their ends.

        Args:
            prompts: Ids or text, as in `add_request`.
            sampling_params: One for all, or one each. With `n` above 1 a prompt has that many outputs, one after the other.
            grammars: One for all, or one each; None is free text.
            on_unknown: As in `add_request`.
            thinking: As in `add_request`.

        Returns:
            The last outputs of the prompts, in their order; a request that failed has `stop_reason == "error"`.

        Raises:
            EngineError: As `add_request`; then none of these prompts is left in the engine.
        """
        prompts = prompts if isinstance(prompts, (str, bytes)) else list(prompts)
        params = one_per_prompt(prompts, sampling_params, "sampling_params")
        specs = one_per_prompt(prompts, grammars, "grammars")
        jobs = [
            (f"generate-{next(_GENERATE_IDS)}", prompt, own, spec)
            for prompt, param, spec in zip(prompts, params, specs, strict=True)
            for own in one_each(param or SamplingParams())
        ]
        request_ids = [request_id for request_id, *_ in jobs]
        finals: dict[str, RequestOutput] = {}
        try:
            for request_id, prompt, param, spec in jobs:
                while not self._scheduler.has_room(spec):
                    self._collect(finals)
                self.add_request(request_id, prompt, param, grammar=spec, on_unknown=on_unknown, thinking=thinking)
            while not finals.keys() >= set(request_ids):
                self._collect(finals)
        finally:
            for request_id in request_ids:
                self.abort(request_id)
        return [finals[request_id] for request_id in request_ids]

    def fail_all(self, error: EngineError) -> list[RequestOutput]:
        """End every request with `error` and give their last outputs."""
        return [self._fail(sequence, error) for sequence in list(self._sequences.values())]

    def close(self) -> None:
        """Abort everything and stop the background threads; calling it twice does nothing more."""
        self._is_closed = True
        for request_id in list(self._sequences):
            self.abort(request_id)
        self._filler.close()
        self._grammars.close()

    def _collect(self, finals: dict[str, RequestOutput]) -> None:
        outputs = self.step()
        finals |= {output.request_id: output for output in outputs if output.finished}
        if not outputs and self.is_idle():
            _pause()

    def _encode(self, prompt: str | SequenceOf[int]) -> list[int]:
        check_prompt(prompt)
        token_ids = self._loaded.tokenizer.encode(prompt, add_special_tokens=False) if isinstance(prompt, str) else prompt
        try:
            # Ids of numpy and torch are whole numbers too; halves and None are not.
            prompt_ids = [operator.index(token_id) for token_id in token_ids]
        except TypeError as error:
            raise InvalidRequestError(f"the prompt is neither a text nor token ids: {error}", param="prompt") from error
        if not prompt_ids:
            raise InvalidRequestError("the prompt is empty", param="prompt")
        self._check_ids(prompt_ids, "prompt")
        if len(prompt_ids) >= self.max_model_len:
            raise InvalidRequestError(
                f"the prompt has {len(prompt_ids)} tokens; with an answer the model takes {self.max_model_len}", param="prompt"
            )
        return prompt_ids

    def _check_end_is_no_stop(self, stop_ids: frozenset[int]) -> None:
        # Stop ids are masked while a constrained request thinks; its thinking could then never end.
        if self._chat.markers is not None and stop_ids.intersection(self._chat.markers.end_token_ids):
            raise InvalidRequestError(
                "the end marker of the thinking is also a stop id", param="stop_token_ids", hint="take it out of the stop ids"
            )

    def _check_ids(self, token_ids: Iterable[int], param: str) -> None:
        wrong = [token_id for token_id in token_ids if not 0 <= token_id < self._loaded.vocab_size]
        if wrong:
            raise InvalidRequestError(f"token id {wrong[0]} is not in the vocabulary of {self._loaded.vocab_size}", param=param)

    def _advance(self, chunk: Chunk, sequence: Sequence, chosen: Chosen) -> RequestOutput:
        """Commit what a sequence got, token by token, up to its end."""
        if chosen.error is not None:
            return self._fail(sequence, chosen.error)
        if sequence.drafter is not None and chunk.draft_token_ids:
            sequence.drafter.learn(len(chosen.token_ids) - 1, num_verified=len(chunk.draft_token_ids))
        num_before, reason = len(sequence.token_ids), None
        for token_id in chosen.token_ids:
            kept = self._keep_closable(sequence, token_id)
            if not sequence.append([kept]):
                return self._fail(
                    sequence, EngineStepError("the grammar refused a token that its mask allowed", request_id=sequence.request_id)
                )
            reason = self._stop_reason(sequence)
            if reason is not None or kept != token_id:
                break
        # The last token is not computed yet, and the drafts behind it were wrong.
        self._kv_cache.truncate(sequence, sequence.num_tokens - 1)
        new_token_ids = sequence.token_ids[num_before:]
        sequence.new_logprobs += chosen.logprobs[: len(new_token_ids)]
        if reason is not None:
            sequence.finish(reason)
            return self._retire(sequence, new_token_ids)
        return sequence.take_output(new_token_ids)

    def _keep_closable(self, sequence: Sequence, token_id: int) -> int:
        """Give the token, or the one that ends the answer in time where this one would not."""
        if sequence.guard is None or sequence.matcher is None or not sequence.gate.reasoning_ended:
            return token_id
        num_left = self._room(sequence.params, sequence.prompt_token_ids) - len(sequence.token_ids)
        kept = sequence.guard.choose(sequence.matcher, token_id, num_left)
        if kept != token_id:
            sequence.note_limit(sequence.guard.limit_at(num_left))
        return kept

    def _find_closing(self, matcher: Matcher, limit: int) -> list[int] | None:
        max_states = MAX_STATES_OFTEN if self._vocabulary.missing_bytes else MAX_STATES
        return closing_tokens(matcher, self._vocabulary, limit, max_states=max_states, is_quick=True)

    def _room(self, params: SamplingParams, prompt_token_ids: SequenceOf[int]) -> int:
        """Tokens that a request may generate."""
        return min(params.max_tokens, self.max_model_len - len(prompt_token_ids))

    def _run_ahead(self) -> None:
        """Let the draft model guess for the sequences that decode."""
        if self._draft_model is None:
            return
        self._draft_model.keep_only(self._sequences)
        wanted = [sequence for sequence in self._scheduler.decoding if sequence.drafter is not None]
        try:
            guesses = self._draft_model.propose(wanted, self._scheduler.draft_limit)
        except Exception:  # whatever a model raises; the answers do not depend on it
            logger.exception("the draft model failed and is not asked any more")
            self._draft_model = None
            return
        for sequence in wanted:
            if sequence.drafter is not None:
                sequence.drafter.suggest(guesses.get(sequence.request_id, ()))

    def _note_step(self, clock: StepClock, step: ScheduledStep, chosen: list[Chosen], outputs: list[RequestOutput]) -> None:
        num_drafts = sum(len(chunk.draft_token_ids) for chunk in step.chunks)
        step_s = clock.elapsed_s()
        if all(chunk.num_scheduled_tokens == 1 for chunk in step.chunks):
            own_s = clock.thread_s() if self._loaded.device.type == "cpu" else step_s
            self._draft_gain.note_step(own_s, num_drafts=num_drafts)
        self._metrics.note_step(
            StepStats(
                step_s=step_s,
                schedule_s=clock.seconds("schedule"),
                forward_s=clock.seconds("forward"),
                fill_s=clock.seconds("fill"),
                mask_wait_s=clock.seconds("mask_wait"),
                select_s=clock.seconds("select"),
                apply_s=clock.seconds("apply"),
                advance_s=clock.seconds("advance"),
                num_running=self._scheduler.num_running,
                num_waiting=self._scheduler.num_waiting,
                num_scheduled_tokens=sum(chunk.num_query_tokens for chunk in step.chunks),
                num_new_tokens=sum(len(output.new_token_ids) for output in outputs),
                num_draft_tokens=num_drafts,
                num_accepted_draft_tokens=sum(max(0, len(own.token_ids) - 1) for own in chosen),
            )
        )

    def _stop_reason(self, sequence: Sequence) -> StopReason | None:
        if sequence.matched_stop is not None:
            return "stop"
        if len(sequence.token_ids) >= sequence.params.max_tokens or sequence.num_tokens >= self.max_model_len:
            return "length"
        return None

    def _fail(self, sequence: Sequence, error: Exception) -> RequestOutput:
        if not isinstance(error, EngineError):
            error = EngineStepError(f"the step failed: {error!r}", request_id=sequence.request_id)
        sequence.finish("error", error)
        return self._retire(sequence)

    def _retire(self, sequence: Sequence, new_token_ids: list[int] | None = None) -> RequestOutput:
        self._forget(sequence)
        self._metrics.note_request(sequence.stats())
        return sequence.take_output(new_token_ids or [])

    def _forget(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        del self._sequences[sequence.request_id]


_GENERATE_IDS = itertools.count()


def one_each(params: SamplingParams) -> list[SamplingParams]:
    """Give the settings of each of the `n` answers: answer i of a seeded request has the seed plus i."""
    seeds = [params.seed if params.seed is None else (params.seed + i) % 2**63 for i in range(params.n)]
    return [replace(params, n=1, seed=seed) for seed in seeds]


def _bad_word_ids(tokenizer: Any, words: Iterable[str]) -> set[tuple[int, ...]]:
    spelled = [prefix + word.lstrip() for word in words for prefix in ("", " ")]
    return {tuple(ids) for text in spelled if (ids := tokenizer.encode(text, add_special_tokens=False))}


def _pause() -> None:
    # Only compiles are under way; they need the cores more than this loop does.
    time.sleep(POLL_S)
