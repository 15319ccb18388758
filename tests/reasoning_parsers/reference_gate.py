"""The gate by brute force: every answer reads the whole history again, one token at a time. No cleverness, no shared code."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from reasoning_parsers import TokenMarkers

Verdict = tuple[str, int]
"""(what the head of the output turned out to be, number of tokens up to the one that settled it)"""


@dataclass
class ReferenceGate:
    markers: TokenMarkers
    prompt: list[int]
    on_unknown: str = "first_token"
    thinking_enabled: bool | None = None
    tools_offered: bool = False
    max_reasoning_tokens: int | None = None
    windows: list[list[int]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token_id for window in self.windows for token_id in window]

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
    def in_prompt(self) -> tuple[str, int]:
        """(state, index from which ids can begin an end marker)"""
        state, tail = "unknown", self.last_turn()
        if self.is_user_turn():
            return state, len(self.prompt)
        for stop in range(self.last_turn() + 1, len(self.prompt) + 1):
            ends = {
                "open": tuple(self.prompt[max(0, stop - len(self.markers.start)) : stop]) == self.markers.start,
                "ended": tuple(self.prompt[max(0, stop - len(self.markers.end)) : stop]) == self.markers.end,
            }
            lengths = {"open": len(self.markers.start), "ended": len(self.markers.end)}
            here = [name for name in ends if ends[name]]
            if here:
                state, tail = max(here, key=lambda name: lengths[name]), stop
            elif state == "open" and self.tools_offered and self.prompt[stop - 1] in self.markers.implicit_ends:
                state = "ended"
        return state, tail

    # ---- the output

    def is_open(self) -> bool | None:
        """What stands before the first token: thinking, content, or undecided (None)."""
        state, _ = self.in_prompt
        if state != "unknown":
            return state == "open"
        if self.thinking_enabled is False:
            return False
        return {"first_token": None, "open": True, "constrain": False}[self.on_unknown]

    def verdict(self, tokens: list[int]) -> Verdict:
        """One of thinking, undecided, explicit, implicit, never."""
        is_open = self.is_open()
        if is_open is False:
            return "never", 0
        start, end = list(self.markers.start), list(self.markers.end)
        _, tail = self.in_prompt
        result = ("undecided", 0) if is_open is None else ("thinking", 0)
        for num in range(1, len(tokens) + 1):
            seen = tokens[:num]
            if is_open is None and seen[: len(start)] != start[:num]:
                return "never", num
            if seen == start:
                result = ("thinking", num)
            elif is_open is None and num < len(start):
                result = ("undecided", num)
            else:
                has_head = seen[: len(start)] == start
                before = seen[len(start) :] if has_head else self.prompt[tail:] + seen
                result = ("thinking", num)
                if self.tools_offered and seen[-1] in self.markers.implicit_ends:
                    return "implicit", num
                if before[len(before) - len(end) :] == end and len(before) >= len(end):
                    return "explicit", num
        return result

    def bounds(self, window: list[int]) -> tuple[int, int]:
        before = self.tokens
        if self.verdict(before)[0] in ("explicit", "implicit", "never"):
            return 0, 0
        kind, num = self.verdict(before + window)
        place = num - len(before)
        if kind == "explicit":
            return place, place
        if kind == "implicit":
            return place - 1, place
        if kind == "never":
            return -len(before), 0
        if kind == "thinking":
            return len(window) + 1, len(window) + 1
        return (len(window) + 1 if before + window else 0), 0

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
        kind, _ = self.verdict(self.tokens)
        return {"thinking": False, "undecided": None}.get(kind, True)

    @property
    def reasoning_end_index(self) -> int | None:
        kind, num = self.verdict(self.tokens)
        return {"explicit": num, "implicit": num - 1, "never": 0}.get(kind)

    def head_len(self) -> int:
        """Ids of a start marker at the head, if it was complete before anything had ended the thinking."""
        kind, num = self.verdict(self.tokens)
        start = list(self.markers.start)
        if kind in ("undecided", "never") or self.tokens[: len(start)] != start:
            return 0
        return len(start) if kind == "thinking" or num > len(start) else 0

    def half_end(self) -> list[int]:
        """Ids at the end of the tokens that may yet become an end marker."""
        end = list(self.markers.end)
        before = self.tokens[self.head_len() :] if self.head_len() else self.prompt[self.in_prompt[1] :] + self.tokens
        size = max(size for size in range(len(end)) if before[len(before) - size :] == end[:size])
        return end[:size]

    def split(self) -> tuple[list[int], list[int]]:
        """Thinking and content, markers left out."""
        kind, num = self.verdict(self.tokens)
        if kind in ("undecided", "never"):
            return [], self.tokens
        if kind == "thinking":
            return self.tokens[self.head_len() :], []
        stop = num - (1 if kind == "implicit" else len(self.markers.end))
        return self.tokens[self.head_len() : max(stop, 0)], self.tokens[num - (kind == "implicit") :]

    @property
    def num_reasoning_tokens(self) -> int:
        return len(self.split()[0])

    @property
    def reasoning_span(self) -> tuple[int, int]:
        thinking, head = self.split()[0], self.head_len()
        if self.verdict(self.tokens)[0] != "thinking":
            return head, head + len(thinking)
        is_part_of_start = self.tokens == list(self.markers.start[: len(self.tokens)]) and not head
        half = len(self.tokens) if is_part_of_start else len(self.half_end())
        return head, head + max(0, len(thinking) - half)

    @property
    def next_start_id(self) -> int | None:
        kind, _ = self.verdict(self.tokens)
        return self.markers.start[len(self.tokens)] if kind == "undecided" else None

    def should_fill_bitmask(self) -> bool:
        return self.bounds([])[1] == 0

    def should_advance(self) -> bool:
        if not self.windows:
            return self.reasoning_ended is True
        last = self.windows[-1]
        before = ReferenceGate(
            self.markers, self.prompt, self.on_unknown, self.thinking_enabled, self.tools_offered, None, self.windows[:-1]
        )
        return before.bounds(last)[0] <= 0

    def forced_token_id(self) -> int | None:
        if self.max_reasoning_tokens is None or self.reasoning_ended is not False:
            return None
        if self.num_reasoning_tokens < self.max_reasoning_tokens:
            return None
        return self.markers.end[len(self.half_end())]
