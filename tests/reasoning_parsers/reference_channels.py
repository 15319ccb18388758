"""The rules of the channel format over a whole text at once, without a buffer: what `ChannelParser` must equal."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reasoning_parsers import Channels, PromptState, ReasoningFamily, ReasoningSplit
from reasoning_parsers.channel_parser import MAX_HEADER_LEN


@dataclass
class _Texts:
    """Texts of one kind; a new message of the kind begins on a new line."""

    parts: list[str] = field(default_factory=lambda: [""])

    def message(self, text: str) -> None:
        self.parts.append(text)

    def join(self) -> str | None:
        return "\n".join(part for part in self.parts if part) or None


def _first(text: str, start: int, markers: tuple[str, ...]) -> tuple[int, str] | None:
    """Place and text of the marker that completes first from `start` on."""
    for stop in range(start, len(text) + 1):
        ends = [marker for marker in markers if stop - len(marker) >= start and text[start:stop].endswith(marker)]
        if ends:
            marker = max(ends, key=len)
            return stop - len(marker), marker
    return None


def _inner(channels: Channels) -> tuple[str, ...]:
    return channels.frames if channels.plain_openers else (*channels.frames, *channels.openers)


def _due(channels: Channels) -> tuple[str, ...]:
    return tuple(filter(None, (*channels.frames, *channels.openers, channels.header_end, channels.recipient)))


def _kind(channels: Channels, header: str) -> str:
    pieces = re.split("(" + "|".join(map(re.escape, channels.openers)) + ")", header)
    names = pieces[1::2] if not channels.header_end else [name.strip() for name in pieces[2::2]]

    def has(words: tuple[str, ...]) -> bool:
        return any(re.match(rf"{re.escape(word)}(?![\w.-])", name) for word in words for name in names)

    if not names or has(channels.content):
        return "answer"
    if channels.header_end and channels.recipient and channels.recipient in header:
        return "call"
    if has(channels.preamble):
        return "preamble"
    return "reasoning" if has(channels.reasoning) else "call"


def _header(channels: Channels, text: str, start: int) -> tuple[int, str] | bool | None:
    """Stop and kind of the header at `start`; None if it is none, True if a closer broke it off; False if it is not known yet."""
    window = text[start : start + MAX_HEADER_LEN]
    if channels.header_end:
        end = window.find(channels.header_end)
        stop = end + len(channels.header_end)
    else:
        first = _first(window, 0, channels.openers)
        end = stop = -1 if first is None else first[0] + len(first[1])
    seen = window if end < 0 else window[:stop]
    if any(closer in seen for closer in channels.closers):
        return True
    if channels.plain_openers:
        found = re.search("|".join(map(re.escape, channels.openers)), window if end < 0 else window[:end])
        if found and re.search(r"\s", found.string[found.end() :]):
            return None
    if end < 0:
        return None if len(window) == MAX_HEADER_LEN else False
    return start + stop, _kind(channels, window[:end])


def _strip_closers(channels: Channels, text: str) -> str:
    """The answer without the closers that the output ends with, and without the white space after them."""
    closer = "|".join(map(re.escape, channels.closers))
    place = _first(text, 0, channels.closers)
    while place is not None:
        if re.fullmatch(rf"(?:(?:{closer})\s*)+", text[place[0] :]):
            return text[: place[0]]
        run = re.match(rf"(?:(?:{closer})\s*)+", text[place[0] :])
        assert run is not None
        place = _first(text, place[0] + run.end(), channels.closers)
    return text


def reference_split(  # noqa: C901 - the rules in one place, on purpose
    family: ReasoningFamily,
    text: str,
    *,
    prompt_state: PromptState = "unknown",
    thinking_enabled: bool | None = None,
    tools_offered: bool = False,
    structured: bool = False,
) -> ReasoningSplit:
    """Split a text by the rules."""
    channels = family.channels
    assert channels is not None
    reasoning, content = _Texts(), _Texts()
    is_off = thinking_enabled is False
    is_expected = prompt_state == "unknown" and bool(thinking_enabled or (thinking_enabled is None and family.template_opens))

    def result(final_reached: bool) -> ReasoningSplit:
        return ReasoningSplit(reasoning.join(), content.join(), final_reached=final_reached)

    def answer(at: int) -> ReasoningSplit:
        content.message(_strip_closers(channels, text[at:]))
        return result(True)

    if prompt_state == "ended" and not is_off:
        return answer(0)

    # `where`: due (head or between), or the kind of the message that is open, whose text begins at `begin`.
    where, is_held, is_open = "due", False, prompt_state == "open"
    is_head, at, begin, lead = True, 0, 0, ""
    while True:
        if where == "due":
            body = at + len(text[at:]) - len(text[at:].lstrip())
            closer = next((closer for closer in channels.closers if text.startswith(closer, body)), None)
            if closer:
                at, is_head = body + len(closer), False
                continue
            if body == len(text):
                if is_head and is_open and not is_off:
                    reasoning.message(text[at:])
                    return result(False)
                if is_head:
                    content.message(text[at:])
                return result(is_head)
            if text.startswith(_due(channels), body):
                header = _header(channels, text, body)
                if header is False:
                    if is_head and not text.startswith(_inner(channels), body):
                        is_answer = is_off or not is_open
                        (content if is_answer else reasoning).message(text[at:])
                        return result(is_answer)
                    reasoning.parts[-1] += text[body:]
                    return result(False)
                marks = [mark for mark in _inner(channels) if text.startswith(mark, body)]
                if isinstance(header, tuple):
                    where = "header"
                elif header and marks and not channels.plain_openers:
                    where, is_held, is_head, begin, at = "reasoning", is_off, False, body, body + len(max(marks, key=len))
                    continue
            elif not is_head and any(mark.startswith(text[body:]) for mark in (*channels.closers, *_due(channels))):
                reasoning.parts[-1] += text[body:]
                return result(False)
            if where == "due":
                if not (is_head and (is_expected or is_open)):
                    return answer(at)
                where, is_held, begin, at = "reasoning", is_off or not is_open, at, body
                if text.startswith(_due(channels), body):
                    at += len(next(mark for mark in sorted(_due(channels), key=len, reverse=True) if text.startswith(mark, body)))
                continue
            is_head = False
        else:
            found = _first(text, at, (*channels.closers, *_inner(channels)))
            out = content if where == "preamble" else reasoning
            if found is None:
                if is_held:
                    content.message(lead + text[begin:])
                    return result(True)
                out.message(lead + text[begin:])
                return result(False)
            place, marker = found
            if marker in channels.closers:
                if is_held and marker in channels.content_closers:
                    content.message(lead + text[begin:place])
                    content.parts[-1] += _strip_closers(channels, text[place:])
                    return result(True)
                out.message(lead + text[begin:place])
                where, at, is_held, is_head, lead = "due", place + len(marker), False, False, ""
                continue
            header = _header(channels, text, place)
            if header is None or header is True:
                at = place + len(marker)
                continue
            if header is False:
                if is_held:
                    content.message(lead + text[begin:])
                    return result(True)
                out.message(lead + text[begin:])
                return result(False)
            out.message(lead + text[begin:place])
            body = place
        assert isinstance(header, tuple)
        stop, kind = header
        lead, is_held = "", False
        if kind == "answer":
            return answer(stop)
        if kind == "call" and tools_offered:
            content.message(text[body:])
            return result(True)
        where, at, begin, is_head = ("preamble" if kind == "preamble" and not structured else "reasoning"), stop, stop, False
        if kind == "call":
            lead = text[body:stop]
        is_held = is_off and where == "reasoning"
