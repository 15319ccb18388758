"""Every row that ships does what every row must: conformance, whatever the family."""

from __future__ import annotations

import re

import pytest

from reasoning_parsers import (
    UNSUPPORTED_FAMILIES,
    PromptState,
    ReasoningFamily,
    ReasoningSplit,
    TokenMarkers,
    UnknownFamilyError,
    get_family,
    get_parser,
    list_families,
    register_family,
)
from tests.reasoning_parsers.cases import load_cases
from tests.reasoning_parsers.test_text_cases import run_pieces

ROWS = pytest.mark.parametrize("family", list_families(), ids=lambda family: family.name)
THINK = get_family("qwen3")
(A18,) = load_cases("text_cases.json", ("A18.f",))

# All names of vLLM 0.33 and SGLang 0.5.23 that have a row, in the spelling of either.
NAMES = (
    *("deepseek_r1", "step5", "deepseek_v3", "holo2", "deepseek_v4", "deepseek_v41", "poolside_v1", "cohere_command3"),
    *("cohere_command4", "glm45", "glm47", "ling3", "granite_thinking_parser", "nemotron_v3", "kimi_k2", "mimo", "qwen3"),
    *("minicpmv", "seed_oss", "step3", "step3p5", "minimax_m2", "minimax_m3", "mistral", "plamo3"),
    *("deepseek-r1", "gigachat35", "deepseek-v3", "deepseek-v4", "deepseek-v41", "dots", "interns1", "nanbeige", "minimax"),
    *("qwen3-thinking", "nemotron_3", "kimi", "minimax-m3", "apertus2509"),
    *("exaone4", "longcat", "qwq", "apertus"),
)


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
        assert name not in UNSUPPORTED_FAMILIES


@ROWS
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


@ROWS
def test_row_ends_implicitly_where_tools_are_offered(family: ReasoningFamily) -> None:
    for opener in family.implicit_ends:
        text = f"{family.start}r{opener}x"
        assert run_pieces(get_parser(family, tools_offered=True), list(text)) == ReasoningSplit("r", f"{opener}x")
        assert get_parser(family).split(text) == ReasoningSplit(f"r{opener}x", None)


@ROWS
def test_a18_pairs_are_data(family: ReasoningFamily) -> None:
    expected = get_parser(THINK).split(A18["text"])
    text = A18["text"].replace(THINK.start, family.start).replace(THINK.end, family.end)
    assert get_parser(family).split(text) == expected
    assert run_pieces(get_parser(family), list(text)) == expected
    for cut in range(len(text) + 1):
        assert run_pieces(get_parser(family), [text[:cut], text[cut:]]) == expected


@ROWS
def test_row_has_markers_as_ids_one_token_or_several(family: ReasoningFamily) -> None:
    own = {family.start: 1_000_001, family.end: 1_000_002}
    one = TokenMarkers.resolve(family, own.get, lambda text: list(map(ord, text)))
    several = TokenMarkers.resolve(family, lambda _: None, lambda text: list(map(ord, text)))
    assert (one.start, one.end) == ((1_000_001,), (1_000_002,))
    assert several.end == tuple(map(ord, family.end))


@pytest.mark.parametrize("name", [*UNSUPPORTED_FAMILIES, "GPT-OSS"])
def test_name_whose_format_is_missing_says_so(name: str) -> None:
    with pytest.raises(UnknownFamilyError, match="its format is not supported yet") as caught:
        get_family(name)
    assert caught.value.unsupported == UNSUPPORTED_FAMILIES[name.lower().replace("-", "_")]
    assert caught.value.unsupported in (caught.value.hint or "")


def test_row_of_your_own_comes_before_the_missing_format() -> None:
    mine = ReasoningFamily(name="gemma4", start="<m>", end="</m>")
    assert register_family(mine).get_family("gemma4") is mine
