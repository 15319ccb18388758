"""What splitting text and deciding the gate cost, beside a naive rescan of everything so far.

Text: long thinking and an answer, in deltas of four characters. Tokens: one `commit` a token on a gate with single-id markers, at
several context lengths (the cost must not grow with them).

    python tests/bench/parsers.py [--quick] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from reporting import make_parser, print_table, write_json

from reasoning_parsers import ReasoningGate, TokenMarkers, get_parser

DELTA_LEN = 4
START, END = 1, 2


@dataclass(frozen=True, slots=True)
class TextFigure:
    """Cost of splitting one text; the ratio is the naive rescan's time over ours."""

    kilobytes: int
    megabytes_per_s: float
    microseconds_per_feed: float
    naive_over_ours: float


@dataclass(frozen=True, slots=True)
class TokenFigure:
    """Cost of `bounds` and `commit` of one token while thinking."""

    context_tokens: int
    microseconds_per_commit: float


def make_text(num_characters: int) -> str:
    """Thinking with characters that look like the beginning of a marker now and then, and an answer."""
    sentence = "so a < b, and the total is 3 * 4.50 = 13.50; "
    return sentence * (num_characters // len(sentence)) + '</think>{"total": 13.50}'


def split_ours(text: str) -> tuple[str, str]:
    """Feed the parser in small deltas."""
    parser = get_parser("deepseek_r1", prompt_state="open")
    reasoning: list[str] = []
    content: list[str] = []
    for start in range(0, len(text), DELTA_LEN):
        delta = parser.feed(text[start : start + DELTA_LEN])
        reasoning.append(delta.reasoning)
        content.append(delta.content)
    delta = parser.finish()
    return "".join(reasoning) + delta.reasoning, "".join(content) + delta.content


def split_naive(text: str) -> tuple[str, str]:
    """Look for the marker in everything so far, at every delta."""
    so_far, reasoning, content = "", "", ""
    for start in range(0, len(text), DELTA_LEN):
        so_far += text[start : start + DELTA_LEN]
        reasoning, _, content = so_far.partition("</think>")
    return reasoning, content


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Best of `repeats` runs: the others were disturbed."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def measure_text(num_characters: int, repeats: int) -> TextFigure:
    """Measure one text length."""
    text = make_text(num_characters)
    if split_ours(text) != split_naive(text):
        raise SystemExit("the two splits differ; nothing was measured")
    ours = seconds(lambda: split_ours(text), repeats)
    naive = seconds(lambda: split_naive(text), 1)
    num_feeds = len(text) / DELTA_LEN
    return TextFigure(
        len(text) // 1000, round(len(text) / ours / 1e6, 2), round(ours / num_feeds * 1e6, 2), round(naive / ours, 1)
    )


def measure_tokens(context_tokens: int, repeats: int) -> TokenFigure:
    """Measure the commits that follow a context of that length, half prompt and half output."""
    num_commits = 2000
    gate = ReasoningGate(TokenMarkers((START,), (END,)))
    prompt = [*[5] * (context_tokens // 2), START]

    def prepare() -> None:
        gate.start(prompt)
        gate.commit([7] * (context_tokens // 2))

    def run() -> None:
        for _ in range(num_commits):
            gate.commit((7,))

    best = float("inf")
    for _ in range(repeats):
        prepare()
        best = min(best, seconds(run, 1))
    return TokenFigure(context_tokens, round(best / num_commits * 1e6, 2))


def main() -> None:
    """Run the command line."""
    args = make_parser("cost of text parsers and of the token gate").parse_args()
    repeats = 3 if args.quick else 7
    text = [measure_text(length, repeats) for length in (4_000, 40_000, 200_000)]
    tokens = [measure_tokens(length, repeats) for length in (0, 1_000, 10_000, 100_000)]
    print_table("Text in 4-character deltas, deepseek_r1", [asdict(figure) for figure in text])
    print_table("Token gate, one commit a token", [asdict(figure) for figure in tokens])
    write_json(
        args.json, "parsers", {"text": [asdict(f) for f in text], "tokens": [asdict(f) for f in tokens]}, is_quick=args.quick
    )


if __name__ == "__main__":
    main()
