"""Where a JSON answer stands, without what no longer matters: the key under which masks are kept.

A state is what the rest of the answer can depend on (see `shapes.py`). Two texts in the same state go on alike, so one mask
serves both. Keys are exact, never hashes; text that gets too long to be one is left out, and such a state is not shared.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from .shapes import OPAQUE, ArrayShape, ObjectShape, Shapes, StringShape

MAX_TEXT = 200
"""Longest text in a key, in bytes."""
_SPACE = b" \t\n\r"
_ENDS_SCALAR = b",]}" + _SPACE
_PLAIN_RUN = re.compile(rb"[\x20\x21\x23-\x5b\x5d-\x7f]+")


class ObjectFrame(NamedTuple):
    """An object that is not closed: the position of its last name of the schema, and whether others came; None if unknown."""

    shape: ObjectShape
    last: int
    has_others: bool | None


class ArrayFrame(NamedTuple):
    """An array that is not closed, and its items so far."""

    shape: ArrayShape
    num_items: int


Frames = tuple[ObjectFrame | ArrayFrame, ...]


class AnswerState(NamedTuple):
    """A state; hashable.

    Attributes:
        frames: What is not closed, from the outside in.
        mode: What is being read.
        detail: Facts of that; see the modes.
        text: Bytes that matter; None if they got too long.
    """

    frames: Frames
    mode: str
    detail: object
    text: bytes | None

    @property
    def is_shared(self) -> bool:
        """Whether the state says all that matters."""
        return self.text is not None and all(
            isinstance(frame, ArrayFrame) or frame.has_others is not None for frame in self.frames
        )


class Strings(NamedTuple):
    """Detail of a plain string: characters that must, and that may follow."""

    need: int
    room: int | None


class Region(NamedTuple):
    """Detail of an opaque object or array: how deep it is nested, and whether in a string, behind a backslash."""

    depth: int
    in_string: bool
    is_escaped: bool


VALUE, STRING, LITERAL, SCALAR, REGION = "value", "string", "literal", "scalar", "region"
NAMES, NAME, COLON, AFTER = "names", "name", "colon", "after"


def start_state(shapes: Shapes) -> AnswerState:
    """Give the state before an answer."""
    return AnswerState((), VALUE, _Place(shapes), b"")


def advance(state: AnswerState, data: bytes) -> AnswerState | None:
    """Give the state after `data`; None where this is no JSON text any more."""
    index = 0
    found: AnswerState | None = state
    while found is not None and index < len(data):
        if found.mode == STRING and not found.text:
            run = _PLAIN_RUN.match(data, index)
            if run is not None:
                found = _count(found, run.end() - index)
                index = run.end()
                continue
        found = _STEPS[found.mode](found, data[index])
        index += 1
    return found


class _Place(NamedTuple):
    """Detail of a value to come; equal to another one of the same place."""

    shapes: Shapes

    def __hash__(self) -> int:
        return id(self.shapes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and other.shapes is self.shapes


def _longer(text: bytes | None, byte: int) -> bytes | None:
    return text + bytes((byte,)) if text is not None and len(text) < MAX_TEXT else None


def _value(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, place, text = state
    assert isinstance(place, _Place)
    if byte in _SPACE:
        return AnswerState(frames, VALUE, place, _longer(text, byte))
    if byte == 0x5D:
        return _close(frames)  # an empty array; whether it may be empty is the grammar's business
    shape = place.shapes.get(byte)
    if byte == 0x22:
        if isinstance(shape, StringShape):
            return AnswerState(frames, STRING, Strings(shape.need, shape.room), b"")
        return AnswerState(frames, LITERAL, (place, False), b'"')
    if isinstance(shape, ObjectShape):
        return AnswerState((*frames, ObjectFrame(shape, -1, False)), NAMES, True, b"")
    if isinstance(shape, ArrayShape):
        return AnswerState((*frames, ArrayFrame(shape, 0)), VALUE, _Place(shape.child(0)), b"")
    mode: tuple[str, object] = (REGION, (place, Region(1, False, False))) if byte in b"{[" else (SCALAR, place)
    return AnswerState(frames, *mode, bytes((byte,)))


def _string(state: AnswerState, byte: int) -> AnswerState | None:
    """Read a byte of a plain string; `text` is the head of a character that is not whole."""
    frames, _, detail, text = state
    assert isinstance(detail, Strings)
    if text:
        return _rest_of_character(state, text + bytes((byte,)))
    if byte == 0x22:
        return AnswerState(frames, AFTER, None, b"")
    if byte == 0x5C or 0xC2 <= byte <= 0xF4:
        return AnswerState(frames, STRING, detail, bytes((byte,)))
    return _count(state, 1) if 0x20 <= byte < 0x80 else None


def _rest_of_character(state: AnswerState, text: bytes) -> AnswerState | None:
    frames, _, detail, _ = state
    if text[0] == 0x5C:
        if len(text) == 2 and text[1] != 0x75:
            return _count(state, 1) if text[1] in b'"\\/bfnrt' else None
        if len(text) < 6:
            return AnswerState(frames, STRING, detail, text)
        try:
            unit = int(text[2:], 16)
        except ValueError:
            return None
        # Half of a pair: what may follow depends on which half, so the string goes on as a literal one.
        return AnswerState(frames, LITERAL, (detail, False), text) if 0xD800 <= unit <= 0xDFFF else _count(state, 1)
    length = 2 if text[0] < 0xE0 else 3 if text[0] < 0xF0 else 4
    return _count(state, 1) if len(text) == length else AnswerState(frames, STRING, detail, text)


def _count(state: AnswerState, num_chars: int) -> AnswerState | None:
    detail = state.detail
    assert isinstance(detail, Strings)
    room = detail.room
    if room is not None:
        room -= num_chars
        if room < 0:
            return None
    return AnswerState(state.frames, STRING, Strings(max(0, detail.need - num_chars), room), b"")


def _literal(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, detail, text = state
    assert isinstance(detail, tuple)
    origin, is_escaped = detail
    if byte == 0x22 and not is_escaped:
        return AnswerState(frames, AFTER, None, b"")
    return AnswerState(frames, LITERAL, (origin, byte == 0x5C and not is_escaped), _longer(text, byte))


def _scalar(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, place, text = state
    if byte in _ENDS_SCALAR:
        return _after(AnswerState(frames, AFTER, None, b""), byte)
    return AnswerState(frames, SCALAR, place, _longer(text, byte))


def _region(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, detail, text = state
    assert isinstance(detail, tuple)
    place, (depth, in_string, is_escaped) = detail
    if in_string:
        region = Region(depth, byte != 0x22 or is_escaped, byte == 0x5C and not is_escaped)
    else:
        depth += (byte in b"{[") - (byte in b"}]")
        if not depth:
            return AnswerState(frames, AFTER, None, b"")
        region = Region(depth, byte == 0x22, False)
    return AnswerState(frames, REGION, (place, region), _longer(text, byte))


def _names(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, is_first, text = state
    if byte in _SPACE:
        return AnswerState(frames, NAMES, is_first, _longer(text, byte))
    if byte == 0x7D:
        return _close(frames)
    return AnswerState(frames, NAME, False, b'"') if byte == 0x22 else None


def _name(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, is_escaped, text = state
    if byte != 0x22 or is_escaped:
        return AnswerState(frames, NAME, byte == 0x5C and not is_escaped, _longer(text, byte))
    frame = frames[-1]
    assert isinstance(frame, ObjectFrame)
    shape, last, has_others = frame
    name = None
    if text is not None:
        try:
            name = json.loads(text + b'"')
        except ValueError:
            return None
        if name in shape.names and b"\\" in text:
            name = None  # a backend may take another spelling of a name for another name
    index = None if name is None else shape.names.get(name)
    if index is not None:
        last = index
    else:
        # Which ones does not matter: no grammar remembers them. A name that was left out may be one of the schema's.
        has_others = True if name is not None and has_others is not None else None
    child = OPAQUE if name is None else shape.child(name)
    return AnswerState((*frames[:-1], ObjectFrame(shape, last, has_others)), COLON, _Place(child), b"")


def _colon(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, place, text = state
    if byte in _SPACE:
        return AnswerState(frames, COLON, place, _longer(text, byte))
    return AnswerState(frames, VALUE, place, b"") if byte == 0x3A else None


def _after(state: AnswerState, byte: int) -> AnswerState | None:
    frames, _, _, text = state
    if byte in _SPACE:
        return AnswerState(frames, AFTER, None, _longer(text, byte))
    if not frames:
        return None
    frame = frames[-1]
    if byte == 0x2C:
        if isinstance(frame, ObjectFrame):
            return AnswerState(frames, NAMES, False, b"")
        shape, count = frame
        count = count + 1 if shape.settled is None else min(count + 1, shape.settled)
        return AnswerState((*frames[:-1], ArrayFrame(shape, count)), VALUE, _Place(shape.child(count)), b"")
    is_end = byte == (0x7D if isinstance(frame, ObjectFrame) else 0x5D)
    return _close(frames) if is_end else None


def _close(frames: Frames) -> AnswerState | None:
    return AnswerState(frames[:-1], AFTER, None, b"") if frames else None


_STEPS = {
    VALUE: _value,
    STRING: _string,
    LITERAL: _literal,
    SCALAR: _scalar,
    REGION: _region,
    NAMES: _names,
    NAME: _name,
    COLON: _colon,
    AFTER: _after,
}
