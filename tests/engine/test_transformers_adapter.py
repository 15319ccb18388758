"""The gate inside transformers' own `generate` (cases B23 and B24)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from transformers import LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

from engine import (
    EngineConfig,
    EngineStepError,
    GrammarSpec,
    InvalidRequestError,
    LLMEngine,
    SamplingParams,
    UnsupportedGrammarError,
)
from engine.adapters.transformers import ReasoningGatedLogitsProcessor

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"kind": {"enum": ["x", "yy"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["kind", "n"],
    "additionalProperties": False,
}
SPEC = GrammarSpec.from_json_schema(SCHEMA)
MESSAGES = ("3 lamps at 4.50", "two chairs for 15 euros, please", "a")


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    return LlamaForCausalLM.from_pretrained(tiny_model)


def prompts(tokenizer: Any) -> list[list[int]]:
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False, enable_thinking=True
        )
        for text in MESSAGES
    ]


def pad_left(tokenizer: Any, rows: list[list[int]]) -> dict[str, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": mask}


def answers(tokenizer: Any, output: torch.Tensor, width: int) -> list[str]:
    texts = [tokenizer.decode(row[width:], skip_special_tokens=False) for row in output]
    return [text.partition("</think>")[2].split(tokenizer.eos_token)[0] for text in texts]


def generate(model: Any, tokenizer: Any, processor: LogitsProcessor, rows: list[list[int]], **options: Any) -> torch.Tensor:
    inputs = pad_left(tokenizer, rows)
    options = {"max_new_tokens": 60, "do_sample": False} | options
    output: torch.Tensor = model.generate(**inputs, logits_processor=LogitsProcessorList([processor]), **options)
    return output


def check(texts: list[str]) -> None:
    for text in texts:
        jsonschema_rs.validate(SCHEMA, json.loads(text))


def test_left_padded_batch_and_second_call_are_right_b23(model: Any, pocket_tokenizer: Any, tiny_model: Path) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC, max_reasoning_tokens=8)
    rows = prompts(pocket_tokenizer)
    with_engine = LLMEngine(EngineConfig(model=str(tiny_model)))
    expected = with_engine.generate(rows, SamplingParams(max_tokens=60, max_reasoning_tokens=8), grammars=SPEC)
    with_engine.close()
    width = max(map(len, rows))
    for order in ([0, 1, 2], [2, 0, 1]):
        output = generate(model, pocket_tokenizer, processor, [rows[i] for i in order])
        check(answers(pocket_tokenizer, output, width))
        for row, index in zip(output.tolist(), order, strict=True):
            own = row[width : width + len(expected[index].token_ids)]
            assert own == expected[index].token_ids


def test_thinking_scores_are_left_alone_b1(model: Any, pocket_tokenizer: Any) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC)
    ids = torch.tensor([prompts(pocket_tokenizer)[0]])
    scores = torch.randn(1, 1088)
    before = scores.clone()
    masked = processor(ids, scores)
    changed = (masked != before).nonzero()[:, 1].tolist()
    assert changed == [pocket_tokenizer.eos_token_id]
    assert torch.equal(scores, before)


@pytest.mark.parametrize("num_beams", [2, 3])
def test_beams_keep_their_own_state_b24(model: Any, pocket_tokenizer: Any, num_beams: int) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(
        model, pocket_tokenizer, SPEC, num_beams=num_beams, max_reasoning_tokens=6
    )
    rows = prompts(pocket_tokenizer)[:2]
    output = generate(
        model, pocket_tokenizer, processor, rows, num_beams=num_beams, num_return_sequences=num_beams, max_new_tokens=50
    )
    texts = answers(pocket_tokenizer, output, max(map(len, rows)))
    assert len(texts) == 2 * num_beams
    check(texts)


def test_beams_without_saying_so_are_refused_b24(model: Any, pocket_tokenizer: Any) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC, max_reasoning_tokens=6)
    with pytest.raises(EngineStepError, match="reordered") as caught:
        generate(model, pocket_tokenizer, processor, prompts(pocket_tokenizer)[:1], num_beams=4)
    assert "num_beams" in str(caught.value.hint)


def test_token_of_another_processor_is_an_error(model: Any, pocket_tokenizer: Any) -> None:
    class Stubborn(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            scores = torch.full_like(scores, float("-inf"))
            scores[:, pocket_tokenizer.convert_tokens_to_ids("</think>")] = 0
            return scores

    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC)
    inputs = pad_left(pocket_tokenizer, prompts(pocket_tokenizer)[:1])
    with pytest.raises(EngineStepError, match="not in the grammar"):
        model.generate(**inputs, logits_processor=LogitsProcessorList([processor, Stubborn()]), max_new_tokens=9, do_sample=False)


def test_end_marker_as_stop_id_is_refused(model: Any, pocket_tokenizer: Any) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC)
    end = pocket_tokenizer.convert_tokens_to_ids("</think>")
    with pytest.raises(InvalidRequestError) as caught:
        ReasoningGatedLogitsProcessor(processor._compiled, processor._markers, stop_token_ids=[end])
    assert caught.value.param == "stop_token_ids"
    with pytest.raises(InvalidRequestError, match="stop id"):
        ReasoningGatedLogitsProcessor(processor._compiled, processor._markers, stop_token_ids=[])


@pytest.mark.parametrize("helper", ["prompt_lookup", "assistant"])
def test_assisted_generation_is_refused(model: Any, pocket_tokenizer: Any, helper: str) -> None:
    """It takes tokens back; to begin anew there would be an answer that the grammar never saw the head of."""
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC, max_reasoning_tokens=3)
    options = {"prompt_lookup_num_tokens": 4} if helper == "prompt_lookup" else {"assistant_model": model}
    with pytest.raises(EngineStepError) as caught:
        generate(model, pocket_tokenizer, processor, prompts(pocket_tokenizer)[:1], **options)
    assert "assistant_model" in str(caught.value.hint)


def test_tokens_that_are_taken_back_are_refused(model: Any, pocket_tokenizer: Any) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC)
    prompt = prompts(pocket_tokenizer)[0]
    calls = [prompt, [*prompt, 40], [*prompt, 40, 41]]
    for token_ids in calls:
        processor(torch.tensor([token_ids]), torch.zeros(1, 1088))
    with pytest.raises(EngineStepError, match="taken back"):
        processor(torch.tensor([[*prompt, 42]]), torch.zeros(1, 1088))
    # The same prompt again, and another one of whatever length, are generations of their own.
    for token_ids in (prompt, [7, *prompt[1:], 8]):
        processor(torch.tensor([token_ids]), torch.zeros(1, 1088))


PARTLY = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}


def test_what_masks_do_not_enforce_is_told(model: Any, pocket_tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    spec = GrammarSpec.from_json_schema(PARTLY)
    assert ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, spec).unenforced == ("#/uniqueItems",)
    assert "#/uniqueItems" in caplog.text
    assert ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC).unenforced == ()
    with pytest.raises(UnsupportedGrammarError):
        ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, GrammarSpec.from_json_schema(PARTLY, strict=True))


@pytest.mark.parametrize("backend", ["xgrammar", "llguidance"])
def test_backend_of_the_grammar_is_taken(model: Any, pocket_tokenizer: Any, backend: str) -> None:
    spec = GrammarSpec.from_json_schema(SCHEMA, backend=backend)
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, spec, max_reasoning_tokens=3)
    rows = prompts(pocket_tokenizer)[:2]
    check(answers(pocket_tokenizer, generate(model, pocket_tokenizer, processor, rows), max(map(len, rows))))
    assert f"{backend}_" in type(processor._compiled).__module__


def test_continued_generation_needs_a_reset(model: Any, pocket_tokenizer: Any) -> None:
    processor = ReasoningGatedLogitsProcessor.for_model(model, pocket_tokenizer, SPEC, max_reasoning_tokens=8)
    rows = prompts(pocket_tokenizer)[:1]
    first = generate(model, pocket_tokenizer, processor, rows, max_new_tokens=5)
    processor.reset()
    whole = generate(model, pocket_tokenizer, processor, first.tolist())
    check(answers(pocket_tokenizer, whole, len(rows[0])))
