"""`thinkgate split`: the text of standard input as reasoning and content, without a model."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import cast

from reasoning_parsers import (
    InvalidOptionError,
    PromptState,
    ReasoningParser,
    ReasoningParserError,
    get_parser,
    installed_registry,
)

from ..errors import InvalidRequestError
from ..upstreams.factory import read_registry


def run(
    *,
    family: str,
    prompt_state: PromptState,
    tools_offered: bool,
    effort: str | None,
    as_json: bool,
    stream: int | None,
    families_file: Path | None = None,
) -> int:
    """Split standard input and print both parts; exit code 0 even where one of them is empty.

    A text that ends before its answer, in the thinking or in another channel, is told on standard error.

    Args:
        family: Name of the reasoning family.
        prompt_state: What the prompt said of the thinking.
        tools_offered: Whether the request offered tools, whose calls end the thinking.
        effort: The request's reasoning effort, where the markers depend on it; None takes any.
        as_json: Print one JSON object, or one for each delta.
        families_file: Families of one's own, a TOML or JSON file.
        stream: Feed so many characters at a time and print each delta, one a line; None = the whole text at once.

    Raises:
        InvalidRequestError: There is no such family or effort, no input, or the file of families cannot be used.
    """
    registry = read_registry(families_file) or installed_registry()
    try:
        row = registry.get_family(family)
        parser = get_parser(row, prompt_state=prompt_state, tools_offered=tools_offered, effort=effort)
    except ReasoningParserError as error:
        param = error.param if isinstance(error, InvalidOptionError) else "family"
        raise InvalidRequestError(
            str(error), param=param, hint="`thinkgate parsers` lists the families; `--json` has their efforts"
        ) from error
    if sys.stdin.isatty():
        raise InvalidRequestError("no text", param="text", hint="pipe the output of a model in")
    if stream is None:
        final_reached = _print_whole(parser, as_json)
    else:
        _print_deltas(parser, as_json, stream)
        final_reached = parser.reasoning_ended
    if not final_reached:
        print("the text ends before the answer", file=sys.stderr)
    return 0


def _print_whole(parser: ReasoningParser, as_json: bool) -> bool:
    split = parser.split("".join(_read_pieces(65_536)))
    if as_json:
        print(json.dumps({"reasoning": split.reasoning, "content": split.content}, ensure_ascii=False))
        return split.final_reached
    for name, text in (("reasoning", split.reasoning), ("content", split.content)):
        print(f"--- {name}{'' if text else ': none'}")
        if text:
            print(text.strip("\n"))
    return split.final_reached


def _print_deltas(parser: ReasoningParser, as_json: bool, num_characters: int) -> None:
    for delta in _deltas(parser, num_characters):
        if as_json:
            print(json.dumps({"reasoning": delta[0], "content": delta[1]}, ensure_ascii=False), flush=True)
            continue
        for name, text in zip(("reasoning", "content"), delta, strict=True):
            if text:
                print(f"{name:9}  {json.dumps(text, ensure_ascii=False)}", flush=True)


def _deltas(parser: ReasoningParser, num_characters: int) -> Iterator[tuple[str, str]]:
    for piece in _read_pieces(num_characters):
        if delta := parser.feed(piece):
            yield delta.reasoning, delta.content
    if delta := parser.finish():
        yield delta.reasoning, delta.content


def _read_pieces(num_characters: int) -> Iterator[str]:
    """Read standard input as it comes, in pieces of at most so many characters; bytes that are no UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    source = cast(BufferedReader, sys.stdin.buffer)
    is_over = False
    while not is_over:
        data = source.read1(65_536)
        is_over = not data
        text = decoder.decode(data, final=is_over)
        for start in range(0, len(text), num_characters):
            yield text[start : start + num_characters]
