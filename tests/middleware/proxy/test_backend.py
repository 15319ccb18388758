from __future__ import annotations

from typing import Any

import pytest

from middleware import ContentDelta, InvalidAnswerError, NoFinalAnswerError, ReasoningDelta
from middleware.proxy.backend import Outcome, Piece, ServedModel
from middleware.proxy.wire import CompletionCall
from middleware.testing import reply

from .serving import scripted

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def _call(**changes: Any) -> CompletionCall:
    return CompletionCall("m", [{"role": "user", "content": "hi"}], **changes)


async def _pieces(model: ServedModel, call: CompletionCall) -> list[Piece]:
    return [piece async for piece in model.complete(call, timeout_s=5)]


def _outcome(pieces: list[Piece]) -> Outcome:
    assert isinstance(pieces[-1], Outcome)
    return pieces[-1]


async def test_complete_streams_a_local_answer_as_it_comes() -> None:
    _, model = scripted(reply("think", '{"a": 1}', piece_len=2))
    pieces = await _pieces(model, _call(schema=SCHEMA, is_streamed=True))
    assert [piece.text for piece in pieces if isinstance(piece, ReasoningDelta)] == ["th", "in", "k"]
    assert [piece.text for piece in pieces if isinstance(piece, ContentDelta)] == ['{"', 'a"', ": ", "1}"]
    assert _outcome(pieces).content == '{"a": 1}'


async def test_complete_holds_a_remote_answer_back_until_it_is_validated() -> None:
    _, model = scripted(reply("think", '{"a": 1}', piece_len=2), model="openai/x")
    pieces = await _pieces(model, _call(schema=SCHEMA))
    assert [piece.text for piece in pieces if isinstance(piece, ContentDelta)] == ['{"a": 1}']


# D4: the upstream answers in prose with 200; D12: it dropped the schema in silence.
async def test_complete_d4_d12_prose_is_asked_again_and_never_returned() -> None:
    upstream, model = scripted(reply("", "Sure! Name: Bob"), reply("", '{"a": 2}'), model="openai/x")
    pieces = await _pieces(model, _call(schema=SCHEMA))
    assert _outcome(pieces).content == '{"a": 2}'
    assert _outcome(pieces).attempts == len(upstream.requests) == 2
    assert [piece.text for piece in pieces if isinstance(piece, ContentDelta)] == ['{"a": 2}']


async def test_complete_d4_prose_every_time_is_a_typed_error() -> None:
    _, model = scripted(*[reply("", "Sure! Name: Bob")] * 3, model="openai/x")
    with pytest.raises(InvalidAnswerError):
        await _pieces(model, _call(schema=SCHEMA))


async def test_complete_raises_when_a_streamed_answer_turns_out_invalid() -> None:
    upstream, model = scripted(reply("", '{"a": "x"}'), reply("", '{"a": 2}'))
    with pytest.raises(InvalidAnswerError):
        await _pieces(model, _call(schema=SCHEMA, is_streamed=True))
    assert len(upstream.requests) == 1


async def test_complete_asks_again_where_the_answer_is_wanted_whole() -> None:
    _, model = scripted(reply("", '{"a": "x"}'), reply("", '{"a": 2}'))
    outcome = _outcome(await _pieces(model, _call(schema=SCHEMA)))
    assert (outcome.content, outcome.attempts) == ('{"a": 2}', 2)


async def test_complete_asks_a_local_model_again_when_nothing_was_streamed() -> None:
    _, model = scripted(reply("think", ""), reply("think", '{"a": 2}'))
    assert _outcome(await _pieces(model, _call(schema=SCHEMA))).attempts == 2


@pytest.mark.parametrize("name", ["local/scripted", "openai/x"])
async def test_complete_reports_truncated_thinking(name: str) -> None:
    _, model = scripted(reply("still thinking", "", finish_reason="length"), model=name)
    outcome = _outcome(await _pieces(model, _call(schema=SCHEMA)))
    assert (outcome.finish_reason, outcome.phase, outcome.content, outcome.reasoning) == (
        "length",
        "reasoning",
        None,
        "still thinking",
    )


@pytest.mark.parametrize("name", ["local/scripted", "openai/x"])
async def test_complete_reports_a_truncated_answer_with_its_text(name: str) -> None:
    _, model = scripted(reply("t", '{"a": ', finish_reason="length"), model=name)
    pieces = await _pieces(model, _call(schema=SCHEMA))
    assert (_outcome(pieces).finish_reason, _outcome(pieces).phase, _outcome(pieces).content) == ("length", "answer", '{"a": ')
    assert "".join(piece.text for piece in pieces if isinstance(piece, ContentDelta)) == '{"a": '


async def test_complete_reports_truncated_free_text() -> None:
    _, model = scripted(reply("t", "once upon", finish_reason="length"))
    assert _outcome(await _pieces(model, _call())).phase == "answer"


async def test_complete_raises_when_there_is_no_answer_at_all() -> None:
    _, model = scripted(*[reply("think", "")] * 3)
    with pytest.raises(NoFinalAnswerError):
        await _pieces(model, _call(schema=SCHEMA))


async def test_complete_unwraps_what_stood_around_the_answer() -> None:
    from middleware.testing import ScriptedUpstream
    from middleware.upstreams.base import UpstreamTraits

    from .serving import served

    upstream = ScriptedUpstream([reply("", 'Here:\n```json\n{"a": 1}\n```')], traits=UpstreamTraits(extracts_answer=True))
    assert _outcome(await _pieces(served(upstream, "openai/x"), _call(schema=SCHEMA))).content == '{"a":1}'


async def test_complete_sends_settings_and_the_time_left() -> None:
    upstream, model = scripted(reply("", "ok"))
    await _pieces(model, _call(settings={"max_tokens": 7}, thinking=False))
    settings = upstream.requests[0].settings
    assert (settings.max_tokens, settings.thinking) == (7, False)
    assert settings.timeout_s is not None
    assert settings.timeout_s <= 5


async def test_complete_passes_the_effort_on_to_remote_models_only() -> None:
    upstream, remote = scripted(reply("", "ok"), model="openai/x")
    await _pieces(remote, _call(thinking=True, reasoning_effort="high"))
    assert dict(upstream.requests[0].settings.extra) == {"reasoning_effort": "high"}
    upstream, local = scripted(reply("", "ok"))
    await _pieces(local, _call(thinking=True, reasoning_effort="high"))
    assert dict(upstream.requests[0].settings.extra) == {}
    assert upstream.requests[0].settings.thinking is True


def test_report_leaves_out_what_is_empty() -> None:
    from middleware import Usage

    outcome = Outcome(content="x", reasoning=None, usage=Usage(), finish_reason="stop")
    assert outcome.report() == {"attempts": 1}
