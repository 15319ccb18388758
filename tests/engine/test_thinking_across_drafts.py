"""Thinking that ends, is skipped, reopened or cut off within a run of drafts: the tokens and texts of one token at a time.

The model is scripted: at each position of an output one token is by far the likeliest, whatever came before. Drafts are scripted
too: what the model is going to write, in runs of random lengths, with a wrong token here and there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from engine import EngineConfig, GrammarSpec, LLMEngine, RequestOutput, SamplingParams
from engine.errors import EngineStepError
from engine.grammar import Matcher
from engine.sequence import Sequence
from engine.speculative import Drafter, Found
from reasoning_parsers import FamilyRegistry, ReasoningFamily

FAMILIES = FamilyRegistry(
    [
        ReasoningFamily(name="one-token", start="<think>", end="</think>", implicit_ends=("<tool_call>",)),
        ReasoningFamily(name="spelled", start="((", end="))", implicit_ends=("[[",)),
    ]
)
SPEC = GrammarSpec.from_json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
ANSWER = '{"a":12}'
SEEDS = range(3)


class Script(NamedTuple):
    """What a model writes: START, END and TOOL stand for the family's markers.

    Attributes:
        prompt: Of the request.
        pieces: Of the output.
        options: Of the sampling.
    """

    prompt: tuple[str, ...]
    pieces: tuple[str, ...]
    options: dict[str, Any] = {}  # noqa: RUF012


OPEN, UNKNOWN, ENDED = ("hi", "START"), ("hi",), ("hi", "START", "END")
SCRIPTS = {
    "end": Script(OPEN, ("so it is", "END", ANSWER)),
    "end-at-once": Script(OPEN, ("END", ANSWER)),
    "end-and-start-again": Script(OPEN, ("so", "END", " then", "START", " more", "END", " done", ANSWER)),
    "start-again-at-once": Script(OPEN, ("so", "END", "START", "more", "END", ANSWER)),
    "ends-again": Script(OPEN, ("so", "END", ANSWER, "END", " more")),
    "start-inside-the-thinking": Script(OPEN, ("so", "START", "more", "END", ANSWER)),
    "never-ends": Script(OPEN, ("so it is and so it goes on and on",)),
    "first-token-decides": Script(UNKNOWN, ("START", "so it is", "END", ANSWER)),
    "empty": Script(UNKNOWN, ("START", "END", ANSWER)),
    "skipped": Script(UNKNOWN, (ANSWER,)),
    "skipped-and-opened": Script(UNKNOWN, ("so it is", "START", "more", "END", ANSWER)),
    "ended-and-opened": Script(ENDED, (" so", "START", "more", "END", ANSWER)),
    "tool": Script(OPEN, ("so", "TOOL", ANSWER, "END", ANSWER)),
    "tool-and-start": Script(OPEN, ("so", "TOOL", "START", "more", "END", ANSWER)),
    "budget": Script(OPEN, ("so it is and so on", "END", ANSWER), {"max_reasoning_tokens": 4}),
    "no-budget": Script(OPEN, ("so it is", "END", ANSWER), {"max_reasoning_tokens": 0}),
    "budget-as-it-ends": Script(OPEN, ("so", "END", ANSWER), {"max_reasoning_tokens": 2}),
    "goes-on-behind-the-budget": Script(
        OPEN, ("so it is and so on and on and on", "END", ANSWER, "START", "x", "END"), {"max_reasoning_tokens": 3}
    ),
    "transition": Script(OPEN, ("so it is and so on", "END", ANSWER), {"max_reasoning_tokens": 4, "transition": " so be it"}),
    "transition-and-start-again": Script(
        OPEN, ("so it is and so on", "START", "more", "END", ANSWER), {"max_reasoning_tokens": 3, "transition": " so"}
    ),
    "reserve": Script(OPEN, ("so it is and so on and on and on and on", "END", ANSWER), {"reserve": 13}),
    "sampled": Script(OPEN, ("so it", "END", "START", "is", "END", ANSWER), {"temperature": 1.5}),
}


class ScriptedRunner:
    """In place of the model: logits that depend on the position in the output, and a little on the token before."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.token_ids: list[int] = []

    def run(self, chunks: Any) -> torch.Tensor:
        rows = []
        for chunk in chunks:
            sequence: Sequence = chunk.sequence
            sequence.num_cached_tokens += chunk.num_query_tokens
            before = [sequence.token_ids_between(sequence.num_tokens - 1, sequence.num_tokens)[0], *chunk.draft_token_ids]
            rows += [self._row(len(sequence.token_ids) + index, before[index]) for index in range(chunk.num_logits)]
        return torch.stack(rows) if rows else torch.zeros(0, self.vocab_size)

    def _row(self, position: int, last: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * position + last)
        row = torch.randn(self.vocab_size, generator=generator)
        if position < len(self.token_ids):
            row[self.token_ids[position]] += 12.0
        return row


