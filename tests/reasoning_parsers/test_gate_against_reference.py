"""Random markers, prompts, windows, drafts and rollbacks: the gate answers what the brute-force reference answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from reasoning_parsers import Content, EndMarker, OnUnknown, ReasoningGate, TokenMarkers, TokenSymbols
from tests.reasoning_parsers.reference_gate import ReferenceGate

_NUM_CASES, _NUM_SLOW_CASES = 5_000, 200_000
_NUM_PARTS, _NUM_SLOW_PARTS = 10, 100  # short parts: a busy machine must not run into the time limit of a test
_POLICIES: tuple[OnUnknown, ...] = ("first_token", "open", "constrain")

Sequence = tuple[int, ...]


@dataclass(frozen=True)
class World:
    """Markers over a small vocabulary, and pieces that outputs are made of."""

    markers: TokenMarkers
    vocabulary: tuple[int, ...]
    pieces: tuple[Sequence, ...]
    spelling: dict[int, Sequence] | None = None


def _sequence(rng: random.Random, symbols: Sequence, *, first: Sequence | None = None) -> Sequence:
    if rng.random() < 0.3:  # overlaps itself
        period = [rng.choice(symbols) for _ in range(rng.randint(1, 2))]
        sequence = tuple((period * 4)[: rng.randint(2, 5)])
    else:
        sequence = tuple(rng.choice(symbols) for _ in range(rng.choice((1, 1, 2, 3, 4))))
    return sequence if first is None or sequence[0] in first else (rng.choice(first), *sequence[1:])


@dataclass
class Drawn:
    starts: list[Sequence]
    ends: list[EndMarker]


def _draw_markers(rng: random.Random, symbols: Sequence, first: Sequence) -> Drawn:
    """Markers of both kinds: that overlap themselves, share a beginning, are a beginning of another, have a gap."""
    while True:
        starts = [_sequence(rng, symbols, first=first) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        if rng.random() < 0.2:
            starts.append((*starts[0], *_sequence(rng, symbols)))
        ends = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            head = _sequence(rng, symbols)
            if rng.random() < 0.3:
                head = (*starts[0][: rng.randint(1, len(starts[0]))], *head)
            ends.append(EndMarker(head, _sequence(rng, symbols) if rng.random() < 0.2 else ()))
        if not set(starts) & {end.head for end in ends if not end.tail}:
            return Drawn(starts, ends)


def _world_of_ids(rng: random.Random) -> World:
    num_ids, boundary, implicit, blank = rng.randint(2, 4), 8, 9, 7
    drawn = _draw_markers(rng, ids := tuple(range(num_ids)), ids)
    if rng.random() < 0.3:  # the plain fields
        drawn = Drawn(drawn.starts[:1], [EndMarker(drawn.ends[0].head)])
    if set(drawn.starts) & {end.head for end in drawn.ends}:
        return _world_of_ids(rng)
    markers = TokenMarkers(
        starts=tuple(dict.fromkeys(drawn.starts)),
        ends=tuple(dict.fromkeys(drawn.ends)),
        implicit_ends=frozenset({implicit}),
        turn_boundaries=frozenset({boundary}) if rng.random() < 0.7 else frozenset(),
        user_turns=frozenset({(boundary, rng.randrange(num_ids))}) if rng.random() < 0.3 else frozenset(),
        blanks=frozenset({blank}) if rng.random() < 0.5 else frozenset(),
    )
    pieces = [*drawn.starts, *(end.head + end.tail for end in drawn.ends), *(end.head for end in drawn.ends)]
    return World(markers, (*ids, boundary, implicit, blank), (*pieces, (boundary,), (implicit,), (blank,)))


def _world_of_symbols(rng: random.Random) -> World:
    """A vocabulary of bytes and glued tokens, and two tokens that are no text, one of them twice."""
    letters = tuple(b"abc"[: rng.randint(2, 3)])
    texts = [bytes((letter,)) for letter in letters] + [b" "]
    texts += [bytes(rng.choices((*letters, 32), weights=(3,) * len(letters) + (1,), k=rng.randint(2, 5))) for _ in range(9)]
    special, twin, other, boundary = range(len(texts), len(texts) + 4)
    num_tokens = boundary + 1
    symbols = TokenSymbols(
        lambda token_id: texts[token_id] if token_id < len(texts) else b"", num_tokens, same_as={twin: special}
    )
    kinds = (*letters, *letters, 256 + special)
    drawn = _draw_markers(rng, kinds, kinds)
    implicit = tuple(_sequence(rng, kinds) for _ in range(rng.choice((0, 1, 1, 2))))
    taken = {*drawn.starts, *(end.head for end in drawn.ends)}
    markers = TokenMarkers(
        starts=tuple(dict.fromkeys(drawn.starts)),
        ends=tuple(dict.fromkeys(drawn.ends)),
        implicit_ends=frozenset({other}),
        implicit_sequences=tuple(sequence for sequence in dict.fromkeys(implicit) if sequence not in taken),
        turn_boundaries=frozenset({boundary}) if rng.random() < 0.7 else frozenset(),
        user_turns=frozenset({(boundary, 0)}) if rng.random() < 0.3 else frozenset(),
        symbols=symbols,
    )
    spelling = {token_id: symbols.of_token(token_id) for token_id in range(num_tokens)}
    wholes = [*drawn.starts, *(end.head + end.tail for end in drawn.ends), *(end.head for end in drawn.ends), *implicit]
    pieces = [_split(rng, whole, spelling) for whole in wholes for _ in range(2)]
    return World(markers, tuple(range(num_tokens)), (*pieces, (boundary,), (other,), (twin,)), spelling)


def _split(rng: random.Random, symbols: Sequence, spelling: dict[int, Sequence]) -> Sequence:
    """Tokens that spell `symbols`, and sometimes more or something before."""
    tokens: list[int] = []
    place = 0
    while place < len(symbols):
        fitting = [token for token, text in spelling.items() if symbols[place : place + len(text)] == text]
        overlong = [token for token, text in spelling.items() if text[: len(symbols) - place] == symbols[place:]]
        glued = [token for token, text in spelling.items() if len(text) > 1 and text[-1] == symbols[place]]
        token = rng.choice(fitting + overlong * 2 + (glued if place == 0 else []))
        tokens.append(token)
        place += 1 if token in glued and token not in fitting else len(spelling[token])
    return tuple(tokens)


def _tokens(rng: random.Random, world: World, max_pieces: int) -> list[int]:
    """Fillers, whole markers and broken ones."""
    tokens: list[int] = []
    for _ in range(rng.randint(0, max_pieces)):
        kind = rng.random()
        piece = rng.choice(world.pieces)
        if kind < 0.25:
            tokens += piece
        elif kind < 0.45:
            tokens += piece[: rng.randint(0, len(piece))]
        else:
            tokens.append(rng.choice(world.vocabulary))
    return tokens


def _compare(gate: ReasoningGate, reference: ReferenceGate, world: World) -> None:
    assert gate.reasoning_ended is reference.reasoning_ended
    assert gate.is_thinking is (reference.reasoning_ended is False)
    assert gate.reasoning_end_index == reference.reasoning_end_index
    assert gate.leftover == reference.leftover
    assert gate.num_reasoning_tokens == reference.num_reasoning_tokens
    assert gate.reasoning_span == reference.reasoning_span
    next_ids = reference.next_start_ids(world.vocabulary)
    assert gate.next_start_ids == next_ids
    assert gate.allows_start is bool(next_ids)
    assert gate.next_start_id in (next_ids or (None,))
    assert gate.should_fill_bitmask() is reference.should_fill_bitmask()
    assert gate.should_advance() is reference.should_advance()
    assert gate.forced_token_id() == reference.forced_token_id(world.vocabulary)


def _make_accepts(rng: random.Random, world: World) -> tuple[Callable[[Content], bool], Callable[[Sequence], bool]]:
    """Whether a made-up grammar takes a content, given as the gate asks and as symbols."""
    taken = frozenset(symbol for symbol in range(320) if rng.random() < 0.5)
    same = world.markers.symbols

    def of_symbols(content: Sequence) -> bool:
        return all(symbol in taken for symbol in content)

    def of_content(content: Content) -> bool:
        symbols: list[int] = []
        for part in content:
            if isinstance(part, bytes):
                symbols += part
            else:
                symbols += [part] if same is None else [same.of_id(part)]
        return of_symbols(tuple(symbols))

    return of_content, of_symbols


def _run_case(seed: int) -> None:
    rng = random.Random(seed)
    world = _world_of_ids(rng) if rng.random() < 0.5 else _world_of_symbols(rng)
    prompt = _tokens(rng, world, 6)
    policy = rng.choice(_POLICIES)
    enabled = rng.choice((None, None, True, False))
    tools = rng.random() < 0.5
    budget = rng.choice((None, 0, 1, 2, 4))
    phrase = [rng.choice(world.vocabulary) for _ in range(rng.choice((0, 0, 1, 3)))]
    gate = ReasoningGate(
        world.markers,
        on_unknown=policy,
        thinking_enabled=enabled,
        tools_offered=tools,
        max_reasoning_tokens=budget,
        transition_token_ids=phrase,
    )
    gate.start(prompt)
    reference = ReferenceGate(world.markers, prompt, policy, enabled, tools, budget, phrase, world.spelling)
    assert gate.prompt_state == reference.in_prompt[0]
    accepts, accepts_symbols = _make_accepts(rng, world)
    stream = _tokens(rng, world, 12)
    for _ in range(rng.randint(1, 8)):
        _compare(gate, reference, world)
        if rng.random() < 0.3 and reference.reasoning_ended is False and not reference.is_head_open:
            assert gate.denied_token_ids(accepts) == reference.denied(world.vocabulary, accepts_symbols)
        window, stream = (stream[: (size := rng.choice((1, 1, 2, 3, 5)))], stream[size:])
        if rng.random() < 0.3 and (forced := gate.forced_token_id()) is not None:
            window, stream = [forced], window + stream
        assert gate.bounds(window) == reference.bounds(window)
        assert gate.leftover_in(window) == reference.leftover_in(window)
        drafts = _tokens(rng, world, 3)
        assert gate.bounds(drafts) == reference.bounds(drafts)
        assert gate.commit(window) == reference.commit(window)
        if rng.random() < 0.3:
            _compare(gate, reference, world)
            num_tokens = rng.randint(0, len(reference.tokens))
            gate.rollback(num_tokens)
            reference.rollback(num_tokens)
    _compare(gate, reference, world)


def _run_part(size: int, part: int) -> None:
    for seed in range(part * size, (part + 1) * size):
        try:
            _run_case(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("part", range(_NUM_PARTS))
def test_gate_equals_reference(part: int) -> None:
    _run_part(_NUM_CASES // _NUM_PARTS, part)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_NUM_SLOW_PARTS))
def test_gate_equals_reference_in_many_cases(part: int) -> None:
    _run_part(_NUM_SLOW_CASES // _NUM_SLOW_PARTS, part)


def _feed(gate: ReasoningGate, tokens: list[int], rng: random.Random) -> tuple[bytes, list[int]]:
    """Commit in random windows; return what the bounds feed to a grammar."""
    leftover, fed = b"", list[int]()
    done = 0
    while done < len(tokens):
        window = tokens[done : done + rng.randint(1, 4)]
        leftover += gate.leftover_in(window)
        grammar_start, _ = gate.commit(window)
        fed += tokens[max(0, done + grammar_start) : done + len(window)]
        done += len(window)
    return leftover, fed


def test_gate_feeds_the_same_tokens_in_any_windows() -> None:
    for seed in range(2_000):
        rng = random.Random(seed)
        world = _world_of_ids(rng) if rng.random() < 0.5 else _world_of_symbols(rng)
        prompt, tokens = _tokens(rng, world, 4), _tokens(rng, world, 10)
        gate = ReasoningGate(world.markers, tools_offered=True)
        gate.start(prompt)
        first = _feed(gate, tokens, rng)
        gate.start(prompt)
        assert _feed(gate, tokens, rng) == first, f"seed {seed}"
        end_index = gate.reasoning_end_index
        if end_index is not None:
            assert first == (gate.leftover, tokens[end_index:]), f"seed {seed}"


def test_forced_tokens_end_the_thinking() -> None:
    for seed in range(1_000):
        rng = random.Random(seed)
        world = _world_of_ids(rng) if rng.random() < 0.5 else _world_of_symbols(rng)
        gate = ReasoningGate(world.markers, on_unknown="open", max_reasoning_tokens=0)
        gate.start(_tokens(rng, world, 4))
        gate.commit(_tokens(rng, world, 3))
        written = []
        while (token_id := gate.forced_token_id()) is not None:
            written.append(token_id)
            gate.commit([token_id])
            assert len(written) < 20, f"seed {seed}"
        assert gate.reasoning_ended is True
