"""The gate by brute force: every answer reads the whole history again, one symbol at a time. No cleverness, no shared code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from reasoning_parsers import TokenMarkers

BLANK_BYTES = tuple(b" \t\r\n")


class Verdict(NamedTuple):
    """What the output is.

    kind: thinking, undecided, explicit, implicit, never.
    stop: Number of symbols up to the one that settled it.
    first: Symbols of a start marker at the head, with what stands before it.
    marker: Where the end marker or the implicit end begins.
    """

    kind: str
    stop: int
    first: int = 0
    marker: int = 0


@dataclass
class ReferenceGate:
    markers: TokenMarkers
    prompt: list[int]
    on_unknown: str = "first_token"
    thinking_enabled: bool | None = None
    tools_offered: bool = False
    max_reasoning_tokens: int | None = None
    transition: list[int] = field(default_factory=list)
    spelling: dict[int, tuple[int, ...]] | None = None
    windows: list[list[int]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token_id for window in self.windows for token_id in window]

    # ---- symbols

    def spell(self, token_id: int) -> tuple[int, ...]:
        return (token_id,) if self.spelling is None else self.spelling.get(token_id, (256 + token_id,))

    def symbols(self, tokens: Iterable[int]) -> tuple[int, ...]:
        return tuple(symbol for token_id in tokens for symbol in self.spell(token_id))

    def places(self, tokens: list[int]) -> list[tuple[int, int]]:
        """First and last + 1 symbol of each token."""
        result: list[tuple[int, int]] = []
        for token_id in tokens:
            first = result[-1][1] if result else 0
            result.append((first, first + len(self.spell(token_id))))
        return result

    def token_of(self, tokens: list[int], symbol: int) -> int:
        return next(index for index, (first, last) in enumerate(self.places(tokens)) if first <= symbol < last)

    @cached_property
    def blanks(self) -> tuple[int, ...]:
        return BLANK_BYTES if self.spelling is not None else tuple(self.markers.blanks)

    @cached_property
    def implicit_ends(self) -> list[tuple[int, ...]]:
        if not self.tools_offered:
            return []
        single = [self.spell(token_id) for token_id in sorted(self.markers.implicit_ends)]
        return single + list(self.markers.implicit_sequences)

    # ---- what stands at the end of a stream

    def gap_heads(self, stream: tuple[int, ...]) -> dict[int, int]:
        """Per end marker with a gap whose head is there, where the first head ends."""
        found = {}
        for index, end in enumerate(self.markers.ends):
            stops = [stop for stop in range(len(end.head), len(stream) + 1) if end.tail and ends_with(stream[:stop], end.head)]
            if stops:
                found[index] = stops[0]
        return found

    def ending(self, stream: tuple[int, ...]) -> tuple[str, int] | None:
        """Kind and length of what the stream ends with."""
        for index, stop in self.gap_heads(stream).items():
            end = self.markers.ends[index]
            if ends_with(stream[stop:], end.tail):
                return "explicit", len(stream) - stop + len(end.head)
        found = [(len(end.head), 1, "explicit") for end in self.markers.ends if not end.tail and ends_with(stream, end.head)]
        found += [(len(end), 0, "implicit") for end in self.implicit_ends if ends_with(stream, end)]
        return (max(found)[2], max(found)[0]) if found else None

    # ---- the prompt

    def last_turn(self) -> int:
        """Index of the first token after the last boundary."""
        first = 0
        for index, token_id in enumerate(self.prompt):
            if token_id in self.markers.turn_boundaries:
                first = index + 1
        return first

    def is_user_turn(self) -> bool:
        first = self.last_turn() - 1
        if first < 0:
            return False
        return any(tuple(self.prompt[first : first + len(opener)]) == opener for opener in self.markers.user_turns)

    @cached_property
    def in_prompt(self) -> tuple[str, tuple[int, ...]]:
        """(state, symbols that can begin an end marker)"""
        if self.is_user_turn():
            return "unknown", ()
        turn = self.symbols(self.prompt[self.last_turn() :])
        state, tail = "unknown", 0
        for stop in range(1, len(turn) + 1):
            heads = self.gap_heads(turn[tail:stop])
            if any(ends_with(turn[tail + first : stop], self.markers.ends[index].tail) for index, first in heads.items()):
                state, tail = "ended", stop
                continue
            found = [(len(start), 2, "open") for start in self.markers.starts if ends_with(turn[:stop], start)]
            ends = [end.head for end in self.markers.ends if not end.tail]
            found += [(len(end), 1, "ended") for end in ends if ends_with(turn[:stop], end)]
            found += [(len(end), 0, "implicit") for end in self.implicit_ends if ends_with(turn[:stop], end)]
            if found and max(found)[2] != "implicit":
                state, tail = max(found)[2], stop
            elif found and state == "open":
                state = "ended"
        return state, turn[tail:]

    # ---- the output

    def is_open(self) -> bool | None:
        """What stands before the first token: thinking, content, or undecided (None)."""
        state, _ = self.in_prompt
        if state != "unknown":
            return state == "open"
        if self.thinking_enabled is False:
            return False
        return {"first_token": None, "open": True, "constrain": False}[self.on_unknown]

    def without_blanks(self, seen: tuple[int, ...]) -> tuple[int, ...]:
        heads = {start[0] for start in self.markers.starts}
        while seen and seen[0] in self.blanks and seen[0] not in heads:
            seen = seen[1:]
        return seen

    def verdict(self, tokens: list[int]) -> Verdict:
        is_open = self.is_open()
        if is_open is False:
            return Verdict("never", 0)
        stream = self.symbols(tokens)
        before, first = self.in_prompt[1], 0
        has_thought = is_open is True
        for stop in range(1, len(stream) + 1):
            head = self.without_blanks(stream[:stop])
            if head in self.markers.starts:
                before, first, has_thought = (), stop, True
            elif not has_thought:
                if not any(start[: len(head)] == head for start in self.markers.starts):
                    return Verdict("never", stop)
            else:
                ended = self.ending(before + stream[first:stop])
                if ended is not None:
                    return Verdict(ended[0], stop, first, max(stop - ended[1], 0))
        return Verdict("thinking" if has_thought else "undecided", len(stream), first)

    def bounds(self, window: list[int]) -> tuple[int, int]:
        before = self.tokens
        if self.verdict(before).kind in ("explicit", "implicit", "never"):
            return 0, 0
        everything = before + window
        kind, stop, _, marker = self.verdict(everything)
        if kind == "explicit":
            place = self.token_of(everything, stop - 1) + 1 - len(before)
            return place, place
        if kind == "implicit":
            return self.content_index(everything, marker) - len(before), self.token_of(everything, stop - 1) + 1 - len(before)
        if kind == "never":
            return -len(before), 0
        if kind == "thinking":
            return len(window) + 1, len(window) + 1
        return (len(window) + 1 if everything else 0), 0

    def content_index(self, tokens: list[int], symbol: int) -> int:
        """The first token that has no symbol before this one."""
        return sum(1 for first, _ in self.places(tokens) if first < symbol)

    def commit(self, window: list[int]) -> tuple[int, int]:
        result = self.bounds(window)
        if window:
            self.windows.append(window)
        return result

    def rollback(self, num_tokens: int) -> None:
        for _ in range(num_tokens):
            self.windows[-1] = self.windows[-1][:-1]
            if not self.windows[-1]:
                self.windows.pop()

    # ---- the views

    @property
    def reasoning_ended(self) -> bool | None:
        return {"thinking": False, "undecided": None}.get(self.verdict(self.tokens).kind, True)

    @property
    def reasoning_end_index(self) -> int | None:
        kind, stop, _, marker = self.verdict(self.tokens)
        if kind == "explicit":
            return self.token_of(self.tokens, stop - 1) + 1
        return {"implicit": self.content_index(self.tokens, marker), "never": 0}.get(kind)

    def leftover_of(self, tokens: list[int]) -> bytes:
        kind, stop, _, marker = self.verdict(tokens)
        if kind not in ("explicit", "implicit"):
            return b""
        place = stop if kind == "explicit" else marker
        inside = [(first, last) for first, last in self.places(tokens) if first < place < last]
        return bytes(self.symbols(tokens)[place : inside[0][1]]) if inside else b""

    @property
    def leftover(self) -> bytes:
        return self.leftover_of(self.tokens)

    def leftover_in(self, window: list[int]) -> bytes:
        is_ended = self.verdict(self.tokens).kind in ("explicit", "implicit", "never")
        return b"" if is_ended else self.leftover_of(self.tokens + window)

    def thinking(self) -> tuple[int, int]:
        """First and last + 1 symbol of the thinking."""
        kind, stop, first, marker = self.verdict(self.tokens)
        if kind in ("undecided", "never"):
            return 0, 0
        return first, max(first, stop if kind == "thinking" else marker)

    @property
    def num_reasoning_tokens(self) -> int:
        first, last = self.thinking()
        return sum(1 for start, stop in self.places(self.tokens) if max(start, first) < min(stop, last))

    @property
    def is_head_open(self) -> bool:
        """Whether the output may yet be a start marker, or a longer one."""
        verdict = self.verdict(self.tokens)
        head = self.without_blanks(self.symbols(self.tokens))
        is_beginning = any(len(head) < len(start) and start[: len(head)] == head for start in self.markers.starts)
        return verdict.kind in ("undecided", "thinking") and is_beginning

    @property
    def reasoning_span(self) -> tuple[int, int]:
        verdict = self.verdict(self.tokens)
        if verdict.kind in ("undecided", "never"):
            return 0, 0
        first, last = self.thinking()
        if verdict.kind == "thinking":
            last = first if self.is_head_open else max(first, self.certain())
        start = self.content_index(self.tokens, first)
        stop = sum(1 for _, place in self.places(self.tokens) if place <= last)
        return start, max(start, stop)

    def stream(self) -> tuple[tuple[int, ...], int]:
        """What an end marker can stand in, and how many symbols of it are the prompt's."""
        first = self.verdict(self.tokens).first
        if first:
            return self.symbols(self.tokens)[first:], -first
        return self.in_prompt[1] + self.symbols(self.tokens), len(self.in_prompt[1])

    def certain(self) -> int:
        """Symbols of the output that cannot become part of an end."""
        stream, in_prompt = self.stream()
        sequences = [end.head for end in self.markers.ends] + self.implicit_ends
        sizes = [size for sequence in sequences for size in range(len(sequence) + 1) if ends_with(stream, sequence[:size])]
        starts = [stop - len(self.markers.ends[index].head) for index, stop in self.gap_heads(stream).items()]
        return max(0, min([len(stream) - max(sizes), *starts]) - in_prompt)

    def next_start_ids(self, vocabulary: Iterable[int]) -> set[int]:
        if self.verdict(self.tokens).kind != "undecided":
            return set()
        head = self.without_blanks(self.symbols(self.tokens))
        spellings = [start[len(head) :] for start in self.markers.starts if start[: len(head)] == head]
        if self.spelling is None:
            return {rest[0] for rest in spellings}
        if not head:
            spellings += [(*b" ", *rest) for rest in spellings if rest[0] < 256]
        found = set()
        for token_id in vocabulary:
            spelled = self.spell(token_id)
            fits = any(rest[: len(spelled)] == spelled or spelled[: len(rest)] == rest for rest in spellings)
            if fits and not all(symbol in BLANK_BYTES for symbol in spelled):
                found.add(token_id)
        return found

    def should_fill_bitmask(self) -> bool:
        return self.bounds([])[1] == 0

    def should_advance(self) -> bool:
        if not self.windows:
            return self.reasoning_ended is True
        return self.before_last_window().bounds(self.windows[-1])[0] <= 0

    def before_last_window(self) -> ReferenceGate:
        return self.with_windows(self.windows[:-1])

    def with_windows(self, windows: list[list[int]]) -> ReferenceGate:
        return ReferenceGate(
            self.markers,
            self.prompt,
            self.on_unknown,
            self.thinking_enabled,
            self.tools_offered,
            self.max_reasoning_tokens,
            self.transition,
            self.spelling,
            windows,
        )

    # ---- the budget

    def missing(self) -> tuple[bool, tuple[int, ...]]:
        """Whether an end marker is begun, and what it misses; the whole of the first one if none is."""
        stream, _ = self.stream()
        for index, stop in self.gap_heads(stream).items():
            tail = self.markers.ends[index].tail
            size = max(size for size in range(len(tail)) if ends_with(stream[stop:], tail[:size]))
            return True, tail[size:]
        begun = []
        for index, end in enumerate(sorted(self.markers.ends, key=lambda end: bool(end.tail))):
            sizes = [size for size in range(1, len(end.head)) if ends_with(stream, end.head[:size])]
            begun += [(size, -index, end.head[size:] + end.tail) for size in sizes]
        return (True, max(begun)[2]) if begun else (False, self.symbols(self.markers.forced_end))

    def forced_token_id(self, vocabulary: Iterable[int] = ()) -> int | None:
        budget = self.max_reasoning_tokens
        if budget is None or self.reasoning_ended is not False:
            return None
        num_over = self.num_reasoning_tokens - budget
        if num_over < 0:
            return None
        first = self.thinking()[0]
        num_head = sum(1 for _, stop in self.places(self.tokens) if stop <= first)
        # Right after a start marker nothing is begun, also where that marker ends inside a token.
        had_begun = (budget > 0 or not first) and self.with_windows([self.tokens[: num_head + budget]]).missing()[0]
        if num_over < len(self.transition) and not had_begun:
            return self.transition[num_over]
        return self.write(self.missing()[1], vocabulary)

    def write(self, symbols: tuple[int, ...], vocabulary: Iterable[int]) -> int:
        """The longest token that `symbols` begin with."""
        if self.spelling is None:
            return symbols[0]
        fitting = [token_id for token_id in vocabulary if symbols[: len(self.spell(token_id))] == self.spell(token_id)]
        return max(fitting, key=lambda token_id: (len(self.spell(token_id)), -token_id))

    # ---- exits

    def denied(self, vocabulary: Iterable[int], accepts: Callable[[tuple[int, ...]], bool]) -> set[int]:
        """Tokens that would end the thinking with content that `accepts` refuses; it is asked for symbols."""
        if self.verdict(self.tokens).kind != "thinking":
            return set()
        result = set()
        for token_id in vocabulary:
            kind, stop, _, _ = self.verdict([*self.tokens, token_id])
            stream = self.stream()[0] + self.spell(token_id)
            rest = len(self.symbols([*self.tokens, token_id])) - stop
            content = stream[len(stream) - rest :]
            if kind == "implicit":
                # All of the opener is content, what the prompt has of it too.
                whole = self.ending(stream[: len(stream) - rest])
                assert whole is not None
                content = stream[len(stream) - rest - whole[1] :]
            if kind in ("explicit", "implicit") and content and not accepts(content):
                result.add(token_id)
        return result


def ends_with(stream: tuple[int, ...], sequence: tuple[int, ...]) -> bool:
    return len(stream) >= len(sequence) and stream[len(stream) - len(sequence) :] == sequence
