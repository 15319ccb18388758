"""What is no request is refused by name, with a typed error, before anything is queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import EngineConfig, GrammarSpec, InvalidRequestError, LLMEngine, SamplingParams

PROMPT = [5, 6, 7]
SHORT = SamplingParams(max_tokens=2)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("on_unknown", "bogus"),
        ("on_unknown", ["open"]),
        ("thinking", "no"),
        ("tools_offered", None),
        ("priority", "high"),
        ("priority", float("nan")),
        ("priority", 10**400),
        ("grammar", {"type": "object"}),
        ("sampling_params", {"max_tokens": 4}),
        ("request_id", None),
        ("prompt", None),
        ("prompt", b"abc"),
        ("prompt", "\ud800"),
        ("prompt", [0.5]),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_request_of_another_type_is_refused(tiny_engine: LLMEngine, param: str, value: Any) -> None:
    arguments: dict[str, Any] = {"request_id": "a", "prompt": PROMPT, "sampling_params": SHORT} | {param: value}
    with pytest.raises(InvalidRequestError) as caught:
        tiny_engine.add_request(**arguments)
    assert caught.value.param == param
    assert not tiny_engine.has_unfinished()


@pytest.mark.parametrize(
    ("param", "call"),
    [
        ("prompts", lambda engine: engine.generate("one text", SHORT)),
        ("sampling_params", lambda engine: engine.generate([PROMPT, PROMPT], [SHORT])),
        ("sampling_params", lambda engine: engine.generate([PROMPT], [SHORT, SHORT])),
        ("grammars", lambda engine: engine.generate([PROMPT, PROMPT], SHORT, grammars=[None])),
    ],
    ids=["text", "fewer-params", "more-params", "fewer-grammars"],
)
def test_generate_answers_every_prompt_or_none(tiny_engine: LLMEngine, param: str, call: Callable[[LLMEngine], Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        call(tiny_engine)
    assert caught.value.param == param


def test_generate_takes_what_can_be_read_once_and_numbers_of_numpy(tiny_engine: LLMEngine) -> None:
    assert len(tiny_engine.generate((np.array(PROMPT) for _ in range(2)), SHORT)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["stop", "bad_words", "transition"])
def test_params_refuse_text_that_has_no_bytes(name: str) -> None:
    value: Any = "\ud800" if name == "transition" else ("\ud800",)
    with pytest.raises(InvalidRequestError, match=name):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("transition", ["so</think>", "<|end|>"])
def test_transition_that_ends_something_is_refused(pocket_engine: LLMEngine, transition: str) -> None:
    prompt = pocket_engine.render([{"role": "user", "content": "1 lamp"}])
    with pytest.raises(InvalidRequestError, match="transition"):
        pocket_engine.add_request("a", prompt, SamplingParams(max_tokens=20, max_reasoning_tokens=2, transition=transition))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 5),
        ("max_num_seqs", "3"),
        ("max_num_seqs", 2.5),
        ("max_num_seqs", True),
        ("max_num_seqs", None),
        ("num_threads", 10**6),
        ("max_draft_tokens", "many"),
        ("grammar_timeout_s", "x"),
        ("grammar_timeout_s", float("nan")),
        ("grammar_backends", ()),
        ("grammar_backends", "xgrammar"),
        ("grammar_disk_cache", 5),
        ("family", 5),
        ("families", "families.toml"),
        ("device", 0),
        ("dtype", 16),
        ("prefix_caching", "yes"),
    ],
)
def test_config_of_another_type_is_refused(name: str, value: Any) -> None:
    options: dict[str, Any] = {"model": "pocket-r1"} | {name: value}
    with pytest.raises(InvalidRequestError) as caught:
        EngineConfig(**options)
    assert caught.value.param == name


def test_messages_of_text_parts_are_joined_and_others_refused(pocket_engine: LLMEngine) -> None:
    parts = [{"type": "text", "text": "2 lamps"}, {"type": "text", "text": " at $4"}]
    as_text = pocket_engine.render([{"role": "user", "content": "2 lamps at $4"}])
    assert pocket_engine.render([{"role": "user", "content": parts}]) == as_text
    wrong: list[Any] = [
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": ["2 lamps"]}],
        [{"role": "user", "content": 5}],
        ["2 lamps"],
        "2 lamps",
    ]
    for messages in wrong:
        with pytest.raises(InvalidRequestError) as caught:
            pocket_engine.render(messages)
        assert caught.value.param == "messages"


def test_grammar_of_another_type_is_refused_in_the_callers_thread(tiny_engine: LLMEngine) -> None:
    with pytest.raises(InvalidRequestError, match="GrammarSpec"):
        tiny_engine.check_grammar({"type": "object"})  # type: ignore[arg-type]
    tiny_engine.check_grammar(GrammarSpec.from_json_schema({"type": "object"}))
