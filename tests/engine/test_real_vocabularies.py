"""Every real tokenizer: the bytes of its ids are its own, and what it writes is accepted as it stands by every backend."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tiktoken

from engine.detokenizer import IncrementalDetokenizer
from engine.grammar import GrammarSpec, Matcher
from engine.grammar.vocabulary import Vocabulary, read_vocabulary
from tests.engine.grammar_backends import BACKENDS, allowed, make_backend, new_matcher, schema_spec, text_of
from tests.engine.json_documents import random_json
from tests.real_tokenizers import NAMES, read_tekken_bytes
from tests.sentencepiece_tokenizer import MISTRAL_MODELS, InnerTokenizer, load_mistral, read_pieces

RealTokenizer = Callable[[str], Any]
_KNOWN: dict[str, Vocabulary] = {}
ENCODINGS = ("qwen3_tiktoken", "llama3_tiktoken")
"""Ranks of tokenizers whose first form was tiktoken's, put back into it."""
ALL_NAMES = (*NAMES, *MISTRAL_MODELS, *ENCODINGS)


def load(name: str, real_tokenizer: RealTokenizer) -> Any:
    if name in MISTRAL_MODELS:
        return load_mistral(name)
    return encoding_of(real_tokenizer(name.removesuffix("_tiktoken"))) if name in ENCODINGS else real_tokenizer(name)


