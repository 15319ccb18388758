"""Markers that are not one token: glued to their neighbours, spelled in several ways, phrases, labels, twins."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reasoning_parsers import (
    Bounds,
    Content,
    EndMarker,
    InvalidOptionError,
    MarkerError,
    ReasoningFamily,
    ReasoningGate,
    TokenMarkers,
    get_family,
)
from tests.reasoning_parsers.cases import Case, load_cases
from tests.reasoning_parsers.small_vocabulary import SmallVocabulary

THINK = ReasoningFamily(name="glued", start="<think>", end="</think>", implicit_ends=("<tool_call>",))
WORDS = SmallVocabulary(
    [
        "think",
        "done</",
        " </",
        "</",
        "think>",
        ">\n",
        ">\n{",
        '>{"',
        " <",
        "tool",
        "_call",
        "_call>",
        "na\u00efve",
        "\u00e9>",
        '{"a":',
    ],
    ["<eos>", "<turn>"],
)


def glued_gate(
    prompt: str | Sequence[int] = "<think>", *, family: ReasoningFamily = THINK, words: SmallVocabulary = WORDS, **options: object
) -> ReasoningGate:
    gate = ReasoningGate(words.resolve(family), **options)  # type: ignore[arg-type]
    gate.start(words.encode(prompt) if isinstance(prompt, str) else prompt)
    return gate


def ids(*texts: str) -> list[int]:
    found = [WORDS.token_to_id(text) for text in texts]
    assert None not in found
    return [token_id for token_id in found if token_id is not None]


# ---- B11


@pytest.mark.parametrize("case", load_cases("gate_cases.json", ("B11",)), ids=["B11"])
def test_marker_in_the_decoded_text(case: Case) -> None:
    texts = {int(key): text.encode() for key, text in case["vocab"].items()}
    special = set(case["special"])
    family = ReasoningFamily(name="b11", **case["marker_text"])
    markers = TokenMarkers.resolve(
        family,
        lambda text: None,
        lambda text: [] if not text else [0],
        token_bytes=lambda token_id: b"" if token_id in special else texts[token_id],
        num_tokens=len(texts),
    )
    gate = ReasoningGate(markers)
    gate.start(case["prompt"])
    assert gate.prompt_state == case["expect"]["prompt_state"]
    for step, window in enumerate(case["windows"]):
        bounds = gate.bounds(window)
        assert list(bounds) == case["expect"]["bounds"][step]
        assert window[bounds.grammar_start :] == case["expect"]["fed_to_grammar"][step]
        gate.commit(window)
        assert gate.leftover == b""
        assert gate.reasoning_ended is case["expect"]["reasoning_ended_after_step"][step]
    assert gate.num_reasoning_tokens == 1


# ---- where the answer begins


@pytest.mark.parametrize(
    ("tokens", "end_index", "leftover", "num_thinking"),
    [
        pytest.param(ids("done</", "think>", "x"), 2, b"", 1, id="glued-in-front"),
        pytest.param(ids("x", "</", "think", ">\n{", "x"), 4, b"\n{", 1, id="glued-behind"),
        pytest.param(ids(" </", "think", '>{"'), 3, b'{"', 1, id="a-space-before-counts-as-thinking"),
        pytest.param(ids("</", "think>"), 2, b"", 0, id="nothing-thought"),
        pytest.param([*b"</think>{"], 8, b"", 0, id="by-bytes"),
        pytest.param(ids("na\u00efve", "</", "think>"), 3, b"", 1, id="other-bytes-between"),
    ],
)
def test_rest_of_the_boundary_token_is_the_answers(tokens: list[int], end_index: int, leftover: bytes, num_thinking: int) -> None:
    for cut in range(len(tokens) + 1):
        gate = glued_gate()
        parts = [gate.leftover_in(tokens[:cut])]
        gate.commit(tokens[:cut])
        parts.append(gate.leftover_in(tokens[cut:]))
        gate.commit(tokens[cut:])
        assert (gate.reasoning_end_index, gate.leftover, gate.num_reasoning_tokens) == (end_index, leftover, num_thinking)
        assert b"".join(parts) == leftover
        gate.rollback(len(tokens))
        assert (gate.is_thinking, gate.leftover) == (True, b"")


def test_bytes_of_a_character_in_two_tokens_confuse_nothing() -> None:
    gate = glued_gate()
    gate.commit([*"\u20ac".encode()[:2]])
    gate.commit([*"\u20ac".encode()[2:], *ids("</", "think>")])
    assert gate.reasoning_ended is True
    assert gate.num_reasoning_tokens == 3


def test_glued_start_marker_is_told_from_an_answer_inside_a_token() -> None:
    gate = glued_gate("hello")
    assert gate.allows_start
    assert gate.next_start_ids >= set(ids("<", " <"))
    gate.commit(ids("<", "think"))
    assert gate.reasoning_ended is None
    assert gate.next_start_ids == set(ids(">", ">\n", ">\n{", '>{"'))
    assert gate.commit(ids(">\n")) == Bounds(2, 2)
    assert (gate.is_thinking, gate.num_reasoning_tokens) == (True, 1)  # the line break
    gate.rollback(1)
    assert gate.bounds(ids("x")) == Bounds(-2, 0)


def test_blanks_before_a_start_marker_decide_nothing() -> None:
    gate = glued_gate("hello")
    assert gate.commit([*b"\n "]) == Bounds(3, 0)
    assert gate.reasoning_ended is None
    assert gate.next_start_id == ids("<")[0]
    gate.commit([*b"<think>x"])
    assert (gate.is_thinking, gate.num_reasoning_tokens) == (True, 1)
    gate.rollback(8)
    assert gate.commit([*b"x"]) == Bounds(-2, 0)


def test_blank_ids_before_a_start_marker_decide_nothing() -> None:
    words = SmallVocabulary(["\n\n"], ["<think>", "</think>", "<tool_call>"])
    markers = words.resolve(THINK)
    start, blank = words.ids_of_text("<think>")[0], words.ids_of_text("\n\n")[0]
    assert markers.symbols is None
    assert blank in markers.blanks
    gate = ReasoningGate(markers)
    assert gate.commit([blank]) == Bounds(2, 0)
    assert gate.next_start_id == start
    gate.commit([start])
    assert (gate.is_thinking, gate.num_reasoning_tokens, gate.reasoning_span) == (True, 0, (2, 2))


# ---- prompts


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("hello", "unknown"),
        ("hello<think>", "open"),
        ("hello<think>\n{", "open"),
        ("<think>x</think>\n{", "ended"),
        ("<think>x</thin", "open"),
        ("<think>x</think><turn>hello", "unknown"),
        ("<think>x<turn>hello<think>", "open"),
    ],
)
def test_prompt_state_of_glued_markers(prompt: str, expected: str) -> None:
    family = ReasoningFamily(name="glued", start="<think>", end="</think>", turn_boundaries=("<turn>",))
    assert glued_gate(prompt, family=family).prompt_state == expected


def test_end_marker_that_a_prompt_began_is_completed() -> None:
    gate = glued_gate("<think>so</", max_reasoning_tokens=0, transition_token_ids=ids("x"))
    assert gate.forced_token_id() == ids("think>")[0]  # and no transition: the marker is half written
    assert gate.bounds(ids("think>")) == Bounds(1, 1)


# ---- budget


def test_forced_end_goes_on_inside_a_marker() -> None:
    gate = glued_gate(max_reasoning_tokens=1)
    gate.commit(ids("done</"))
    written = []
    while (token_id := gate.forced_token_id()) is not None:
        written.append(token_id)
        gate.commit([token_id])
    assert written == ids("think>")
    assert gate.num_reasoning_tokens == 1


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param("xy", [*b"So.", *ids("</", "think>")], id="transition"),
        pytest.param("x</", ids("think>"), id="half-an-end-marker"),
    ],
)
def test_transition_is_written_unless_the_model_is_ending_already(tokens: str, expected: list[int]) -> None:
    gate = glued_gate(max_reasoning_tokens=2, transition_token_ids=[*b"So."])
    gate.commit(WORDS.encode(tokens))
    written = []
    while (token_id := gate.forced_token_id()) is not None:
        written.append(token_id)
        gate.commit([token_id])
    assert written == expected
    assert gate.reasoning_ended is True


def test_transition_with_its_own_end_marker_is_cut_there() -> None:
    gate = glued_gate(max_reasoning_tokens=0, transition_token_ids=[*ids("x", "</", "think>"), *b"more"])
    for token_id in ids("x", "</", "think>"):
        assert gate.forced_token_id() == token_id
        gate.commit([token_id])
    assert gate.forced_token_id() is None


def test_no_second_block_after_a_forced_end() -> None:
    markers = TokenMarkers((1,), (2,))
    gate = ReasoningGate(markers, max_reasoning_tokens=1)
    gate.start([1])
    assert gate.denied_token_ids(lambda content: True) == frozenset()
    gate.commit([5, 2])
    assert gate.denied_token_ids(lambda content: True) == {1}
    own = ReasoningGate(markers, max_reasoning_tokens=9)
    own.start([1])
    own.commit([5, 2])
    assert own.denied_token_ids(lambda content: True) == frozenset()
    assert ReasoningGate(None).denied_token_ids(lambda content: True) == frozenset()
    glued = glued_gate(max_reasoning_tokens=0)
    glued.commit([*b"</think>"])
    assert glued.denied_token_ids(lambda content: True) == frozenset()  # no single token begins a block


# ---- exits


def test_tokens_whose_rest_the_grammar_refuses_are_denied() -> None:
    gate = glued_gate()
    gate.commit(ids("</", "think"))
    asked: list[Content] = []

    def accepts(content: Content) -> bool:
        asked.append(content)
        return content == (b'{"',)

    assert gate.denied_token_ids(accepts) == set(ids(">\n", ">\n{"))
    assert sorted(asked) == [(b"\n",), (b"\n{",), (b'{"',)]
    gate.denied_token_ids(accepts)
    assert len(asked) == 3  # asked once for each place


def test_tool_opener_is_denied_where_the_grammar_cannot_begin_with_it() -> None:
    gate = glued_gate(tools_offered=True)
    gate.commit(ids("x", " <", "tool"))
    assert gate.denied_token_ids(lambda content: False) == set(ids("_call>"))
    assert gate.denied_token_ids(lambda content: False) == set(ids("_call>"))
    free = glued_gate()
    free.commit(ids("x", " <", "tool"))
    assert free.denied_token_ids(lambda content: False) == frozenset()


def test_tool_opener_of_several_tokens_is_content_from_inside_a_token() -> None:
    gate = glued_gate(tools_offered=True)
    gate.commit(ids("x", " <", "tool"))
    assert gate.bounds(ids("_call>", "x")) == Bounds(-1, 1)
    gate.commit(ids("_call>"))
    assert (gate.reasoning_end_index, gate.leftover, gate.num_reasoning_tokens) == (2, b"<", 2)
    gate.rollback(2)
    assert gate.is_thinking


def test_both_ids_of_a_tool_opener_are_denied_alike() -> None:
    words = SmallVocabulary([], ["<think>", "</think>", "<tool_call>", "<tool_call>"])
    markers = words.resolve(THINK)
    twins = set(words.ids_of_text("<tool_call>"))
    assert markers.implicit_ends == twins
    gate = ReasoningGate(markers, tools_offered=True)
    gate.start(words.encode("<think>"))
    first, second = sorted(twins)
    assert gate.denied_token_ids(lambda content: False) == twins
    gate.start(words.encode("<think>"))
    assert gate.denied_token_ids(lambda content: content == (first,)) == {second}


# ---- rows


def test_two_ids_with_one_text_are_one_marker() -> None:
    # F15: for start and end markers too.
    words = SmallVocabulary([], ["<think>", "<think>", "</think>", "</think>", "<tool_call>"])
    markers = words.resolve(THINK)
    starts, ends = words.ids_of_text("<think>"), words.ids_of_text("</think>")
    for start in starts:
        for end in ends:
            gate = ReasoningGate(markers)
            gate.commit([start, 65, end])
            assert (gate.reasoning_ended, gate.num_reasoning_tokens) == (True, 1)
    spelled = SmallVocabulary([], ["<x>", "<x>"])
    twins = spelled.ids_of_text("<x>")
    gate = ReasoningGate(spelled.resolve(ReasoningFamily(name="twins", start="<a>", end="<x>b")))
    gate.start([*b"<a>"])
    gate.commit([*b"y", twins[1], *b"b"])
    assert gate.reasoning_ended is True


def test_granite_phrases_are_found_in_any_tokens() -> None:
    family = get_family("granite")
    words = SmallVocabulary(["Here", " is", "'s", " my", " thought", " process:", " response", " response:", ":\n\n{"], [])
    for start, end in zip(family.starts, family.ends, strict=False):
        gate = ReasoningGate(words.resolve(family))
        gate.commit(words.encode(f"{start}hm {end}"))
        assert gate.reasoning_ended is True, (start, end)
    gate = ReasoningGate(words.resolve(family))
    gate.commit(words.encode(f"{family.start}\nso "))
    gate.commit([*words.encode(family.end[:-1]), *words.ids_of_text(":\n\n{")])
    assert (gate.reasoning_ended, gate.leftover) == (True, b"\n\n{")


def test_start_label_is_part_of_the_marker_but_not_needed() -> None:
    family = ReasoningFamily(name="label", start="<c>", end="</c>", start_label="thought\n")
    words = SmallVocabulary(["thought"], ["<c>", "</c>"])
    markers = words.resolve(family)
    for text, num_thinking in (("<c>thought\nhm", 2), ("<c>hm", 2), ("<c>thoughts", 2), ("<c>thought\n", 0)):
        gate = ReasoningGate(markers)
        gate.commit(words.encode(text))
        assert gate.num_reasoning_tokens == num_thinking, text
        gate.commit(words.encode("</c>"))
        assert gate.num_reasoning_tokens == num_thinking, text


@pytest.mark.parametrize("between", ["", "x", " <tail", "<head>"])
def test_end_marker_with_a_gap(between: str) -> None:
    head, tail, start = 256, 257, 258
    markers = TokenMarkers(starts=((start,),), ends=(EndMarker((head,), (tail,)),))
    assert (markers.start, markers.end) == ((start,), (head, tail))
    gate = ReasoningGate(markers, max_reasoning_tokens=0)
    gate.start([start])
    gate.commit([1, tail, 2, head, *between.encode()])
    assert gate.reasoning_span == (0, 3)
    assert gate.forced_token_id() == tail
    gate.commit([tail])
    assert (gate.reasoning_ended, gate.num_reasoning_tokens) == (True, 3)


def test_family_without_a_vocabulary_is_looked_up_by_ids() -> None:
    markers = TokenMarkers.resolve(THINK, lambda text: None, lambda text: [*text.encode()])
    assert (markers.symbols, markers.start, markers.implicit_ends) == (None, tuple(b"<think>"), frozenset())
    with pytest.raises(MarkerError, match="token_bytes"):
        TokenMarkers.resolve(get_family("gpt_oss"), lambda text: None, lambda text: [*text.encode()])


def test_budget_needs_tokens_to_write_an_end_with() -> None:
    markers = TokenMarkers.resolve(THINK, lambda text: None, lambda text: [], token_bytes=lambda token_id: b"x", num_tokens=1)
    assert markers.forced_end == ()
    assert ReasoningGate(markers).reasoning_ended is None
    with pytest.raises(InvalidOptionError, match="no tokens to write"):
        ReasoningGate(markers, max_reasoning_tokens=5)
    with pytest.raises(MarkerError, match="no tokens to write"):
        TokenMarkers.resolve(
            get_family("gpt_oss"), lambda text: None, lambda text: [], token_bytes=lambda token_id: b"x", num_tokens=1
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": ((1,), ()), "ends": (EndMarker((2,)),)}, "start marker"),
        ({"starts": ((1,),), "ends": (EndMarker((2,)), EndMarker(()))}, "end marker"),
        ({"starts": ((1,), (2,)), "ends": (EndMarker((2,)),)}, "same token ids"),
        ({"start": (1,), "end": (2,), "implicit_sequences": ((2,),)}, "implicit end"),
        ({"start": (1,), "end": (2,), "forced_end": (3,)}, "forced end"),
    ],
)
def test_markers_refuse_further_spellings_that_cannot_work(options: dict[str, object], message: str) -> None:
    with pytest.raises(MarkerError, match=message):
        TokenMarkers(**options)  # type: ignore[arg-type]


def test_first_spelling_is_the_usual_one() -> None:
    markers = TokenMarkers(start=(1,), end=(2,), starts=((3,),), ends=(EndMarker((4,)),))
    assert (markers.starts, markers.ends) == (((1,), (3,)), (EndMarker((2,)), EndMarker((4,))))
    assert markers.forced_end == (2,)
    assert markers.end_token_ids == {2, 4}
    assert WORDS.resolve(THINK).end_token_ids == frozenset()


def test_ids_that_the_vocabulary_has_not_got_are_fillers() -> None:
    gate = glued_gate()
    gate.commit([-1, 10**6, *ids("</", "think>")])
    assert (gate.reasoning_ended, gate.num_reasoning_tokens) == (True, 2)


def test_another_end_can_be_the_one_to_write() -> None:
    markers = TokenMarkers(starts=((1,),), ends=(EndMarker((2,)), EndMarker((3, 4))), forced_end=(3, 4))
    gate = ReasoningGate(markers, thinking_enabled=True, tools_offered=True, max_reasoning_tokens=0)
    gate.start([1])
    assert gate.forced_token_id() == 3
    assert (gate.markers, gate.thinking_enabled, gate.tools_offered) == (markers, True, True)


def test_transitions_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reasoning_parsers.transition._MAX_REMEMBERED", 3)
    gate = glued_gate()
    gate.commit([*b"abcdefgh</think>x"])
    assert (gate.reasoning_ended, gate.num_reasoning_tokens) == (True, 8)
    assert gate.markers is not None
    assert len(gate.markers.transition(tools_offered=False)._remembered) <= 3


def test_half_an_end_marker_before_a_repeated_start_marker_is_forgotten() -> None:
    gate = glued_gate("<think>so</", max_reasoning_tokens=0, transition_token_ids=ids("x"))
    gate.commit(ids("<", "think", ">\n"))
    gate.rollback(1)
    assert gate.forced_token_id() == ids("</")[0]  # the start marker is not whole
    words = SmallVocabulary(["<think>\n"], [])
    gate = glued_gate("<think>so</", words=words, max_reasoning_tokens=0, transition_token_ids=[*b"xy"])
    gate.commit(words.ids_of_text("<think>\n"))
    assert gate.num_reasoning_tokens == 1  # the line break
    assert gate.forced_token_id() == ord("y")
