"""Errors of this package; every one is a `ReasoningParserError`.

    ReasoningParserError
    ├── UnknownFamilyError          no row of that name (also a LookupError)
    ├── DuplicateFamilyError        a name or alias is taken
    ├── FamilySourceError           a file or an entry point with families cannot be used
    ├── MarkerError                 a marker is empty, ambiguous or not in the vocabulary
    ├── TemplateReadError           the source of a chat template cannot be read
    ├── UnknownPromptStateError     the prompt does not say whether thinking is open, and the caller asked for an error then
    └── InvalidOptionError          an argument is out of range, or a call comes at the wrong time (also a ValueError)

The attributes carry the facts; the message is for people.
"""

from __future__ import annotations


class ReasoningParserError(Exception):
    """Base of all errors of this package.

    Attributes:
        hint: What to do about it, or None.
        retryable: Whether the same call can succeed later. Always False here: all of it is deterministic.
    """

    hint: str | None
    retryable: bool = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.hint = hint


_NUM_SHOWN = 8


class UnknownFamilyError(ReasoningParserError, LookupError):
    """No family has this name.

    Attributes:
        name: The name that was asked for.
        near: Known names that look like it, nearest first.
    """

    def __init__(self, name: str, near: tuple[str, ...], known: tuple[str, ...]) -> None:
        shown = ", ".join(known[:_NUM_SHOWN]) + (f" and {len(known) - _NUM_SHOWN} more" if len(known) > _NUM_SHOWN else "")
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {shown}"
        super().__init__(f"no reasoning family is called {name!r}", hint=hint)
        self.name = name
        self.near = near


class DuplicateFamilyError(ReasoningParserError):
    """A family claims a name or alias that another family has.

    Attributes:
        name: The name or alias that clashes.
        existing: Name of the family that has it.
        new: Name of the family that claims it too.
        existing_place: Where the first was read: a file and line, an entry point; "" where that is not known.
        new_place: Where the second was read.
    """

    def __init__(self, name: str, existing: str, new: str, *, existing_place: str = "", new_place: str = "") -> None:
        first, second = (
            f"{family!r}{f' ({place})' if place else ''}" for family, place in ((existing, existing_place), (new, new_place))
        )
        super().__init__(
            f"families {first} and {second} both claim the name {name!r}",
            hint="names and aliases are compared without case, and '-' equals '_'",
        )
        self.name = name
        self.existing = existing
        self.new = new
        self.existing_place = existing_place
        self.new_place = new_place


class FamilySourceError(ReasoningParserError):
    """A file or an entry point with families cannot be used.

    Attributes:
        place: The file with the line or key, or the entry point.
    """

    def __init__(self, place: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{place}: {message}", hint=hint)
        self.place = place


class MarkerError(ReasoningParserError):
    """A marker cannot be told apart or has no token ids.

    Attributes:
        marker: Text of the marker, or None where only ids are known.
        family: Name of the row that is wrong, or None.
        field: The row's field that is wrong, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        marker: str | None = None,
        family: str | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.marker = marker
        self.family = family
        self.field = field


class TemplateReadError(ReasoningParserError):
    """The source of a chat template is no Jinja, or uses syntax that is not known here; the message names the place."""


class UnknownPromptStateError(ReasoningParserError):
    """The prompt does not say whether thinking is open, and `on_unknown="error"` was asked for."""

    def __init__(self) -> None:
        super().__init__(
            "the last turn of the prompt holds no thinking marker, so it is unknown whether the model will think",
            hint="render the prompt with the chat template's thinking switch, or pass another on_unknown policy",
        )


class InvalidOptionError(ReasoningParserError, ValueError):
    """An argument is out of range, or a call comes at the wrong time.

    Attributes:
        param: Name of the argument.
    """

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}")
        self.param = param
