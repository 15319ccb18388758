"""Drafts change how fast an answer comes, and nothing else."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from engine import (
    EngineConfig,
    GrammarSpec,
    InvalidRequestError,
    LLMEngine,
    ModelLoadError,
    RequestOutput,
    SamplingParams,
)
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.vocabulary import Vocabulary
from engine.mask import Window, mask_logits
from engine.sequence import Sequence
from engine.speculative import Drafter, DraftGain
from engine.speculative.draft_model import DraftModel
from reasoning_parsers import ReasoningGate, TokenMarkers

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["x", "yy"]},
        "items": {
            "type": "array",
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {"quantity": {"type": "integer", "minimum": 0, "maximum": 99}, "done": {"type": "boolean"}},
                "required": ["quantity", "done"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["kind", "items"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.from_json_schema(SCHEMA)
TEXTS = ("3 lamps, 3 lamps, 3 lamps", "two chairs for 15 euros, please", "a", "lamp lamp lamp lamp lamp")


@pytest.fixture(scope="module")
def engines(tiny_model: Path) -> Iterator[tuple[LLMEngine, LLMEngine]]:
    """Without drafts, and with."""
    made = tuple(
        LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=8, max_draft_tokens=n, adapt_drafts=False)) for n in (0, 12)
    )
    yield made[0], made[1]
    for engine in made:
        engine.close()


def run(engine: LLMEngine, params: SamplingParams, *, is_constrained: bool, thinking: bool = True) -> list[RequestOutput]:
    prompts = [engine.render([{"role": "user", "content": text}], thinking=thinking) for text in TEXTS]
    return engine.generate(prompts, params, grammars=SPEC if is_constrained else None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 1.0, "seed": 11},
        {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "seed": 5},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.4},
        {"max_reasoning_tokens": 0},
        {"max_reasoning_tokens": 5},
        {"bad_words": ("lamp", "a"), "min_tokens": 20},
    ],
    ids=["greedy", "sampled", "filtered", "penalties", "no-budget", "budget", "bans"],
)
@pytest.mark.parametrize("is_constrained", [True, False], ids=["schema", "free"])
def test_output_with_drafts_is_the_output_without(
    engines: tuple[LLMEngine, LLMEngine], options: dict[str, Any], is_constrained: bool
) -> None:
    params = SamplingParams(**{"max_tokens": 60, "max_reasoning_tokens": 12, **options})
    without, with_drafts = (run(engine, params, is_constrained=is_constrained) for engine in engines)
    for plain, drafted in zip(without, with_drafts, strict=True):
        assert drafted.token_ids == plain.token_ids
        assert (drafted.reasoning, drafted.content, drafted.stop_reason) == (plain.reasoning, plain.content, plain.stop_reason)
        assert drafted.num_reasoning_tokens == plain.num_reasoning_tokens


COPIED = GrammarSpec.from_json_schema(
    {
        "type": "object",
        "properties": {
            "kind": {"enum": ["x", "yy"]},
            "name": {"type": "string", "maxLength": 8},
            "date": {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]$"},
            "done": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
            "quantity": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["kind", "name", "date", "done", "tags", "quantity"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_values_from_the_prompt_change_no_token(
    engines: tuple[LLMEngine, LLMEngine], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token for token with the same seeds, so the distribution is the same too; whatever is guessed, some of it holds."""
    verified: Counter[tuple[str, bool]] = Counter()
    real = DraftGain.note_verified

    def note(self: DraftGain, sources: Any, num_accepted: int) -> None:
        verified.update((source, index < num_accepted) for index, source in enumerate(sources[: num_accepted + 1]))
        real(self, sources, num_accepted)

    monkeypatch.setattr(DraftGain, "note_verified", note)
    text = "Kind: yy\nName: Ada B.\nDate: 2025-11\nDone: yes\nTags: a, bc, d\nQuantity: 7\n"
    answers = []
    for engine in engines:
        prompt = engine.render([{"role": "user", "content": text}], thinking=False)
        params = [SamplingParams(max_tokens=90, temperature=temperature, seed=seed) for seed in range(12)]
        outputs = engine.generate([prompt] * len(params), params, grammars=COPIED)
        answers.append([output.token_ids for output in outputs])
    assert answers[0] == answers[1]
    assert {source for source, _ in verified} >= {"labelled", "searched", "copied", "ended"}
    assert sum(count for (source, holds), count in verified.items() if holds and source != "forced")


