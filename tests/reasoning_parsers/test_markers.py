from __future__ import annotations

from collections.abc import Callable

import pytest

from reasoning_parsers import MarkerError, ReasoningFamily, TokenMarkers, get_family

VOCABULARY = {"<think>": 100, "</think>": 101, "<tool_call>": 102, "<|im_start|>": 103, "<|im_end|>": 104, "user": 105}


def encode_chars(text: str) -> list[int]:
    """A tokenizer that knows added tokens, and characters besides."""
    token_ids: list[int] = []
    while text:
        token = next((token for token in VOCABULARY if text.startswith(token)), text[0])
        token_ids.append(VOCABULARY.get(token, ord(token[0])))
        text = text[len(token) :]
    return token_ids


def test_resolve_takes_added_tokens() -> None:
    markers = TokenMarkers.resolve(get_family("qwen3"), VOCABULARY.get, encode_chars)
    assert (markers.start, markers.end) == ((100,), (101,))
    assert markers.implicit_ends == {102}
    assert markers.turn_boundaries == {103, 104}
    assert markers.user_turns == {(103, 105), (103, *encode_chars("system"))}


def test_resolve_encodes_what_is_no_token() -> None:
    markers = TokenMarkers.resolve(get_family("seed_oss"), lambda text: None, lambda text: [ord(char) for char in text])
    assert markers.start == tuple(map(ord, "<seed:think>"))
    assert markers.end == tuple(map(ord, "</seed:think>"))
    # Not one token: cannot be told from text.
    assert markers.turn_boundaries == frozenset()


@pytest.mark.parametrize("name", ["start", "end"])
def test_resolve_refuses_a_marker_without_ids(name: str) -> None:
    family = get_family("qwen3")
    missing = getattr(family, name)

    def encode(text: str) -> list[int]:
        return [] if text == missing else encode_chars(text)

    def token_to_id(text: str) -> int | None:
        return None if text == missing else VOCABULARY.get(text)

    with pytest.raises(MarkerError, match="qwen3") as caught:
        TokenMarkers.resolve(family, token_to_id, encode)
    assert caught.value.marker == missing


def test_resolve_refuses_the_unknown_token() -> None:
    # Such a tokenizer answers every text it does not know with the id of its unknown token.
    def token_to_id(text: str) -> int | None:
        return VOCABULARY.get(text, 0) if text != "</think>" else 0

    def encode(text: str) -> list[int]:
        return [] if not text else [0]

    with pytest.raises(MarkerError, match="</think>"):
        TokenMarkers.resolve(get_family("qwen3"), token_to_id, encode)


def test_resolve_leaves_out_boundaries_that_the_vocabulary_lacks() -> None:
    def token_to_id(text: str) -> int | None:
        return VOCABULARY.get(text, 0)

    def encode(text: str) -> list[int]:
        return [0 for _ in text]

    markers = TokenMarkers.resolve(get_family("pocket_r1"), token_to_id, encode)
    assert markers.turn_boundaries == frozenset()
    assert markers.user_turns == frozenset()


def test_resolve_refuses_an_encoder_that_adds_special_tokens() -> None:
    # B8: the ids of a marker would begin with the token that begins a sequence.
    encode: Callable[[str], list[int]] = lambda text: [1, *encode_chars(text)]  # noqa: E731
    with pytest.raises(MarkerError, match="special tokens"):
        TokenMarkers.resolve(get_family("qwen3"), VOCABULARY.get, encode)


def test_resolve_refuses_markers_of_the_same_ids() -> None:
    family = ReasoningFamily(name="x", start="<a>", end="<b>")
    with pytest.raises(MarkerError, match="same token ids"):
        TokenMarkers.resolve(family, lambda text: 5 if text in ("<a>", "<b>") else None, encode_chars)


@pytest.mark.parametrize(
    ("markers", "message"),
    [
        (((), (1,)), "start marker has no"),
        (((1,), ()), "end marker has no"),
        (((1, 2), (1, 2)), "same token ids"),
    ],
    ids=["no-start", "no-end", "equal"],
)
def test_markers_refuse_ids_that_cannot_work(markers: tuple[tuple[int, ...], tuple[int, ...]], message: str) -> None:
    with pytest.raises(MarkerError, match=message):
        TokenMarkers(*markers)


@pytest.mark.parametrize("token_id", [1, 3])
def test_markers_refuse_an_implicit_end_that_is_part_of_a_marker(token_id: int) -> None:
    with pytest.raises(MarkerError, match="implicit end"):
        TokenMarkers((1, 2), (3, 4), implicit_ends=frozenset({token_id}))