class ScriptedDrafter(Drafter):
    """Drafts what the model is going to write, now and then something else."""

    def __init__(self, prompt_token_ids: list[int], *, token_ids: list[int], seeds: Iterator[int], **options: Any) -> None:
        super().__init__(prompt_token_ids, **options)
        self._script = token_ids
        self._position = 0
        self._rng = random.Random(next(seeds))

    def extend(self, token_ids: Any) -> None:
        super().extend(token_ids)
        self._position += len(token_ids)

    def propose(self, matcher: Matcher | None, limit: int) -> list[int]:
        drafts = self._script[self._position : self._position + min(limit, self._rng.randint(1, 12))]
        if drafts and self._rng.random() < 0.2:
            drafts[self._rng.randrange(len(drafts))] = self._rng.randrange(1, 200)
        if matcher is not None:
            drafts = drafts[: matcher.validate_tokens(drafts)]
        self._sources = ["lookup"] * len(drafts)
        self.found = Found(self._sources, matcher is not None)
        return drafts


@pytest.fixture(scope="module", params=["one-token", "spelled"])
def engines(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[tuple[LLMEngine, LLMEngine]]:
    """Without drafts, and with."""
    options: dict[str, Any] = {"max_num_seqs": 8, "family": request.param, "families": FAMILIES, "adapt_drafts": False}
    made = tuple(LLMEngine(EngineConfig(model=str(tiny_model), max_draft_tokens=n, **options)) for n in (0, 12))
    yield made[0], made[1]
    for engine in made:
        engine.close()


def encode(engine: LLMEngine, pieces: tuple[str, ...]) -> list[int]:
    family = engine.family
    assert family is not None
    texts = {"START": family.start, "END": family.end, "TOOL": family.implicit_ends[0]}
    return [
        token_id for piece in pieces for token_id in engine.tokenizer.encode(texts.get(piece, piece), add_special_tokens=False)
    ]


def run(
    engine: LLMEngine, script: Script, monkeypatch: pytest.MonkeyPatch, *, is_constrained: bool, max_tokens: int
) -> tuple[list[RequestOutput], int]:
    """Give the outputs of a script, and how many tokens one step gave at most."""
    runner = ScriptedRunner(engine._loaded.vocab_size)
    runner.token_ids = [*encode(engine, script.pieces), engine.tokenizer.eos_token_id]
    monkeypatch.setattr(engine, "_runner", runner)
    if engine.config.max_draft_tokens:
        monkeypatch.setattr(
            engine._admission, "_new_drafter", partial(ScriptedDrafter, token_ids=runner.token_ids, seeds=iter(SEEDS))
        )
    for seed in SEEDS:
        params = SamplingParams(max_tokens=max_tokens, seed=seed, **script.options)
        prompt = encode(engine, script.prompt)
        engine.add_request(str(seed), prompt, params, grammar=SPEC if is_constrained else None, tools_offered=not is_constrained)
    finals, most = {}, 0
    while engine.has_unfinished():
        for output in engine.step():
            most = max(most, len(output.new_token_ids))
            if output.finished:
                finals[output.request_id] = output
    return [finals[str(seed)] for seed in SEEDS], most


@pytest.mark.parametrize("is_constrained", [True, False], ids=["schema", "free"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_output_is_that_of_one_token_at_a_time(
    engines: tuple[LLMEngine, LLMEngine], name: str, is_constrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    for max_tokens in (44, 17):
        (plain, most_plain), (drafted, most) = (
            run(engine, SCRIPTS[name], monkeypatch, is_constrained=is_constrained, max_tokens=max_tokens) for engine in engines
        )
        assert most_plain == 1
        steps.append(most)
        for one, other in zip(plain, drafted, strict=True):
            assert other.token_ids == one.token_ids
            assert (other.reasoning, other.content) == (one.reasoning, one.content)
            assert other.num_reasoning_tokens == one.num_reasoning_tokens
            assert (other.stop_reason, other.limits_hit, other.cut) == (one.stop_reason, one.limits_hit, one.cut)
            assert (other.reasoning_ended, other.answer_start, other.error) == (one.reasoning_ended, one.answer_start, one.error)
    assert max(steps) > 1


@pytest.mark.parametrize("is_constrained", [True, False], ids=["schema", "free"])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"logprobs": 1}, {"temperature": 1.0, "logprobs": 1}], ids=str)
def test_row_that_leaves_no_token_ends_the_request_alike(
    engines: tuple[LLMEngine, LLMEngine], options: dict[str, Any], is_constrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model gives all tokens from the fifth on a logit of -inf: an error, never a token, wherever drafts end."""
    real = ScriptedRunner._row

    def end(self: ScriptedRunner, position: int, last: int) -> torch.Tensor:
        row = real(self, position, last)
        return row if position < 4 else torch.full_like(row, -torch.inf)

    monkeypatch.setattr(ScriptedRunner, "_row", end)
    script = Script(OPEN, ("so it is", "END", ANSWER), options)
    for engine in engines:
        outputs, _ = run(engine, script, monkeypatch, is_constrained=is_constrained, max_tokens=40)
        for output in outputs:
            assert output.stop_reason == "error"
            assert isinstance(output.error, EngineStepError)
            assert "no chance" in str(output.error)
            assert len(output.token_ids) == 4