def test_stop_string_inside_a_window_cuts_there(engines: tuple[LLMEngine, LLMEngine]) -> None:
    params = SamplingParams(max_tokens=60, max_reasoning_tokens=3)
    stop = run(engines[0], params, is_constrained=False)[0].content[6:9]
    cut = SamplingParams(max_tokens=60, max_reasoning_tokens=3, stop=(stop,))
    without, with_drafts = (run(engine, cut, is_constrained=False)[0] for engine in engines)
    assert with_drafts.matched_stop == stop
    assert (with_drafts.token_ids, with_drafts.content) == (without.token_ids, without.content)


def test_grammar_drafts_save_steps(engines: tuple[LLMEngine, LLMEngine]) -> None:
    params = SamplingParams(max_tokens=60)
    num_steps = []
    for engine in engines:
        engine.add_request("one", engine.render([{"role": "user", "content": "x"}], thinking=False), params, grammar=SPEC)
        steps, final = 0, None
        while engine.has_unfinished():
            for output in engine.step():
                steps += 1
                final = output
        assert final is not None
        jsonschema_rs.validate(SCHEMA, json.loads(final.content))
        num_steps.append((steps, len(final.token_ids)))
    assert num_steps[0][0] == num_steps[0][1]
    assert num_steps[1][0] < 0.7 * num_steps[0][0]
    totals = engines[1].totals()
    assert 0 < totals.num_accepted_draft_tokens <= totals.num_draft_tokens


def test_drafts_hold_no_block_that_the_running_ones_need(tiny_model: Path) -> None:
    """A cache that is nearly full: sequences are preempted, drafts get what is left, the answers are the same."""
    answers = []
    for num_drafts in (0, 12):
        engine = LLMEngine(
            EngineConfig(
                model=str(tiny_model),
                max_num_seqs=4,
                max_model_len=128,
                kv_cache_bytes=80_000,
                max_draft_tokens=num_drafts,
                adapt_drafts=False,
            )
        )
        outputs = run(engine, SamplingParams(max_tokens=70, max_reasoning_tokens=30), is_constrained=True)
        answers.append([output.token_ids for output in outputs])
        assert engine._kv_cache.num_free_blocks == engine._kv_cache.num_blocks
        engine.close()
    assert answers[0] == answers[1]


STOP = 256
START, END = 257, 258
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b"", b"", b""), 259, (STOP,))


class ByteDecoder:
    def decode(self, token_ids: list[int], **options: object) -> str:
        return bytes(token_id for token_id in token_ids if token_id < 256).decode(errors="replace")


def new_sequence(backend: XGrammarBackend) -> Sequence:
    gate = ReasoningGate(TokenMarkers(start=(START,), end=(END,)))
    sequence = Sequence("a", [1, START], SamplingParams(), gate, ByteDecoder(), frozenset({STOP}), SPEC)
    gate.start(sequence.prompt_token_ids)
    sequence.matcher = backend.compile(SPEC).new_matcher((STOP,))
    return sequence


def test_rows_of_a_window_are_the_rows_of_single_steps() -> None:
    """Every window of a thinking and an answer, cut anywhere, gives the rows that one token at a time gives."""
    backend = XGrammarBackend(BYTES, num_threads=1)
    tokens = [*b"hm, ok", END, *b'{"kind":"x","items":[{"quantity":7,"done":true}]}', STOP]
    stepwise = new_sequence(backend)
    rows = []
    for token_id in tokens:
        logits = torch.zeros(1, 259)
        assert mask_logits(logits, [Window(stepwise)]) == {}
        rows.append(logits[0])
        assert stepwise.append([token_id])
    rng = random.Random(3)
    for _ in range(60):
        first = rng.randrange(len(tokens))
        drafts = tuple(tokens[first : first + rng.randrange(9)])
        if STOP in drafts:
            continue
        sequence = new_sequence(backend)
        assert sequence.append(tokens[:first])
        logits = torch.zeros(1 + len(drafts), 259)
        assert mask_logits(logits, [Window(sequence, drafts)]) == {}
        assert torch.equal(logits, torch.stack(rows[first : first + len(drafts) + 1]))
        assert sequence.append(tokens[first:])  # the window left the state as it was


def test_rows_behind_a_refused_draft_deny_everything() -> None:
    sequence = new_sequence(XGrammarBackend(BYTES, num_threads=1))
    assert sequence.append([*b"hm", END])
    logits = torch.zeros(4, 259)
    assert mask_logits(logits, [Window(sequence, tuple(b'{x"'))]) == {}
    assert logits[1].isfinite().nonzero().flatten().tolist() == [ord('"')]
    assert not logits[2:].isfinite().any()


