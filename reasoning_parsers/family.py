"""What a reasoning family is: how one model family marks its thinking.

A row knows nothing of tokenizers (see `markers.py`) and holds no code. To add a family, write a row and pass it where a name
is taken, or put it into a `FamilyRegistry` (`registry.py`). The rows that ship are in `families.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import MarkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFamily:
    """How one model family marks its thinking.

    Attributes:
        name: Canonical name, snake case.
        start: Text of the marker that opens the thinking. Must not begin with white space.
        end: Text of the marker that closes it. Neither it nor an implicit end may occur inside `start`.
        aliases: Further names. `-` and `_` are equal and case does not matter, here and in `name`.
        template_opens: Whether the chat template by default writes the start marker itself, so that the output begins inside
            the thinking and holds only the end marker.
        thinking_switch: Keyword of the chat template that turns thinking on and off with a bool, or None.
        thinking_default: What the family does when the switch is not given.
        implicit_ends: Texts that end the thinking and are content themselves (tool openers). They count only where tools
            are offered; without tools they are text like any other.
        turn_boundaries: Token texts that begin or close a turn. A search for markers in a prompt goes back to the last of
            them and no further.
        user_turns: Texts that begin with a turn boundary and open a turn that is not the model's: user, system, tool. If the
            last turn is one of these, no marker in it counts.
        source: Where the row comes from (URL).
        checked: Date of the last look at the source, ISO 8601.
    """

    name: str
    start: str
    end: str
    aliases: tuple[str, ...] = ()
    template_opens: bool = False
    thinking_switch: str | None = None
    thinking_default: bool = True
    implicit_ends: tuple[str, ...] = ()
    turn_boundaries: tuple[str, ...] = ()
    user_turns: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""

    def __post_init__(self) -> None:
        for marker in (self.start, self.end, *self.implicit_ends):
            if not marker.strip():
                raise MarkerError(f"family {self.name!r} has an empty marker", marker=marker)
        if self.start[0].isspace():
            raise MarkerError(
                f"the start marker of family {self.name!r} begins with white space",
                marker=self.start,
                hint="white space before the start marker is skipped anyway",
            )
        for marker in (self.end, *self.implicit_ends):
            if marker in self.start:
                raise MarkerError(f"{marker!r} ends thinking and occurs inside the start marker of {self.name!r}", marker=marker)
