"""Requests as public reports on other engines tell them; a test's name or id names the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from engine import EngineConfig, GrammarSpec, InvalidRequestError, LLMEngine, ModelLoadError, SamplingParams
from engine.adapters.transformers import ReasoningGatedLogitsProcessor
from engine.admission import _bad_word_ids
from engine.chat import ChatFormat
from reasoning_parsers import ReasoningGate
from tests.engine.odd_tokenizers import ODD
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


def test_requests_of_different_schemas_share_a_beginning_maclocal_api_86(engine: LLMEngine, tiny_model: Path) -> None:
    ids = prompt(engine, "lamp " * 40)
    schemas: list[dict[str, Any] | None] = [
        {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False},
        {"enum": ["red", "green"]},
        None,
        {"type": "array", "items": {"type": "integer"}},
    ]
    grammars = [GrammarSpec.from_json_schema(schema) if schema else None for schema in schemas] * 2
    params = SamplingParams(max_tokens=60, max_reasoning_tokens=4)
    alone = LLMEngine(EngineConfig(model=str(tiny_model), prefix_caching=False, max_num_seqs=1, max_draft_tokens=0))
    try:
        expected = [alone.generate([ids], params, grammars=[grammar])[0].token_ids for grammar in grammars]
    finally:
        alone.close()
    for _ in range(2):
        outputs = engine.generate([ids] * len(grammars), params, grammars=grammars)
        assert [output.token_ids for output in outputs] == expected
    assert engine.totals().num_prefix_hit_tokens > 0


def test_what_a_stop_string_held_back_comes_with_the_end_llama_cpp_15007(engine: LLMEngine, script: list[int]) -> None:
    tokenizer = engine.tokenizer
    for text, stop, room in (
        ("one two", "two three", 60),
        ("one two", "two three", 2),
        ("one 日", "日本", 60),
        ("one </thin", "</thing>", 60),
        ("one <", "<|user|>", 60),
    ):
        script[:] = tokenizer.encode(text, add_special_tokens=False)
        ids = prompt(engine, "hi " + text, thinking=False)
        [output] = engine.generate([ids], SamplingParams(max_tokens=room, stop=(stop,)))
        assert output.content == tokenizer.decode(script[:room])
        assert output.matched_stop != stop
    half = tokenizer.encode("日", add_special_tokens=False)[:-1]
    script[:] = [*tokenizer.encode("one ", add_special_tokens=False), *half]
    [output] = engine.generate([prompt(engine, "hi", thinking=False)], SamplingParams(max_tokens=len(script)))
    assert (output.content.rstrip("\ufffd"), output.stop_reason) == ("one ", "length")
    assert output.content.endswith("\ufffd")


@pytest.mark.parametrize("word", ["lamp", " lamp", "two chairs", "日本", "\n", "\n\n"])
def test_bad_word_is_written_neither_alone_nor_behind_a_space_vllm_23886(engine: LLMEngine, script: list[int], word: str) -> None:
    bare = word.lstrip(" ")
    for text in (bare, f"one {bare}", f"one{bare}" if bare.isspace() else f"{bare} {bare}"):
        script[:] = engine.tokenizer.encode(text, add_special_tokens=False)
        ids = prompt(engine, text, thinking=False)
        [output] = engine.generate([ids], SamplingParams(max_tokens=20, bad_words=(word,)))
        assert bare not in output.content
        [output] = engine.generate([ids], SamplingParams(max_tokens=20))
        assert output.content == text


@pytest.mark.parametrize("name", sorted(ODD))
def test_bad_word_has_its_tokens_within_a_text_tensorrt_llm_15706(name: str) -> None:
    tokenizer = ODD[name]()

    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    for word in ("lamp", "\n"):
        banned = _bad_word_ids(tokenizer, [word])
        for text in (word, f"\n{word}", f"a {word}"):
            ids = encode(text)
            assert any(ids[i : i + len(bad)] == bad for bad in banned for i in range(len(ids))), text


def test_bad_word_without_tokens_is_refused_vllm_53433(engine: LLMEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(engine.tokenizer), "encode", lambda self, text, **_: [] if "\x01" in text else [5])
    with pytest.raises(InvalidRequestError) as caught:
        engine.add_request("bad", [5], SamplingParams(bad_words=("\x01",)))
    assert caught.value.param == "bad_words"
    assert not engine.has_unfinished()


@pytest.mark.parametrize("name", ["own", "of the request"])
def test_stop_id_within_the_thinking_leaves_no_request_without_its_value_sglang_24839(
    engine: LLMEngine, script: list[int], name: str
) -> None:
    tokenizer = engine.tokenizer
    user = tokenizer.convert_tokens_to_ids("<|user|>")
    stop = tokenizer.eos_token_id if name == "own" else user
    said, rest = (tokenizer.encode(text, add_special_tokens=False) for text in ("one lamp", " two</think>three"))
    for where in (0, len(said)):
        script[:] = [*said[:where], stop, *said[where:], *rest]
        params = SamplingParams(max_tokens=60, stop_token_ids=(user,))
        free, bound = engine.generate([prompt(engine, "hi " * 9)] * 2, params, grammars=[None, SPEC])
        assert set(json.loads(bound.content)) == {"kind", "ok"}
        assert bound.reasoning.endswith(" two")
        # Nothing promises an answer here; what happened can be seen.
        assert (free.content, free.stop_reason, free.matched_stop, free.reasoning_ended) == ("", "stop", stop, False)


def test_value_follows_though_the_model_would_end_behind_its_thinking_sglang_36193(engine: LLMEngine, script: list[int]) -> None:
    for text in ("one lamp</think>", "</think>", "<think></think>", "one</think></think>", "one</think>```json\n"):
        script[:] = engine.tokenizer.encode(text, add_special_tokens=False)
        [output] = engine.generate([prompt(engine, "hi " + text)], SamplingParams(max_tokens=60), grammars=SPEC)
        assert set(json.loads(output.content)) == {"kind", "ok"}
        assert output.stop_reason == "stop"


@pytest.mark.parametrize("place", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("declared", [5000, [1001, 5000], -1, [-1, 1001], [], None], ids=str)
def test_stop_ids_that_are_no_tokens_of_the_model_are_left_out_llama_cpp_3635(
    tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture, place: str, declared: Any
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    settings = json.loads((folder / place).read_text())
    (folder / place).write_text(json.dumps(settings | {"eos_token_id": declared}))
    engine = LLMEngine(EngineConfig(model=str(folder)))
    params = SamplingParams(max_tokens=40, max_reasoning_tokens=4, min_tokens=3)
    free, bound = engine.generate([prompt(engine, "hi")] * 2, params, grammars=[None, SPEC])
    engine.close()
    assert engine._loaded.stop_token_ids == (1001,)
    assert free.error is None
    assert set(json.loads(bound.content)) == {"kind", "ok"}
    assert ("left out" in caplog.text) == (declared not in ([], None))


@pytest.mark.parametrize("num_drafts", [0, 12])
@pytest.mark.parametrize("num_rows", [992, 1001, 1002, 1005, 1006])
def test_tokenizer_has_more_tokens_than_the_model_transformers_26714(
    tmp_path: Path, tiny_model: Path, pocket_tokenizer: Any, num_rows: int, num_drafts: int
) -> None:
    config = LlamaConfig.from_pretrained(tiny_model, vocab_size=num_rows, pad_token_id=None)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    pocket_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match=f"none of the model's {num_rows}") as caught:
        LLMEngine(EngineConfig(model=str(tmp_path)))
    assert "family='none'" in str(caught.value.hint)
    with pytest.raises(ModelLoadError):
        ReasoningGatedLogitsProcessor.for_model(LlamaForCausalLM(config), pocket_tokenizer, SPEC)
    engine = LLMEngine(EngineConfig(model=str(tmp_path), family="none", max_draft_tokens=num_drafts))
    try:
        if num_rows > pocket_tokenizer.eos_token_id:
            [output] = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=40, min_tokens=3), grammars=SPEC)
            assert set(json.loads(output.content)) == {"kind", "ok"}
            return
        for ignore_eos in (False, True):
            with pytest.raises(InvalidRequestError) as refused:
                engine.generate([[5, 6, 7]], SamplingParams(max_tokens=40, ignore_eos=ignore_eos), grammars=SPEC)
            assert refused.value.param == "stop_token_ids"
        [output] = engine.generate([[5, 6, 7]], SamplingParams(max_tokens=9))
        assert output.stop_reason == "length"
    finally:
        engine.close()