def test_lookup_length_follows_what_the_model_takes() -> None:
    drafter = Drafter([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 1])
    lengths = []
    for num_accepted in (99, 99, 99, 0, 0, 0, 0):
        drafts = drafter.propose(None, 99)
        lengths.append(len(drafts))
        drafter.learn(min(num_accepted, len(drafts)), num_verified=len(drafts))
    assert lengths == [4, 8, 16, 16, 8, 4, 2]


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, pocket_tokenizer: Any) -> Path:
    """The tiny model with its weights disturbed: often of the same opinion, not always."""
    folder = tmp_path_factory.mktemp("other")
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    model.save_pretrained(folder)
    pocket_tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "sampled"])
def test_draft_model_changes_the_speed_only(
    engines: tuple[LLMEngine, LLMEngine], tiny_model: Path, other_model: Path, options: dict[str, Any]
) -> None:
    params = SamplingParams(max_tokens=50, max_reasoning_tokens=20, **options)
    for draft_model, least_share in ((tiny_model, 0.6), (other_model, 0.1)):
        config = EngineConfig(
            model=str(tiny_model), max_num_seqs=8, max_draft_tokens=5, adapt_drafts=False, draft_model=str(draft_model)
        )
        engine = LLMEngine(config)
        for is_constrained in (True, False):
            plain = run(engines[0], params, is_constrained=is_constrained)
            drafted = run(engine, params, is_constrained=is_constrained)
            assert [output.token_ids for output in drafted] == [output.token_ids for output in plain]
        totals = engine.totals()
        if not options:
            assert totals.num_accepted_draft_tokens > least_share * totals.num_draft_tokens
        assert totals.num_free_blocks == totals.num_blocks
        engine.step()
        assert engine._ahead is not None
        draft_cache = engine._ahead.model._kv_cache
        assert draft_cache.num_free_blocks == draft_cache.num_blocks
        engine.close()


def test_draft_model_that_takes_long_is_hardly_run(
    engines: tuple[LLMEngine, LLMEngine], tiny_model: Path, other_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = DraftModel.propose, list[int]()

    def propose(self: DraftModel, sequences: Any, limit: int) -> dict[str, list[int]]:
        calls.append(limit)
        until = time.thread_time() + 0.05
        while time.thread_time() < until:  # many times what a step of this model takes
            pass
        return real(self, sequences, limit)

    monkeypatch.setattr(DraftModel, "propose", propose)
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=8, draft_model=str(other_model)))
    params = SamplingParams(max_tokens=100, temperature=0.8, seed=3)
    plain, adapted = (run(one, params, is_constrained=False) for one in (engines[0], engine))
    assert [output.token_ids for output in adapted] == [output.token_ids for output in plain]
    assert 0 < len(calls) < 15
    assert engine.totals().num_steps > 60
    engine.close()


def test_draft_model_that_fails_is_not_asked_again(
    engines: tuple[LLMEngine, LLMEngine], tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no draft")

    monkeypatch.setattr(DraftModel, "propose", fail)
    engine = LLMEngine(
        EngineConfig(model=str(tiny_model), max_num_seqs=8, draft_model=str(tiny_model), adapt_drafts=False, max_draft_tokens=3)
    )
    params = SamplingParams(max_tokens=20)
    plain, drafted = (run(one, params, is_constrained=False) for one in (engines[0], engine))
    assert [output.token_ids for output in drafted] == [output.token_ids for output in plain]
    assert caplog.text.count("not asked any more") == 1
    engine.close()


def test_draft_model_needs_no_room_beyond_the_targets_length(tiny_model: Path) -> None:
    engine = LLMEngine(EngineConfig(model=str(tiny_model), max_model_len=64, max_num_seqs=2, draft_model=str(tiny_model)))
    assert engine._ahead is not None
    assert engine._ahead.model._kv_cache.capacity == 2 * 64
    engine.close()


def test_draft_model_with_other_tokens_is_refused(tiny_model: Path, tmp_path: Path, pocket_tokenizer: Any) -> None:
    LlamaForCausalLM.from_pretrained(tiny_model).save_pretrained(tmp_path)
    other = AutoTokenizer.from_pretrained(tiny_model)
    other.add_tokens(["<one more>"])
    other.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="vocabulary"):
        LLMEngine(EngineConfig(model=str(tiny_model), draft_model=str(tmp_path)))
    with pytest.raises(InvalidRequestError) as caught:
        EngineConfig(model=str(tiny_model), draft_model="x", max_draft_tokens=0)
    assert caught.value.param == "draft_model"
