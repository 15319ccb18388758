"""Every row that ships does what every row must: conformance, whatever the family."""

from __future__ import annotations

import re

import pytest

from reasoning_parsers import (
    PromptState,
    ReasoningFamily,
    ReasoningSplit,
    TokenMarkers,
    get_family,
    get_parser,
    list_families,
)
from tests.reasoning_parsers.cases import load_cases, write_message
from tests.reasoning_parsers.test_text_cases import run_pieces

ROWS = pytest.mark.parametrize("family", list_families(), ids=lambda family: family.name)
# Rows that give the thinking apart, and of these the ones with one marker around it.
SPLITTING = [family for family in list_families() if not family.keeps_reasoning_in_content]
SPLITTING_ROWS = pytest.mark.parametrize("family", SPLITTING, ids=lambda family: family.name)
DELIMITED_ROWS = pytest.mark.parametrize(
    "family", [family for family in SPLITTING if family.channels is None], ids=lambda family: family.name
)
THINK = get_family("qwen3")
(A18,) = load_cases("text_cases.json", ("A18.f",))

# The names of vLLM 0.33 and of SGLang 0.5.23, in their spelling, then names of older releases and other lists.
VLLM = (
    *("deepseek_r1", "step5", "deepseek_v3", "holo2", "deepseek_v4", "deepseek_v41", "poolside_v1", "cohere_command3"),
    *("cohere_command4", "ernie45", "gemma4", "glm45", "glm47", "ling3", "openai_gptoss", "granite", "granite_thinking_parser"),
    *("nemotron_v3", "hf", "beam", "hunyuan_a13b", "hy_v3", "hy_v4", "kimi_k2", "kimi_k3", "k2_horizon", "mimo", "qwen3"),
    *("minicpmv", "seed_oss", "step3", "step3p5", "minimax_m2", "minimax_m2_append_think", "minimax_m3", "mistral", "olmo3"),
    *("plamo3", "inkling", "muse", "musespark1x", "muse_glimmer"),
)
SGLANG = (
    *("deepseek-r1", "step3", "step3p5", "gigachat35", "deepseek-v3", "deepseek-v4", "deepseek-v41", "qwen3", "dots", "interns1"),
    *("nanbeige", "minimax", "qwen3-thinking", "glm45", "ling3", "poolside_v1", "mimo", "nemotron_3", "granite_thinking_parser"),
    *("hunyuan", "kimi", "kimi_k2", "kimi_k3", "k2_horizon", "gpt-oss", "minimax-append-think", "minimax-m3", "mistral"),
    *("gemma4", "apertus2509", "inkling", "cohere_command4", "muse", "iquest_q1", "beam", "response_template"),
)
OTHERS = ("exaone", "exaone4", "longcat", "hyperclovax", "kimi", "apertus", "gigachat", "qwq")
NAMES = tuple(dict.fromkeys((*VLLM, *SGLANG, *OTHERS)))


@pytest.mark.parametrize("name", NAMES)
def test_name_of_other_projects_resolves(name: str) -> None:
    for spelling in (name, name.replace("-", "_"), name.replace("_", "-"), name.upper()):
        assert get_family(spelling) is get_family(name)


@ROWS
def test_row_has_source_date_and_names_of_its_own(family: ReasoningFamily) -> None:
    assert family.source.startswith("https://") or family.name == "pocket_r1"
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", family.checked)
    assert re.fullmatch(r"[a-z0-9_]+", family.name)
    for name in (family.name, *family.aliases):
        assert [row for row in list_families() if get_family(name) is row] == [family]


@DELIMITED_ROWS
def test_row_splits_its_own_markers_in_any_pieces(family: ReasoningFamily) -> None:
    before, after = f"see {family.end[:-1]} and {family.start}", f"\n{family.start} x {family.end}"
    texts: list[tuple[PromptState, str, ReasoningSplit]] = [
        ("unknown", f"{family.start}{before}{family.end}{after}", ReasoningSplit(before, after)),
        ("open", f"{before}{family.end}{after}", ReasoningSplit(before, after)),
        ("ended", after, ReasoningSplit(None, after)),
        ("open", before, ReasoningSplit(before, None)),
    ]
    for prompt_state, text, expected in texts:
        assert get_parser(family, prompt_state=prompt_state).split(text) == expected
        for cut in range(len(text) + 1):
            assert run_pieces(get_parser(family, prompt_state=prompt_state), [text[:cut], text[cut:]]) == expected
        assert run_pieces(get_parser(family, prompt_state=prompt_state), list(text)) == expected


@ROWS
def test_row_without_markers_in_the_text_gives_content(family: ReasoningFamily) -> None:
    assert run_pieces(get_parser(family), list('{"a":1}')) == ReasoningSplit(None, '{"a":1}')


@DELIMITED_ROWS
def test_row_ends_implicitly_where_tools_are_offered(family: ReasoningFamily) -> None:
    for opener in family.implicit_ends:
        text = f"{family.start}r{opener}x"
        assert run_pieces(get_parser(family, tools_offered=True), list(text)) == ReasoningSplit("r", f"{opener}x")
        assert get_parser(family).split(text) == ReasoningSplit(f"r{opener}x", None)


@SPLITTING_ROWS
def test_a18_every_style_splits_alike(family: ReasoningFamily) -> None:
    expected = get_parser(THINK).split(A18["text"])
    text = write_message(family, "r", '{"a":1}')
    split = get_parser(family).split(text)
    assert split == expected
    assert split.final_reached
    assert run_pieces(get_parser(family), list(text)) == expected
    for cut in range(len(text) + 1):
        assert run_pieces(get_parser(family), [text[:cut], text[cut:]]) == expected


@ROWS
def test_row_that_never_closes_its_thinking_has_no_answer(family: ReasoningFamily) -> None:
    text = f"{family.start}{family.start_label}I think"
    split = get_parser(family).split(text)
    assert not split.final_reached
    assert split.content == (text if family.keeps_reasoning_in_content else None)
    parser = get_parser(family)
    assert run_pieces(parser, list(text)) == split
    assert not parser.reasoning_ended


@DELIMITED_ROWS
def test_row_has_markers_as_ids_one_token_or_several(family: ReasoningFamily) -> None:
    own = {family.start: 1_000_001, family.end: 1_000_002}
    one = TokenMarkers.resolve(family, own.get, lambda text: list(map(ord, text)))
    several = TokenMarkers.resolve(family, lambda _: None, lambda text: list(map(ord, text)))
    assert one.end == (1_000_002,)
    assert one.start == (1_000_001,) or family.start_label  # a label belongs to the start marker
    assert several.end == tuple(map(ord, family.end))
