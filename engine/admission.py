"""Make the sequence of a request, or say what is wrong with the request.

Everything that can be wrong is said here, before anything is queued: ids, limits, options that contradict each other, a prompt
that leaves the state of the thinking open where the caller forbids that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from functools import partial
from typing import Any

from reasoning_parsers import OnUnknown, ReasoningGate, ReasoningParserError, TokenMarkers

from .answer_budget import ClosingGuard, ThinkingBudget, answer_room
from .detokenizer import TokenTexts
from .errors import InvalidRequestError
from .grammar import GrammarSpec
from .grammar.closing import may_go_on
from .grammar.endings import Endings
from .grammar.vocabulary import Vocabulary
from .logit_rules import LogitRules
from .model_loader import LoadedModel
from .request_checks import check_prompt, check_transition
from .sampling_params import SamplingParams
from .sequence import Sequence
from .speculative import Drafter


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a caller asks for; see `LLMEngine.add_request`."""

    request_id: str
    prompt: str | SequenceOf[int]
    params: SamplingParams
    grammar: GrammarSpec | None
    on_unknown: OnUnknown
    thinking: bool | None
    tools_offered: bool
    priority: int


class Admission:
    """Makes sequences for one model.

    Args:
        loaded: The model.
        markers: Of its reasoning family; None for one that does not think.
        vocabulary: Its tokens.
        check_grammar: Refuses a constraint that cannot be compiled.
        new_drafter: Makes what drafts for a sequence with such a prompt; None where nothing is drafted.

    Attributes:
        endings: Endings of answers, for all sequences.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        markers: TokenMarkers | None,
        vocabulary: Vocabulary,
        *,
        check_grammar: Callable[[GrammarSpec], None],
        new_drafter: Callable[..., Drafter] | None,
    ) -> None:
        self._loaded = loaded
        self._markers = markers
        self._vocabulary = vocabulary
        self._check_grammar = check_grammar
        self._new_drafter = new_drafter
        self.endings = Endings(vocabulary)
        self._texts = TokenTexts(loaded.tokenizer)

    def admit(self, request: Request) -> Sequence:
        """Make the sequence.

        Raises:
            InvalidRequestError: With the parameter's name.
            UnsupportedGrammarError: The backend cannot compile the constraint.
        """
        params = request.params
        prompt_ids = self._encode(request.prompt)
        stop_ids = frozenset(self._loaded.stop_token_ids) | frozenset(params.stop_token_ids)
        self._check_options(params)
        if request.thinking and self._markers is None:
            raise InvalidRequestError("no reasoning family is known for this model, so it cannot think", param="thinking")
        if request.grammar is not None:
            if not stop_ids:
                raise InvalidRequestError(
                    "the model declares no stop id, so a constrained answer could not end",
                    param="stop_token_ids",
                    hint="give the id that ends the model's turn",
                )
            self._check_options_with_grammar(params, stop_ids)
            self._check_grammar(request.grammar)
        budget = self._plan_budget(params, prompt_ids, stop_ids)
        rules = LogitRules(
            params, prompt_ids, stop_token_ids=stop_ids, bad_word_ids=_bad_word_ids(self._loaded.tokenizer, params.bad_words)
        )
        sequence = Sequence(
            request.request_id,
            prompt_ids,
            params,
            self._open_gate(request, prompt_ids, budget),
            self._texts,
            stop_ids,
            request.grammar,
            None if rules.is_empty else rules,
            budget=budget,
            priority=request.priority,
        )
        if request.grammar is not None:
            sequence.guard = self._new_guard(stop_ids, request.grammar)
        if self._new_drafter is not None:
            is_json = request.grammar is not None and request.grammar.kind == "json_schema"
            sequence.drafter = self._new_drafter(prompt_ids, is_json=is_json)
        return sequence

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
        longest = self._loaded.max_model_len
        if len(prompt_ids) >= longest:
            raise InvalidRequestError(
                f"the prompt has {len(prompt_ids)} tokens; with an answer the model takes {longest}", param="prompt"
            )
        return prompt_ids

    def _check_options(self, params: SamplingParams) -> None:
        self._check_ids(params.stop_token_ids, "stop_token_ids")
        self._check_ids(params.logit_bias, "logit_bias")
        if params.n != 1:
            raise InvalidRequestError(
                "one request gives one answer", param="n", hint="use `generate`, or n requests with seeds of their own"
            )

    def _check_options_with_grammar(self, params: SamplingParams, stop_ids: frozenset[int]) -> None:
        if params.stop:
            raise InvalidRequestError(
                "stop strings would cut the constrained answer", param="stop", hint="the grammar says where the answer ends"
            )
        texts = [token_id for token_id in sorted(params.stop_token_ids) if self._vocabulary.token_bytes[token_id]]
        if texts:
            spelled = self._vocabulary.token_bytes[texts[0]]
            raise InvalidRequestError(
                f"stop id {texts[0]} stands for {spelled!r}, which the constrained answer may need",
                param="stop_token_ids",
                hint="the grammar says where the answer ends; ids of special tokens are taken",
            )
        # Stop ids are masked while a constrained request thinks; its thinking could then never end.
        if self._markers is not None and stop_ids.intersection(self._markers.end_token_ids):
            raise InvalidRequestError(
                "the end marker of the thinking is also a stop id", param="stop_token_ids", hint="take it out of the stop ids"
            )

    def _check_ids(self, token_ids: Iterable[int], param: str) -> None:
        wrong = [token_id for token_id in token_ids if not 0 <= token_id < self._loaded.vocab_size]
        if wrong:
            raise InvalidRequestError(f"token id {wrong[0]} is not in the vocabulary of {self._loaded.vocab_size}", param=param)

    def _plan_budget(self, params: SamplingParams, prompt_ids: list[int], stop_ids: frozenset[int]) -> ThinkingBudget:
        transition_token_ids = self._loaded.tokenizer.encode(params.transition, add_special_tokens=False)
        check_transition(transition_token_ids, stop_ids, self._markers)
        return ThinkingBudget.plan(
            params,
            self._markers,
            room=answer_room(params, len(prompt_ids), self._loaded.max_model_len),
            transition_token_ids=transition_token_ids,
        )

    def _open_gate(self, request: Request, prompt_ids: list[int], budget: ThinkingBudget) -> ReasoningGate:
        gate = ReasoningGate(
            self._markers,
            on_unknown=request.on_unknown,
            thinking_enabled=request.thinking,
            tools_offered=request.tools_offered,
            max_reasoning_tokens=budget.max_reasoning_tokens,
            transition_token_ids=budget.transition_token_ids,
        )
        gate.start(prompt_ids)
        try:
            _ = gate.reasoning_ended
        except ReasoningParserError as error:
            raise InvalidRequestError(str(error), param="on_unknown") from error
        return gate

    def _new_guard(self, stop_ids: frozenset[int], spec: GrammarSpec) -> ClosingGuard:
        return ClosingGuard(
            self.endings,
            hash(spec),
            min(self._loaded.stop_token_ids or stop_ids),
            looks_always=bool(self._vocabulary.missing_bytes),
            may_go_on=partial(may_go_on, vocabulary=self._vocabulary, stop_token_ids=tuple(stop_ids)),
        )


def _bad_word_ids(tokenizer: Any, words: Iterable[str]) -> set[tuple[int, ...]]:
    found: set[tuple[int, ...]] = set()
    for word in words:
        own = {ids for text in _with_and_without_space(word) for ids in _spellings(tokenizer, text)}
        if not own:
            raise InvalidRequestError(f"the tokenizer has no tokens for {word!r}", param="bad_words", hint="leave it out")
        found |= own
    return found


def _with_and_without_space(word: str) -> tuple[str, ...]:
    bare = word.lstrip(" ")
    return (bare, " " + bare) if bare.strip() else (word,)


def _spellings(tokenizer: Any, text: str) -> Iterator[tuple[int, ...]]:
    """Give the usual tokens of a text at a beginning and behind other text, where some tokenizers write no space."""
    before, ids, behind = (tuple(tokenizer.encode(part, add_special_tokens=False)) for part in ("\n", text, "\n" + text))
    if ids:
        yield ids
    if before and behind[: len(before)] == before and len(behind) > len(before):
        yield behind[len(before) :]
