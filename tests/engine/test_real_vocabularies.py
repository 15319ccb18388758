"""Every real tokenizer: the bytes of its ids are its own, and what it writes is accepted as it stands by every backend."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from engine.grammar import GrammarSpec, Matcher
from engine.grammar.vocabulary import Vocabulary, read_vocabulary
from tests.engine.grammar_backends import BACKENDS, allowed, make_backend, new_matcher, schema_spec, text_of
from tests.real_tokenizers import NAMES, read_tekken_bytes

RealTokenizer = Callable[[str], Any]
_KNOWN: dict[str, Vocabulary] = {}


def vocabulary_of(name: str, tokenizer: Any) -> Vocabulary:
    """With a head that is wider than the tokenizer."""
    if name not in _KNOWN:
        vocab_size = (len(tokenizer) // 64 + 2) * 64
        _KNOWN[name] = read_vocabulary(tokenizer, vocab_size=vocab_size, stop_token_ids=[tokenizer.eos_token_id])
    return _KNOWN[name]


def random_text(rng: random.Random, most: int) -> str:
    """Characters of all planes, and the ones that tokenizers and JSON treat in their own ways."""
    planes = [
        lambda: chr(rng.randrange(0x20, 0x7F)),
        lambda: rng.choice('"\\\\/\b\f\n\r\t\x00\x1f\u2028\ufeff\u00a0 '),
        lambda: chr(rng.randrange(0xA0, 0x800)),
        lambda: chr(rng.choice([rng.randrange(0x800, 0xD800), rng.randrange(0xE000, 0x10000)])),
        lambda: chr(rng.randrange(0x10000, 0x110000)),
        lambda: " " * rng.randrange(40),
        lambda: rng.choice(["the ", "Straße", "東京", "🙂", "👩‍👩‍👧", "e\u0301", "\\u0041", "    ", "0000000", "</", "```json"]),
    ]
    return "".join(rng.choice(planes)() for _ in range(rng.randrange(most)))


def random_document(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(6 if depth < 3 else 4)
    if kind == 0:
        return rng.choice([None, True, False, 0, -1, 12345678901234567, 3.25e-8, -1.5])
    if kind <= 3:
        return random_text(rng, 12)
    if kind == 4:
        return [random_document(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {random_text(rng, 5): random_document(rng, depth + 1) for _ in range(rng.randrange(4))}


def write(document: Any) -> str:
    # llguidance has DEL written as an escape, which JSON permits and does not demand, and takes no escapes of other characters.
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("\x7f", "\\u007f")
    # Some tokenizers do this by themselves.
    return unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_ids_are_the_tokenizers_own(name: str, step: int, real_tokenizer: RealTokenizer) -> None:
    """Against decoding, where that is exact: what an id adds to the text before it. Tekken against its file."""
    tokenizer = real_tokenizer(name)
    vocabulary = vocabulary_of(name, tokenizer)
    hidden = {token_id for token_id, _ in vocabulary.special_tokens}
    assert tokenizer.eos_token_id in hidden
    assert set(vocabulary.token_bytes[len(tokenizer) :]) == {b""}
    if name == "tekken":
        own = read_tekken_bytes()
        assert all(data == own[i] for i, data in enumerate(vocabulary.token_bytes[: len(own)]) if i not in hidden)
        return
    before = next(token_id for token_id, data in enumerate(vocabulary.token_bytes) if data == b"a")
    wrong = []
    for token_id in range(0, len(tokenizer), step):
        if token_id in hidden:
            assert vocabulary.token_bytes[token_id] == b""
            continue
        text = tokenizer.decode([before, token_id], clean_up_tokenization_spaces=False)[1:]
        if "\ufffd" not in text and vocabulary.token_bytes[token_id] != text.encode():
            wrong.append((token_id, text, vocabulary.token_bytes[token_id]))
    assert wrong == []
    empty = [i for i in range(len(tokenizer)) if not vocabulary.token_bytes[i] and i not in hidden]
    assert len(empty) <= 300


@pytest.mark.parametrize("num_documents", [50, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_what_the_tokenizer_writes_is_accepted(name: str, num_documents: int, real_tokenizer: RealTokenizer) -> None:
    tokenizer = real_tokenizer(name)
    vocabulary = vocabulary_of(name, tokenizer)
    stop = vocabulary.stop_token_ids
    spec = GrammarSpec.from_json_schema({})
    matchers: dict[str, Matcher] = {backend: new_matcher(make_backend(backend, vocabulary), spec, stop) for backend in BACKENDS}
    rng = random.Random(7)
    num_accepted = 0
    assert vocabulary.encode is not None
    for _ in range(num_documents):
        text = write(random_document(rng))
        token_ids = vocabulary.encode(text)
        data = text_of(token_ids, vocabulary)
        if data != text.encode() and data.lstrip() != text.encode():
            # Some cannot write some characters at all.
            assert tokenizer.decode(token_ids, clean_up_tokenization_spaces=False) != text
            continue
        if data != text.encode():
            # One of sentencepiece puts a space before the text, which no answer has.
            token_ids = vocabulary.index.spell(text.encode()) or []
        for backend, matcher in matchers.items():
            assert matcher.accept_tokens([*token_ids, stop[0]]), (backend, text)
            matcher.reset()
        num_accepted += 1
    assert num_accepted >= num_documents * 0.7


@pytest.mark.parametrize("name", NAMES)
def test_C14_constant_with_runs_of_spaces_is_written_whole(name: str, real_tokenizer: RealTokenizer) -> None:
    tokenizer = real_tokenizer(name)
    vocabulary = vocabulary_of(name, tokenizer)
    constant = "a\n" + " " * 31 + "b"
    assert vocabulary.encode is not None
    for backend in BACKENDS:
        matcher = new_matcher(make_backend(backend, vocabulary), schema_spec({"const": constant}), vocabulary.stop_token_ids)
        token_ids = vocabulary.index.spell(json.dumps(constant).encode())
        assert token_ids is not None
        assert matcher.accept_tokens([*token_ids, vocabulary.stop_token_ids[0]])
        matcher.reset()
        written: list[int] = []
        while not matcher.is_completed():
            forced = matcher.forced_tokens()
            # The longest piece that is legal, as a model that likes runs of spaces would write.
            written += forced or [max(allowed(matcher, vocabulary.vocab_size), key=lambda i: len(vocabulary.token_bytes[i]))]
            assert matcher.accept_tokens(written[-len(forced) or -1 :])
        assert json.loads(text_of(written, vocabulary)) == constant


@pytest.mark.parametrize("name", ["qwen3", "gpt_oss", "tekken"])
def test_markers_are_never_text_and_have_names(name: str, real_tokenizer: RealTokenizer) -> None:
    marker = {"qwen3": "<think>", "gpt_oss": "<|channel|>", "tekken": "[THINK]"}[name]
    vocabulary = vocabulary_of(name, real_tokenizer(name))
    names = {text: token_id for token_id, text in vocabulary.special_tokens}
    for backend in BACKENDS:
        matcher = new_matcher(make_backend(backend, vocabulary), schema_spec({"type": "string"}), vocabulary.stop_token_ids)
        assert matcher.accept_bytes(b'"')
        choices = allowed(matcher, vocabulary.vocab_size)
        assert len(choices) > 20_000
        assert not {token_id for token_id, _ in vocabulary.special_tokens} & set(choices)
        assert max(choices) < len(real_tokenizer(name))
        assert matcher.validate_tokens([names[marker]]) == 0
        assert matcher.accept_bytes(marker.encode())


@pytest.mark.parametrize("name", ["gpt_oss", "deepseek_v4", "qwen3"])
def test_F4_spaces_that_a_token_writes_as_a_letter_are_spaces(name: str, real_tokenizer: RealTokenizer) -> None:
    vocabulary = vocabulary_of(name, real_tokenizer(name))
    text = '{"cmd": "ls -l *.md ", "lvl": "HI"}'
    spec = GrammarSpec.from_json_schema(
        {"type": "object", "properties": {"cmd": {"type": "string"}, "lvl": {"enum": ["LO", "HI"]}}, "required": ["cmd", "lvl"]},
        any_whitespace=True,
    )
    assert vocabulary.encode is not None
    for backend in BACKENDS:
        matcher = new_matcher(make_backend(backend, vocabulary), spec, vocabulary.stop_token_ids)
        for token_id in vocabulary.encode(text):
            assert matcher.accept_tokens([token_id]), (backend, vocabulary.token_bytes[token_id])
        assert matcher.is_completed()
