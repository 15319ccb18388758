"""Values are guessed from the text before an answer: passes saved on scripted answers, and nothing that the grammar refuses."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import GrammarSpec
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.matcher import CompiledGrammar, GrammarBackend, Matcher
from engine.grammar.vocabulary import Vocabulary
from engine.speculative import Drafter, Habits
from engine.speculative.source_text import SourceText

STOP = 256
WORDS = (" Maria", "Maria", " Keller", "Keller", " red", "red", " Unit", '":"', '","', '":', '"}', ' "', "20", " is", ", ")
VOCABULARY = Vocabulary(
    (*(bytes([byte]) for byte in range(256)), b"", *(word.encode() for word in WORDS)), 257 + len(WORDS), (STOP,)
)
BACKENDS: tuple[GrammarBackend, ...] = (LLGuidanceBackend(VOCABULARY), XGrammarBackend(VOCABULARY, num_threads=1))


def spell(text: str) -> list[int]:
    token_ids = VOCABULARY.index.spell(text.encode())
    assert token_ids is not None
    return token_ids


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT = {"type": "string", "maxLength": 60}
COUNT = {"type": "integer", "minimum": 0, "maximum": 99999}
DATE = {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}


@cache
def compile_once(schema: str, backend: int) -> CompiledGrammar:
    return BACKENDS[backend].compile(GrammarSpec.from_json_schema(json.loads(schema)))


def answer(prompt: str, schema: dict[str, Any], text: str, backend: int = 0, habits: Habits | None = None) -> int:
    """Let a model write a text in the tokenizer's tokens, with the drafts that hold; gives the passes that it takes."""
    token_ids = [*spell(text), STOP]
    matcher = compile_once(json.dumps(schema), backend).new_matcher((STOP,))
    drafter = Drafter(spell(prompt), habits=habits or Habits(VOCABULARY), is_json=True)
    start = num_passes = 0
    while start < len(token_ids):
        drafts = drafter.propose(matcher, 100)
        assert matcher.validate_tokens(drafts) == len(drafts)
        rest = token_ids[start:-1]
        count = 0
        while count < min(len(drafts), len(rest)) and drafts[count] == rest[count]:
            count += 1
        drafter.learn(count, num_verified=len(drafts))
        for token_id in token_ids[start : start + count + 1]:
            drafter.extend([token_id])
            assert matcher.accept_tokens([token_id])
            drafter.extend_answer(b"", [token_id])
        start += count + 1
        num_passes += 1
    return num_passes


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "list-of-labels": (
        "Order ID: A-778\nCustomer Name: Maria Keller\nShip date: 2025-11-04\nUnit Price: 1895\n",
        obj(order_id=TEXT, customer_name=TEXT, ship_date=DATE, unitPrice=COUNT),
        {"order_id": "A-778", "customer_name": "Maria Keller", "ship_date": "2025-11-04", "unitPrice": 1895},
        1,
    ),
    "json": (
        'Here: {"name": "Maria Keller", "town": "Porto", "open": true, "rank": 31}',
        obj(name=TEXT, rank=COUNT, open={"type": "boolean"}, town={"enum": ["Rome", "Porto"]}),
        {"name": "Maria Keller", "rank": 31, "open": True, "town": "Porto"},
        1,
    ),
    "yaml": (
        "host: db7.example.net\nport: 5433\ntls: no\nzone: ap-south\n",
        obj(host=TEXT, port=COUNT, tls={"type": "boolean"}, zone={"enum": ["eu-west", "ap-south"]}),
        {"host": "db7.example.net", "port": 5433, "tls": False, "zone": "ap-south"},
        1,
    ),
    "csv": (
        "product,sku,stock\nGarden hose,GH-22,42\nRake,RK-11,8\n",
        obj(rows={"type": "array", "items": obj(product=TEXT, sku=TEXT, stock=COUNT), "minItems": 1, "maxItems": 5}),
        {"rows": [{"product": "Garden hose", "sku": "GH-22", "stock": 42}, {"product": "Rake", "sku": "RK-11", "stock": 8}]},
        9,
    ),
    "prose": (
        "Maria Keller is 34 years old and likes the colour red.",
        obj(first_name=TEXT, age=COUNT, favourite_colour={"enum": ["green", "red"]}),
        {"first_name": "Maria Keller", "age": 34, "favourite_colour": "red"},
        2,
    ),
    "letters": (
        "Имя: Анна Петрова\nГород: Казань\n名前: 田中 花子\n",  # noqa: RUF001
        obj(Имя=TEXT, Город=TEXT, 名前=TEXT),
        {"Имя": "Анна Петрова", "Город": "Казань", "名前": "田中 花子"},
        1,
    ),
    "list": (
        "Skills: Rust, CAD, welding.\n",
        obj(skills={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 9}),
        {"skills": ["Rust", "CAD", "welding"]},
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", [0, 1], ids=["llguidance", "xgrammar"])
def test_copied_answer_takes_few_passes(case: str, backend: int) -> None:
    prompt, schema, value, num_passes = CASES[case]
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert answer(prompt, schema, text, backend) <= num_passes


def test_end_of_values_is_learned() -> None:
    """Values that go on behind commas: the first ones are guessed to end there, later ones are not."""
    schema = obj(city=TEXT, town=TEXT)
    habits = Habits(VOCABULARY)
    numbers = []
    for index in range(12):
        prompt = f"City: Porto{index}, Portugal\nTown: Faro{index}, Algarve\n"
        text = json.dumps({"city": f"Porto{index}, Portugal", "town": f"Faro{index}, Algarve"}, separators=(",", ":"))
        numbers.append(answer(prompt, schema, text, habits=habits))
    assert numbers[0] > 1
    assert numbers[-1] == 1


@settings(max_examples=60)
@given(
    st.text(max_size=30),
    st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=12),
    st.sampled_from(["{}", '"{}"', "k: {}\n", "k {}"]),
)
def test_whatever_stands_before_an_answer_its_drafts_are_in_the_grammar(before: str, value: str, form: str) -> None:
    """Quotes, escapes, control characters, halves of letters: `answer` checks every draft."""
    text = json.dumps({"k": value, "n": 1}, separators=(",", ":"), ensure_ascii=False)
    answer(before + form.format(value), obj(k={"type": "string"}, n=COUNT), text)


