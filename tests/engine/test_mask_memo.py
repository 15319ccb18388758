"""Masks that sequences of one grammar share: the same rows, steps and errors as without, and a bounded memory."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from engine import EngineConfig, EngineError, GrammarError, GrammarLimitError, GrammarSpec, LLMEngine, SamplingParams
from engine.grammar import GrammarBackend, Matcher, fill_bitmasks, new_bitmask
from engine.grammar.matcher import Stepper
from engine.grammar.memo.memo_matcher import MOST_UNTOLD, MemoMatcher, share_masks
from engine.grammar.memo.shapes import ShapeReader
from engine.grammar.memo.table import Known, MaskMemo, Row, StateTable
from engine.grammar.vocabulary import Vocabulary
from tests.bench_modules import load_bench

from .grammar_backends import BACKENDS, CLOSING, SMALL, STOP, make_backend
from .schemas import make_schema

STEPS = 60


def sources() -> ModuleType:
    load_bench("schema_documents")
    load_bench("schema_packages")
    return load_bench("schema_sources")


def row_of(matcher: Matcher, vocabulary: Vocabulary) -> Row:
    bitmask = new_bitmask(1, vocabulary.vocab_size)
    matcher.fill_bitmask(bitmask, 0)
    row: Row = bitmask.numpy()[0]
    return row


def legal_ids(row: Row) -> list[int]:
    found: list[int] = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
    return found


class Seen:
    """What was seen in each state of a schema, computed anew every time by the backend itself."""

    def __init__(self, backend: GrammarBackend, spec: GrammarSpec, vocabulary: Vocabulary = SMALL) -> None:
        shapes = ShapeReader(json.loads(spec.source)).root
        self.vocabulary = vocabulary
        self.table = StateTable(MaskMemo(2**30, vocabulary.token_bytes), shapes, 0)
        self.compiled = backend.compile(spec)
        self.rows: dict[Known, tuple[Row, bytes]] = {}
        self.facts: dict[int, tuple[Any, bytes]] = {}
        self.num_again = 0
        self.num_lost = 0

    def walk(self, rng: random.Random) -> None:
        matcher = self.compiled.new_matcher((STOP,))
        known = self.table.start
        text = b""
        for _ in range(STEPS):
            row = row_of(matcher, self.vocabulary)
            if known.is_kept:
                derived = self.table.row(known)
                assert derived is None or (row == derived).all(), text
                before, earlier = self.rows.setdefault(known, (row, text))
                assert (row == before).all(), (earlier, text)
                if rng.random() < 0.5:
                    self.table.keep(known, row)
                facts = (matcher.is_completed(), tuple(matcher.forced_tokens()))
                facts_before, earlier = self.facts.setdefault(id(known), (facts, text))
                assert facts == facts_before, (earlier, text)
                self.num_again += earlier != text
            legal = [token_id for token_id in legal_ids(row) if token_id != STOP]
            if not legal:
                return
            likely = [token_id for token_id in legal if token_id in CLOSING]
            token_id = rng.choice(likely if likely and rng.random() < 0.4 else legal)
            assert matcher.accept_tokens([token_id])
            text += self.vocabulary.token_bytes[token_id]
            known = self.table.after(known, token_id)
            self.num_lost += known.state is None


def compare(schemas: Iterable[Any], name: str, seed: int, num_walks: int) -> tuple[int, int]:
    rng = random.Random(seed)
    num_again = num_lost = 0
    for schema in schemas:
        try:
            spec = GrammarSpec.from_json_schema(schema)
            seen = Seen(make_backend(name), spec)
        except EngineError:
            continue
        for _ in range(num_walks):
            seen.walk(rng)
        num_again += seen.num_again
        num_lost += seen.num_lost
    return num_again, num_lost


def common(count: int) -> Iterator[Any]:
    rng = random.Random(5)
    return (make_schema(rng) for _ in range(count))


def combined(count: int) -> Iterator[Any]:
    rng = random.Random(6)
    drawn = (sources().combine(rng, 0) for _ in range(count))
    return (schema for schema in drawn if jsonschema_rs.meta.is_valid(schema))


@pytest.mark.parametrize("name", BACKENDS)
def test_texts_in_one_state_have_one_mask(name: str) -> None:
    num_again, num_lost = compare(common(25), name, 1, 6)
    assert num_again > 300
    assert not num_lost
    assert compare(combined(40), name, 2, 4)[0] > 100


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", BACKENDS)
def test_texts_in_one_state_have_one_mask_in_all_schemas(name: str) -> None:
    assert compare(common(400), name, 3, 8)[0] > 10_000
    compare(combined(800), name, 4, 6)
    for draft in ("draft7", "draft2020-12"):
        compare((case.schema for case in sources().suite_cases(draft) if "custom metaschema" not in case.name), name, 5, 4)


OPERATIONS = ("step", "step", "step", "step", "window", "back", "bytes", "stop", "wrong", "fork", "reset")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_matcher_with_a_memo_does_what_one_without_does(name: str) -> None:
    rng = random.Random(11)
    num_rows = 0
    for schema in [*common(12), *combined(12)]:
        backend = make_backend(name)
        try:
            spec = GrammarSpec.from_json_schema(schema)
            compiled = backend.compile(spec)
        except EngineError:
            continue
        shared = share_masks(compiled, backend, spec, MaskMemo(40_000, SMALL.token_bytes))
        for _ in range(4):
            if shared is not None:
                num_rows += both_ways(compiled.new_matcher((STOP,)), shared.new_matcher((STOP,)), rng)
    assert num_rows > 500


def both_ways(plain: Matcher, own: Matcher, rng: random.Random) -> int:
    num_steps = num_rows = 0
    for _ in range(STEPS):
        operation = rng.choice(OPERATIONS)
        if rng.random() < 0.7:
            num_rows += 1
            assert (row_of(plain, SMALL) == row_of(own, SMALL)).all()
        legal = [token_id for token_id in legal_ids(row_of(plain, SMALL)) if token_id != STOP]
        likely = [token_id for token_id in legal if token_id in CLOSING] or legal
        if operation in ("step", "window") and legal:
            token_ids = [rng.choice(likely if rng.random() < 0.4 else legal)]
            token_ids += rng.choices(range(SMALL.vocab_size), k=3 * (operation == "window"))
            assert plain.validate_tokens(token_ids) == own.validate_tokens(token_ids) >= 1
            is_taken = plain.accept_tokens(token_ids)
            assert own.accept_tokens(token_ids) is is_taken
            num_steps += len(token_ids) * is_taken
        elif operation == "back":
            count = rng.randint(0, min(num_steps, 5))
            plain.rollback(count)
            own.rollback(count)
            num_steps -= count
        elif operation == "bytes":
            data = rng.choice((b'"', b"a", b"{", b"1", "é".encode(), b'":', b""))
            is_taken = plain.accept_bytes(data)
            assert own.accept_bytes(data) is is_taken
            num_steps += is_taken and bool(data)
        elif operation in ("stop", "wrong"):
            token_id = STOP if operation == "stop" else rng.choice((-1, SMALL.vocab_size, *range(SMALL.vocab_size)))
            is_taken = plain.accept_tokens([token_id])
            assert own.accept_tokens([token_id]) is is_taken
            num_steps += is_taken
        elif operation == "fork" and rng.random() < 0.5:
            twins = plain.fork(), own.fork()
            plain.rollback(min(1, num_steps))
            own.rollback(min(1, num_steps))
            plain, own = twins
        elif operation == "reset" and rng.random() < 0.2:
            plain.reset()
            own.reset()
            num_steps = 0
        assert (plain.is_completed(), plain.is_terminated()) == (own.is_completed(), own.is_terminated())
        assert plain.forced_tokens() == own.forced_tokens()
    return num_rows


OLD_PLACE = {
    "type": "object",
    "properties": {
        "a": {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string", "maxLength": 3}],
            "items": {"type": "string", "maxLength": 9},
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        pytest.param(OLD_PLACE, ['{"a":["abcdef","abcdef"]}'], id="an older draft in one place"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"type": "string"}}},
            ['{"a":"abc","b":""}', r'{"\u0061":1}', r'{"\u0061":"abcdef"}', '{"a":"abc","b":""}'],
            id="another spelling of a name",
        ),
    ],
)
@pytest.mark.parametrize("name", BACKENDS)
def test_texts_that_go_on_differently_are_kept_apart(name: str, schema: Any, texts: list[str]) -> None:
    backend = make_backend(name)
    spec = GrammarSpec.from_json_schema(schema)
    compiled = backend.compile(spec)
    shared = share_masks(compiled, backend, spec, MaskMemo(2**20, SMALL.token_bytes))
    assert shared is not None
    for text in texts:
        matcher, plain = shared.new_matcher((STOP,)), compiled.new_matcher((STOP,))
        for byte in text.encode():
            assert (row_of(matcher, SMALL) == row_of(plain, SMALL)).all(), text
            is_taken = plain.accept_tokens([byte])
            assert matcher.accept_tokens([byte]) is is_taken
            if not is_taken:
                break


def test_masks_of_properties_in_any_order_are_not_shared() -> None:
    backend = make_backend("xgrammar")
    spec = GrammarSpec.from_json_schema({"type": "object", "required": ["a", "b"]}, any_order=True)
    compiled = backend.compile(spec)
    assert share_masks(compiled, backend, spec, MaskMemo(2**20, SMALL.token_bytes)) is None
    matcher = compiled.new_matcher((STOP,))
    assert matcher.accept_tokens([*b'{"b":1'])
    assert ord("}") not in legal_ids(row_of(matcher, SMALL))
    assert matcher.accept_tokens([*b',"b":1'])
    assert ord("}") in legal_ids(row_of(matcher, SMALL)), "the number of properties matters"


@pytest.mark.timeout(60)
def test_choices_that_lead_to_one_place_in_many_ways_are_read_once() -> None:
    definitions: dict[str, Any] = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    assert not ShapeReader({"$ref": "#/$defs/d0", "$defs": {**definitions, "d40": {"type": "string"}}}).root


NOTE = {"type": "object", "properties": {"note": {"type": "string", "maxLength": 400}, "kind": {"enum": ["a", "b"]}}}


def test_the_memory_has_a_cap_and_forgets_whole_grammars() -> None:
    backend = make_backend("llguidance")
    memo = MaskMemo(60_000, SMALL.token_bytes)
    specs = [GrammarSpec.from_json_schema({**NOTE, "required": ["note"][:i]}) for i in range(2)]
    for spec in specs * 2:
        shared = share_masks(backend.compile(spec), backend, spec, memo)
        assert shared is not None
        matcher, plain = shared.new_matcher((STOP,)), backend.compile(spec).new_matcher((STOP,))
        assert matcher.accept_tokens([*b'{"note":"'])
        assert plain.accept_tokens([*b'{"note":"'])
        for _ in range(400):
            assert (row_of(matcher, SMALL) == row_of(plain, SMALL)).all()
            assert matcher.accept_tokens([*b"x"])
            assert plain.accept_tokens([*b"x"])
            assert memo.num_bytes <= memo.max_bytes
        matcher.rollback(300)
        plain.rollback(300)
        assert (row_of(matcher, SMALL) == row_of(plain, SMALL)).all()


def rows_asked_for(monkeypatch: pytest.MonkeyPatch) -> list[MemoMatcher]:
    """Who asked the matcher behind for a row, from now on."""
    asked: list[MemoMatcher] = []
    keep_row = MemoMatcher.keep_row

    def note(asking: MemoMatcher, row: Row) -> None:
        asked.append(asking)
        keep_row(asking, row)

    monkeypatch.setattr(MemoMatcher, "keep_row", note)
    return asked


@pytest.mark.parametrize("name", BACKENDS)
def test_rows_of_a_bounded_string_follow_from_its_first_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = make_backend(name)
    spec = GrammarSpec.from_json_schema({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 30}})
    compiled = backend.compile(spec)
    shared = share_masks(compiled, backend, spec, MaskMemo(2**20, SMALL.token_bytes))
    assert shared is not None
    matcher, plain = shared.new_matcher((STOP,)), compiled.new_matcher((STOP,))
    asked = rows_asked_for(monkeypatch)
    text = json.dumps(["a" * 30, "é" * 30, "東" * 15, "bb"], ensure_ascii=False, separators=(",", ":"))
    for char in text:
        assert (row_of(matcher, SMALL) == row_of(plain, SMALL)).all(), char
        assert plain.accept_bytes(char.encode())
        assert matcher.accept_bytes(char.encode())
    assert len(asked) < 16 < len(text) / 5, "three rows of the first string, three of another, and what is between them"


def test_sequences_of_a_batch_in_one_state_are_filled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = make_backend("llguidance")
    spec = GrammarSpec.from_json_schema(NOTE)
    compiled = backend.compile(spec)
    shared = share_masks(compiled, backend, spec, MaskMemo(2**20, SMALL.token_bytes))
    assert shared is not None
    crowd, plain = ([each.new_matcher((STOP,)) for _ in range(9)] for each in (shared, compiled))
    for number, pair in enumerate(zip(crowd, plain, strict=True)):
        for matcher in pair:
            assert matcher.accept_tokens([*b'{"note":"'[: 9 * (number % 2)]])
    asked = rows_asked_for(monkeypatch)
    found, expected = (new_bitmask(9, SMALL.vocab_size) for _ in range(2))
    rows = [4, 0, 8, 2, 6, 1, 7, 3, 5]
    fill_bitmasks(crowd, found, rows)
    fill_bitmasks(plain, expected, rows)
    assert found.equal(expected)
    assert len(asked) == 2


def test_long_texts_without_a_shape_are_followed_and_not_kept() -> None:
    backend = make_backend("llguidance")
    anything = {"type": "string", "pattern": "^x*$"}
    spec = GrammarSpec.from_json_schema(
        {
            "type": "object",
            "properties": {"a": anything, "b": {"type": "string"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        }
    )
    memo = MaskMemo(2**20, SMALL.token_bytes)
    shared = share_masks(backend.compile(spec), backend, spec, memo)
    assert shared is not None
    matcher = shared.new_matcher((STOP,))
    assert matcher.accept_tokens([*b'{"a":"', *b"x" * 1000])
    assert memo.num_bytes < 500_000
    assert matcher.accept_tokens([*b'","b":"'])
    first = memo.num_bytes
    other = shared.new_matcher((STOP,))
    assert other.accept_tokens([*b'{"a":"x","b":"'])
    assert memo.num_bytes - first < 3_000, "the state behind the text is the same one"


class Forgetful:
    """Stands for a backend that hits a limit."""

    error: GrammarError | None = None

    def __init__(self, inner: Matcher) -> None:
        self.inner = inner
        self.is_broken = False

    def accept_tokens(self, token_ids: list[int]) -> bool:
        return not self.is_broken and self.inner.accept_tokens(token_ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def matchers_of_known_text(text: list[int]) -> tuple[Any, Matcher]:
    """Give a matcher to which all masks along a text are known, at the start, and the one that came to know them, behind it."""
    backend = make_backend("llguidance")
    spec = GrammarSpec.from_json_schema(NOTE)
    shared = share_masks(backend.compile(spec), backend, spec, MaskMemo(2**20, SMALL.token_bytes))
    assert shared is not None
    guide = shared.new_matcher((STOP,))
    for token_id in text:
        row_of(guide, SMALL)
        assert guide.accept_tokens([token_id])
    return shared.new_matcher((STOP,)), guide


def test_a_matcher_whose_untold_tokens_are_refused_gives_an_error_and_can_go_back() -> None:
    text = [*b'{"note":"']
    matcher, guide = matchers_of_known_text(text)
    matcher._inner = broken = Forgetful(matcher._inner)
    assert matcher.accept_tokens(text), "all of it is known"
    broken.is_broken = True
    assert not row_of(matcher, SMALL).any()
    assert isinstance(matcher.error, GrammarError)
    assert not matcher.accept_tokens([*b"a"])
    broken.is_broken = False
    matcher.reset()
    assert matcher.accept_tokens(text)
    assert (row_of(matcher, SMALL) == row_of(guide, SMALL)).all()


class Limited(Stepper):
    """Meets a limit at one of its tokens, which to undo takes away."""

    def __init__(self, inner: Matcher, limit: int) -> None:
        self.inner = inner
        self.limit = limit
        self.count = 0
        self.error: GrammarError | None = None

    def rollback(self, num_steps: int) -> None:
        if num_steps:
            self.inner.rollback(num_steps)
            self.count -= num_steps
            self.error = None

    def _part(self) -> None:
        self.inner = self.inner.fork()

    def _advance(self, token_ids: Sequence[int]) -> int:
        for done, token_id in enumerate(token_ids):
            if self.count == self.limit:
                self.error = GrammarLimitError("its own words")
            if self.error is not None or not self.inner.accept_tokens([token_id]):
                return done
            self.count += 1
        return len(token_ids)


def test_limit_at_an_untold_token_is_told_in_the_words_of_the_backend() -> None:
    """By the matcher itself and by its twins, forked before or behind it."""
    text = [*b'{"note":"abc']
    matcher, _ = matchers_of_known_text(text)
    matcher._inner = Limited(matcher._inner, 7)
    assert matcher.accept_tokens(text)
    before = matcher.fork()
    for one in (matcher, matcher.fork(), before, before.fork()):
        assert not one.accept_bytes(b"!")
        assert str(one.error) == "its own words"
        assert str(one.fork().error) == "its own words"
        one.rollback(len(text) - 7)
        assert one.error is None
        assert one._inner.count == 0
        assert one.accept_tokens(text[7:]), "untold again"
    matcher.reset()
    assert before._path != matcher._path, "a twin has a way of its own"


def test_tokens_that_are_refused_late_leave_the_state_as_it_was() -> None:
    backend = make_backend("llguidance")
    spec = GrammarSpec.from_json_schema(NOTE)
    shared = share_masks(backend.compile(spec), backend, spec, MaskMemo(2**20, SMALL.token_bytes))
    assert shared is not None
    guide = shared.new_matcher((STOP,))
    text = [*b'{"note":"', *b"a" * MOST_UNTOLD]
    for token_id in text:
        row_of(guide, SMALL)
        assert guide.accept_tokens([token_id])
    matcher: Any = shared.new_matcher((STOP,))
    matcher._inner = broken = Forgetful(matcher._inner)
    broken.is_broken = True
    assert matcher.validate_tokens(text) == MOST_UNTOLD - 1
    broken.is_broken = False
    assert matcher.accept_tokens([*b'{"note":"x"']), "still at the start"
    matcher.reset()
    broken.is_broken = True
    assert matcher.accept_tokens(text[: MOST_UNTOLD - 1])
    assert not matcher.accept_tokens([text[MOST_UNTOLD - 1]])
    assert not matcher.accept_bytes(b"{"), "the matcher behind stands at the start"
    assert not row_of(matcher, SMALL).any()
    matcher.rollback(MOST_UNTOLD - 1)
    with pytest.raises(ValueError, match="cannot undo"):
        matcher.rollback(1)


def test_an_engine_counts_the_masks_that_it_knew(tiny_model: Path) -> None:
    spec = GrammarSpec.from_json_schema({**NOTE, "required": ["note", "kind"], "additionalProperties": False})
    answers = []
    for memo_bytes in (None, 2**20):
        engine = LLMEngine(
            EngineConfig(model=str(tiny_model), max_num_seqs=4, grammar_memo_bytes=memo_bytes, grammar_upgrade_after=None)
        )
        prompts = [engine.render([{"role": "user", "content": text}], thinking=False) for text in "abcdefgh"]
        params = [SamplingParams(max_tokens=60, temperature=1.0, seed=seed) for seed in range(8)]
        outputs = engine.generate(prompts, params, grammars=spec, on_unknown="constrain")
        answers.append([output.token_ids for output in outputs])
        totals = engine.totals()
        engine.close()
        if memo_bytes is None:
            assert (totals.num_mask_hits, totals.num_mask_misses) == (0, 0)
        else:
            assert totals.num_mask_hits > 2 * totals.num_mask_misses > 0
    assert answers[0] == answers[1]
