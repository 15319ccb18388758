"""Tokenizers of every make, built here: their bytes against their own decoding, and masks over them against trying each byte."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine import EngineConfig, LLMEngine, ModelLoadError, SamplingParams
from engine.chat import ChatFormat
from engine.grammar import Matcher
from engine.grammar.token_reader import read_token_table
from engine.grammar.vocabulary import Vocabulary, read_vocabulary
from tests.engine.grammar_backends import BACKENDS, allowed, new_matcher, schema_spec, text_of
from tests.engine.odd_tokenizers import ODD, byte_level, refused_kinds, save_tiny_model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "n": {"enum": [12, True, "é東 a", "<0x41>", "Tool Call", " {"]}},
    "required": ["a", "n"],
    "additionalProperties": False,
}


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """With a head that is wider than the tokenizer."""
    return read_vocabulary(tokenizer, vocab_size=len(tokenizer) + 13, stop_token_ids=[tokenizer.eos_token_id])


@pytest.mark.parametrize("name", ODD)
def test_bytes_are_what_an_id_adds_to_a_text(name: str) -> None:
    tokenizer = ODD[name]()
    vocabulary = vocabulary_of(tokenizer)
    hidden = dict(vocabulary.special_tokens)
    head = vocabulary.token_bytes.index(b"a")
    for token_id in range(len(tokenizer)):
        text = tokenizer.decode([head, token_id], clean_up_tokenization_spaces=False)[1:]
        if token_id in hidden:
            assert vocabulary.token_bytes[token_id] == b""
        elif "\ufffd" not in text:
            assert vocabulary.token_bytes[token_id] == text.encode()
    # Parts of characters, which no decoding of one id shows.
    for text in ("é東🙂", "\u00a0\u2028", "a\x7f"):
        spelled = vocabulary.index.spell(text.encode())
        if spelled is not None:
            assert tokenizer.decode([head, *spelled], clean_up_tokenization_spaces=False) == f"a{text}"
    assert len(vocabulary.token_bytes) == vocabulary.vocab_size


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ODD)
def test_masks_are_those_of_the_bytes(name: str, backend: str) -> None:
    """An id is legal where its bytes are, one after the other; ids without text never are."""
    vocabulary = vocabulary_of(ODD[name]())
    matcher = new_matcher(BACKENDS[backend](vocabulary), schema_spec(SCHEMA), vocabulary.stop_token_ids)
    rng = random.Random(3)
    for _ in range(4):
        walked: list[int] = []
        while len(walked) < 12 and not matcher.is_terminated():
            legal = allowed(matcher, vocabulary.vocab_size)
            assert set(legal) == legal_by_bytes(matcher, vocabulary)
            if not legal:
                break
            walked.append(rng.choice(legal))
            assert matcher.accept_tokens(walked[-1:])
        assert matcher.validate_tokens([]) == 0
        matcher.reset()


def legal_by_bytes(matcher: Matcher, vocabulary: Vocabulary) -> set[int]:
    legal = {token_id for token_id in vocabulary.stop_token_ids if matcher.is_completed()}
    taken: dict[bytes, bool] = {}
    for token_id, data in enumerate(vocabulary.token_bytes):
        if data and data not in taken:
            taken[data] = accepts_bytes(matcher, data)
        if data and taken[data]:
            legal.add(token_id)
    return legal


def accepts_bytes(matcher: Matcher, data: bytes) -> bool:
    is_taken = matcher.accept_bytes(data)
    if is_taken:
        matcher.rollback(1)
    return is_taken


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ODD)
def test_texts_are_written_and_accepted_whole(name: str, backend: str) -> None:
    tokenizer = ODD[name]()
    vocabulary = vocabulary_of(tokenizer)
    matcher = new_matcher(BACKENDS[backend](vocabulary), schema_spec(SCHEMA), vocabulary.stop_token_ids)
    num_written = 0
    for value in ("", "  a  ", "<0x41>", "_ _", "é 東", "Tool Call"):
        for n in SCHEMA["properties"]["n"]["enum"]:
            text = json.dumps({"a": value, "n": n}, ensure_ascii=False, separators=(",", ":"))
            token_ids = vocabulary.index.spell(text.encode())
            if token_ids is not None:
                assert text_of(token_ids, vocabulary) == text.encode()
                assert matcher.accept_tokens([*token_ids, *vocabulary.stop_token_ids])
                assert tokenizer.decode([vocabulary.token_bytes.index(b"a"), *token_ids])[1:] == text
                num_written += 1
            matcher.reset()
    assert num_written >= 8


def test_single_added_characters_are_text_and_special_ones_are_not() -> None:
    tokenizer = ODD["added character"]()
    tokenizer.add_tokens(["§"], special_tokens=True)
    vocabulary = vocabulary_of(tokenizer)
    ids = {text: tokenizer.convert_tokens_to_ids(text) for text in "{}§"}
    assert [vocabulary.token_bytes[ids[text]] for text in "{}§"] == [b"{", b"}", b""]
    assert (ids["§"], "§") in vocabulary.special_tokens


def test_F15_two_ids_of_one_text_are_both_legal() -> None:
    tokenizer = ODD["added, normalised"]()
    vocabulary = vocabulary_of(tokenizer)
    twins = [token_id for token_id, data in enumerate(vocabulary.token_bytes) if data == b"a"]
    assert len(twins) == 2  # the piece, and the byte
    for backend in BACKENDS:
        matcher = new_matcher(BACKENDS[backend](vocabulary), schema_spec({"type": "string"}), vocabulary.stop_token_ids)
        assert matcher.accept_bytes(b'"')
        assert set(twins) <= set(allowed(matcher, vocabulary.vocab_size))


@pytest.mark.parametrize("name", refused_kinds())
def test_kinds_without_bytes_of_their_own_are_refused(name: str) -> None:
    with pytest.raises(ModelLoadError, match="cannot be read byte by byte"):
        read_token_table(refused_kinds()[name])


CHATML = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|turn|>\n{% endfor %}"
TEMPLATES = {
    "token behind the answer": (CHATML, "<|turn|>"),
    "line break between": (CHATML.replace("<|turn|>", "\n<|turn|>"), "<|turn|>"),
    "next turn's head": ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}", "<|user|>"),
    "text": ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None),
    "answers are left out": ("{% for m in messages if m.role == 'user' %}{{ m.content }}<|turn|>{% endfor %}", None),
    "refuses": ("{{ raise_exception('no') }}", None),
    "end of thoughts": (CHATML.replace("<|turn|>", "</think>"), None),
    "none": (None, None),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_token_that_ends_a_turn_is_read_off_the_template(name: str) -> None:
    template, wanted = TEMPLATES[name]
    tokenizer = byte_level()
    tokenizer.add_tokens(["<|turn|>", "<|turn", "<|user|>", "<|assistant|>", "<think>", "</think>"], special_tokens=True)
    tokenizer.chat_template = template
    found = ChatFormat(tokenizer, "qwen3").find_turn_end()
    assert found == (None if wanted is None else tokenizer.convert_tokens_to_ids(wanted))


def test_channels_have_no_end_of_turn_that_is_not_one_of_thoughts(real_tokenizer: Any) -> None:
    assert ChatFormat(real_tokenizer("gpt_oss")).find_turn_end() is None
    llama = real_tokenizer("llama3")
    assert ChatFormat(llama).find_turn_end() == llama.convert_tokens_to_ids("<|eot_id|>") != llama.eos_token_id


def test_stop_ids_come_from_every_place_that_names_one(tmp_path: Path) -> None:
    """Config, generation config, tokenizer and chat template; each ends a constrained answer, and none is text."""
    tokenizer = byte_level()
    tokenizer.add_tokens(["<|turn|>", "<|a|>", "<|b|>", "<|user|>"], special_tokens=True)
    tokenizer.chat_template = CHATML
    ids = [tokenizer.convert_tokens_to_ids(name) for name in ("</s>", "<|turn|>", "<|a|>", "<|b|>")]
    save_tiny_model(tmp_path, tokenizer, config_stop=ids[2], generation_stop=ids[3])
    engine = LLMEngine(EngineConfig(model=str(tmp_path), family="none"))
    try:
        bias = dict.fromkeys(ids, 50.0)
        seen = set()
        for token_id in ids:
            params = SamplingParams(max_tokens=8, logit_bias=bias | {token_id: 100.0})
            [output] = engine.generate([[1]], params, grammars=schema_spec({"const": 7}), on_unknown="constrain")
            assert (output.content, output.stop_reason) == ("7", "stop")
            seen.add(output.matched_stop)
        assert seen == set(ids)
    finally:
        engine.close()
