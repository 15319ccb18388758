"""The gate and a grammar for `model.generate` of transformers: thinking rows stay free, answers obey the grammar.

Works on batches with left padding and on beams. One processor serves any number of `generate` calls, one after the other.
Assisted generation, which takes tokens back, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessor

from reasoning_parsers import OnUnknown, ReasoningGate, ReasoningParserError, TokenMarkers

from ..chat import ChatFormat
from ..errors import EngineStepError, InvalidRequestError
from ..grammar import CompiledGrammar, GrammarSpec, Matcher
from ..grammar.backends.registry import load_backend
from ..grammar.compile_cost import CompileCosts
from ..grammar.selection import BackendSelector
from ..grammar.vocabulary import read_vocabulary
from ..markers import check_markers
from ..mask import Window, mask_logits
from ..model_loader import all_stop_token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)


BACKENDS = ("xgrammar", "llguidance")
_NO_GUESSES = "assistant_model and prompt_lookup_num_tokens cannot be used with it"


@dataclass(slots=True)
class _Row:
    """State of one row of the batch; what `mask_logits` asks of a sequence."""

    request_id: str
    gate: ReasoningGate
    matcher: Matcher
    stop_token_ids: frozenset[int]
    prompt_token_ids: list[int]
    token_ids: list[int] = field(default_factory=list)
    # A beam that holds a token which the grammar refused: its score is -inf, and stays so.
    is_dead: bool = False

    def append(self, token_id: int) -> bool:
        """Commit a token to gate and grammar; False if the grammar refuses it."""
        # What a token that ends the thinking holds of the answer comes before the tokens that follow it.
        leftover = self.gate.leftover_in([token_id])
        answer_start = len(self.token_ids) + self.gate.commit([token_id]).grammar_start
        self.token_ids.append(token_id)
        return self.matcher.accept_bytes(leftover) and self.matcher.accept_tokens(self.token_ids[answer_start:])


class ReasoningGatedLogitsProcessor(LogitsProcessor):
    """Masks what the grammar denies from where the thinking ended; leaves thinking rows as they are, stop ids aside.

    Make one with `for_model`. A call whose ids do not go on from the last call's begins anew: all its ids are prompt. `reset`
    says so where it would not show, as when a second `generate` continues the first one's output.

    Args:
        compiled: The grammar.
        markers: Think markers of the model, or None for one that does not think.
        stop_token_ids: Every id at which `generate` ends a row.
        pad_token_id: Leading ids of this kind are padding, not prompt.
        num_beams: As given to `generate`. More than 1 lets rows be reordered and beams die.
        on_unknown: What to do when a prompt does not say whether thinking is under way.
        thinking: The request's switch, where the prompt does not show it.
        max_reasoning_tokens: Thinking is closed after this many tokens; None is no limit.
        unenforced: JSON pointers of schema keywords that the grammar does not enforce; kept as an attribute.

    Raises:
        InvalidRequestError: An option is out of range.
    """

    def __init__(
        self,
        compiled: CompiledGrammar,
        markers: TokenMarkers | None,
        *,
        stop_token_ids: Iterable[int],
        pad_token_id: int | None = None,
        num_beams: int = 1,
        on_unknown: OnUnknown = "first_token",
        thinking: bool | None = None,
        max_reasoning_tokens: int | None = None,
        unenforced: tuple[str, ...] = (),
    ) -> None:
        self.unenforced = unenforced
        self._compiled = compiled
        self._markers = markers
        self._stop_token_ids = frozenset(stop_token_ids)
        self._pad_token_id = pad_token_id
        self._num_beams = num_beams
        self._gate_options: dict[str, Any] = {
            "on_unknown": on_unknown,
            "thinking_enabled": thinking,
            "max_reasoning_tokens": max_reasoning_tokens,
        }
        if not self._stop_token_ids:
            raise InvalidRequestError("without a stop id an answer cannot end", param="stop_token_ids")
        if markers is not None and self._stop_token_ids.intersection(markers.end_token_ids):
            raise InvalidRequestError("the end marker of the thinking is also a stop id", param="stop_token_ids")
        try:
            ReasoningGate(markers, **self._gate_options)
        except ReasoningParserError as error:
            raise InvalidRequestError(str(error), param="on_unknown") from error
        self.reset()

    @classmethod
    def for_model(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        grammar: GrammarSpec,
        *,
        family: str = "auto",
        **options: Any,
    ) -> ReasoningGatedLogitsProcessor:
        """Compile `grammar` for a model and its tokenizer and make a processor.

        The backend is chosen as the engine does. What its masks do not enforce is in `unenforced`, and in a warning.

        Args:
            model: Its head's width and its stop ids count; `generation_config` is read now.
            tokenizer: Its vocabulary, chat template and padding.
            grammar: The constraint on the answer.
            family: Reasoning family, `auto`, or `none`.
            options: Further arguments of the class.

        Raises:
            InvalidRequestError: No such family, or an option is out of range.
            ModelLoadError: The markers are not in this vocabulary.
            GrammarError: The grammar cannot be compiled.
        """
        head: Any = model.get_output_embeddings()
        vocab_size = head.weight.shape[0]
        stop_token_ids = all_stop_token_ids(model.config, model.generation_config, tokenizer, vocab_size)
        vocabulary = read_vocabulary(tokenizer, vocab_size=vocab_size, stop_token_ids=stop_token_ids)
        names = BACKENDS if grammar.backend == "auto" else (grammar.backend,)
        backends = {name: load_backend(name, vocabulary) for name in names}
        choice = BackendSelector(backends, CompileCosts(vocabulary.vocab_size)).choose(grammar)
        if choice.unenforced:
            logger.warning("the masks do not enforce %s: check the answers", ", ".join(choice.unenforced))
        options = {"pad_token_id": tokenizer.pad_token_id, "unenforced": choice.unenforced} | options
        compiled = backends[choice.backend].compile(grammar)
        markers = ChatFormat(tokenizer, family).markers
        check_markers(markers, vocab_size)
        return cls(compiled, markers, stop_token_ids=stop_token_ids, **options)

    def reset(self) -> None:
        """Forget all rows: the next call begins a generation."""
        self._rows: list[_Row] = []
        self._seen: list[list[int]] = []
        self._prompt_width = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask the next token's scores.

        Args:
            input_ids: int64 `(rows, length)`, prompts and what was generated so far.
            scores: float `(rows, vocab_size)`; does not change.

        Returns:
            A copy with what the grammar denies at -inf.

        Raises:
            EngineStepError: A row holds a token that the grammar refused (another processor chose it), it allows no token,
                rows were reordered without `num_beams`, or tokens were taken back. Nothing ever goes on unconstrained.
        """
        seen: list[list[int]] = input_ids.tolist()
        parents = self._find_parents(seen)
        if parents is None:
            self._check_not_taken_back(seen)
            self._rows = [self._new_row(index, token_ids) for index, token_ids in enumerate(seen)]
            self._prompt_width = len(seen[0]) if seen else 0
        else:
            self._rows = self._follow(parents, [token_ids[-1] for token_ids in seen])
        self._seen = seen
        return self._mask(scores.clone())

    def _find_parents(self, seen: list[list[int]]) -> list[int] | None:
        """For each row the row of the last call that it continues; None if this is a new generation."""
        if len(seen) != len(self._seen) or not seen or len(seen[0]) != len(self._seen[0]) + 1:
            return None
        parents = []
        for index, token_ids in enumerate(seen):
            before = token_ids[:-1]
            # Nearly always its own row.
            candidates = (index, *range(len(seen)))
            parent = next((row for row in candidates if self._seen[row] == before), None)
            if parent is None:
                return None
            parents.append(parent)
        return parents

    def _check_not_taken_back(self, seen: list[list[int]]) -> None:
        """Refuse a call that goes on from within the last call's rows: to begin anew there would lose what the grammar took."""
        if not seen or len(seen) != len(self._seen) or not self._prompt_width < len(seen[0]) <= len(self._seen[0]):
            return
        num_kept = len(seen[0]) - 1
        if all(ids[:num_kept] == before[:num_kept] for ids, before in zip(seen, self._seen, strict=True)):
            raise EngineStepError(
                "tokens were taken back", request_id="generate", hint=f"{_NO_GUESSES}; or call reset before another generation"
            )

    def _new_row(self, index: int, token_ids: list[int]) -> _Row:
        first = next((i for i, token_id in enumerate(token_ids) if token_id != self._pad_token_id), len(token_ids))
        prompt = token_ids[first:]
        return _Row(f"row {index}", self._new_gate(prompt), self._compiled.new_matcher(sorted(self._stop_token_ids)),
                    self._stop_token_ids, prompt)  # fmt: skip

    def _new_gate(self, prompt: list[int]) -> ReasoningGate:
        gate = ReasoningGate(self._markers, **self._gate_options)
        gate.start(prompt)
        return gate

    def _follow(self, parents: list[int], token_ids: list[int]) -> list[_Row]:
        is_moved = parents != list(range(len(parents)))
        if is_moved and self._num_beams == 1:
            raise EngineStepError("rows were reordered", request_id="generate", hint="give num_beams as you give it to generate")
        rows = [self._copy(self._rows[parent], index) for index, parent in enumerate(parents)] if is_moved else self._rows
        for row, token_id in zip(rows, token_ids, strict=True):
            self._advance(row, token_id)
        return rows

    def _copy(self, row: _Row, index: int) -> _Row:
        gate = self._new_gate(row.prompt_token_ids)
        gate.commit(row.token_ids)
        return replace(row, request_id=f"row {index}", gate=gate, matcher=row.matcher.fork(), token_ids=list(row.token_ids))

    def _advance(self, row: _Row, token_id: int) -> None:
        if row.is_dead or row.matcher.is_terminated():
            return  # `generate` pads rows that are over
        if not row.append(token_id):
            if self._num_beams == 1:
                raise EngineStepError(
                    f"token {token_id} is not in the grammar",
                    request_id=row.request_id,
                    hint=f"another processor chose it, or `generate` guessed it: {_NO_GUESSES}",
                )
            row.is_dead = True

    def _mask(self, scores: torch.Tensor) -> torch.Tensor:
        live = [index for index, row in enumerate(self._rows) if not row.is_dead and not row.matcher.is_terminated()]
        rows = [self._rows[index] for index in live]
        if rows:
            masked = scores[live].float()
            errors = mask_logits(masked, [Window(row) for row in rows])
            if errors:
                raise next(iter(errors.values()))
            for index, row in enumerate(rows):
                if (forced := row.gate.forced_token_id()) is not None:
                    masked[index] = float("-inf")
                    masked[index, forced] = 0.0
            scores[live] = masked.to(scores.dtype)
        dead = [index for index, row in enumerate(self._rows) if row.is_dead]
        scores[dead] = float("-inf")
        return scores
