"""Detection: families, switches and defaults from templates, added tokens and model types; and what is said when unsure."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reasoning_parsers import ReasoningFamily, Switch, TokenizerFacts, detect_family, get_family, teach_family
from reasoning_parsers.detection_hints import FAMILIES_BY_MODEL_TYPE
from tests.reasoning_parsers.chat_templates import CASES, CHATML, DEEPSEEK, THINK, TemplateCase, make_facts

BY_NAME = {case.name: case for case in CASES}


@pytest.mark.parametrize("can_render", [True, False], ids=["rendered", "read"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_template_idiom_is_learned(case: TemplateCase, can_render: bool) -> None:
    found = detect_family(case.facts(can_render=can_render))
    if found.family is None or case.family is None:
        assert (found.family, case.family, found.confidence, found.warnings) == (None, None, "certain", ())
    elif can_render or case.is_clear_from_source:
        assert found.family.name == case.family or case.family in found.alike
        assert set(found.switches) == set(case.switches)
        assert found.prompt_state == case.prompt_state
    else:
        # What the source does not tell is said to be unknown, and not guessed.
        assert found.prompt_state is None


@pytest.mark.parametrize("case", [case for case in CASES if case.family], ids=lambda case: case.name)
def test_row_is_overridden_by_its_template(case: TemplateCase) -> None:
    family = detect_family(case.facts()).family
    assert family is not None
    assert family.template_opens == (case.prompt_state == "open")
    if not case.switches:
        assert family.thinking_switch is None
        assert not family.can_switch_off
        return
    learned = {switch.name: switch for switch in case.switches}[str(family.thinking_switch)]
    assert Switch(learned.name, family.switch_on, family.switch_off, family.thinking_default) == learned
    assert {family.thinking_switch, *family.other_switches} == {switch.name for switch in case.switches}


def test_no_row_is_changed_by_what_a_template_teaches() -> None:
    before = get_family("qwen3")
    detect_family(BY_NAME["QwQ and the thinking-only Qwen3: no switch"].facts())
    assert get_family("qwen3") is before


def test_complete_evidence_is_certain_and_said() -> None:
    found = detect_family(BY_NAME["qwen3: off is asked for by name"].facts())
    assert found.confidence == "certain"
    assert found.warnings == ()
    said = "\n".join(found.evidence)
    for part in ("'<think>' is token 1002 and stands in the chat template", "<|im_start|>", "<tool_call>", "on by default"):
        assert part in said


def test_model_type_decides_between_rows_that_act_otherwise() -> None:
    facts = make_facts("{{ messages[0].content }}<think>", (*THINK, "<tool_call>"))
    unsure = detect_family(facts)
    assert unsure.confidence == "guess"
    assert "the family is a guess" in unsure.warnings[0]
    assert "--family" in unsure.warnings[0]
    sure = detect_family(dataclasses.replace(facts, model_config={"model_type": "dots1"}))
    assert sure.family is not None
    assert sure.family.name == "dots"
    assert "the model's type is dots1" in sure.evidence
    assert not any("guess" in warning for warning in sure.warnings)


def test_model_type_of_another_family_is_said() -> None:
    case = BY_NAME["qwen3: off is asked for by name"]
    found = detect_family(case.facts(model_config={"model_type": "seed_oss"}))
    assert found.family is not None
    assert "the model's type is seed_oss, which is seed_oss as a rule" in found.evidence
    assert found.confidence == "likely"


@pytest.mark.parametrize(
    ("path", "name"),
    [("org/GLM-4.5-Air", "glm45"), ("org/Kimi-K2-Thinking", "kimi_k2"), ("org/akimichi", None)],
)
def test_name_of_the_model_counts(path: str, name: str | None) -> None:
    facts = make_facts("{{ messages[0].content }}<think>", THINK, model_config={"_name_or_path": path, "model_type": 7})
    found = detect_family(facts)
    assert found.family is not None
    assert (found.family.name == name) == (name is not None)
    assert any(f"the model is called {path[4:]}" in sentence for sentence in found.evidence) == (name is not None)


def test_vocabulary_without_template_is_not_certain() -> None:
    facts = TokenizerFacts(added_tokens={"[THINK]": 34, "[/THINK]": 35, "[INST]": 3, "[/INST]": 4})
    found = detect_family(facts)
    assert found.family is not None
    assert (found.family.name, found.confidence, found.prompt_state) == ("mistral", "likely", None)
    assert "there is no chat template to look at" in found.evidence


def test_token_that_is_not_added_counts_as_well() -> None:
    vocabulary = {"<longcat_think>": 5, "</longcat_think>": 6}
    found = detect_family(TokenizerFacts(token_to_id=vocabulary.get))
    assert found.family is not None
    assert found.family.name == "longcat"


def test_markers_that_are_no_tokens_are_found_in_the_template() -> None:
    source = "{{ messages[0].content }}{% if add_generation_prompt %}\u25c1think\u25b7{% endif %}{# \u25c1/think\u25b7 #}"
    found = detect_family(make_facts(source, ()))
    assert found.family is not None
    assert found.family.name == "kimi"
    assert "is text of several tokens that stands in the chat template" in found.evidence[0]


def test_template_that_never_mentions_the_marker_is_said() -> None:
    found = detect_family(make_facts("{{ '<|im_start|>' + messages[0].content }}", (*CHATML, *THINK, "<tool_call>")))
    assert found.family is not None
    assert found.confidence == "guess"
    assert "never mentions it, so the model may not think at all; if so, set family to none" in found.warnings[0]


PROMPT = "{{ messages[0].content }}{% if add_generation_prompt %}"


@pytest.mark.parametrize("can_render", [True, False], ids=["rendered", "read"])
@pytest.mark.parametrize(
    ("source", "tokens", "start", "end"),
    [
        (PROMPT + "<reflect>\n{% endif %}{# </reflect> #}", (), "<reflect>", "</reflect>"),
        (PROMPT + "{{ '<|ponder|>' }}{% endif %}{# <|/ponder|> #}", ("<|ponder|>",), "<|ponder|>", "<|/ponder|>"),
        (PROMPT + "{% if deep_thinking %}[MUSE]{% endif %}{% endif %}{# [/MUSE] #}", (), "[MUSE]", "[/MUSE]"),
    ],
    ids=["tag", "special token", "only where a switch is on"],
)
def test_opened_block_of_no_family_is_a_warning_that_says_what_to_do(
    source: str, tokens: tuple[str, ...], start: str, end: str, can_render: bool
) -> None:
    found = detect_family(make_facts(source, tokens, can_render=can_render))
    assert (found.family, found.confidence) == (None, "guess")
    assert f"the chat template opens {start} and no family has that marker" in found.warnings[0]
    assert f"start = {start!r} and end = {end!r}" in found.warnings[0]
    assert "--families" in found.warnings[0]


@pytest.mark.parametrize("tail", ["<assistant>{% endif %}{# </assistant> #}", "<answer>{% endif %}"])
def test_opened_turn_is_no_block(tail: str) -> None:
    found = detect_family(make_facts(PROMPT + tail, ()))
    assert (found.family, found.confidence, found.warnings) == (None, "certain", ())


def test_tokens_that_look_like_markers_of_no_family_are_said() -> None:
    found = detect_family(TokenizerFacts(added_tokens={"<|begin_of_thought|>": 7, "<s>": 1}))
    assert (found.family, found.confidence) == (None, "guess")
    assert "<|begin_of_thought|>" in found.warnings[0]


def test_template_that_cannot_be_rendered_is_read_instead() -> None:
    case = BY_NAME["qwen3: off is asked for by name"]

    def render(variables: Any) -> str:
        raise ValueError("no date")

    found = detect_family(dataclasses.replace(case.facts(), render=render))
    assert found.switches == case.switches
    assert found.warnings == ("the chat template cannot be rendered, so its source was read instead: no date",)


def test_value_that_the_template_refuses_is_no_switch() -> None:
    case = BY_NAME["qwen3: off is asked for by name"]
    plain = case.facts()

    def render(variables: Any) -> str:
        if variables:
            raise ValueError("no variables here")
        assert plain.render is not None
        return plain.render(variables)

    found = detect_family(dataclasses.replace(plain, render=render))
    assert found.switches == ()
    assert detect_family(dataclasses.replace(plain, added_tokens={}, chat_template="{{ think }}", render=render)).family is None


@pytest.mark.parametrize("can_render", [True, False], ids=["rendered", "read"])
def test_source_that_cannot_be_read_is_a_warning(can_render: bool) -> None:
    case = BY_NAME["qwen3: off is asked for by name"]
    facts = dataclasses.replace(
        case.facts(can_render=can_render), chat_template=case.source + "{% switch enable_thinking %}<think>"
    )
    found = detect_family(facts)
    assert found.family is not None
    assert found.family.name == "qwen3"
    assert "a tag that is not known here: switch" in found.warnings[0]
    # Rendering needs no reading: jinja2 knows more syntax.
    assert found.switches == (case.switches if can_render else ())
    assert (found.confidence == "certain") == can_render


@pytest.mark.parametrize(
    "templates",
    [
        lambda source: {"default": source, "tool_use": "x"},
        lambda source: {"only": source},
        lambda source: [{"name": "tool_use", "template": "x"}, {"name": "default", "template": source}],
    ],
    ids=["default", "only one", "list"],
)
def test_named_templates(templates: Any) -> None:
    case = BY_NAME["deepseek v3.1: off unless asked for, by one of two names"]
    found = detect_family(dataclasses.replace(case.facts(can_render=False), chat_template=templates(case.source)))
    assert set(found.switches) == set(case.switches)


@pytest.mark.parametrize(("templates", "said"), [({"a": "x", "b": "y"}, "a, b"), ({}, "none")])
def test_named_templates_without_a_default_are_a_warning(templates: dict[str, str], said: str) -> None:
    found = detect_family(TokenizerFacts(added_tokens={"<think>": 1, "</think>": 2}, chat_template=templates))
    assert found.warnings[0] == f"the tokenizer has several chat templates and none is called default: {said}"


def test_rows_to_choose_from_can_be_given() -> None:
    own = ReasoningFamily(name="mine", start="<think>", end="</think>")
    facts = BY_NAME["qwen3: off is asked for by name"].facts()
    found = detect_family(facts, [own])
    assert found.family is not None
    assert found.family.name == "mine"
    assert found.family.thinking_switch == "enable_thinking"
    assert detect_family(facts, []).family is None


def test_named_family_learns_the_switch() -> None:
    found = teach_family(get_family("deepseek_r1"), BY_NAME["qwen3: off is asked for by name"].facts())
    assert found.family is not None
    assert (found.family.name, found.family.thinking_switch, found.confidence) == ("deepseek_r1", "enable_thinking", "certain")


def test_named_family_without_markers_here_is_said() -> None:
    found = teach_family(get_family("mistral"), BY_NAME["no thinking"].facts())
    assert found.family is not None
    assert (found.family.name, found.family.start) == ("mistral", "[THINK]")
    assert "neither the vocabulary nor the chat template has the markers '[THINK]' and '[/THINK]'" in found.warnings[0]


def test_suffix_of_markers_is_taken_from_the_vocabulary() -> None:
    row = ReasoningFamily(name="hy", start="<think>", end="</think>", marker_suffix_pattern="_[0-9]+")
    tokens = {"<think_7>": 1, "</think_7>": 2, DEEPSEEK[0]: 3}
    found = detect_family(TokenizerFacts(added_tokens=tokens), [row])
    assert found.family is not None
    assert (found.family.start, found.family.end) == ("<think_7>", "</think_7>")
    assert detect_family(TokenizerFacts(added_tokens={"<think_7>": 1, "</think_8>": 2}), [row]).family is None


RESPONSE = {"fields": {"thinking": {"open": "<|channel>thought\n", "close": "<channel|>"}, "content": {}}}


def test_response_template_is_a_row_of_its_own() -> None:
    tokens = {"<|channel>": 1, "<channel|>": 2}
    found = detect_family(TokenizerFacts(added_tokens=tokens, response_template=RESPONSE), [])
    assert found.family is not None
    assert (found.family.name, found.family.start, found.family.end) == ("response_template", "<|channel>", "<channel|>")
    assert found.family.start_label == "thought\n"
    assert found.evidence[0] == "the tokenizer's response template has these markers"


@pytest.mark.parametrize("name", ["hf", "beam", "response_template"])
def test_named_family_takes_the_markers_of_the_response_template(name: str) -> None:
    found = teach_family(
        get_family(name), TokenizerFacts(added_tokens={"<|channel>": 1, "<channel|>": 2}, response_template=RESPONSE)
    )
    assert found.family is not None
    assert (found.family.start, found.family.end) == ("<|channel>", "<channel|>")
    without = teach_family(get_family(name), TokenizerFacts(added_tokens={"<think>": 1, "</think>": 2}))
    assert without.family is not None
    assert without.family.start == "<think>"


def test_response_template_chooses_among_the_rows() -> None:
    facts = dataclasses.replace(
        BY_NAME["qwen3: off is asked for by name"].facts(),
        response_template={"fields": {"reasoning_content": {"open": ["<think>"], "close": ["</think>"]}}},
    )
    found = detect_family(facts)
    assert found.family is not None
    assert found.family.name == "qwen3"
    other = ReasoningFamily(name="other", start="<|im_start|>", end="<|im_end|>")
    assert detect_family(facts, [other]).family is not other


def test_response_template_without_its_markers_here_is_taken_at_its_word() -> None:
    found = detect_family(TokenizerFacts(response_template={"fields": {"thinking": {"open": "(think)", "close": "(done)"}}}), [])
    assert found.family is not None
    assert (found.family.start, found.confidence) == ("(think)", "likely")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, None),
        ({"fields": 3}, None),
        ({"fields": {"content": {}}}, None),
        ({"fields": {"thinking": {"open_pattern": "x+", "close": "y"}}}, "is more than a text"),
        ({"fields": {"thinking": {"open": "<a>b</a>", "close": "</a>"}}}, "cannot be used"),
    ],
    ids=["none", "no fields", "no thinking", "patterns", "contradiction"],
)
def test_response_template_that_says_nothing(template: Any, said: str | None) -> None:
    found = detect_family(TokenizerFacts(response_template=template), [])
    assert found.family is None
    assert len(found.warnings) == (said is not None)
    assert said is None or said in found.warnings[0]


def test_every_hint_names_a_row() -> None:
    for names in FAMILIES_BY_MODEL_TYPE.values():
        for name in names:
            assert get_family(name).name == name


def test_messages_are_told_by_their_own_tokens() -> None:
    harmony = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
    found = detect_family(TokenizerFacts(added_tokens={token: index for index, token in enumerate(harmony)}))
    assert found.family is not None
    assert (found.family.name, found.confidence) == ("gpt_oss", "likely")
    muse = ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")
    found = detect_family(TokenizerFacts(added_tokens={token: index for index, token in enumerate(muse)}))
    assert found.family is not None
    assert found.family.name == "muse"


def test_row_that_stands_for_response_templates_is_never_guessed() -> None:
    assert detect_family(BY_NAME["qwen3: off is asked for by name"].facts(), [get_family("response_template")]).family is None
