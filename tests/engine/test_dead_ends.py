"""Vocabularies that cannot write some bytes: what they cannot write is refused at admission, the rest is never left half-way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from engine import EngineConfig, GrammarDeadEndError, GrammarSpec, LLMEngine, RequestOutput, SamplingParams
from engine.grammar import GrammarManager
from engine.grammar.closing import check_way_out, closing_tokens
from engine.grammar.forced import MAX_FORCED_BYTES
from engine.grammar.vocabulary import Vocabulary, read_vocabulary
from tests.engine.grammar_backends import BACKENDS, SMALL, allowed, new_matcher, schema_spec
from tests.engine.odd_tokenizers import byte_level, save_tiny_model

STOP = 256


def vocabulary_without(missing: str, *more: str) -> Vocabulary:
    """Every byte but the `missing` ones, and longer tokens."""
    single = [b"" if chr(byte) in missing else bytes([byte]) for byte in range(256)]
    tokens = (*single, b"", *(text.encode() for text in more))
    return Vocabulary(tokens, len(tokens), (STOP,))


ONE_KEY = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
NAME = {**ONE_KEY, "properties": {"a": {"type": "string"}}}
# What is missing, what there is beside single bytes, and a schema: whether it can be written.
CASES: dict[str, tuple[str, tuple[str, ...], Any, bool]] = {
    "no quote, string": ('"', (), {"type": "string"}, False),
    "no quote, number": ('"', (), {"type": "number"}, True),
    "no quote, array": ('"', (), {"type": "array", "items": {"type": "boolean"}}, True),
    "no quote, any value": ('"', (), {}, True),
    "no quote, any object": ('"', (), {"type": "object"}, True),
    "no quote, object": ('"', (), ONE_KEY, False),
    "quote opens only": ('"', ('{"', '"a', '"b'), NAME, False),
    "quote opens only, constant": ('"', ('"a',), {"enum": ["ab"]}, False),
    "quotes with signs": ('"', ('{"', '":', '":"', '"}'), NAME, True),
    "quotes with signs, at the root": ('"', ('{"', '":', '":"', '"}'), {"type": "string"}, True),
    "quotes with signs, too short": ('"', ('{"', '":', '":"', '"}'), {"type": "string", "maxLength": 0}, False),
    "quotes with letters": ('"', ('"a', 'b"'), {"type": "string"}, True),
    "quotes with letters, other constant": ('"', ('"a', 'b"'), {"enum": ["ac", "cb"]}, False),
    "quotes with letters, one of three": ('"', ('"a', 'b"'), {"enum": ["ac", "cb", "ab"]}, True),
    "no brace": ("}", (), ONE_KEY, False),
    "brace behind a digit": ("}", ("7}",), ONE_KEY, True),
    "brace behind a quote": ("}", ('"}',), ONE_KEY, False),
    "no brace, any value": ("}", (), {}, True),
    "no bracket, but both": ("[]", ("[]",), {"type": "array"}, True),
    "no bracket, some item": ("[]", ("[]",), {"type": "array", "minItems": 1}, False),
    "no comma": (",", (), {"type": "array", "items": {"type": "integer"}, "minItems": 2}, False),
    "no comma, one item": (",", (), {"type": "array", "items": {"type": "integer"}, "minItems": 1}, True),
    "no digits": ("0123456789", (), {"type": "integer"}, False),
    "no zero": ("0", (), {"type": "integer", "minimum": 10}, True),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_constraint_is_refused_where_no_tokens_spell_a_value(name: str, backend: str) -> None:
    missing, more, schema, can_be_written = CASES[name]
    vocabulary = vocabulary_without(missing, *more)
    matcher = new_matcher(BACKENDS[backend](vocabulary), schema_spec(schema), (STOP,))
    if not can_be_written:
        with pytest.raises(GrammarDeadEndError, match="tokens of this model spell") as caught:
            check_way_out(matcher, vocabulary)
        assert caught.value.hint is not None
        assert all(sign in caught.value.hint for sign in missing)
        return
    check_way_out(matcher, vocabulary)
    way = closing_tokens(matcher, vocabulary, 50)
    assert way is not None
    jsonschema_rs.validate(schema, json.loads(b"".join(vocabulary.token_bytes[token_id] for token_id in way)))


ALL_WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "llguidance-265": (
        {**ONE_KEY, "properties": {"score": {"type": "integer"}}, "required": ["score"], "patternProperties": {"^score$": {}}},
        '{"score":5',
    ),
    "record-of-an-enum": (
        {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"enum": [True, False]},
         "required": ["x", "y"]},
        '{"x":true,"y":false',
    ),
    "optional": (
        {"type": "object", "properties": {"a1": {"type": "integer"}, "a2": {"type": "integer"}}, "additionalProperties": False,
         "patternProperties": {"^a[12]$": {"minimum": 3}}},
        '{"a2":4',
    ),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("schema", "written"), ALL_WRITTEN.values(), ids=ALL_WRITTEN)
def test_object_that_has_all_its_names_takes_no_comma(schema: dict[str, Any], written: str, backend: str) -> None:
    matcher = new_matcher(BACKENDS[backend](SMALL), schema_spec(schema))
    assert matcher.accept_bytes(written.encode())
    tokens = [SMALL.token_bytes[token_id] for token_id in allowed(matcher)]
    assert b"}" in tokens
    assert not any(b"," in token for token in tokens)


@pytest.mark.parametrize("backend", BACKENDS)
def test_texts_that_tokens_cannot_spell_are_refused_too(backend: str) -> None:
    vocabulary = vocabulary_without("-", "a-")
    for spec, can_be_written in [
        (GrammarSpec.regex("a+-b"), True),
        (GrammarSpec.regex("b-"), False),
        (GrammarSpec.choice(["b-", "c-"]), False),
        (GrammarSpec.choice(["b-", "a-"]), True),
        (GrammarSpec.ebnf('root ::= "x" rest\nrest ::= "y"* "-"'), False),
    ]:
        matcher = new_matcher(BACKENDS[backend](vocabulary), spec, (STOP,))
        if can_be_written:
            check_way_out(matcher, vocabulary)
            continue
        with pytest.raises(GrammarDeadEndError):
            check_way_out(matcher, vocabulary)


def test_way_back_from_a_dead_end_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """llguidance does not roll back there; a search that met a thousand of them took 6 ms for each."""
    vocabulary = vocabulary_without("b")
    compiled = BACKENDS["llguidance"](vocabulary).compile(GrammarSpec.regex("x(ab|c)"))
    matcher: Any = compiled.new_matcher((STOP,))
    monkeypatch.setattr(compiled, "own_raw", lambda: pytest.fail("it was built anew"))
    for _ in range(3):
        assert matcher.accept_tokens([*b"xa"])
        assert allowed(matcher, vocabulary.vocab_size) == []
        assert matcher.error is None
        matcher.rollback(1)
        assert allowed(matcher, vocabulary.vocab_size) == [*b"ac"]
        matcher.rollback(1)
        assert allowed(matcher, vocabulary.vocab_size) == [*b"x"]
    assert matcher.accept_tokens([*b"xc"])
    assert matcher.is_completed()


def test_manager_refuses_in_the_background_and_remembers_nothing() -> None:
    vocabulary = vocabulary_without('"')
    manager = GrammarManager([BACKENDS[name](vocabulary) for name in BACKENDS])
    try:
        spec = schema_spec(ONE_KEY)
        for _ in range(2):
            with pytest.raises(GrammarDeadEndError):
                manager.request(spec).result(30)
        assert manager.request(schema_spec({"type": "integer"})).result(30).backend in BACKENDS
    finally:
        manager.close()


def test_vocabulary_says_which_bytes_it_lacks() -> None:
    assert SMALL.missing_bytes == frozenset()
    assert vocabulary_without('"}\x00\x01').missing_bytes == {ord('"'), ord("}")}
    tokenizer = byte_level(without="Ġ")
    assert read_vocabulary(tokenizer, vocab_size=len(tokenizer), stop_token_ids=[]).missing_bytes == {0x20}


@pytest.fixture(scope="module")
def gap_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLMEngine]:
    """A random model that loves to open strings, and whose tokenizer closes them with few tokens."""
    folder = tmp_path_factory.mktemp("gaps")
    tokenizer = byte_level(without='"}', pieces=('{"', '"a', '":', '":"', '","', 'z"', 'x"}', "0}", "true}"))
    save_tiny_model(folder, tokenizer)
    engine = LLMEngine(EngineConfig(model=str(folder), max_num_seqs=8, family="none"))
    yield engine
    engine.close()


WRITABLE: list[Any] = [
    NAME,
    ONE_KEY,
    {**ONE_KEY, "properties": {"a": {"type": "boolean"}}},
    {**NAME, "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a", "b"]},
    {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 2},
]


def run(engine: LLMEngine, schema: Any, seed: int, max_tokens: int = 60) -> RequestOutput:
    params = SamplingParams(max_tokens=max_tokens, temperature=1.5, seed=seed)
    [output] = engine.generate([[1, 2, 3]], params, grammars=schema_spec(schema), on_unknown="constrain")
    return output


@pytest.mark.parametrize("schema", WRITABLE, ids=range(len(WRITABLE)))
def test_answers_end_although_most_strings_cannot_be_closed(gap_engine: LLMEngine, schema: Any) -> None:
    for seed in range(2):
        output = run(gap_engine, schema, seed)
        assert output.stop_reason == "stop", output.content
        jsonschema_rs.validate(schema, json.loads(output.content))


@pytest.mark.parametrize("max_tokens", [2, 3, 5])
def test_answer_that_does_not_fit_is_cut_and_led_into_no_dead_end(gap_engine: LLMEngine, max_tokens: int) -> None:
    """Where no ending fits, one that is too long still leads: a brace without a quote behind it, say."""
    two = {**ONE_KEY, "properties": {"city": {"enum": ["ax"]}, "unit": {"type": "integer"}}, "required": ["city", "unit"]}
    for schema in (WRITABLE[0], WRITABLE[3], two):
        for seed in range(4):
            output = run(gap_engine, schema, seed, max_tokens)
            assert output.error is None
            assert output.stop_reason == "length" or jsonschema_rs.is_valid(schema, json.loads(output.content))


def test_answer_says_that_it_was_led_past_a_dead_end(gap_engine: LLMEngine) -> None:
    hits = [run(gap_engine, {**NAME, "properties": {"a": {"enum": ["y", "abx", "abc"]}}}, seed).limits_hit for seed in range(8)]
    assert ("dead_end",) in hits


def test_constraint_that_the_tokenizer_cannot_express_fails_alone(gap_engine: LLMEngine) -> None:
    output = run(gap_engine, {"enum": ["zz"]}, 0)
    assert output.stop_reason == "error"
    assert isinstance(output.error, GrammarDeadEndError)
    assert output.token_ids == []
    assert run(gap_engine, ONE_KEY, 0).stop_reason == "stop"
    assert run(gap_engine, {"type": "integer"}, 0, 30).stop_reason == "stop"


@pytest.mark.parametrize("backend", BACKENDS)
def test_forced_text_is_spelled_in_parts(backend: str) -> None:
    constant = json.dumps("ab" * 20_000)
    matcher = new_matcher(BACKENDS[backend](SMALL), schema_spec({"const": json.loads(constant)}), (STOP,))
    written = 0
    for _ in range(100):
        forced = matcher.forced_tokens()
        written += sum(len(SMALL.token_bytes[token_id]) for token_id in forced)
        assert len(forced) <= MAX_FORCED_BYTES
        assert matcher.accept_tokens(forced or [ord('"')])
        if matcher.is_completed():
            break
    assert written >= len(constant) - 2
