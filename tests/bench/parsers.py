"""What splitting text and deciding the gate cost, beside vLLM's parser where it imports, else a rescan of everything so far.

Text: long thinking and an answer, in deltas of four characters, for each kind of format. Tokens: one `commit` a token on a gate
with single-id markers, at several context lengths (the cost must not grow with them).

    python tests/bench/parsers.py [--quick] [--json FILE]
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from reporting import make_parser, print_table, write_json

from reasoning_parsers import ReasoningFamily, ReasoningGate, TokenMarkers, get_family, get_parser

DELTA_LEN = 4
START, END = 1, 2
FAMILIES = ("deepseek_r1", "granite", "ernie45", "hy_v4", "gpt_oss", "kimi_k3", "muse")
"""One family of each kind of format: delimited, phrases, a wrapper, a suffix, and channels."""

Split = Callable[[list[str]], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class TextFigure:
    """Cost of splitting one text; the ratio is the peer's time over ours."""

    family: str
    kilobytes: int
    megabytes_per_s: float
    microseconds_per_feed: float
    peer: str
    peer_over_ours: float


@dataclass(frozen=True, slots=True)
class TokenFigure:
    """Cost of `bounds` and `commit` of one token while thinking."""

    context_tokens: int
    microseconds_per_commit: float


def make_text(family: ReasoningFamily, num_characters: int) -> str:
    """Thinking with characters that look like the beginning of a marker now and then, and an answer."""
    sentence = "so a < b, and the total is 3 * 4.50 = 13.50; "
    thinking, answer = sentence * (num_characters // len(sentence)), '{"total": 13.50}'
    if family.channels is None:
        return f"{thinking}{family.end}{answer}"
    return f"{thinking}{family.channels.closers[0]}{family.channels.next_frame}{family.end}{answer}"


def split_ours(family: ReasoningFamily, deltas: list[str]) -> tuple[str, str]:
    """Feed the parser."""
    parser = get_parser(family, prompt_state="open")
    pieces = [*map(parser.feed, deltas), parser.finish()]
    return "".join(piece.reasoning for piece in pieces), "".join(piece.content for piece in pieces)


def split_naive(family: ReasoningFamily, deltas: list[str]) -> tuple[str, str]:
    """Look for the marker in everything so far, at every delta."""
    so_far, reasoning, content = "", "", ""
    for delta in deltas:
        so_far += delta
        reasoning, _, content = so_far.partition(family.end)
    return reasoning, content


def vllm_split(family: ReasoningFamily) -> Split | None:
    """The streaming parser of vLLM for a family, None where vLLM cannot be imported or needs another tokenizer."""
    try:
        manager = importlib.import_module("vllm.reasoning").ReasoningParserManager
    except ImportError:
        return None

    class Tokenizer:
        """The least that a parser asks for."""

        def get_vocab(self) -> dict[str, int]:
            return {family.start: START, family.end: END}

    def split(deltas: list[str]) -> tuple[str, str]:
        parser = manager.get_reasoning_parser(family.name)(Tokenizer())
        before, ids = "", list[int]()
        parts = []
        for delta in deltas:
            new = [END] if family.end in before + delta and END not in ids else [3]
            args = (before, before + delta, delta, ids, ids + new, new)
            parts.append(parser.extract_reasoning_streaming(*args))
            before, ids = before + delta, ids + new
        reasoning = "".join(part.reasoning or "" for part in parts if part is not None)
        return reasoning, "".join(part.content or "" for part in parts if part is not None)

    return split


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Processor time of the best of `repeats` runs: the others were disturbed."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        function()
        times.append(time.process_time() - began)
    return min(times)


def measure_text(name: str, num_characters: int, repeats: int) -> TextFigure:
    """Measure one family at one text length."""
    family = get_family(name)
    text = make_text(family, num_characters)
    deltas = [text[start : start + DELTA_LEN] for start in range(0, len(text), DELTA_LEN)]
    peer, peer_split = "vllm", vllm_split(family)
    if peer_split is None:
        peer, peer_split = "rescan", partial(split_naive, family)
        if family.channels is None and split_ours(family, deltas) != peer_split(deltas):
            raise SystemExit("the two splits differ; nothing was measured")
    ours = seconds(lambda: split_ours(family, deltas), repeats)
    theirs = seconds(lambda: peer_split(deltas), 1)
    megabytes_per_s, per_feed = len(text) / ours / 1e6, ours / len(deltas) * 1e6
    return TextFigure(name, len(text) // 1000, round(megabytes_per_s, 2), round(per_feed, 2), peer, round(theirs / ours, 1))


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
    text = [measure_text("deepseek_r1", length, repeats) for length in (4_000, 40_000, 200_000)]
    text += [measure_text(name, 40_000, repeats) for name in FAMILIES[1:]]
    tokens = [measure_tokens(length, repeats) for length in (0, 1_000, 10_000, 100_000)]
    print_table("Text in 4-character deltas", [asdict(figure) for figure in text])
    print_table("Token gate, one commit a token", [asdict(figure) for figure in tokens])
    write_json(
        args.json, "parsers", {"text": [asdict(f) for f in text], "tokens": [asdict(f) for f in tokens]}, is_quick=args.quick
    )


if __name__ == "__main__":
    main()
