"""What a reasoning family is: how one model family marks its thinking.

A row knows nothing of tokenizers (see `markers.py`) and holds no code. To add a family, write a row and pass it where a name
is taken, or put it into a `FamilyRegistry` (`registry.py`). The rows that ship are in `families.py`; what a row must not say is
in `family_checks.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .channels import Channels
from .errors import InvalidOptionError, MarkerError
from .family_checks import check_family

FamilyFormat = Literal["delimited", "channels"]
"""`delimited`: a start and an end marker around the thinking. `channels`: messages with headers, see `channels.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFamily:
    """How one model family marks its thinking.

    Attributes:
        name: Canonical name, snake case.
        start: Text of the marker that opens the thinking. Must not begin with white space. For channels the usual header of
            the thinking.
        end: Text of the marker that closes it. Neither it nor an implicit end may occur inside `start`. For channels the usual
            header of the answer.
        aliases: Further names. `-` and `_` are equal and case does not matter, here and in `name`.
        format: What code reads the output.
        channels: The messages' headers, for the format `channels`.
        other_starts: Further spellings of `start`.
        other_ends: Further spellings of `end`.
        start_label: Text right after the start marker that belongs to it. The model may leave it out.
        content_wrappers: Pairs of texts that are taken off the content where the first stands at its head.
        keeps_reasoning_in_content: Whether this name stands for the style in which the thinking and its markers stay in the
            content, and nothing is reasoning.
        effort_markers: Effort, start and end marker, where the effort of the request chooses the markers. `start` and `end`
            are those of the default effort.
        marker_suffix_pattern: Regular expression of a suffix that a tokenizer puts before the last character of `start`, `end`
            and the implicit ends; "" where there is none.
        reads_response_template: Whether the markers are the tokenizer's own, in its response template
            (`family_from_response_template`). Those of the row are for a text whose tokenizer is not at hand.
        template_opens: Whether the chat template by default writes the start marker itself, so that the output begins inside
            the thinking and holds only the end marker.
        thinking_switch: Keyword of the chat template that turns thinking on and off, or None where it cannot be turned off.
        other_switches: Further keywords that mean the same.
        switch_on: Value of the switch that turns thinking on.
        switch_off: Value of the switch that turns it off.
        thinking_default: What the family does when the switch is not given.
        implicit_ends: Texts that end the thinking and are content themselves (tool openers). They count only where tools
            are offered; without tools they are text like any other.
        turn_boundaries: Token texts that begin or close a turn. A search for markers in a prompt goes back to the last of
            them and no further.
        user_turns: Texts that begin with a turn boundary and open a turn that is not the model's: user, system, tool. If the
            last turn is one of these, no marker in it counts.
        source: Where the row comes from (URL).
        checked: Date of the last look at the source, ISO 8601.
        is_second_hand: Whether the row was read in another project's list, and not in the model's own chat template or card.
        note: A sentence for people who use the row, "" for none.

    Raises:
        MarkerError: The row contradicts itself; the error names the row and the field.
    """

    name: str
    start: str
    end: str
    aliases: tuple[str, ...] = ()
    format: FamilyFormat = "delimited"
    channels: Channels | None = None
    other_starts: tuple[str, ...] = ()
    other_ends: tuple[str, ...] = ()
    start_label: str = ""
    content_wrappers: tuple[tuple[str, str], ...] = ()
    keeps_reasoning_in_content: bool = False
    effort_markers: tuple[tuple[str, str, str], ...] = ()
    marker_suffix_pattern: str = ""
    reads_response_template: bool = False
    template_opens: bool = False
    thinking_switch: str | None = None
    other_switches: tuple[str, ...] = ()
    switch_on: bool | str = True
    switch_off: bool | str = False
    thinking_default: bool = True
    implicit_ends: tuple[str, ...] = ()
    turn_boundaries: tuple[str, ...] = ()
    user_turns: tuple[str, ...] = ()
    source: str = ""
    checked: str = ""
    is_second_hand: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        check_family(self)

    @property
    def starts(self) -> tuple[str, ...]:
        """All spellings of the start marker, the usual one first."""
        return (self.start, *self.other_starts)

    @property
    def ends(self) -> tuple[str, ...]:
        """All spellings of the end marker, the usual one first."""
        return (self.end, *self.other_ends)

    @property
    def can_switch_off(self) -> bool:
        """Whether the chat template can turn the thinking off."""
        return self.thinking_switch is not None

    def template_kwargs(self, thinking: bool) -> dict[str, bool | str]:
        """Return the variable of the chat template that turns thinking on or off; empty where there is none."""
        return {} if self.thinking_switch is None else {self.thinking_switch: self.switch_on if thinking else self.switch_off}

    def for_effort(self, effort: str | None) -> ReasoningFamily:
        """Return the row with the markers of an effort; this row where effort does not change them.

        Args:
            effort: The request's `reasoning_effort`; None is the default.

        Raises:
            InvalidOptionError: The family has markers by effort, and none for this one.
        """
        if not self.effort_markers:
            return self
        pairs = {name: (start, end) for name, start, end in self.effort_markers}
        pair = (self.start, self.end) if effort is None else pairs.get(effort)
        if pair is None:
            raise InvalidOptionError("effort", f"{effort!r} is no effort of {self.name!r}; it has {', '.join(pairs)}")
        return dataclasses.replace(self, start=pair[0], end=pair[1], effort_markers=())

    def for_vocabulary(self, tokens: Iterable[str]) -> ReasoningFamily:
        """Return the row with the markers of one tokenizer; this row where the markers have no suffix.

        Args:
            tokens: Texts of the tokenizer's tokens; the added ones are enough.

        Raises:
            MarkerError: No suffix has both markers, or several have.
        """
        if not self.marker_suffix_pattern:
            return self
        vocabulary = set(tokens)
        found = {
            suffix
            for suffix in self._suffixes(vocabulary)
            if _with_suffix(self.start, suffix) in vocabulary and _with_suffix(self.end, suffix) in vocabulary
        }
        if len(found) != 1:
            pairs = ", ".join(sorted(_with_suffix(self.start, suffix) for suffix in found)) or "none"
            raise MarkerError(
                f"family {self.name!r}: marker_suffix_pattern: the vocabulary must have one pair of markers like "
                f"{self.start!r} and {self.end!r} with a suffix; found: {pairs}",
                marker=self.start,
                family=self.name,
                field="marker_suffix_pattern",
            )
        suffix = found.pop()
        openers = tuple(own if (own := _with_suffix(text, suffix)) in vocabulary else text for text in self.implicit_ends)
        start, end = _with_suffix(self.start, suffix), _with_suffix(self.end, suffix)
        return dataclasses.replace(self, start=start, end=end, implicit_ends=openers, marker_suffix_pattern="")

    def _suffixes(self, vocabulary: set[str]) -> Iterable[str]:
        # Greedy: where the vocabulary has the bare markers only, the suffix is empty.
        head, tail = re.escape(self.start[:-1]), re.escape(self.start[-1])
        pattern = re.compile(f"{head}((?:{self.marker_suffix_pattern})?){tail}")
        return (match[1] for match in map(pattern.fullmatch, vocabulary) if match)


def _with_suffix(marker: str, suffix: str) -> str:
    return marker[:-1] + suffix + marker[-1]
