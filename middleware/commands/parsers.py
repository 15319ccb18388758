"""`thinkgate parsers`: the table of reasoning families, for people, as JSON, and as the page `docs/families.md`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

from reasoning_parsers import ReasoningFamily, installed_registry

from ..upstreams.factory import read_registry
from .plain import line_width

HEADINGS = ("name", "aliases", "markers", "switch (default)", "template opens", "first-hand", "source")

# Longest line of a cell of the column of that heading; other columns are as wide as they need to be.
_WIDTHS = {"name": 16, "aliases": 18, "markers": 29, "switch (default)": 26, "template opens": 8}
_MAX_SOURCE_LEN = 44
# With the longest name and the longest switch this makes 80 columns.
_NARROW_MARKERS = 27
_MAX_WIDTH = 180
# What a narrow terminal does without, the first to go first.
_LEFT_OUT = ("source", "aliases", "template opens")

_PAGE = """\
# Reasoning families

One row for each family, from `reasoning_parsers`. *Switch* is the keyword of the chat template that turns thinking on and off,
with its two values where they are words, and what holds without it; where there is none, thinking cannot be turned off.
*Template opens* says whether the template by default writes the start marker itself, so that the output begins inside the
thinking. A row that is not *first-hand* was read in the lists or the code of vLLM and SGLang, not in a chat template or a model
card of the family. Names are compared without case, and `-` equals `_`. This page is written by `thinkgate parsers --markdown`.

{table}

## What else a row says

*Ends* are texts that end the thinking where tools are offered and are content themselves; *turns* are the tokens that begin or
close a turn. Rows that say nothing more are left out.

{details}
"""


def run(*, as_json: bool, as_markdown: bool, families_file: Path | None = None) -> int:
    """Print the families, those of a file of one's own included.

    Raises:
        InvalidRequestError: The file cannot be used.
    """
    registry = read_registry(families_file) or installed_registry()
    families = sorted(registry.list_families(), key=lambda family: family.name)
    if as_json:
        print(json.dumps([asdict(family) for family in families], ensure_ascii=False, indent=2))
    elif as_markdown:
        print(render_page(families), end="")
    else:
        print("\n".join(_render(families, line_width(_MAX_WIDTH))))
    return 0


def render_page(families: Sequence[ReasoningFamily]) -> str:
    """Give the text of `docs/families.md`."""
    table = _markdown_rows(HEADINGS, [_markdown_cells(family) for family in families])
    details = [
        (f"`{family.name}`", "; ".join(rules), _code(family.implicit_ends), _code(family.turn_boundaries))
        for family in families
        if (rules := _rules(family)) or family.implicit_ends or family.turn_boundaries
    ]
    return _PAGE.format(table=table, details=_markdown_rows(("name", "format", "ends", "turns"), details))


def _markdown_cells(family: ReasoningFamily) -> tuple[str, ...]:
    source = f"<{family.source}>" if family.source.startswith("https:") else f"`{family.source}`"
    return (f"`{family.name}`", _code(_aliases(family)), _code(_markers(family)), *_flags(family), source)


def _markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    # A bar ends a cell even inside code, unless it is escaped.
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


def _code(texts: Sequence[str]) -> str:
    return " ".join(f"`{_visible(text)}`" for text in texts)


def _visible(text: str) -> str:
    """A line break as it is written in code."""
    return text.replace("\n", "\\n")


def _aliases(family: ReasoningFamily) -> list[str]:
    # An alias that only spells the name another way tells nothing.
    return [alias for alias in family.aliases if alias.replace("-", "_") != family.name]


def _markers(family: ReasoningFamily) -> tuple[str, ...]:
    pairs = [marker for _, *pair in family.effort_markers for marker in pair]
    return tuple(dict.fromkeys((family.start, family.end, *family.other_starts, *family.other_ends, *pairs)))


def _flags(family: ReasoningFamily) -> tuple[str, str, str]:
    switch = "/".join((family.thinking_switch or "-", *family.other_switches))
    words = "" if isinstance(family.switch_on, bool) else f" {family.switch_on}/{family.switch_off}"
    opens, first_hand = ("yes" if flag else "no" for flag in (family.template_opens, not family.is_second_hand))
    return f"{switch}{words} ({'on' if family.thinking_default else 'off'})", opens, first_hand


def _rules(family: ReasoningFamily) -> list[str]:
    """What more a row says of its format, a phrase each."""
    rules = []
    if family.channels is not None:
        rules.append(f"channels: {_code(family.channels.reasoning)} is thinking, {_code(family.channels.content)} the answer")
    if family.start_label:
        rules.append(f"label {_code([family.start_label])}")
    rules += [f"{_code(pair)} around the content go" for pair in family.content_wrappers]
    if family.effort_markers:
        rules.append(f"markers by effort: {', '.join(effort for effort, _, _ in family.effort_markers)}")
    if family.marker_suffix_pattern:
        rules.append(f"a suffix `{family.marker_suffix_pattern}` in the markers, from the tokenizer")
    if family.keeps_reasoning_in_content:
        rules.append("the thinking stays in the content")
    return [*rules, family.note.removesuffix(".")] if family.note else rules


def _render(families: Sequence[ReasoningFamily], width: int) -> Iterator[str]:
    for num_left_out in range(len(_LEFT_OUT) + 1):
        left_out = _LEFT_OUT[:num_left_out]
        lines = _render_table(families, left_out)
        if max(map(len, lines)) <= width:
            break
    yield from lines
    yield ""
    if left_out:
        yield f"Too narrow for: {', '.join(left_out)}. `--json` has all fields."
    else:
        yield "*: read in another project's lists or code, not in a chat template or model card. `--json` has all fields."


def _render_table(families: Sequence[ReasoningFamily], left_out: Sequence[str]) -> list[str]:
    shown = [heading for heading in HEADINGS if heading != "first-hand"]
    columns = [index for index, heading in enumerate(shown) if heading not in left_out]
    headings = [shown[index] for index in columns]
    cells = [headings, *([row[index] for index in columns] for row in map(_cells, families))]
    # Markers stay whole, for copying, as long as there is room.
    narrow = len(left_out) == len(_LEFT_OUT)
    rows = [[_wrap(cell, heading, narrow=narrow) for cell, heading in zip(line, headings, strict=True)] for line in cells]
    widths = [max(len(line) for lines in column for line in lines) for column in zip(*rows, strict=True)]
    rows.insert(1, [["-" * width] for width in widths])
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for row in rows
        for line in zip_longest(*row, fillvalue="")
    ]


def _cells(family: ReasoningFamily) -> list[str]:
    switch, opens, _ = _flags(family)
    source = family.source.removeprefix("https://")
    if len(source) > _MAX_SOURCE_LEN:
        host, _, path = source.partition("/")
        source = f"{host}/\u2026{path[len(host) + 2 - _MAX_SOURCE_LEN :]}"
    aliases, markers = " ".join(_aliases(family)), " ".join(map(_visible, _markers(family)))
    return [family.name, aliases, markers, switch, opens, ("* " if family.is_second_hand else "") + source]


def _wrap(text: str, heading: str, *, narrow: bool) -> list[str]:
    breaks = narrow and heading == "markers"
    width = _NARROW_MARKERS if breaks else _WIDTHS.get(heading)
    if width is None:
        return [text]
    return textwrap.wrap(text, width, break_long_words=breaks, break_on_hyphens=False) or [""]
