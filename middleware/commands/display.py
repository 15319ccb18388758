"""Draw on a terminal with rich: thinking in grey as it comes, the object as it forms, and tables.

The one module that imports rich. It draws on what it is given and asks no model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TextIO

from ..errors import MissingExtraError
from ..events import Event, PartialObject, ReasoningDelta, RetryStarted

try:
    from rich.console import Console
    from rich.json import JSON
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text
except ImportError as error:  # pragma: no cover - the test environment has rich
    raise MissingExtraError("drawing on the terminal needs rich", hint='pip install "thinkgate[cli]"') from error


class Display:
    """Draw events and tables on one stream."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.console = Console(file=file or sys.stdout, highlight=False)

    def heading(self, text: str) -> None:
        """Write a line that begins a section."""
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def note(self, text: str) -> None:
        """Write a dim line."""
        self.console.print(Text(text, style="dim"))

    def quote(self, text: str) -> None:
        """Write what the model is asked."""
        self.console.print(Text(text, style="cyan"))

    def warn(self, text: str) -> None:
        """Write what went wrong."""
        self.console.print(Text(text, style="red"))

    def progress(self, text: str) -> AbstractContextManager[object]:
        """Turn a spinner beside the text inside the block, where the stream is a terminal."""
        if not self.console.is_terminal:
            self.note(text)
        return self.console.status(text)

    def follow(self, events: Iterable[Event[Any]]) -> None:
        """Draw thinking and the growing object until the events end; leaves the finished object on the screen."""
        with Live(Text(""), console=self.console, refresh_per_second=12, transient=False) as live:
            thinking = Text("", style="bright_black")
            for event in events:
                match event:
                    case ReasoningDelta(text=text):
                        thinking.append(text)
                        live.update(thinking)
                    case PartialObject(value=value):
                        self._settle(thinking, live)
                        live.update(JSON.from_data(value))
                    case RetryStarted(attempt=attempt):
                        self._settle(thinking, live)
                        live.console.print(Text(f"not valid; attempt {attempt}", style="yellow"))
                    case _:
                        pass
            self._settle(thinking, live)
        if not self.console.is_terminal:
            # There rich leaves the last line open.
            self.console.line()

    @staticmethod
    def _settle(thinking: Text, live: Live) -> None:
        """Print the thinking above the live part, once."""
        if thinking.plain:
            live.console.print(thinking.copy())
            thinking.truncate(0)
            live.update(Text(""))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Write a table; the first column is on the left, numbers on the right."""
        table = Table(title=title, title_justify="left", title_style="bold")
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index == 0 else "right")
        for row in rows:
            table.add_row(*row)
        self.console.print()
        self.console.print(table)
