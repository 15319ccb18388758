"""The gate where messages have headers: Harmony, typed blocks, plain openers, closers of several tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from reasoning_parsers import Bounds, MarkerError, ReasoningFamily, ReasoningGate, TokenMarkers, get_family, get_parser
from reasoning_parsers.channel_scanner import ChannelMarkers
from tests.reasoning_parsers.cases import load_cases
from tests.reasoning_parsers.reference_headers import Reading, read
from tests.reasoning_parsers.small_vocabulary import SmallVocabulary

HARMONY, KIMI, INKLING, MUSE = (get_family(name) for name in ("gpt_oss", "kimi_k3", "inkling", "muse"))
SPECIAL = (
    *("<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|constrain|>"),
    *("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "<|eom|>", "<|eot|>"),
    *(
        "<|message_model|>",
        "<|end_message|>",
        "<|content_model_end_sampling|>",
        *(INKLING.channels.openers if INKLING.channels else ()),
    ),
)
WORDS = SmallVocabulary(
    ["analysis", "final", "fin", " final", "assistant", "commentary", " to=", "to", "=user", "think", "response"], SPECIAL
)
MARKERS = {family.name: WORDS.resolve(family) for family in (HARMONY, KIMI, INKLING, MUSE)}
ASSISTANT = "<|start|>user<|message|>hi<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>"


def channel_gate(prompt: str, family: ReasoningFamily = HARMONY, **options: object) -> ReasoningGate:
    gate = ReasoningGate(MARKERS[family.name], **options)  # type: ignore[arg-type]
    gate.start(WORDS.encode(prompt))
    return gate


def forced_text(gate: ReasoningGate) -> str:
    written: list[int] = []
    while (token_id := gate.forced_token_id()) is not None:
        written.append(token_id)
        gate.commit([token_id])
        assert len(written) < 40
    return WORDS.decode(written, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        pytest.param(ASSISTANT, "open", id="no-header"),
        pytest.param(f"{ASSISTANT}<|channel|>analysis<|message|>so", "open", id="inside-thinking"),
        pytest.param(f"{ASSISTANT}<|channel|>analysis<|message|>so<|end|>", "open", id="thinking-closed"),
        pytest.param(f"{ASSISTANT}<|channel|>fin", "open", id="half-a-header"),
        pytest.param(f'{ASSISTANT}{ANSWER}{{"a"', "ended", id="inside-the-answer"),
        pytest.param(f"{ASSISTANT}{ANSWER}x<|end|>", "open", id="answer-closed"),
        pytest.param(f"{ASSISTANT}{ANSWER}x<|end|><|start|>user<|message|>more", "open", id="users-turn"),
        pytest.param(f"{ASSISTANT}{ANSWER}x<|end|>{ASSISTANT}", "open", id="earlier-answer"),
        pytest.param("", "open", id="empty"),
    ],
)
def test_prompt_state_of_channels(prompt: str, expected: str) -> None:
    gate = channel_gate(prompt)
    assert gate.prompt_state == expected
    is_inside = prompt.endswith("<|message|>so")
    assert gate.text_prompt_state == ("open" if is_inside else "ended" if expected == "ended" else "unknown")
    assert WORDS.decode(gate.text_prompt_tail, skip_special_tokens=False) == (
        "<|start|>assistant<|channel|>fin" * prompt.endswith("fin")
    )
    assert gate.reasoning_ended is (expected == "ended")
    assert (gate.next_start_id, gate.next_start_ids) == (None, frozenset())


@pytest.mark.parametrize(
    ("prompt", "output", "num_thinking"),
    [
        pytest.param(ASSISTANT, f"<|channel|>analysis<|message|>ab<|end|><|start|>assistant{ANSWER}", 2, id="usual"),
        pytest.param(ASSISTANT, "<|channel|>final <|constrain|>json<|message|>", 0, id="with-a-constraint"),
        pytest.param(ASSISTANT, "<|channel|> final<|message|>", 0, id="label-with-a-space"),
        pytest.param(ASSISTANT, f"<|channel|>analysis<|message|>a{ANSWER}", 1, id="not-closed"),
        pytest.param(ASSISTANT, f"<|channel|>finally<|message|>a<|end|><|start|>assistant{ANSWER}", 1, id="longer-label"),
        pytest.param(ASSISTANT, "<|message|>", 0, id="frame-without-an-opener"),
        pytest.param(f"{ASSISTANT}<|channel|>fin", "al<|message|>", 0, id="label-half-in-the-prompt"),
        pytest.param(f"{ASSISTANT}<|channel|>final", "<|message|>", 0, id="header-half-in-the-prompt"),
        pytest.param(
            f"{ASSISTANT}<|channel|>analysis<|message|>so", f"ab<|end|><|start|>assistant{ANSWER}", 2, id="thinking-in-it"
        ),
        pytest.param(ASSISTANT, f"<|channel|>commentary<|message|>hm<|end|><|start|>assistant{ANSWER}", 0, id="preamble"),
    ],
)
def test_answer_begins_after_its_header(prompt: str, output: str, num_thinking: int) -> None:
    token_ids = WORDS.encode(output)
    answer = WORDS.encode('{"a"')
    for cut in range(len(token_ids) + 1):
        gate = channel_gate(prompt)
        gate.commit(token_ids[:cut])
        place = len(token_ids) - cut
        assert gate.bounds(token_ids[cut:] + answer) == Bounds(place, place)
        gate.commit(token_ids[cut:] + answer)
        assert (gate.reasoning_end_index, gate.leftover) == (len(token_ids), b"")
        assert gate.num_reasoning_tokens == num_thinking
        gate.rollback(len(answer) + 1)
        assert gate.is_thinking


@pytest.mark.parametrize("case", load_cases("text_cases.json", ("A21",)), ids=["A21"])
def test_output_that_ends_in_another_channel_has_no_answer(case: dict[str, str]) -> None:
    # A21 on tokens.
    gate = channel_gate(ASSISTANT)
    gate.commit(WORDS.encode(case["text"]))
    assert (gate.reasoning_ended, gate.reasoning_end_index) == (False, None)
    assert gate.num_reasoning_tokens == len(WORDS.encode(case["reasoning"]))
    assert gate.reasoning_span == (0, 0)


@pytest.mark.parametrize("header", ["<|channel|>commentary to=f<|message|>", " to=f<|channel|>commentary<|message|>"])
def test_tool_call_ends_the_thinking_where_tools_are_offered(header: str) -> None:
    thinking = WORDS.encode("<|channel|>analysis<|message|>hm<|end|><|start|>assistant")
    call = WORDS.encode(header)
    gate = channel_gate(ASSISTANT, tools_offered=True)
    bounds = gate.bounds(thinking + call)
    assert bounds.constraint_start == len(thinking + call)
    gate.commit(thinking)
    gate.commit(call)
    frame_start = len(thinking) - 2
    assert bounds.grammar_start == gate.reasoning_end_index == frame_start
    assert (gate.reasoning_ended, gate.num_reasoning_tokens) == (True, 2)
    alone = channel_gate(ASSISTANT)
    alone.commit(thinking + call + WORDS.encode("{}<|call|>"))
    assert (alone.reasoning_ended, alone.num_reasoning_tokens) == (False, 4)


@pytest.mark.parametrize(
    ("output", "forced"),
    [
        ("", ANSWER),
        ("<|channel|>", "final<|message|>"),
        ("<|channel|>fin", "al<|message|>"),
        ("<|channel|> final ", "<|message|>"),
        ("<|channel|>analysis", f"<|message|><|end|><|start|>assistant{ANSWER}"),
        (" to=f", f"{ANSWER}"),
        (" to=f<|channel|>", "final<|message|>"),
        (" to=f<|channel|>analysis", f"<|message|><|end|><|start|>assistant{ANSWER}"),
        ("<|channel|>analysis<|message|>", f"<|end|><|start|>assistant{ANSWER}"),
        ("<|channel|>analysis<|message|><|end|>", f"<|start|>assistant{ANSWER}"),
        ("<|channel|>analysis<|message|><|end|><|start|>", f"assistant{ANSWER}"),
        ("<|channel|>commentary<|message|>", f"<|end|><|start|>assistant{ANSWER}"),
    ],
)
def test_forced_end_is_a_legal_way_into_the_answer(output: str, forced: str) -> None:
    gate = channel_gate(ASSISTANT, max_reasoning_tokens=0)
    gate.commit(WORDS.encode(output))
    assert forced_text(gate) == forced
    assert gate.reasoning_ended is True


@pytest.mark.parametrize(
    ("family", "prompt", "forced"),
    [
        (KIMI, "<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
        (INKLING, "<|message_model|><|content_thinking|>", "<|end_message|><|message_model|><|content_text|>"),
        (MUSE, "<|start|>assistant to=self<|message|>", "<|eom|><|start|>assistant to=user<|message|>"),
    ],
    ids=["kimi_k3", "inkling", "muse"],
)
def test_forced_end_of_other_families(family: ReasoningFamily, prompt: str, forced: str) -> None:
    gate = channel_gate(prompt, family, max_reasoning_tokens=2, transition_token_ids=WORDS.encode("So."))
    gate.commit(WORDS.encode("ab"))
    assert forced_text(gate) == f"So.{forced}"
    assert (gate.reasoning_ended, gate.num_reasoning_tokens) == (True, 5)


def test_transition_is_written_inside_thinking_only() -> None:
    gate = channel_gate(ASSISTANT, max_reasoning_tokens=0, transition_token_ids=WORDS.encode("So."))
    assert forced_text(gate) == ANSWER
    closed = channel_gate(ASSISTANT, max_reasoning_tokens=2, transition_token_ids=WORDS.encode("So."))
    closed.commit(WORDS.encode("<|channel|>analysis<|message|>ab<|end|>"))
    assert forced_text(closed) == f"<|start|>assistant{ANSWER}"


def test_rest_of_the_header_token_is_the_answers() -> None:
    # A header's end that is text.
    channels = ChannelMarkers(
        openers=((1000,),), header_end=tuple(b"::"), closers=((1001,),), content=(tuple(b"final"),), reasoning=((*b"t",),)
    )
    words = SmallVocabulary(["::", ':{"'], [])
    symbols = words.resolve(ReasoningFamily(name="x", start="<a>", end="<b>")).symbols
    markers = TokenMarkers(channels=channels, forced_end=(1001 - 256, 1000 - 256, *b"final::"), symbols=symbols)
    gate = ReasoningGate(markers)
    gate.commit([1000 - 256, *b"final:"])
    (glued,) = words.ids_of_text(':{"')
    assert gate.denied_token_ids(lambda content: content != (b'{"',)) == {glued}
    assert gate.leftover_in([glued]) == b'{"'
    gate.commit([glued])
    assert (gate.leftover, gate.reasoning_end_index) == (b'{"', 8)


def test_channels_without_an_answer_are_refused() -> None:
    with pytest.raises(MarkerError, match="header"):
        TokenMarkers(channels=ChannelMarkers(openers=((1000,),), header_end=(1002,)), forced_end=(1,))


# ---- against a reading of the whole text


def _pieces(family: ReasoningFamily) -> list[str]:
    channels = family.channels
    assert channels is not None
    texts = [*channels.openers, *channels.closers, *channels.frames, *channels.reasoning, *channels.content, *channels.preamble]
    texts += [channels.header_end, channels.recipient, family.start, family.end, channels.next_frame]
    return [text for text in texts if text]


def _text(rng: random.Random, family: ReasoningFamily, max_pieces: int) -> str:
    pieces = _pieces(family)
    fillers = ("a", " ", "fin", "\n", "x.y", "user", " to", "=", "assistant")
    return "".join(rng.choice(pieces if rng.random() < 0.7 else fillers) for _ in range(rng.randint(0, max_pieces)))


def _check(family: ReasoningFamily, reading: Reading, before: Reading, tokens: Sequence[int], gate: ReasoningGate) -> None:
    """`before` is what the prompt says, and `reading` what prompt and output do."""
    places = [len(WORDS.decode(tokens[: index + 1], skip_special_tokens=False)) for index in range(len(tokens))]
    num_prompt = len(before.kinds)
    if reading.stop is None:
        assert gate.reasoning_ended is False
        return
    assert gate.reasoning_ended is True
    boundary = next(index for index, place in enumerate(places) if place + num_prompt >= reading.stop)
    if not reading.is_call:
        assert gate.reasoning_end_index == boundary + 1
        return
    first = boundary
    while first > 0 and reading.kinds[num_prompt + places[first - 1] - 1] in ("frame", "header"):
        first -= 1
    assert gate.reasoning_end_index == first


def _cases(num_cases: int) -> Iterator[tuple[int, random.Random, ReasoningFamily]]:
    for seed in range(num_cases):
        rng = random.Random(seed)
        yield seed, rng, rng.choice((HARMONY, KIMI, INKLING, MUSE))


def _run(num_cases: int) -> None:
    special = set(SPECIAL)
    for seed, rng, family in _cases(num_cases):
        assert family.channels is not None
        tools = rng.random() < 0.5
        prompt, output = _text(rng, family, 5), _text(rng, family, 12)
        gate = channel_gate(prompt, family, tools_offered=tools, max_reasoning_tokens=rng.choice((None, 0)))
        # Only what follows the last boundary counts, the boundary itself as the beginning of a frame.
        last = max((prompt.rfind(text) for text in family.turn_boundaries if WORDS.token_to_id(text)), default=-1)
        turn = prompt[max(last, 0) :]
        turn = "" if last >= 0 and any(turn.startswith(text) for text in family.user_turns) else turn
        before = read(family.channels, special, turn, tools_offered=tools, goes_on=True)
        is_ended = bool(before.kinds) and (before.kinds[-1] == "answer" or (tools and before.kinds[-1] == "call"))
        assert gate.prompt_state == ("ended" if is_ended else "open"), f"seed {seed}: {prompt!r}"
        if is_ended:
            continue
        tokens = WORDS.encode(output)
        if WORDS.encode(turn + output)[len(WORDS.encode(turn)) :] != tokens:
            continue  # the two grow together
        whole = _read_on(family, special, turn, output, tools=tools)
        done = 0
        while done < len(tokens):
            window = tokens[done : done + rng.randint(1, 4)]
            expected = gate.bounds(window)
            assert gate.commit(window) == expected
            if rng.random() < 0.2:
                depth = rng.randint(0, done + len(window))
                gate.rollback(depth)
                done -= depth
            done += len(window)
        try:
            _check(family, whole, before, tokens, gate)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {family.name} {turn!r} {output!r}: {error}") from error
        if gate.is_thinking and gate.forced_token_id() is not None:
            forced_text(gate)
            assert gate.reasoning_ended is True, f"seed {seed}"


def _read_on(family: ReasoningFamily, special: set[str], turn: str, output: str, *, tools: bool) -> Reading:
    assert family.channels is not None
    kinds = read(family.channels, special, turn + output, tools_offered=tools, goes_on=True).kinds
    for index in range(len(turn), len(kinds)):
        if kinds[index] == "answer" or (tools and kinds[index] == "call"):
            return Reading(kinds[: index + 1], index + 1, kinds[index] == "call")
    return Reading([], None, False)


def test_gate_equals_a_reading_of_the_whole_text() -> None:
    _run(1_000)


@pytest.mark.slow
def test_gate_equals_a_reading_of_the_whole_text_in_many_cases() -> None:
    _run(20_000)


def test_gate_and_text_parser_find_the_same_answer() -> None:
    """Outputs as models write them; on others the two differ on purpose: only the text side takes an answer without a header."""
    for seed, rng, family in _cases(600):
        channels = family.channels
        assert channels is not None
        reasoning = family.start.join(["", *(rng.choice(("hm", "so\n", "a < b")) for _ in range(rng.randint(0, 2)))][:2])
        messages = [f"{family.start}{reasoning.removeprefix(family.start)}{channels.closers[0]}"] if reasoning else []
        output = f"{channels.next_frame}".join([*messages, f"{family.end}{{}}"])
        tokens = WORDS.encode(output)
        gate = channel_gate(channels.next_frame, family)
        gate.commit(tokens)
        split = get_parser(family, prompt_state=gate.text_prompt_state).split(output)
        assert gate.reasoning_end_index is not None, f"seed {seed}: {output!r}"
        answer = WORDS.decode(tokens[gate.reasoning_end_index :], skip_special_tokens=False)
        assert answer == split.content == "{}", f"seed {seed}: {output!r}"
