"""Requests as public reports on other engines tell them; a test's name or id names the report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from engine import EngineConfig, GrammarSpec, LLMEngine, SamplingParams
from engine.chat import ChatFormat
from reasoning_parsers import ReasoningGate
from tests.engine.test_llm_engine import SPEC, TEXTS, prompt, reference
from tests.engine.test_model_loader import word_tokenizer

# The turns of no family's row: what stands between them is the template's own.
_TURNS = (
    "{% for m in messages %}]~b]{{ m.role }}\n{{ m.content }}[e~[\n{% endfor %}{% if add_generation_prompt %}]~b]ai\n{% endif %}"
)
_OPENED = _TURNS.replace("]~b]ai\n", "]~b]ai\n<mm:think>")


@pytest.fixture(params=[0, 12], ids=["alone", "drafts"])
def engine(request: pytest.FixtureRequest, tiny_model: Path) -> Iterator[LLMEngine]:
    made = LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=8, max_draft_tokens=int(request.param), adapt_drafts=False))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("messages", "template", "state"),
    [
        pytest.param(
            [("system", "Think in <mm:think></mm:think>."), ("user", "hi")], _TURNS, "unknown", id="vllm-50594-system-prompt"
        ),
        pytest.param([("user", "a"), ("assistant", "t</mm:think>b"), ("user", "c")], _TURNS, "unknown", id="vllm-32490-history"),
        pytest.param([("user", "say </mm:think>")], _TURNS, "unknown", id="vllm-34748-users-text"),
        pytest.param([("user", "say </mm:think>")], _OPENED, "open", id="template-opens"),
        pytest.param([("user", "say <mm:think>")], _OPENED + "</mm:think>", "ended", id="vllm-53284-template-closes"),
    ],
)
def test_markers_of_other_turns_say_nothing(messages: list[tuple[str, str]], template: str, state: str) -> None:
    tokenizer = word_tokenizer("<mm:think>", "</mm:think>", "]~b]", "[e~[", template=template)
    for family in ("minimax_m3", "auto"):
        chat = ChatFormat(tokenizer, family)
        gate = ReasoningGate(chat.markers)
        gate.start(chat.render([{"role": role, "content": content} for role, content in messages]))
        assert gate.prompt_state == state


@pytest.mark.parametrize("schema", [{"type": "boolean"}, {"enum": ["a"]}, {"type": "null"}, {"type": "integer"}], ids=str)
@pytest.mark.parametrize(
    "options", [{"min_tokens": 64}, {"ignore_eos": True}, {"min_tokens": 64, "temperature": 1.0, "seed": 1}], ids=str
)
def test_finished_value_ends_though_more_tokens_are_asked_for_vllm_53665(
    engine: LLMEngine, schema: dict[str, Any], options: dict[str, Any]
) -> None:
    params = SamplingParams(max_tokens=96, max_reasoning_tokens=5, **options)
    prompts = [prompt(engine, "hi", thinking=thinking) for thinking in (True, False)]
    for output in engine.generate(prompts, params, grammars=GrammarSpec.from_json_schema(schema)):
        assert output.stop_reason == "stop"
        json.loads(output.content)


def test_stop_id_of_the_request_never_ends_an_unfinished_value_vllm_42403(engine: LLMEngine) -> None:
    user = engine.tokenizer.convert_tokens_to_ids("<|user|>")
    params = SamplingParams(max_tokens=60, stop_token_ids=(user,), logit_bias={user: 1e5})
    [output] = engine.generate([prompt(engine, "hi", thinking=False)], params, grammars=SPEC)
    assert set(json.loads(output.content)) == {"kind", "ok"}
    assert (output.stop_reason, output.token_ids[-1]) == ("stop", user)


@pytest.mark.parametrize("budget", [0, 1, 2, 3])
def test_budget_holds_to_the_token_vllm_54906(engine: LLMEngine, budget: int) -> None:
    # Words that repeat make long drafts.
    params = SamplingParams(max_tokens=60, max_reasoning_tokens=budget)
    [output] = engine.generate([prompt(engine, "lamp lamp lamp lamp " * 5)], params, grammars=SPEC)
    assert (output.num_reasoning_tokens, output.stop_reason) == (budget, "stop")
    assert set(json.loads(output.content)) == {"kind", "ok"}


@pytest.mark.parametrize("is_constrained", [False, True])
def test_end_of_the_thinking_is_written_whatever_else_was_asked_for_vllm_41672(engine: LLMEngine, is_constrained: bool) -> None:
    end = engine.tokenizer.convert_tokens_to_ids("</think>")
    params = SamplingParams(
        max_tokens=60, max_reasoning_tokens=6, logit_bias={end: -1e6}, bad_words=("</think>",), repetition_penalty=1000.0
    )
    [output] = engine.generate([prompt(engine, "hi")], params, grammars=SPEC if is_constrained else None)
    assert (output.num_reasoning_tokens, output.token_ids[6]) == (6, end)
    assert output.limits_hit[0] == "max_reasoning_tokens"


@pytest.mark.parametrize("transition", [" so", " I must stop.\n\n", " Reasoning limit exceeded!"])
def test_transition_is_thinking_vllm_43210(engine: LLMEngine, transition: str) -> None:
    params = SamplingParams(max_tokens=40, max_reasoning_tokens=6, transition=transition)
    for grammar in (None, SPEC):
        [output] = engine.generate([prompt(engine, "hi")], params, grammars=grammar)
        assert output.reasoning.endswith(transition)
        assert transition.strip() not in output.content


def test_known_beginnings_change_nothing_behind_a_stop_string_vllm_5543(engine: LLMEngine, tiny_model: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny_model)
    prompts = [prompt(engine, text * 4, thinking=False) for text in TEXTS]
    cold = [reference(model, ids, 40) for ids in prompts]
    stops = [engine.tokenizer.decode(ids[5:7]).strip() or "a" for ids in cold]
    for stop in stops:
        engine.generate(prompts, SamplingParams(max_tokens=40, stop=(stop,)))
    hits = engine.totals().num_prefix_hit_tokens
    assert [output.token_ids for output in engine.generate(prompts, SamplingParams(max_tokens=40))] == cold
    assert engine.totals().num_prefix_hit_tokens > hits


@pytest.fixture
def script(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the model wants to say, id by id, whatever it reads; the end when it has said all."""
    wanted: list[int] = []
    run = engine._runner.run

    def run_script(chunks: Any) -> Any:
        logits = run(chunks)
        row = 0
        for chunk in chunks:
            for offset in range(chunk.num_logits):
                said = wanted[len(chunk.sequence.token_ids) + offset :][:1]
                logits[row, said[0] if said else engine.tokenizer.eos_token_id] = 1e4
                row += 1
        return logits

    monkeypatch.setattr(engine._runner, "run", run_script)
    return wanted


@pytest.mark.parametrize("budget", [None, 40, 9, 8, 7, 6, 5, 4, 3, 1, 0])
def test_thinking_that_is_opened_again_is_the_same_with_drafts_llama_cpp_22323(
    engine: LLMEngine, script: list[int], budget: int | None
) -> None:
    tokenizer = engine.tokenizer
    text = "one two three four five six</think>seven eight<think>nine ten one</think>two three"
    script += tokenizer.encode(text, add_special_tokens=False)
    start, end = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    first_end = script.index(end)
    # The prompt holds the text, so the lookup drafts all of it, markers too.
    [output] = engine.generate(
        [[*script, *script, *prompt(engine, "hi")]], SamplingParams(max_tokens=80, max_reasoning_tokens=budget)
    )
    num_thinking = first_end if budget is None else min(budget, first_end)
    assert output.num_reasoning_tokens == num_thinking
    assert output.token_ids[num_thinking] == end
    if budget is None or budget > first_end:
        assert output.token_ids[:-1] == script
        assert output.limits_hit == ()
    else:
        assert start not in output.token_ids
    assert output.reasoning == tokenizer.decode(script[:num_thinking])
    if engine.config.max_draft_tokens:
        assert engine.totals().num_accepted_draft_tokens > 0
