"""The guard of an answer's end: it always ends in time, and searches only where the ending that it knows no longer helps."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import jsonschema_rs
import pytest

from engine.answer_budget import ClosingGuard, FirstEndings
from engine.grammar import Matcher
from engine.grammar.closing import closing_tokens, endings_behind
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


class Searches:
    """Counts searches."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, matcher: Matcher, limit: int) -> list[int] | None:
        self.count += 1
        return closing_tokens(matcher, SMALL, limit, is_quick=True)


def guard_with(find: Searches, *, is_keen: bool = True) -> ClosingGuard:
    if is_keen:
        return ClosingGuard(find, STOP, endings_behind=partial(endings_behind, SMALL))
    return ClosingGuard(find, STOP)


def write(guard: ClosingGuard, matcher: Matcher, wanted: list[int], num_left: int) -> list[int]:
    """Write what is wanted as far as the guard lets it."""
    written: list[int] = []
    for token_id in wanted:
        kept = guard.choose(matcher, token_id, num_left - len(written))
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
    guard = guard_with(Searches(), is_keen=is_keen)
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
def test_first_ending_of_a_grammar_is_searched_once_for_all_requests(name: str) -> None:
    """A key that two grammars share, or a limit that what is known does not keep, is a search more and no other answer."""
    find = Searches()
    endings = FirstEndings(find)
    first, second = (new_matcher(make_backend(name), schema_spec(schema), (STOP,)) for schema in (PERSON, {"type": "array"}))
    for matcher, key, limit, num_searches in (
        (first, 1, 400, 1), (first, 1, 300, 1), (first, 2, 400, 2), (second, 1, 400, 3), (first, 1, 400, 4), (first, 1, 2, 5),
        (first, 1, 400, 5),
    ):  # fmt: skip
        assert endings.find(key, matcher, limit) == closing_tokens(matcher, SMALL, limit, is_quick=True)
        assert find.count == num_searches


@pytest.mark.parametrize("name", BACKENDS)
def test_first_ending_does_not_depend_on_the_requests_before(name: str) -> None:
    """For any value at all there are shorter and longer ones, and a search that is bounded otherwise finds another."""
    matcher = new_matcher(make_backend(name), schema_spec({}), (STOP,))
    wanted = {limit: FirstEndings(Searches()).find(1, matcher, limit) for limit in (1, 2, 3, 400)}
    for limits in ((1, 2, 3, 400), (400, 3, 2, 1), (2, 400, 1, 3)):
        endings = FirstEndings(Searches())
        assert {limit: endings.find(1, matcher, limit) for limit in limits} == wanted


def test_other_text_other_cuts_and_other_values_need_few_searches() -> None:
    text = '{"name":"hello world, hello","state":"overdue","more":[{"k":125},{"k":7}]}'
    wanted = SMALL.index.spell(text.encode())
    assert wanted is not None
    counts = {}
    for is_keen in (True, False):
        matcher = new_matcher(make_backend("llguidance"), schema_spec(PERSON), (STOP,))
        find = Searches()
        assert write(guard_with(find, is_keen=is_keen), matcher, [*wanted, STOP], len(wanted) + 3) == [*wanted, STOP]
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
