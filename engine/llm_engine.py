"""The engine, top to bottom: admit requests, run steps, hand out what each step brought.

`LLMEngine` belongs to one thread. `AsyncLLMEngine` puts one behind a thread of its own.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Any

from reasoning_parsers import OnUnknown, ReasoningFamily

from .admission import Admission, Request
from .attention import Chunk
from .chat import ChatFormat
from .commit import commit
from .config import EngineConfig
from .errors import EngineClosedError, EngineError, EngineStepError, InvalidRequestError
from .fast_path.draw import make_draw_kernel
from .grammar import GrammarManager, GrammarSpec
from .grammar.backends.registry import load_backend
from .grammar.bitmask import BitmaskPool
from .grammar.kernels.likeliest import make_likeliest_kernel
from .grammar.vocabulary import read_vocabulary
from .jobs import plan_jobs
from .kv_cache_size import make_kv_cache, pick_token_budget
from .markers import check_markers
from .mask_filler import MaskFiller
from .metrics import EngineTotals, MetricsRecorder, Observer, StepClock
from .model_loader import load_model
from .model_runner import ModelRunner
from .request_checks import check_is_grammar, check_request
from .sampling_params import SamplingParams
from .scheduler import DRAFTS_PER_STEP, ScheduledStep, Scheduler
from .selection import Chosen, SequenceWindow, choose_tokens
from .sequence import RequestOutput, Sequence
from .speculative import Drafter, DraftGain, Habits
from .speculative.draft_model import DraftModel
from .speculative.run_ahead import RunAhead
from .threads import torch_threads

logger = logging.getLogger(__name__)

SEARCH_S = 0.002
"""Seconds of a step in which ways out of grammars are searched for, while there is a search."""
POLL_S = 0.001
"""Pause of `generate` while every request waits for its grammar."""


class LLMEngine:
    """Constrained sampling over any causal LM of transformers.

    Args:
        config: Settings.
        observer: Is told of every step and every request that ended; see `metrics`.

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
        check_markers(self._chat.markers, self._loaded.vocab_size)
        self._loaded = self._loaded.with_stop_token_id(self._chat.find_turn_end())
        self._vocabulary = read_vocabulary(
            self._loaded.tokenizer, vocab_size=self._loaded.vocab_size, stop_token_ids=self._loaded.stop_token_ids
        )
        backends = [load_backend(name, self._vocabulary) for name in config.grammar_backends]
        self._grammars = GrammarManager(backends, config.compile_settings())
        is_on_cuda = self._loaded.device.type == "cuda"
        num_rows = config.max_num_seqs + min(config.max_num_seqs * config.max_draft_tokens, DRAFTS_PER_STEP)
        bitmasks = BitmaskPool(num_rows, self._loaded.vocab_size, pin_memory=is_on_cuda)
        self._filler = MaskFiller(self._loaded.vocab_size, bitmasks, is_device_apart=is_on_cuda)
        self._draft_gain = DraftGain(is_adaptive=config.adapt_drafts)
        self._ahead: RunAhead | None = None
        if config.draft_model is not None:
            # Before the cache, which takes what memory is left.
            draft_model = DraftModel(config, self._loaded)
            self._ahead = RunAhead(draft_model, self._draft_gain, is_on_cpu=not is_on_cuda)
        self._kv_cache = make_kv_cache(config, self._loaded, prefix_caching=config.prefix_caching)
        with torch_threads(config.num_threads):
            self._runner = ModelRunner(self._loaded, self._kv_cache)
        _ = make_likeliest_kernel(), make_draw_kernel()  # compiled, if ever, before a step waits for them
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
        new_drafter = partial(Drafter, gain=self._draft_gain, habits=Habits(self._vocabulary))
        self._admission = Admission(
            self._loaded,
            self._chat.markers,
            self._vocabulary,
            check_grammar=self.check_grammar,
            new_drafter=new_drafter if config.max_draft_tokens else None,
        )
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
        return self._metrics.totals(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            num_free_blocks=self._kv_cache.num_free_blocks,
            num_blocks=self._kv_cache.num_blocks,
            num_prefix_hit_tokens=self._kv_cache.num_prefix_hit_tokens,
            num_preemptions=self._scheduler.num_preemptions,
            num_grammar_compiles=self._grammars.num_compiles,
            num_mask_hits=self._grammars.num_mask_hits,
            num_mask_misses=self._grammars.num_mask_misses,
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
        request = Request(
            request_id=request_id,
            prompt=prompt,
            params=sampling_params or SamplingParams(),
            grammar=grammar,
            on_unknown=on_unknown,
            thinking=thinking,
            tools_offered=tools_offered,
            priority=priority,
        )
        sequence = self._admission.admit(request)
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
            ahead_s = self._run_ahead()
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
        self._note_step(clock, step, chosen, advanced, ahead_s=ahead_s)
        self._admission.endings.work(SEARCH_S)
        return outputs + advanced

    def abort(self, request_id: str) -> bool:
        """End a request wherever it stands; False if it is not known (any more). Gives no output."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        sequence.finish("abort")
        self._forget(sequence)
        self._metrics.note_request(sequence.stats())
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
        jobs = plan_jobs(prompts, sampling_params, grammars)
        request_ids = [f"generate-{next(_GENERATE_IDS)}" for _ in jobs]
        finals: dict[str, RequestOutput] = {}
        try:
            for request_id, job in zip(request_ids, jobs, strict=True):
                while not self._scheduler.has_room(job.grammar):
                    self._collect(finals)
                self.add_request(
                    request_id, job.prompt, job.params, grammar=job.grammar, on_unknown=on_unknown, thinking=thinking
                )
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

    def _advance(self, chunk: Chunk, sequence: Sequence, chosen: Chosen) -> RequestOutput:
        """Commit what a sequence got, token by token, up to its end."""
        if chosen.error is not None:
            return self._fail(sequence, chosen.error)
        if sequence.drafter is not None and chunk.draft_token_ids:
            sequence.drafter.learn(len(chosen.token_ids) - 1, num_verified=len(chunk.draft_token_ids))
        num_before = len(sequence.token_ids)
        try:
            reason = commit(sequence, chosen.token_ids, self.max_model_len)
        except Exception as error:  # a backend's, for one; it ends this request only
            logger.exception("request %s failed", sequence.request_id)
            return self._fail(sequence, error)
        # The last token is not computed yet, and the drafts behind it were wrong.
        self._kv_cache.truncate(sequence, sequence.num_tokens - 1)
        new_token_ids = sequence.token_ids[num_before:]
        sequence.new_logprobs += chosen.logprobs[: len(new_token_ids)]
        if reason is not None:
            sequence.finish(reason)
            return self._retire(sequence, new_token_ids)
        return sequence.take_output(new_token_ids)

    def _run_ahead(self) -> float:
        """Let the draft model guess for the sequences that decode; gives the seconds that it took."""
        if self._ahead is None:
            return 0.0
        return self._ahead.guess(self._scheduler.decoding, self._scheduler.draft_limit, live_ids=self._sequences)

    def _note_step(
        self, clock: StepClock, step: ScheduledStep, chosen: list[Chosen], outputs: list[RequestOutput], *, ahead_s: float
    ) -> None:
        num_drafts = sum(len(chunk.draft_token_ids) for chunk in step.chunks)
        if all(chunk.num_scheduled_tokens == 1 for chunk in step.chunks):
            own_s = clock.thread_s() if self._loaded.device.type == "cpu" else clock.elapsed_s()
            self._draft_gain.note_step(own_s - ahead_s, num_drafts=num_drafts)
        self._metrics.note_step(
            clock.stats(
                num_running=self._scheduler.num_running,
                num_waiting=self._scheduler.num_waiting,
                num_scheduled_tokens=sum(chunk.num_query_tokens for chunk in step.chunks),
                num_new_tokens=sum(len(output.new_token_ids) for output in outputs),
                num_draft_tokens=num_drafts,
                num_accepted_draft_tokens=sum(max(0, len(own.token_ids) - 1) for own in chosen),
            )
        )

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


def _pause() -> None:
    # Only compiles are under way; they need the cores more than this loop does.
    time.sleep(POLL_S)
