"""Forced text as the model spells it: learned piece by piece, never another text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from engine import GrammarSpec
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.vocabulary import Vocabulary
from engine.speculative import Drafter, Habits
from engine.speculative.spellings import Spellings

STOP = 256
LONG = (b'{"', b'":"', b'","', b'":', b"name", b"na", b"me", b"kind", b"ki", b'"}')
VOCABULARY = Vocabulary((*(bytes([byte]) for byte in range(256)), b"", *LONG), 257 + len(LONG), (STOP,))
ID_OF = {data: 257 + index for index, data in enumerate(LONG)}


def text_of(token_ids: list[int]) -> bytes:
    return b"".join(VOCABULARY.token_bytes[token_id] for token_id in token_ids)


def respell(token_ids: list[int], cuts: list[bool]) -> list[int]:
    """Write tokens in two pieces where a cut says so and both pieces are tokens."""
    written = []
    for token_id, cut in zip(token_ids, cuts, strict=False):
        data = VOCABULARY.token_bytes[token_id]
        halves = [VOCABULARY.index.find(data[:1]), VOCABULARY.index.find(data[1:])]
        written += [half for half in halves if half is not None] if cut and None not in halves else [token_id]
    return written


TEXTS = st.lists(st.sampled_from([*b'{}":,ab', *ID_OF.values()]), min_size=1, max_size=8)


@given(st.lists(st.tuples(TEXTS, st.lists(st.booleans(), min_size=8, max_size=8)), max_size=6), TEXTS)
def test_spelled_text_is_the_same_text(learned: list[tuple[list[int], list[bool]]], token_ids: list[int]) -> None:
    spellings = Spellings(VOCABULARY.token_bytes).of_request()
    for canonical, cuts in learned:
        written = respell(canonical, cuts)
        assert spellings.learn(canonical, written)
        assert text_of(spellings.spell(token_ids)) == text_of(token_ids)


@given(TEXTS.filter(lambda ids: len(set(ids)) == len(ids)), st.lists(st.booleans(), min_size=8, max_size=8))
def test_text_is_spelled_as_it_was_written(token_ids: list[int], cuts: list[bool]) -> None:
    shared = Spellings(VOCABULARY.token_bytes)
    written = respell(token_ids, cuts)
    shared.of_request().learn(token_ids, written)
    assert shared.of_request().spell(token_ids) == written
    # And back to the tokenizer's own.
    shared.of_request().learn(token_ids, token_ids)
    assert shared.of_request().spell(token_ids) == token_ids


def test_request_trusts_what_it_wrote_itself() -> None:
    shared = Spellings(VOCABULARY.token_bytes)
    first, second = shared.of_request(), shared.of_request()
    quotes, split = [ID_OF[b'":"']], [ID_OF[b'":'], ord('"')]
    first.learn(quotes, split)
    second.learn(quotes, quotes)
    assert first.spell(quotes) == split
    assert second.spell(quotes) == quotes
    assert shared.of_request().spell(quotes) == quotes


def test_learning_waits_for_the_rest_and_ends_at_another_text() -> None:
    spellings = Spellings(VOCABULARY.token_bytes)
    canonical = [ID_OF[b"name"], ID_OF[b'":"']]
    assert not spellings.learn(canonical, [ID_OF[b"na"]])
    assert not spellings.learn(canonical, [ID_OF[b"na"], ID_OF[b"me"]])
    assert spellings.spell(canonical) == [ID_OF[b"na"], ID_OF[b"me"], ID_OF[b'":"']]
    assert spellings.learn(canonical, [ID_OF[b"kind"], ord("}")])
    assert spellings.learn([STOP], [STOP])
    assert spellings.spell([STOP, *canonical]) == [STOP, ID_OF[b"na"], ID_OF[b"me"], ID_OF[b'":"']]


def answer(drafter: Drafter, schema: dict[str, object], token_ids: list[int]) -> list[int]:
    """Let a model write these tokens, with the drafts that hold; gives the tokens of each pass."""
    matcher = LLGuidanceBackend(VOCABULARY).compile(GrammarSpec.from_json_schema(schema)).new_matcher((STOP,))
    passes, start = [], 0
    while start < len(token_ids):
        drafts = drafter.propose(matcher, 16)
        rest = token_ids[start:-1]
        count = next((index for index, pair in enumerate(zip(drafts, rest, strict=False)) if pair[0] != pair[1]), len(rest))
        count = min(count, len(drafts))
        drafter.learn(count, num_verified=len(drafts))
        for token_id in token_ids[start : start + count + 1]:
            drafter.extend([token_id])
            assert matcher.accept_tokens([token_id])
        passes.append(count + 1)
        start += count + 1
    return passes


def test_drafts_follow_the_models_spelling() -> None:
    """Letter by letter, which no tokenizer would: learned in the first answer, so that no key of the second takes a pass."""
    names = ("name", "kind")
    schema: dict[str, object] = {
        "type": "object",
        "properties": {name: {"enum": ["x", "y"]} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }
    written = [*json.dumps(dict.fromkeys(names, "x"), separators=(",", ":")).encode(), STOP]
    habits = Habits(VOCABULARY)
    first, second = (answer(Drafter([], use_lookup=False, habits=habits), schema, written) for _ in range(2))
    assert sum(first) == sum(second) == len(written)
    assert second == [len(b'{"name":"x'), len(b'","kind":"x'), len(b'"}') + 1]
    without = answer(Drafter([], use_lookup=False), schema, written)
    assert len(second) < len(first) < len(without)
