"""The guard of an answer's end: it always ends in time, and searches only where the ending that it knows no longer helps."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from engine.answer_budget import ClosingGuard
from engine.grammar import GrammarManager, Matcher
from engine.grammar.closing import MAX_STATES, WayOut, WaySearch, closing_tokens, endings_behind
from engine.grammar.endings import MOST_BEGUN, Endings
from tests.engine.grammar_backends import BACKENDS, SMALL, STOP, allowed, make_backend, new_matcher, schema_spec, text_of
from tests.engine.schemas import make_schema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "state": {"enum": ["unpaid", "paid", "overdue"]},
        "more": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}},
    },
    "required": ["name", "state", "more"],
    "additionalProperties": False,
}


class Searches(Endings):
    """Counts searches and the states that they may look at; may know no guesses."""

    def __init__(self, *, is_keen: bool = True) -> None:
        super().__init__(SMALL)
        self.count = 0
        self.num_failed = 0
        self.most_states = 0
        self._is_keen = is_keen

    def from_start(self, key: int, matcher: Matcher, *, is_short: bool = False) -> WayOut | None:
        num_kept = len(self._kept)
        way = super().from_start(key, matcher, is_short=is_short)
        self.count += len(self._kept) - num_kept
        return way

    def find(
        self, matcher: Matcher, limit: int = 4096, way_out: WayOut | None = None, *, max_states: int | None = None
    ) -> list[int] | None:
        self.count += 1
        self.most_states += MAX_STATES if max_states is None else min(max_states, MAX_STATES)
        found = super().find(matcher, limit, way_out, max_states=max_states)
        self.num_failed += found is None
        return found

    def behind(self, ending: list[int], token_id: int) -> Iterator[list[int]]:
        return super().behind(ending, token_id) if self._is_keen else iter([ending])


def guard_with(find: Searches) -> ClosingGuard:
    return ClosingGuard(find, 1, STOP)


def write(guard: ClosingGuard, matcher: Matcher, wanted: list[int], num_left: int) -> list[int]:
    """Write what is wanted as far as the guard lets it."""
    written: list[int] = []
    for token_id in wanted:
        kept = guard.choose(matcher, token_id, num_left - len(written), is_first=not written)
        assert matcher.accept_tokens([kept])
        written.append(kept)
        if kept != token_id:
            break
    return written


@pytest.mark.parametrize("is_keen", [True, False], ids=["guesses", "no guesses"])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", BACKENDS)
def test_random_answer_ends_in_time_and_is_whole(name: str, seed: int, is_keen: bool) -> None:
    rng = random.Random(seed)
    schema: Any = PERSON if seed % 3 == 0 else make_schema(rng)
    matcher = new_matcher(make_backend(name), schema_spec(schema), (STOP,))
    shortest = closing_tokens(matcher, SMALL, 400, is_quick=True)
    if shortest is None:
        pytest.skip("no way out is found from the start")
    guard = guard_with(Searches(is_keen=is_keen))
    limit = len(shortest) + rng.randrange(12)
    written: list[int] = []
    while not matcher.is_terminated() and len(written) < limit:
        choices = allowed(matcher)
        kept = guard.choose(matcher, rng.choice(choices), limit - len(written))
        assert kept in choices
        assert matcher.accept_tokens([kept])
        written.append(kept)
    assert matcher.is_terminated() or matcher.is_completed()
    document = json.loads(text_of(written))
    assert jsonschema_rs.validator_for(schema).is_valid(document), document


def test_ending_that_is_written_is_searched_once() -> None:
    matcher = new_matcher(make_backend("llguidance"), schema_spec(PERSON), (STOP,))
    ending = closing_tokens(matcher, SMALL, 400, is_quick=True)
    assert ending is not None
    find = Searches()
    assert write(guard_with(find), matcher, ending, len(ending)) == ending
    assert find.count == 1


@pytest.mark.parametrize("name", BACKENDS)
def test_way_from_the_start_is_searched_once_for_all_requests(name: str) -> None:
    """A key that two grammars share is a search more and no other answer."""
    find = Searches()
    first, second = (new_matcher(make_backend(name), schema_spec(schema), (STOP,)) for schema in (PERSON, {"type": "array"}))
    wanted = {id(matcher): Endings(SMALL).from_start(1, matcher) for matcher in (first, second)}
    assert wanted[id(first)] != wanted[id(second)]
    for matcher, key in ((first, 1), (first, 1), (first, 2), (second, 1), (first, 1), (second, 2)):
        assert find.from_start(key, matcher) == wanted[id(matcher)]
    assert find.count == 2


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("num_pieces", [0, 1, 5, 100_000])
def test_way_that_is_searched_in_pieces_is_the_same(name: str, num_pieces: int) -> None:
    """Whether the search is over when the way is asked for, has just begun, or was never begun."""
    first, second = (new_matcher(make_backend(name), schema_spec(schema), (STOP,)) for schema in (PERSON, {"type": "array"}))
    endings = Endings(SMALL)
    for key, matcher in enumerate((first, second)):
        endings.begin(key, matcher)
        endings.begin(key, matcher)
    num_left = num_pieces
    while num_left and endings._begun:
        endings.work(0.0)
        num_left -= 1
    assert bool(endings._begun) == (num_pieces < 100_000)
    # A key that another grammar has begun with.
    assert endings.from_start(0, second) == Endings(SMALL).from_start(0, second)
    for key, matcher in enumerate((first, second)):
        assert endings.from_start(key, matcher) == Endings(SMALL).from_start(key, matcher)
    assert not endings._begun


def test_searches_that_are_begun_are_bounded_and_a_failed_one_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = new_matcher(make_backend("llguidance"), schema_spec(PERSON), (STOP,))
    endings = Endings(SMALL)
    for key in range(2 * MOST_BEGUN):
        endings.begin(key, matcher)
    assert len(endings._begun) == MOST_BEGUN
    with monkeypatch.context() as patch:
        patch.setattr(WaySearch, "go_on", lambda *_: 1 / 0)
        endings.work(1.0)
    assert len(endings._begun) == MOST_BEGUN - 1
    assert endings.from_start(0, matcher) == Endings(SMALL).from_start(0, matcher)


def test_far_from_the_limit_nothing_is_searched_for() -> None:
    matcher = new_matcher(make_backend("llguidance"), schema_spec(PERSON), (STOP,))
    find = Searches()
    guard = guard_with(find)
    num_left = 4000
    for number in range(600):
        token_id = allowed(matcher)[0]
        assert guard.choose(matcher, token_id, num_left - number, is_first=not number) == token_id
        assert (find.count > 0) == (number >= num_left // 8)
        if number >= num_left // 8:
            break


@pytest.mark.parametrize("name", BACKENDS)
def test_choices_do_not_depend_on_the_requests_before(name: str) -> None:
    """Neither on their limits nor on what they wrote, also where states are known and the way from the start is shortened."""
    manager = GrammarManager([make_backend(name)])
    prepared = manager.request(schema_spec(PERSON)).result(60)

    def answer(endings: Endings, limit: int) -> list[int]:
        matcher = prepared.new_matcher((STOP,))
        guard = ClosingGuard(endings, 1, STOP)
        written: list[int] = []
        rng = random.Random(limit)
        while not matcher.is_terminated() and len(written) < limit:
            written.append(guard.choose(matcher, rng.choice(allowed(matcher)), limit - len(written), is_first=not written))
            assert matcher.accept_tokens(written[-1:])
        return written

    limits = (2, 30, 400, 17, 22)
    wanted = [answer(Endings(SMALL), limit) for limit in limits]
    shared = Endings(SMALL)
    assert [answer(shared, limit) for limit in limits] == wanted
    assert [answer(shared, limit) for limit in limits[::-1]] == wanted[::-1]
    manager.close()


FORMATS = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "pattern": "^INV-[0-9]{6}$"},
        "when": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["number", "when", "mail"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("name", BACKENDS)
def test_where_no_ending_fits_few_states_are_looked_at(name: str) -> None:
    """Every eight tokens 400 states were searched in vain; now the known way tells how much is missing."""
    manager = GrammarManager([make_backend(name)])
    prepared = manager.request(schema_spec(FORMATS)).result(60)
    matcher = prepared.new_matcher((STOP,))
    way = Endings(SMALL).from_start(1, matcher, is_short=True)
    assert way is not None
    limit = len(way.token_ids) - 6
    endings = Searches()
    guard = guard_with(endings)
    rng = random.Random(3)
    for num_written in range(limit):
        kept = guard.choose(matcher, rng.choice(allowed(matcher)), limit - num_written, is_first=not num_written)
        assert matcher.accept_tokens([kept])
    assert endings.count <= 2 + limit // 8
    assert guard.shortest_len(matcher) == len(way.token_ids)
    manager.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_known_way_is_joined_where_its_states_are_told(name: str) -> None:
    """With the memo a search behind one value knows all that follows, whatever the value was; without it it searches."""
    manager = GrammarManager([make_backend(name)])
    prepared = manager.request(schema_spec(FORMATS)).result(60)
    matcher = prepared.new_matcher((STOP,))
    way = Endings(SMALL).from_start(1, matcher)
    assert way is not None
    text = '{"number":"INV-204518","when":"2024-03-17T12:30:00Z'
    assert matcher.accept_tokens(ids(text))
    for max_states, expected in ((40, True), (4, True), (1, False)):
        ending = closing_tokens(matcher, SMALL, 400, is_quick=True, max_states=max_states, way_out=way)
        assert (ending is not None) == expected
        if ending is not None:
            assert jsonschema_rs.is_valid(FORMATS, json.loads(text.encode() + text_of(ending)))
            assert text_of(ending).endswith(way.text[way.text.index(b',"mail"') :])
    raw = new_matcher(make_backend(name), schema_spec(FORMATS), (STOP,))
    assert raw.state is None
    assert raw.accept_tokens(ids(text))
    assert closing_tokens(raw, SMALL, 400, is_quick=True, max_states=4, way_out=way) is None
    manager.close()


def test_ending_is_spelled_in_long_tokens() -> None:
    matcher = new_matcher(make_backend("llguidance"), schema_spec(PERSON), (STOP,))
    ending = closing_tokens(matcher, SMALL, 400, is_quick=True)
    assert ending == SMALL.index.spell(text_of(ending or []))


def test_other_text_other_cuts_and_other_values_need_few_searches() -> None:
    text = '{"name":"hello world, hello","state":"overdue","more":[{"k":125},{"k":7}]}'
    wanted = SMALL.index.spell(text.encode())
    assert wanted is not None
    counts = {}
    for is_keen in (True, False):
        matcher = new_matcher(make_backend("llguidance"), schema_spec(PERSON), (STOP,))
        find = Searches(is_keen=is_keen)
        assert write(guard_with(find), matcher, [*wanted, STOP], len(wanted) + 3) == [*wanted, STOP]
        counts[is_keen] = find.count
    assert counts[True] <= 5 < counts[False]


def ids(text: str) -> list[int]:
    found = SMALL.index.spell(text.encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("ending", "token", "expected"),
    [
        ("abc", "a", "bc"),
        ('","k":1}', '"', ',"k":1}'),
        ('"}', '"}', ""),
        ('" }', '"', " }"),
    ],
)
def test_rest_of_the_text_is_guessed_behind_its_head(ending: str, token: str, expected: str) -> None:
    known = [ord(letter) for letter in ending]
    [token_id] = ids(token)
    texts = [text_of(guess).decode() for guess in endings_behind(SMALL, known, token_id)]
    assert texts[:2] == [ending, expected]


def test_guess_is_cut_in_other_tokens_than_the_ending() -> None:
    [token_id] = ids('"')
    [whole] = ids('","')
    guesses = list(endings_behind(SMALL, [whole, *ids("a"), *ids('":1}')], token_id))
    assert text_of(guesses[1]).decode() == ',"a":1}'


def test_what_follows_another_value_is_guessed() -> None:
    ending = [ord(letter) for letter in 'id","k":1}']
    guesses = [text_of(guess).decode() for guess in endings_behind(SMALL, ending, ord("z"))]
    assert guesses[0] == 'id","k":1}'
    assert '","k":1}' in guesses


def test_ids_that_are_no_text_are_no_head() -> None:
    assert [*endings_behind(SMALL, [STOP], ord("a"))] == [[STOP], []]
    assert [*endings_behind(SMALL, [], ord("a"))] == [[]]
