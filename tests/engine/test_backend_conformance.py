"""One suite for every grammar backend: what a matcher may do is the same whichever library is behind it."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.grammar import GrammarBackend, GrammarSpec, Matcher, fill_bitmasks, new_bitmask
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary
from tests.engine.grammar_backends import (
    BACKENDS,
    PADDED,
    SECOND_STOP,
    SMALL,
    SPECIAL,
    STOP,
    accepts,
    allowed,
    allowed_by_trying,
    make_backend,
    new_matcher,
    random_walk,
    schema_spec,
    text_of,
)
from tests.engine.schemas import make_schema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "über"]}, "maxItems": 3},
        "score": {"type": "number"},
        "more": {"type": ["object", "null"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
DOCUMENT = '{"name":"é🙂","age":42,"tags":["new","über"],"score":-1.5e3,"more":{"k":[true,{}]}}'
ANY: dict[str, Any] = {"type": "object"}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> GrammarBackend:
    return make_backend(request.param)


@pytest.fixture
def matcher(backend: GrammarBackend) -> Matcher:
    return new_matcher(backend, schema_spec(PERSON))


def state_of(matcher: Matcher) -> tuple[object, ...]:
    return (allowed(matcher), matcher.is_completed(), matcher.is_terminated(), matcher.forced_tokens(), str(matcher.error))


def test_document_is_accepted_token_by_token_and_at_once(matcher: Matcher) -> None:
    data = [*DOCUMENT.encode()]
    for token_id in data:
        assert token_id in allowed(matcher)
        assert matcher.accept_tokens([token_id])
    assert matcher.is_completed()
    assert not matcher.is_terminated()
    matcher.reset()
    assert matcher.validate_tokens([*data, STOP]) == len(data) + 1
    assert matcher.accept_tokens([*data, STOP])
    assert matcher.is_terminated()


def test_refused_tokens_leave_the_state_as_it_was(matcher: Matcher) -> None:
    for prefix in (b"", b'{"name":"a', b'{"name":"a","age":1'):
        assert matcher.accept_tokens([*prefix])
        before = state_of(matcher)
        assert not matcher.accept_tokens([*b'"!', STOP, 5])
        assert matcher.validate_tokens([0]) == 0
        assert matcher.validate_tokens([]) == 0
        assert matcher.accept_tokens([])
        for token_id in (SPECIAL, SMALL.vocab_size, 10**6, -1):
            assert matcher.validate_tokens([token_id]) == 0
            assert not matcher.accept_tokens([token_id])
        assert state_of(matcher) == before
        matcher.reset()


@pytest.mark.parametrize("seed", range(6))
def test_row_is_what_trying_every_id_says(backend: GrammarBackend, seed: int) -> None:
    rng = random.Random(seed)
    schema = PERSON if seed < 2 else ANY if seed == 2 else make_schema(rng)
    matcher = new_matcher(backend, schema_spec(schema))
    for _ in range(25):
        choices = allowed(matcher)
        assert choices == allowed_by_trying(matcher)
        assert SPECIAL not in choices
        assert random_walk(matcher, rng, 1)
        if matcher.is_terminated():
            break


@pytest.mark.parametrize("seed", range(4))
def test_rollback_and_replay_are_as_if_nothing_was_rolled_back(backend: GrammarBackend, seed: int) -> None:
    rng = random.Random(seed)
    spec = schema_spec(PERSON if seed else ANY)
    matcher = new_matcher(backend, spec)
    walked = random_walk(matcher, rng, 40)
    end = state_of(matcher)
    for num_steps in sorted({1, 2, len(walked) // 2, len(walked)}):
        matcher.rollback(num_steps)
        kept = walked[: len(walked) - num_steps]
        other = new_matcher(backend, spec)
        assert other.accept_tokens(kept)
        assert state_of(matcher) == state_of(other)
        assert matcher.accept_tokens(walked[len(kept) :])
        assert state_of(matcher) == end
    with pytest.raises(ValueError, match="cannot undo"):
        matcher.rollback(len(walked) + 1)
    assert state_of(matcher) == end


def test_rollback_after_the_end_takes_the_stop_id_back(matcher: Matcher) -> None:
    data = [*b'{"name":"a","age":1}']
    assert matcher.accept_tokens([*data, SECOND_STOP])
    matcher.rollback(1)
    assert matcher.is_completed()
    assert not matcher.is_terminated()
    assert allowed(matcher) == [STOP, SECOND_STOP]
    matcher.rollback(2)
    assert ord("2") in allowed(matcher)
    assert matcher.accept_tokens([*b"2}", STOP])


def test_B16_B17_whole_value_allows_stop_ids_only(matcher: Matcher) -> None:
    assert matcher.accept_tokens([*b'{"name":"a","age":1}'])
    assert allowed(matcher) == [STOP, SECOND_STOP]
    assert matcher.validate_tokens([*b" Hope"]) == 0


@pytest.mark.parametrize("stop", [STOP, SECOND_STOP], ids=["F13-first", "F13-second"])
def test_B18_row_after_the_end_holds_stop_ids_only(matcher: Matcher, stop: int) -> None:
    assert matcher.accept_tokens([*b'{"name":"a","age":1}', stop])
    for _ in range(2):
        assert allowed(matcher) == [STOP, SECOND_STOP]
        assert matcher.is_terminated()
        assert matcher.is_completed()
        assert matcher.validate_tokens([stop]) == 0
        assert not matcher.accept_tokens([ord("x")])
        assert not matcher.accept_bytes(b"x")
        assert matcher.forced_tokens() == []
    matcher.reset()
    assert not matcher.is_terminated()
    assert matcher.accept_tokens([*b'{"name":"a","age":1}', stop])


def test_F11_only_the_requests_stop_ids_end_it(backend: GrammarBackend) -> None:
    matcher = new_matcher(backend, schema_spec(PERSON), (SECOND_STOP,))
    assert matcher.accept_tokens([*b'{"name":"a","age":1}'])
    assert allowed(matcher) == [SECOND_STOP]
    assert not matcher.accept_tokens([STOP])


def test_stop_id_that_is_text_ends_the_answer_and_is_never_text(backend: GrammarBackend) -> None:
    letter = ord("z")
    matcher = new_matcher(backend, schema_spec(PERSON), (STOP, letter))
    assert matcher.accept_tokens([*b'{"name":"'])
    assert letter not in allowed(matcher)
    assert allowed(matcher) == allowed_by_trying(matcher)


def test_stop_id_is_refused_before_the_end(matcher: Matcher) -> None:
    for prefix in (b"", b'{"name":"a"'):
        assert matcher.accept_tokens([*prefix])
        assert STOP not in allowed(matcher)
        assert matcher.validate_tokens([STOP]) == 0
        matcher.reset()


def test_number_at_the_root_may_end_or_go_on(backend: GrammarBackend) -> None:
    matcher = new_matcher(backend, schema_spec({"type": "integer"}))
    assert matcher.accept_tokens([*b"12"])
    assert matcher.is_completed()
    assert {STOP, SECOND_STOP, ord("3")} <= set(allowed(matcher))
    assert matcher.forced_tokens() == []
    assert matcher.accept_tokens([ord("3"), STOP])


@pytest.mark.parametrize("seed", range(3))
def test_fork_goes_its_own_way(backend: GrammarBackend, seed: int) -> None:
    rng = random.Random(seed)
    matcher = new_matcher(backend, schema_spec(PERSON))
    walked = random_walk(matcher, rng, 12)
    before = state_of(matcher)
    twin = matcher.fork()
    assert state_of(twin) == before
    random_walk(twin, rng, 12)
    assert state_of(matcher) == before
    twin.reset()
    assert state_of(matcher) == before
    other = matcher.fork()
    matcher.rollback(len(walked))
    assert state_of(other) == before
    other.rollback(len(walked))
    assert state_of(other) == state_of(matcher) == state_of(twin)


@pytest.mark.parametrize("seed", range(4))
def test_bytes_advance_as_their_tokens_do_and_are_one_step(backend: GrammarBackend, seed: int) -> None:
    rng = random.Random(seed)
    spec = schema_spec(PERSON)
    by_tokens, by_bytes = new_matcher(backend, spec), new_matcher(backend, spec)
    walked = [token_id for token_id in random_walk(by_tokens, rng, 30) if token_id not in (STOP, SECOND_STOP)]
    data = text_of(walked)
    by_tokens.reset()
    assert by_tokens.accept_tokens(walked)
    cut = rng.randrange(len(data) + 1)
    assert by_bytes.accept_bytes(data[:cut])
    middle = state_of(by_bytes)
    assert by_bytes.accept_bytes(data[cut:])
    assert by_bytes.accept_bytes(b"")
    assert state_of(by_bytes) == state_of(by_tokens)
    assert not by_bytes.accept_bytes(b"\x00")
    assert state_of(by_bytes) == state_of(by_tokens)
    if cut < len(data):
        by_bytes.rollback(1)
        assert state_of(by_bytes) == middle


def test_forced_tokens_spell_the_forced_text_and_stop_before_a_choice(backend: GrammarBackend) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "kind": {"enum": ["hello", "hexagon"]}, "on": {"const": True}},
        "required": ["name", "kind", "on"],
        "additionalProperties": False,
    }
    matcher = new_matcher(backend, schema_spec(schema))
    forced = matcher.forced_tokens()
    # `":"` follows for certain, but its quote could begin a token that goes on; `":` could become `":"`.
    assert b'{"name":"'.startswith(text_of(forced))
    assert len(text_of(forced)) >= len(b'{"name')
    assert matcher.validate_tokens(forced) == len(forced)
    assert matcher.accept_bytes(b'{"name":"x')
    assert matcher.forced_tokens() == []
    assert matcher.accept_bytes(b'","kind":"')
    assert text_of(matcher.forced_tokens()) in (b"", b"h", b"he")
    assert matcher.accept_bytes(b"hel")
    assert text_of(matcher.forced_tokens()).startswith(b"lo")
    assert matcher.accept_bytes(b'lo","on":')
    assert text_of(matcher.forced_tokens()) == b"true}"


@pytest.mark.parametrize("seed", range(4))
def test_forced_text_is_the_only_one(backend: GrammarBackend, seed: int) -> None:
    """Against the definition: as long as a text is forced, all legal ids begin alike or continue each other."""
    rng = random.Random(seed)
    matcher = new_matcher(backend, schema_spec(PERSON if seed < 2 else make_schema(rng)))
    for _ in range(20):
        forced = matcher.forced_tokens()
        data = text_of(forced)
        assert matcher.validate_tokens(forced) == len(forced)
        for token_id in allowed(matcher):
            text = SMALL.token_bytes[token_id]
            assert text.startswith(data) or data.startswith(text), (data, text)
        if not random_walk(matcher, rng, 1):
            break


@pytest.mark.parametrize("size", [1, 7, 33])
def test_batched_fill_equals_rows_one_by_one(size: int) -> None:
    rng = random.Random(size)
    matchers = [new_matcher(make_backend(rng.choice(list(BACKENDS))), schema_spec(PERSON)) for _ in range(size)]
    for matcher in matchers:
        random_walk(matcher, rng, rng.randrange(60))
    rows = rng.sample(range(size + 5), size)
    bitmask = new_bitmask(size + 5, SMALL.vocab_size)
    bitmask.fill_(-1)
    fill_bitmasks(matchers, bitmask, rows)
    expected = new_bitmask(size + 5, SMALL.vocab_size)
    expected.fill_(-1)
    for matcher, row in zip(matchers, rows, strict=True):
        matcher.fill_bitmask(expected, row)
    assert bitmask.equal(expected)


@pytest.mark.parametrize("name", BACKENDS)
def test_F1_padding_ids_are_never_allowed(name: str) -> None:
    matcher = new_matcher(make_backend(name, PADDED), schema_spec(ANY))
    for prefix in (b"", b'{"', b'{"a":1}'):
        assert matcher.accept_tokens([*prefix])
        choices = allowed(matcher, PADDED.vocab_size)
        assert choices == allowed_by_trying(matcher, PADDED.vocab_size)
        assert max(choices) < SMALL.vocab_size
        matcher.reset()


@pytest.mark.parametrize("size", [287, 288, 289])
@pytest.mark.parametrize("name", BACKENDS)
def test_width_of_the_vocabulary_does_not_matter(name: str, size: int) -> None:
    """The last word of a row is whole, or holds one id."""
    tokens = (*SMALL.token_bytes, *[b""] * size)[:size]
    backend = BACKENDS[name](Vocabulary((*tokens[:-1], b"zz"), size, (STOP,)))
    matcher = new_matcher(backend, schema_spec({"type": "string"}), (STOP,))
    assert matcher.accept_tokens([ord('"')])
    assert allowed(matcher, size) == allowed_by_trying(matcher, size)
    assert size - 1 in allowed(matcher, size)
    assert matcher.accept_tokens([size - 1, ord('"')])
    assert allowed(matcher, size) == [STOP]


@pytest.mark.parametrize("name", BACKENDS)
def test_F6_vocabulary_without_a_stop_id_of_its_own_takes_the_requests(name: str) -> None:
    backend = BACKENDS[name](Vocabulary(SMALL.token_bytes, SMALL.vocab_size, ()))
    matcher = new_matcher(backend, schema_spec({"const": 1}), (SECOND_STOP,))
    assert matcher.accept_tokens([ord("1")])
    assert allowed(matcher) == [SECOND_STOP]
    assert matcher.accept_tokens([SECOND_STOP])


@pytest.mark.parametrize("name", BACKENDS)
def test_F10_pieces_with_a_leading_space_are_no_start_and_a_start_is_left(name: str) -> None:
    """A sentencepiece vocabulary: the space belongs to the piece."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"", b' {"', b'{"', b" {"]
    backend = BACKENDS[name](Vocabulary(tuple(tokens), len(tokens), (STOP,)))
    matcher = new_matcher(backend, schema_spec(PERSON), (STOP,))
    assert [tokens[token_id] for token_id in allowed(matcher, len(tokens))] == [b"{", b'{"']


def test_F3_character_can_be_written_in_parts(backend: GrammarBackend) -> None:
    matcher = new_matcher(backend, schema_spec({"type": "string"}))
    part = SMALL.token_bytes.index("🙂".encode()[:3])
    assert matcher.accept_tokens([ord('"'), part])
    assert ord('"') not in allowed(matcher)
    assert matcher.accept_tokens(["🙂".encode()[3], ord('"'), STOP])
    matcher.reset()
    assert matcher.validate_tokens([ord('"'), 0xE2, 0x28]) == 2


def test_ids_with_one_text_are_alike(backend: GrammarBackend) -> None:
    matcher = new_matcher(backend, schema_spec(PERSON))
    twins = [token_id for token_id, data in enumerate(SMALL.token_bytes) if data == b'{"']
    assert len(twins) == 2
    assert set(twins) <= set(allowed(matcher))
    for token_id in twins:
        assert matcher.accept_tokens([token_id, *b'name":"'])
        matcher.reset()


@pytest.mark.parametrize("size", [20, 40])
def test_digits_are_capped_in_every_number(backend: GrammarBackend, size: int) -> None:
    matcher = new_matcher(backend, schema_spec({"type": "array"}))
    is_short = size == 20
    for text in ("[" + "1" * size, "[0." + "3" * size, '[{"a":-' + "7" * size, '["' + "1" * 99 + '",' + "1" * size):
        assert (matcher.validate_tokens([*text.encode()]) == len(text)) is is_short
        if is_short:
            assert matcher.accept_tokens([*text.encode()])
            assert not set(allowed(matcher)) & set(b"0123456789")
            assert allowed(matcher) == allowed_by_trying(matcher)
            matcher.reset()


@pytest.mark.parametrize("text", ["1e279", "-1.7976931348623157e+279", "9.1e-31", "0", "4.999999999", "9223372036854775807"])
def test_doubles_can_be_written(backend: GrammarBackend, text: str) -> None:
    assert accepts(new_matcher(backend, schema_spec({"type": "number"})), text) or "." not in text
    assert accepts(new_matcher(backend, schema_spec({})), f"[{text}]")


@pytest.mark.parametrize("text", ["1e309", "1e280", "1e-999", "1e00000000001"])
def test_infinite_numbers_cannot(backend: GrammarBackend, text: str) -> None:
    assert not accepts(new_matcher(backend, schema_spec({})), f"[{text}]")


def test_cap_of_digits_can_be_lifted(backend: GrammarBackend) -> None:
    assert accepts(new_matcher(backend, schema_spec({"type": "integer"}, max_number_digits=None)), "9" * 60)


@pytest.mark.parametrize("number", [0.1 + 0.2, 2**53 - 1, -1.5e-7])
def test_numbers_that_the_schema_names_can_be_written(backend: GrammarBackend, number: float) -> None:
    matcher = new_matcher(backend, schema_spec({"const": number}))
    rng = random.Random(1)
    walked = random_walk(matcher, rng, 500)
    assert matcher.is_terminated()
    assert float(json.loads(text_of(walked))) == float(number)


@pytest.mark.parametrize("number", [2**70, -1e-30], ids=str)
def test_constant_that_llguidance_would_round_is_left_to_the_check(number: float) -> None:
    spec = schema_spec({"type": "object", "properties": {"a": {"enum": [1, [number]]}}})
    assert support_report(spec).checked("llguidance") == ("#/properties/a/enum",)
    matcher = new_matcher(make_backend("llguidance"), spec)
    assert matcher.accept_bytes(json.dumps({"a": [number]}, separators=(",", ":")).encode())


FLOATS = st.floats(-1e15, 1e15).filter(lambda number: number == 0 or abs(number) > 1e-250)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | FLOATS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(DOCUMENTS, st.sampled_from(list(BACKENDS)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_document_is_accepted_where_any_is_allowed(document: Any, name: str) -> None:
    # llguidance has DEL written as an escape, which JSON permits and does not demand.
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("\x7f", "\\u007f")
    assert accepts(any_value(name), text), text


_ANY_VALUE: dict[str, Matcher] = {}


def any_value(name: str) -> Matcher:
    if name not in _ANY_VALUE:
        _ANY_VALUE[name] = new_matcher(make_backend(name), schema_spec({}))
    return _ANY_VALUE[name]


@given(st.integers(0, 10**9), st.sampled_from(list(BACKENDS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_accepted_validates(seed: int, name: str) -> None:
    rng = random.Random(seed)
    schema = make_schema(rng)
    matcher = new_matcher(make_backend(name), schema_spec(schema))
    walked = random_walk(matcher, rng, 150)
    assert matcher.error is None
    if matcher.is_terminated():
        jsonschema_rs.validate(schema, json.loads(text_of(walked)))


CHOICE = GrammarSpec.choice(["yes", "no", 'not "now"', "é"])


@pytest.mark.parametrize("name", ["llguidance"])
def test_choice_is_one_of_its_texts(name: str) -> None:
    matcher = new_matcher(make_backend(name), CHOICE)
    for text, is_choice in (("yes", True), ("no", True), ('not "now"', True), ("é", True), ("y", False), ("yesno", False)):
        assert accepts(matcher, text) is is_choice


NO_TEXTS = (
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\xe0\x80\x80",
    b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xc0\x80",
    b"\x80",
)
"""Halves of surrogate pairs, spellings that are too long, what is beyond the last character, and a part of one."""
EDGES = "~\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
ANY_TEXT = {
    "string": GrammarSpec.from_json_schema({"type": "string"}),
    "length": GrammarSpec.from_json_schema({"type": "string", "maxLength": 3}),
    "pattern": GrammarSpec.from_json_schema({"type": "string", "pattern": '^"?[^a]"?$'}),
    "found": GrammarSpec.from_json_schema({"type": "string", "pattern": "b?[^a]"}),
    "not": GrammarSpec.from_json_schema({"type": "string", "not": {"enum": ["a", "b"]}}),
    "regex": GrammarSpec.regex('"[^a]"'),
    "ebnf": GrammarSpec.ebnf(r'root ::= "\"" [^a] "\""'),
    "lark": GrammarSpec.lark('start: /"./ "\\""'),
}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("spec", ANY_TEXT.values(), ids=ANY_TEXT)
def test_texts_hold_characters_and_nothing_else(name: str, spec: GrammarSpec) -> None:
    matcher = new_matcher(make_backend(name), spec)
    for char in EDGES:
        assert accepts(matcher, f'"{char}"'), ascii(char)
    for data in NO_TEXTS:
        assert not accepts(matcher, b'"' + data + b'"'), data