def encoding_of(tokenizer: Any) -> tiktoken.Encoding:
    """The ranks of a byte-level tokenizer are its ids."""
    token_bytes = read_vocabulary(tokenizer, vocab_size=len(tokenizer), stop_token_ids=[]).token_bytes
    pattern = json.loads(tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    special = {token.content: token_id for token_id, token in tokenizer.added_tokens_decoder.items()}
    ranks = {data: token_id for token_id, data in enumerate(token_bytes) if data}
    return tiktoken.Encoding("own", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def vocabulary_of(name: str, tokenizer: Any) -> Vocabulary:
    """With a head that is wider than the tokenizer."""
    if name not in _KNOWN:
        vocab_size = (size_of(tokenizer) // 64 + 2) * 64
        _KNOWN[name] = read_vocabulary(tokenizer, vocab_size=vocab_size, stop_token_ids=[stop_of(tokenizer)])
    return _KNOWN[name]


def size_of(tokenizer: Any) -> int:
    return int(tokenizer.n_vocab if isinstance(tokenizer, tiktoken.Encoding) else len(tokenizer))


def stop_of(tokenizer: Any) -> int:
    is_encoding = isinstance(tokenizer, tiktoken.Encoding)
    return int(max(tokenizer._special_tokens.values()) if is_encoding else tokenizer.eos_token_id)


class Decoder:
    """What a tokenizer makes of ids, behind a letter: some drop a space at the very beginning."""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary) -> None:
        self._tokenizer = tokenizer
        # Byte 0 of sentencepiece is no head: runs of bytes are read together.
        self.head = vocabulary.token_bytes.index(b"a")

    def decode(self, token_ids: list[int], **options: Any) -> str:
        if isinstance(self._tokenizer, tiktoken.Encoding):
            return self._tokenizer.decode(token_ids)
        return str(self._tokenizer.decode(token_ids, **{"clean_up_tokenization_spaces": False} | options))

    def decode_behind(self, token_ids: list[int]) -> str:
        return self.decode([self.head, *token_ids])[1:]


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALL_NAMES)
def test_bytes_of_ids_are_the_tokenizers_own(name: str, step: int, real_tokenizer: RealTokenizer) -> None:
    """Against its own table where it has one of bytes, else against decoding, where that is exact: what an id adds to a text."""
    tokenizer = load(name, real_tokenizer)
    vocabulary = vocabulary_of(name, tokenizer)
    hidden = {token_id for token_id, _ in vocabulary.special_tokens}
    assert stop_of(tokenizer) in hidden
    assert set(vocabulary.token_bytes[size_of(tokenizer) :]) == {b""}
    assert all(vocabulary.token_bytes[token_id] == b"" for token_id in hidden)
    own = own_bytes(name, tokenizer)
    if own is not None:
        assert all(data == own[i] for i, data in enumerate(vocabulary.token_bytes[: len(own)]) if i not in hidden)
        return
    decoder = Decoder(tokenizer, vocabulary)
    wrong = []
    for token_id in range(0, len(tokenizer), step):
        text = decoder.decode_behind([token_id])
        if token_id not in hidden and "\ufffd" not in text and vocabulary.token_bytes[token_id] != text.encode():
            wrong.append((token_id, text, vocabulary.token_bytes[token_id]))
    assert wrong == []
    empty = [i for i in range(len(tokenizer)) if not vocabulary.token_bytes[i] and i not in hidden]
    assert len(empty) <= 300


def own_bytes(name: str, tokenizer: Any) -> list[bytes] | None:
    if name == "tekken":
        return read_tekken_bytes()
    if name in MISTRAL_MODELS:
        return [piece.own_bytes for piece in read_pieces(name)]
    if isinstance(tokenizer, tiktoken.Encoding):
        known = {*tokenizer._mergeable_ranks.values(), *tokenizer._special_tokens.values()}
        return [tokenizer.decode_single_token_bytes(i) if i in known else b"" for i in range(tokenizer.n_vocab)]
    return None


@pytest.mark.parametrize("name", MISTRAL_MODELS)
def test_mistral_common_pieces_are_read_without_its_unknown_one(name: str) -> None:
    vocabulary = read_vocabulary(InnerTokenizer(name), vocab_size=32_768, stop_token_ids=[2])
    own = [piece.own_bytes for piece in read_pieces(name)]
    assert list(vocabulary.token_bytes[: len(own)]) == own
    assert vocabulary.special_tokens[:3] == ((0, "<unk>"), (1, "<s>"), (2, "</s>"))


@pytest.mark.parametrize("num_documents", [50, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ALL_NAMES)
def test_what_the_tokenizer_writes_is_accepted(name: str, num_documents: int, real_tokenizer: RealTokenizer) -> None:
    """Text to ids, ids through the grammar of each backend, ids to text again: the same, whole and piece by piece."""
    tokenizer = load(name, real_tokenizer)
    vocabulary = vocabulary_of(name, tokenizer)
    decoder = Decoder(tokenizer, vocabulary)
    stop = vocabulary.stop_token_ids
    spec = GrammarSpec.from_json_schema({})
    matchers: dict[str, Matcher] = {backend: new_matcher(make_backend(backend, vocabulary), spec, stop) for backend in BACKENDS}
    rng = random.Random(7)
    num_as_written = 0
    for _ in range(num_documents):
        document = random_json(rng)
        for is_own, token_ids in writings(document.text, vocabulary):
            num_as_written += is_own
            assert text_of(token_ids, vocabulary) == document.text.encode()
            assert decoder.decode_behind(token_ids) == document.text
            pieces = IncrementalDetokenizer(decoder)
            assert pieces.feed([decoder.head, *token_ids]) + pieces.flush() == "a" + document.text
            for backend, matcher in matchers.items():
                # llguidance writes characters as they are wherever JSON lets it.
                is_taken = backend == "xgrammar" or not document.has_free_escapes
                assert matcher.accept_tokens([*token_ids, stop[0]]) == is_taken, (backend, document.text)
                matcher.reset()
    assert num_as_written >= num_documents * AS_WRITTEN.get(name, 1.0)


AS_WRITTEN = {"qwen3": 0.85, "smollm2": 0.7, **dict.fromkeys(("gemma3", *MISTRAL_MODELS), 0.9)}
"""Shares of texts that are written as they are: one composes characters, one lacks some, others have a sign for spaces."""


def writings(text: str, vocabulary: Vocabulary) -> Iterator[tuple[bool, list[int]]]:
    """Give the ids that the tokenizer writes, if they are the text's, and a spelling in the longest tokens from the left."""
    assert vocabulary.encode is not None
    token_ids = vocabulary.encode(text)
    data = text_of(token_ids, vocabulary)
    if data == b" " + text.encode() and vocabulary.token_bytes[token_ids[0]].startswith(b" "):
        # Sentencepiece puts a space before a text, and no answer begins with one.
        first = vocabulary.index.spell(vocabulary.token_bytes[token_ids[0]][1:])
        assert first is not None
        token_ids = first + token_ids[1:]
        data = data[1:]
    if data == text.encode():
        yield True, token_ids
    spelled = vocabulary.index.spell(text.encode())
    if spelled is not None:
        yield False, spelled


@pytest.mark.parametrize("name", [*NAMES, "mistral_v3"])
def test_C14_constant_with_runs_of_spaces_is_written_whole(name: str, real_tokenizer: RealTokenizer) -> None:
    vocabulary = vocabulary_of(name, load(name, real_tokenizer))
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
