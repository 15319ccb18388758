"""The whole path on the shipped model: client, engine, gate, grammar, validation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from engine.pocket.orders import Order, held_out_orders
from middleware import (
    AnswerTruncatedError,
    AsyncClient,
    Client,
    ContentDelta,
    FinalResult,
    Grammar,
    InvalidRequestError,
    InvalidSchemaError,
    PartialObject,
    ReasoningDelta,
    ReasoningTruncatedError,
    Regex,
    UnknownModelError,
    UnsupportedSchemaError,
)

SAMPLES = held_out_orders(20)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client("local/pocket-r1") as client:
        yield client


def test_orders_come_back_right(client: Client) -> None:
    right = [client.generate(Order, sample.text).output == Order.model_validate_json(sample.answer) for sample in SAMPLES[:8]]
    assert sum(right) >= 6  # the bench measures the share; this says that the path is the one that it measures


def test_stream_thinks_first_and_forms_the_object(client: Client) -> None:
    with client.stream(Order, SAMPLES[1].text) as stream:
        events = list(stream)
    kinds = [type(event) for event in events]
    assert kinds.index(ContentDelta) > max(index for index, kind in enumerate(kinds) if kind is ReasoningDelta)
    assert any(isinstance(event, PartialObject) for event in events)
    assert isinstance(events[-1], FinalResult)
    result = events[-1].result
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == result.reasoning
    assert result.output == client.generate(Order, SAMPLES[1].text).output
    assert result.enforcement == "masked"
    assert (result.usage.reasoning_tokens or 0) > 20
    assert "think>" not in result.content


def test_thinking_off_gives_an_object_without_reasoning(client: Client) -> None:
    result = client.generate(Order, SAMPLES[0].text, thinking=False)
    assert result.reasoning is None
    assert result.usage.reasoning_tokens == 0


def test_B28_limit_inside_the_thinking_is_a_typed_error_and_others_go_on(client: Client) -> None:
    with pytest.raises(ReasoningTruncatedError) as caught:
        client.generate(Order, SAMPLES[0].text, max_tokens=20)
    assert caught.value.reasoning
    assert caught.value.phase == "reasoning"
    assert isinstance(client.generate(Order, SAMPLES[2].text).output, Order)


def test_limit_inside_the_answer_carries_the_partial_object(client: Client) -> None:
    with pytest.raises(AnswerTruncatedError) as caught:
        client.generate(Order, SAMPLES[0].text, max_tokens=21, max_reasoning_tokens=10)
    assert caught.value.raw_content.startswith('{"currency"')
    assert caught.value.partial["currency"] in ("EUR", "USD", "GBP", "CHF")
    assert caught.value.reasoning


def test_answer_near_its_limit_is_brought_to_its_end(client: Client) -> None:
    result = client.generate(Order, SAMPLES[0].text, max_tokens=45, max_reasoning_tokens=10)
    assert isinstance(result.output, Order)
    assert result.finish_reason == "stop"
    assert any("max_tokens was near" in note for note in result.notes)


def test_B28_reserve_leaves_room_for_the_answer(client: Client) -> None:
    result = client.generate(Order, SAMPLES[0].text, max_tokens=90, reserve=70)
    assert isinstance(result.output, Order)
    assert any("reserve" in note for note in result.notes)


class Tree(BaseModel):
    """Recursive, with a constraint that no mask enforces."""

    label: Literal["a", "b"]
    size: int = Field(ge=0, le=9)
    kids: list[Tree] = Field(max_length=1)


@pytest.mark.parametrize(
    "output_type",
    [
        int,
        bool,
        Annotated[list[bool], Field(max_length=5)],
        Literal["yes", "no"],
        Tree | None,
        dict[Literal["k"], int],
        {"enum": ["x", "y"]},
        {"type": "null"},
    ],
    ids=str,
)
def test_any_root_type_is_masked_and_validates(client: Client, output_type: Any) -> None:
    options: dict[str, Any] = {"max_reasoning_tokens": 5, "max_tokens": 400, "temperature": 1.0, "seed": 4}
    result = client.generate(output_type, "3 lamps", **options)
    assert result.enforcement == "masked"
    assert result.attempts == 1


def test_empty_schema_gives_json_or_says_that_the_limit_came_first(client: Client) -> None:
    with contextlib.suppress(AnswerTruncatedError):
        assert client.generate({}, "3 lamps", max_reasoning_tokens=5, max_tokens=200).content


@pytest.mark.parametrize(
    ("schema", "error", "pointer"),
    [
        ({"properties": {"zip": 7}}, InvalidSchemaError, "#/properties/zip"),
        (
            {"type": "object", "properties": {"z": {"enum": []}}, "required": ["z"]},
            (InvalidSchemaError, UnsupportedSchemaError),
            "#/properties/z",
        ),
        ({"properties": {"c": {"$ref": "https://e.io/s.json"}}}, (InvalidSchemaError, UnsupportedSchemaError), None),
        ({"$ref": "#"}, (InvalidSchemaError, UnsupportedSchemaError), "#"),
    ],
    ids=["E1", "C12", "C20", "circular"],
)
def test_schema_that_cannot_be_is_refused_before_any_token(client: Client, schema: Any, error: Any, pointer: str | None) -> None:
    with pytest.raises(error) as caught:
        client.generate(schema, "x")
    if pointer is not None:
        assert str(caught.value.pointer).startswith(pointer)


@pytest.mark.parametrize("messages", ["", " \n"])
def test_empty_message_is_refused_and_not_answered_with_an_invention(client: Client, messages: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.generate(Order, messages)
    assert caught.value.param == "messages"


def test_B30_option_that_is_not_honoured_is_named(client: Client) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.generate(Order, "x", whitespace_pattern=" ?")
    assert caught.value.param == "whitespace_pattern"


@pytest.mark.parametrize("model", ["local/nonsense", "local/./no/folder", "local/"])
def test_unknown_local_model_is_a_typed_error(model: str) -> None:
    with pytest.raises(UnknownModelError), Client(model) as client:
        client.generate(Order, "x")


async def test_async_calls_share_one_engine_and_cancelling_one_leaves_the_others() -> None:
    async with AsyncClient("local/pocket-r1") as client:
        calls = [asyncio.create_task(client.generate(Order, sample.text)) for sample in SAMPLES[:6]]
        await asyncio.sleep(0.3)
        calls[2].cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[2], asyncio.CancelledError)
    assert all(isinstance(result.output, Order) for result in results if not isinstance(result, BaseException))
    assert sum(isinstance(result, BaseException) for result in results) == 1


def test_logprobs_spell_the_answer_and_nothing_else(client: Client) -> None:
    result = client.generate(Order, SAMPLES[0].text, logprobs=3)
    assert b"".join(item.data or b"" for item in result.logprobs).decode() == result.content
    assert all(item.logprob <= 0 and len(item.top) == 3 for item in result.logprobs)
    # Greedy: where the mask left the model its favourite, that was taken.
    assert sum(item.top[0].token == item.token for item in result.logprobs) > len(result.logprobs) / 2
    assert client.generate(Order, SAMPLES[0].text).logprobs == ()


def test_stop_text_ends_a_free_answer(client: Client) -> None:
    whole = client.generate(None, SAMPLES[0].text)
    stop = whole.content[5:9]
    cut = client.generate(None, SAMPLES[0].text, stop=[stop])
    assert cut.content == whole.content[: whole.content.index(stop)]
    assert cut.finish_reason == "stop"


@pytest.mark.parametrize("max_tokens", [1, 2, 5])
def test_limit_that_no_answer_fits_in_says_how_long_one_is(client: Client, max_tokens: int) -> None:
    """With the thinking switched off or closed at once; also where no token at all is left for the answer."""
    for options in ({"thinking": False}, {"thinking": True, "max_reasoning_tokens": 0}):
        with pytest.raises(AnswerTruncatedError, match=r"no whole answer fits: .* takes \d+ tokens") as caught:
            client.generate(Order, SAMPLES[0].text, max_tokens=max_tokens, **options)
        assert (caught.value.finish_reason, caught.value.phase) == ("length", "answer")
        assert "raise max_tokens" in (caught.value.hint or "")


@pytest.mark.parametrize("thinking", [True, False])
def test_limit_in_the_middle_of_the_thinking_says_so(client: Client, thinking: bool) -> None:
    with pytest.raises(ReasoningTruncatedError if thinking else AnswerTruncatedError) as caught:
        client.generate(Order, SAMPLES[0].text, max_tokens=4, thinking=thinking)
    assert "raise max_tokens" in (caught.value.hint or "")
    assert ("inside the thinking" in caught.value.message) == thinking


def test_answer_that_fills_its_limit_is_a_result(client: Client) -> None:
    """A whole value, for whose stop id there is no room."""
    for text_type in (Literal["lamp"], bool):
        free: Any = client.generate(text_type, SAMPLES[0].text, thinking=False)
        room = free.usage.completion_tokens - 1
        full: Any = client.generate(text_type, SAMPLES[0].text, thinking=False, max_tokens=room)
        assert full.usage.completion_tokens == room
        assert (full.output, full.finish_reason, full.notes) == (free.output, "stop", ())


def test_bias_and_seeds_change_what_is_drawn(client: Client) -> None:
    texts = {client.generate(None, SAMPLES[0].text, temperature=2.0, seed=seed, max_tokens=200).content for seed in (1, 1, 2)}
    assert len(texts) == 2
    options: dict[str, Any] = {"logprobs": 0, "max_reasoning_tokens": 3}
    first = client.generate(Order, SAMPLES[0].text, **options)
    assert client.generate(Order, SAMPLES[0].text, repetition_penalty=1.5, **options).output != first.output


@pytest.mark.parametrize("options", [{"logit_bias": {10**9: 1}}, {"reserve": 4000}], ids=["logit_bias", "reserve"])
def test_option_that_the_engine_cannot_take_names_itself(client: Client, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.generate(Order, "x", **options)
    assert caught.value.param == next(iter(options))


@pytest.mark.parametrize("pattern", ["(?=a)b", "x(?=a)b", "(?!a)a"])
def test_expression_that_no_text_matches_is_refused_without_a_token(client: Client, pattern: str) -> None:
    with pytest.raises(InvalidSchemaError, match="no text matches") as caught:
        client.generate(Regex(pattern), "3 lamps")
    assert (caught.value.reasoning, caught.value.raw_content) == (None, "")


def test_place_of_a_bad_grammar_is_in_the_error(client: Client) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        client.generate(Grammar('root ::= "a"\nroot ::= "b"'), "3 lamps")
    assert (caught.value.line, caught.value.column) == (2, 1)


def test_long_constant_is_written_without_spelling_its_rest_at_every_step(client: Client) -> None:
    with pytest.raises(AnswerTruncatedError) as caught:
        client.generate({"const": "x" * 300_000}, "3 lamps", max_reasoning_tokens=3, max_tokens=40, timeout_s=60)
    assert caught.value.raw_content.startswith('"xxxx')
