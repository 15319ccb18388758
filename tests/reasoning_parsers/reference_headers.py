"""Messages with headers by brute force: the whole text is read again for every question, character by character."""

from __future__ import annotations

import re
from typing import NamedTuple

from reasoning_parsers.channels import Channels


class Reading(NamedTuple):
    """What a text says.

    kinds: Per character what it is: between, frame, header, thinking, preamble, call, answer.
    stop: Number of characters up to the one that ended the thinking, or None.
    is_call: Whether a tool call ended it.
    """

    kinds: list[str]
    stop: int | None
    is_call: bool


def read(channels: Channels, special: set[str], text: str, *, tools_offered: bool, goes_on: bool = False) -> Reading:
    """Read `text`; with `goes_on` past the end of the thinking, as in a prompt."""
    kind, header, frame = "between", "", ""
    kinds: list[str] = []
    stop, is_call = None, False
    for index in range(1, len(text) + 1):
        seen = text[:index]
        is_body = kind in ("thinking", "preamble", "call", "answer")
        found = _found(channels, special, seen, is_body=is_body)
        header += seen[-1] if kind == "header" else ""
        frame += seen[-1] if kind in ("frame", "between") else ""
        if found == "closer":
            kind, frame = "between", ""
        elif found == "opener" and channels.header_end:
            before = header if kind == "header" else ""
            header, frame = f"{before}|", "" if is_body else frame
            kind = "header"
        elif found == "opener":
            opener = max((text for text in channels.openers if seen.endswith(text)), key=len)
            kinds_of = {**dict.fromkeys(channels.reasoning, "thinking"), **dict.fromkeys(channels.content, "answer")}
            kind = {**kinds_of, **dict.fromkeys(channels.preamble, "preamble")}.get(opener, "call")
        elif found == "frame":
            kind, frame, header = "frame", "", ""
        elif found == "header_end":
            names = header[: -len(channels.header_end)].split("|")[1:] if kind == "header" else []
            kind = _classify(channels, names, frame)
            header = frame = ""
        kinds.append(kind)
        if kind == "answer" or (kind == "call" and tools_offered):
            stop, is_call = (index if stop is None else stop), kind == "call"
            if not goes_on:
                break
    return Reading(kinds, stop, is_call)


def _found(channels: Channels, special: set[str], seen: str, *, is_body: bool) -> str | None:
    texts = [(closer, "closer") for closer in channels.closers]
    for kind, marks in (("opener", channels.openers), ("frame", channels.frames)):
        texts += [(mark, kind) for mark in marks if not is_body or any(text in mark for text in special)]
    if not is_body and channels.header_end:
        texts.append((channels.header_end, "header_end"))
    found = [(len(text), kind) for text, kind in texts if seen.endswith(text)]
    return max(found)[1] if found else None


def _classify(channels: Channels, names: list[str], frame: str) -> str:
    labels = [name if channels.plain_openers else name.lstrip(" \t\r\n") for name in names]
    if any(_is_label(channels, label, channels.content) for label in labels):
        return "answer"
    if channels.recipient and channels.recipient in (frame + "".join(names)):
        return "call"
    if not names:
        return "answer"
    for kind, words in (("preamble", channels.preamble), ("thinking", channels.reasoning)):
        if _is_label(channels, labels[-1], words):
            return kind
    return "call"


def _is_label(channels: Channels, label: str, words: tuple[str, ...]) -> bool:
    if channels.plain_openers:
        return label in words
    return any(re.match(rf"{re.escape(word)}(?![\w.-])", label, re.ASCII) for word in words)
