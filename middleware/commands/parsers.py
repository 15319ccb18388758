"""`thinkgate parsers`: the table of reasoning families, for people, as JSON, and as the page `docs/families.md`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest

from reasoning_parsers import UNSUPPORTED_FAMILIES, ReasoningFamily, list_families

HEADINGS = ("name", "aliases", "markers", "switch (default)", "template opens", "source")

# Longest line of a cell of the column of that heading; other columns are as wide as they need to be.
_WIDTHS = {"name": 16, "aliases": 18, "markers": 29}

_PAGE = """\
# Reasoning families

One row for each family, from `reasoning_parsers`. *Switch* is the keyword of the chat template that turns thinking on and off;
*template opens* says whether the template by default writes the start marker itself, so that the output begins inside the
thinking. Names are compared without case, and `-` equals `_`. This page is written by `thinkgate parsers --markdown`.

{table}

## Known to vLLM or SGLang, not supported yet

{missing}
"""


def run(*, as_json: bool, as_markdown: bool) -> int:
    """Print the families."""
    families = sorted(list_families(), key=lambda family: family.name)
    if as_json:
        print(json.dumps([asdict(family) for family in families], ensure_ascii=False, indent=2))
    elif as_markdown:
        print(render_page(families), end="")
    else:
        print(_render_table(families))
        print("\n" + textwrap.fill(f"not supported yet: {', '.join(sorted(UNSUPPORTED_FAMILIES))}", 120))
    return 0


def render_page(families: Sequence[ReasoningFamily]) -> str:
    """Give the text of `docs/families.md`."""
    missing = _markdown_rows(
        ("name", "what its format needs"), [(f"`{name}`", what) for name, what in UNSUPPORTED_FAMILIES.items()]
    )
    return _PAGE.format(table=_markdown_rows(HEADINGS, [_markdown_cells(family) for family in families]), missing=missing)


def _markdown_cells(family: ReasoningFamily) -> tuple[str, ...]:
    name, aliases, markers, switch, opens, source = _cells(family)
    code = [" ".join(f"`{word}`" for word in cell.split()) for cell in (name, aliases, markers)]
    return (*code, switch, opens, f"<{source}>" if source.startswith("https:") else f"`{source}`")


def _markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    # A bar ends a cell even inside code, unless it is escaped.
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines)


def _cells(family: ReasoningFamily) -> tuple[str, ...]:
    switch = "-" if family.thinking_switch is None else family.thinking_switch
    return (
        family.name,
        # An alias that only spells the name another way tells nothing.
        " ".join(alias for alias in family.aliases if alias.replace("-", "_") != family.name),
        f"{family.start} {family.end}",
        f"{switch} ({'on' if family.thinking_default else 'off'})",
        "yes" if family.template_opens else "no",
        family.source,
    )


def _render_table(families: Sequence[ReasoningFamily]) -> str:
    rows = [
        [_wrap(cell, _WIDTHS.get(heading)) for cell, heading in zip(_cells(family), HEADINGS, strict=True)] for family in families
    ]
    rows.insert(0, [[heading] for heading in HEADINGS])
    widths = [max(len(line) for lines in column for line in lines) for column in zip(*rows, strict=True)]
    rows.insert(1, [["-" * width] for width in widths])
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for row in rows
        for line in zip_longest(*row, fillvalue="")
    )


def _wrap(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text.removeprefix("https://")]
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