def test_value_that_repeats_another_one_of_the_answer_goes_on_as_that_did() -> None:
    """The source would end it behind its first word, as it did there."""
    value = {"first": "Ada, born 1815", "second": "Ada, born 1815", "third": "Ada, born 1815"}
    text = json.dumps(value, separators=(",", ":"))
    assert answer("Who? Ada, a lady.", obj(first=TEXT, second=TEXT, third=TEXT), text) <= 14


def test_place_of_a_name_is_found_in_any_spelling() -> None:
    text = "unit price 1\nUnit-Price: 2\nUNIT_PRICE = 3\nunitprice 4\nprices 5\nstunit price 6\n"
    source = SourceText(text)
    for name in (b"unit_price", b"unitPrice", b"Unit price"):
        assert [text[start] for start in source.labels(name, 0)] == ["2"]
        assert [text[start] for start in source.labels(name, text.index("UNIT"))] == ["3", "2"]
        assert [text[start] for start in source.mentions(name, 0)] == ["1"]
    assert not source.labels(b"\xff", 0)
    assert not source.labels(b"", 0)


def test_long_text_is_read_when_it_is_needed_and_searched_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    real = SourceText.__init__

    def note(self: SourceText, text: str) -> None:
        reads.append(len(text))
        real(self, text)

    monkeypatch.setattr(SourceText, "__init__", note)
    schema = obj(rank=COUNT, name=TEXT)
    compiled = BACKENDS[0].compile(GrammarSpec.from_json_schema(schema))
    prompt = spell("rank and name are here. " * 20_000 + "Name: Maria Keller\nRank: 7\n")
    drafter = Drafter(prompt, habits=Habits(VOCABULARY), is_json=True)
    matcher: Matcher = compiled.new_matcher((STOP,))
    assert not reads
    for token_id in spell('{"rank":7,"name":"'):
        drafter.propose(matcher, 12)
        drafter.extend([token_id])
        matcher.accept_tokens([token_id])
        drafter.extend_answer(b"", [token_id])
    assert len(reads) == 1


LONG = {
    "digits": "7" * 30_000,
    "one-word": "rank: " + "w" * 30_000,
    "signs": "-1" * 15_000,
    "words": " ".join(letter * 6_000 for letter in "abcde"),
    "number-behind-its-name": "rank: " + "31" * 15_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_word_as_long_as_the_prompt_is_not_spelled(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    real = Habits.spell

    def note(self: Habits, data: bytes) -> list[int]:
        lengths.append(len(data))
        return real(self, data)

    monkeypatch.setattr(Habits, "spell", note)
    schema = obj(rank=COUNT, name=TEXT, kind={"enum": ["red", "blue"]})
    answer(text, schema, '{"rank":7,"name":"wwww 11","kind":"red"}')
    assert max(lengths) <= 200


def test_guess_that_fails_leaves_the_grammar_where_the_answer_is(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = compile_once(json.dumps(obj(rank=COUNT, name=TEXT)), 0).new_matcher((STOP,))
    drafter = Drafter(spell("rank 7, name Maria"), habits=Habits(VOCABULARY), is_json=True)

    def fail(self: SourceText, name: bytes, after: int) -> list[int]:
        raise IndexError("no such place")

    monkeypatch.setattr(SourceText, "labels", fail)
    with pytest.raises(IndexError):
        drafter.propose(matcher, 100)
    assert matcher.validate_tokens(spell('{"rank":7,')) == len(spell('{"rank":7,'))
