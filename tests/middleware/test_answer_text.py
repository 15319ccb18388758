from __future__ import annotations

import pytest

from middleware.answer_text import answer_start, extract_answer

FENCE = "```"


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        pytest.param(f'\n{FENCE}json\n{{"fit":1}}\n{FENCE}', '{"fit":1}', id="A22.a-fence"),
        pytest.param(f'\n{FENCE}json\n{{"fit":1}}\n', '{"fit":1}', id="A22.b-fence-never-closed"),
        pytest.param(f'\nHere is the result:\n{FENCE}json\n{{"fit":1}}\n{FENCE}', '{"fit":1}', id="A22.c-sentence-before"),
        pytest.param(f'{{"fit":1}}\n{FENCE}', '{"fit":1}', id="A22-trailing-fence-only"),
        pytest.param(f'{FENCE}\n{{"fit":1}}\n{FENCE}', '{"fit":1}', id="fence-without-language"),
        pytest.param(f'{FENCE}json\n{{"fit":1}}\n{FENCE}\nThat is all.', '{"fit":1}', id="sentence-after-fence"),
        pytest.param('The answer is {"fit":1}', '{"fit":1}', id="sentence-no-fence"),
        pytest.param('The answer is {"fit":1}, as you see.', '{"fit":1}', id="sentence-around"),
        pytest.param('  {"fit":1}\n', '{"fit":1}', id="bare"),
        pytest.param(
            f'{{"code":"{FENCE}json\\n1\\n{FENCE}"}}', f'{{"code":"{FENCE}json\\n1\\n{FENCE}"}}', id="fence-inside-string"
        ),
        pytest.param("17", "17", id="bare-number"),
        pytest.param("true", "true", id="bare-literal"),
    ],
)
def test_extract_answer_sets_wrapping_aside(content: str, answer: str) -> None:
    assert extract_answer(content) == answer


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('{\n\n{\n"v":"x"\n}\n', id="D6-double-brace"),
        pytest.param('{"{"s":"x"}', id="D6-broken-key"),
        pytest.param('{"a":1', id="cut-off"),
        pytest.param("{'a':1}", id="single-quotes"),
        pytest.param('First {"a":1} or else {"a":2}', id="two-answers"),
        pytest.param(f'{FENCE}json\n{{"a":1}}\n{FENCE}\nor\n{FENCE}json\n{{"a":2}}\n{FENCE}', id="two-fences"),
        pytest.param("Sure! Name: Bob", id="D4-prose"),
        pytest.param("", id="empty"),
    ],
)
def test_extract_answer_never_repairs(content: str) -> None:
    assert extract_answer(content) == content.strip()


def test_extract_answer_is_linear_in_white_space() -> None:
    content = "{" + "\t" * 200_000 + "}"
    assert extract_answer(content) == content
    assert extract_answer("see" + "\n" * 200_000 + "x").startswith("see")


def test_extract_answer_survives_deep_nesting() -> None:
    content = "see " + "[" * 200_000
    assert extract_answer(content) == content


@pytest.mark.parametrize(
    ("content", "start"),
    [
        ("", None),
        ("  ", None),
        (' {"a"', 1),
        ("Here is", None),
        (f"Here:\n{FENCE}json\n{{", 14),
        (f"{FENCE}json\n[", 8),
        (f"{FENCE}js", None),
    ],
)
def test_answer_start_waits_until_the_answer_begins(content: str, start: int | None) -> None:
    assert answer_start(content) == start
