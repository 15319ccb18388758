"""Markers that tokenizers glue to their neighbours, and channels: mask, matcher and text of one sequence together."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import pytest
import torch

from engine import GrammarSpec, SamplingParams
from engine.adapters.transformers import ReasoningGatedLogitsProcessor
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.vocabulary import Vocabulary
from engine.mask import Window, mask_logits
from engine.sequence import RequestOutput, Sequence
from reasoning_parsers import ReasoningFamily, ReasoningGate, get_family
from tests.reasoning_parsers.small_vocabulary import SmallVocabulary

THINK = ReasoningFamily(name="glued", start="<think>", end="</think>", implicit_ends=("<tool_call>",))
WORDS = SmallVocabulary(
    ["</", "think", "think>", ">\n", '>{"', ">[", " <", "tool", "_call>", "na\u00efve", ">\u20ac", "final"],
    ["<eos>", "<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|return|>", "<|call|>"],
)
STOP = WORDS.ids_of_text("<eos>")[0]
VOCABULARY = Vocabulary(tuple(WORDS.token_bytes(token_id) for token_id in range(WORDS.num_tokens)), WORDS.num_tokens, (STOP,))
BACKEND = XGrammarBackend(VOCABULARY, num_threads=1)
OBJECT = GrammarSpec.from_json_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


def make_sequence(
    family: ReasoningFamily, prompt: str, spec: GrammarSpec | None = None, *, tools_offered: bool = False
) -> Sequence:
    gate = ReasoningGate(WORDS.resolve(family), tools_offered=tools_offered)
    prompt_ids = WORDS.encode(prompt)
    gate.start(prompt_ids)
    sequence = Sequence("a", prompt_ids, SamplingParams(), gate, WORDS, frozenset({STOP}), spec)
    if spec is not None:
        sequence.matcher = BACKEND.compile(spec).new_matcher((STOP,))
    return sequence


def denied_rows(sequence: Sequence, drafts: SequenceOf[int] = ()) -> list[set[int]]:
    logits = torch.zeros(1 + len(drafts), VOCABULARY.vocab_size)
    assert mask_logits(logits, [Window(sequence, tuple(drafts))]) == {}
    return [set(row.isneginf().nonzero().flatten().tolist()) for row in logits]


def ids(*texts: str) -> list[int]:
    return [WORDS.ids_of_text(text)[0] for text in texts]


def run(sequence: Sequence, token_ids: SequenceOf[int], size: int = 1) -> RequestOutput:
    """Append in windows of `size`; the deltas joined must be the whole."""
    deltas = []
    for start in range(0, len(token_ids), size):
        assert sequence.append(list(token_ids[start : start + size]))
        deltas.append(sequence.take_output([]))
    sequence.finish("stop")
    deltas.append(sequence.take_output([]))
    assert deltas[-1].reasoning == "".join(delta.reasoning_delta for delta in deltas)
    assert deltas[-1].content == "".join(delta.content_delta for delta in deltas)
    return deltas[-1]


def test_tokens_whose_rest_begins_no_answer_are_masked() -> None:
    sequence = make_sequence(THINK, "<think>", OBJECT)
    assert denied_rows(sequence) == [{STOP}]
    assert sequence.append(ids("</", "think"))
    assert denied_rows(sequence) == [{STOP, *ids(">\n", ">[", ">\u20ac")}]
    assert sequence.append(ids('>{"'))
    assert bytes(set(range(256)) - denied_rows(sequence)[0]) == b"a"


def test_transformers_adapter_feeds_the_rest_of_a_token() -> None:
    prompt = WORDS.encode("<think>")
    compiled = BACKEND.compile(OBJECT)
    processor = ReasoningGatedLogitsProcessor(compiled, WORDS.resolve(THINK), stop_token_ids=[STOP])
    written = [*ids("</", "think", '>{"'), ord("a"), ord('"')]
    allowed = []
    for length in range(len(written) + 1):
        scores = processor(torch.tensor([prompt + written[:length]]), torch.zeros(1, VOCABULARY.vocab_size))[0]
        allowed.append(bytes((~scores[:256].isneginf()).nonzero().flatten().tolist()))
    assert len(allowed[0]) == len(allowed[1]) == 256
    assert allowed[3:] == [b"a", b'"', b":"]


def test_rest_of_a_token_is_fed_where_drafts_end_the_thinking() -> None:
    sequence = make_sequence(THINK, "<think>", OBJECT)
    drafts = [*ids("</", "think", '>{"'), ord("a"), ord('"')]
    rows = denied_rows(sequence, drafts)
    assert rows[0] == rows[1] == {STOP}
    assert [bytes(set(range(256)) - row) for row in rows[3:]] == [b"a", b'"', b":"]
    assert denied_rows(sequence) == [{STOP}]  # as before


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_answer_begins_inside_the_boundary_token(size: int) -> None:
    tokens = [*WORDS.encode("a < b "), *ids("</", "think", '>{"'), *b'a":12}', STOP]
    output = run(make_sequence(THINK, "<think>", OBJECT), tokens, size)
    assert (output.reasoning, output.content, output.reasoning_ended) == ("a < b ", '{"a":12}', True)
    assert output.num_reasoning_tokens == 5


@pytest.mark.parametrize("size", [1, 2, 20])
def test_free_answer_with_half_a_character_behind_the_marker(size: int) -> None:
    tokens = [*b"so", *ids("</", "think", ">\u20ac"), *"\u00e9".encode()]
    output = run(make_sequence(THINK, "<think>"), tokens, size)
    assert (output.reasoning, output.content) == ("so", "\u20ac\u00e9")


@pytest.mark.parametrize(
    ("prompt", "text", "reasoning", "content"),
    [
        pytest.param("<think>so</", "think>{}", "", "{}", id="marker-half-in-the-prompt"),
        pytest.param("<think>so</", "x</think>{}", "x", "{}", id="no-marker-in-the-prompt"),
        pytest.param("hi", "<think>so</think>{}", "so", "{}", id="first-token-decides"),
        pytest.param("hi", "<thi", "", "<thi", id="cut-inside-the-start-marker"),
        pytest.param("hi", "<thin ice", "", "<thin ice", id="start-marker-broken-off"),
        pytest.param("<think>", "so</thi", "so</thi", "", id="cut-inside-the-end-marker"),
        pytest.param("<think></think>", "{}", "", "{}", id="ended"),
    ],
)
def test_text_of_glued_markers(prompt: str, text: str, reasoning: str, content: str) -> None:
    any_json = GrammarSpec.from_json_schema({"type": "object"})
    for spec in (None, any_json) if content == "{}" else (None,):
        for size in (1, 3, 50):
            output = run(make_sequence(THINK, prompt, spec), WORDS.encode(text), size)
            assert (output.reasoning, output.content) == (reasoning, content)


def test_tool_opener_that_the_grammar_refuses_is_masked_while_thinking() -> None:
    opener = ids("_call>")[0]
    sequence = make_sequence(THINK, "<think>", OBJECT, tools_offered=True)
    assert sequence.append(ids(" <", "tool"))
    assert denied_rows(sequence) == [{STOP, opener}]
    calls = GrammarSpec.regex(r"<tool_call>[a-z]+")
    sequence = make_sequence(THINK, "<think>", calls, tools_offered=True)
    assert sequence.append(ids(" <", "tool"))
    assert denied_rows(sequence) == [{STOP}]
    assert bytes(set(range(256)) - denied_rows(sequence, [opener])[1]) == bytes(range(97, 123))
    assert sequence.append([opener])
    assert sequence.append([*b"ab"])


def test_free_rows_with_tools_keep_their_bits() -> None:
    sequence = make_sequence(THINK, "<think>", tools_offered=True)
    assert sequence.append(ids(" <", "tool"))
    assert denied_rows(sequence) == [set()]


HARMONY = get_family("gpt_oss")
PROMPT = "<|start|>user<|message|>hi<|end|><|start|>assistant"
THINKING = "<|channel|>analysis<|message|>so a < b<|end|><|start|>assistant"


@pytest.mark.parametrize("size", [1, 2, 7, 80])
@pytest.mark.parametrize("is_constrained", [True, False], ids=["constrained", "free"])
def test_answer_of_channels(size: int, is_constrained: bool) -> None:
    sequence = make_sequence(HARMONY, PROMPT, OBJECT if is_constrained else None)
    output = run(sequence, [*WORDS.encode(f'{THINKING}<|channel|>final<|message|>{{"a":1}}'), STOP], size)
    assert (output.reasoning, output.content, output.reasoning_ended) == ("so a < b", '{"a":1}', True)
    assert output.num_reasoning_tokens == 7


def test_thinking_of_channels_is_free_until_the_header_ends() -> None:
    sequence = make_sequence(HARMONY, PROMPT, OBJECT)
    for token_id in WORDS.encode(f"{THINKING}<|channel|>final<|message|>"):
        assert denied_rows(sequence) == [{STOP}]
        assert sequence.append([token_id])
    assert bytes(set(range(256)) - denied_rows(sequence)[0]) == b"{"


def test_header_half_in_the_prompt_is_no_thinking() -> None:
    sequence = make_sequence(HARMONY, f"{PROMPT}<|channel|>analysis", OBJECT)
    output = run(sequence, WORDS.encode('<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>{"a":1}'))
    assert (output.reasoning, output.content) == ("so", '{"a":1}')


def test_junk_between_messages_is_thinking_under_a_constraint() -> None:
    sequence = make_sequence(HARMONY, f"{PROMPT}<|channel|>analysis<|message|>a<|end|>", OBJECT)
    output = run(sequence, WORDS.encode('junk<|channel|>final<|message|>{"a":1}'))
    assert (output.reasoning, output.content) == ("junk", '{"a":1}')


def test_free_answer_without_a_header_is_an_answer() -> None:
    output = run(make_sequence(HARMONY, f"{PROMPT}<|channel|>analysis<|message|>a<|end|>"), WORDS.encode("hello"))
    assert (output.reasoning, output.content, output.reasoning_ended) == ("", "hello", True)


def test_wrapper_around_a_free_answer_is_taken_off() -> None:
    words = SmallVocabulary([], ["<eos>", "<think>", "</think>"])
    family = ReasoningFamily(name="w", start="<think>", end="</think>", content_wrappers=(("<answer>", "</answer>"),))
    gate = ReasoningGate(words.resolve(family))
    gate.start(words.encode("<think>"))
    sequence = Sequence("a", [1], SamplingParams(), gate, words, frozenset({words.ids_of_text("<eos>")[0]}), None)
    output = run(sequence, words.encode("so</think><answer>hi</answer>"))
    assert (output.reasoning, output.content) == ("so", "hi")
