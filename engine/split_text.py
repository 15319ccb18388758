"""The text of one output by channel, thinking and answer.

Where markers are single ids the gate tells each token apart (`TokenSplit`). Where they are found in what tokens spell, or stand
in headers, the family's text parser reads the thinking from the decoded output, and the answer of a constrained request begins
where the gate says (`ParsedSplit`).
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence

from reasoning_parsers import ReasoningGate, ReasoningParser, get_parser
from reasoning_parsers.family import ReasoningFamily
from reasoning_parsers.symbols import TokenSymbols

from .detokenizer import IncrementalDetokenizer, TokenDecoder
from .spare_marker import SpareMarkerFilter
from .stop import StopStringFilter


class TextChannel:
    """Text that grows, and is handed out once.

    Args:
        stops: Cuts the text at stop strings; None for none.

    `leave_out` takes a marker out of it, once stop strings have been looked for.

    Attributes:
        pieces: The text so far.
    """

    def __init__(self, stops: StopStringFilter | None = None) -> None:
        self.pieces: list[str] = []
        self._stops = stops
        self._spare: SpareMarkerFilter | None = None
        self._num_taken = 0

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.matched if self._stops is not None else None

    def leave_out(self, markers: Sequence[str]) -> None:
        """Leave the first of these texts out of what is added from now on; only the first call counts."""
        self._spare = self._spare or SpareMarkerFilter(markers)

    def add(self, piece: str) -> None:
        """Add text."""
        self._add(self._stops.feed(piece) if self._stops is not None else piece)

    def flush(self) -> None:
        """Let out what a stop string, or the beginning of a marker, held back."""
        if self._stops is not None:
            self._add(self._stops.flush())
        if self._spare is not None and (held := self._spare.flush()):
            self.pieces.append(held)

    def _add(self, piece: str) -> None:
        if self._spare is not None:
            piece = self._spare.feed(piece)
        if piece:
            self.pieces.append(piece)

    def take(self) -> str:
        """Give what was added since the last call."""
        delta = "".join(self.pieces[self._num_taken :])
        self._num_taken = len(self.pieces)
        return delta


class SplitText(ABC):
    """The text of a sequence by channel; markers and stop ids go to neither.

    Args:
        gate: The sequence's gate.
        tokenizer: Decodes.
        stop_token_ids: Ids that are no text.
        stops: Cuts the answer at stop strings.

    Attributes:
        reasoning: The thinking.
        content: The answer.
        spare_markers: Texts of which the first is left out of the answer where a budget has ended the thinking.
    """

    spare_markers: tuple[str, ...] = ()

    def __init__(
        self, gate: ReasoningGate, tokenizer: TokenDecoder, stop_token_ids: frozenset[int], stops: StopStringFilter | None
    ) -> None:
        self.reasoning = TextChannel()
        self.content = TextChannel(stops)
        self._gate = gate
        self._tokenizer = tokenizer
        self._stop_token_ids = stop_token_ids
        symbols = gate.markers.symbols if gate.markers is not None else None
        self._answer = _SpelledText(symbols) if symbols is not None else IncrementalDetokenizer(tokenizer)
        self._num_answer_seen = 0

    def take(self) -> tuple[str, str]:
        """Give the deltas of both channels, once."""
        return self.reasoning.take(), self.content.take()

    @property
    def is_answer(self) -> bool:
        """Whether the text so far has reached the answer."""
        return self._gate.reasoning_ended is True

    @abstractmethod
    def update(self, token_ids: list[int]) -> None:
        """Take what has become certain; `token_ids` are all generated ids, committed to the gate."""

    @abstractmethod
    def flush(self, token_ids: list[int]) -> None:
        """Let out what was held back: half a marker is text after all when nothing follows."""

    def _leave_out_spare_marker(self) -> None:
        if self.spare_markers and self._gate.is_cut_short:
            self.content.leave_out(self.spare_markers)

    def _add_answer(self, token_ids: list[int], start: int) -> None:
        """Add the answer from token `start` on, and before it what the token of the boundary holds of it."""
        if self._num_answer_seen == 0 and isinstance(self._answer, _SpelledText):
            self.content.add(self._answer.feed_bytes(self._gate.leftover))
        start = max(start, self._num_answer_seen)
        self.content.add(self._answer.feed(self._without_stops(token_ids[start:])))
        self._num_answer_seen = len(token_ids)

    def _without_stops(self, token_ids: list[int]) -> list[int]:
        return [token_id for token_id in token_ids if token_id not in self._stop_token_ids]


class TokenSplit(SplitText):
    """Each token is thinking, marker or answer, as the gate says."""

    def __init__(
        self, gate: ReasoningGate, tokenizer: TokenDecoder, stop_token_ids: frozenset[int], stops: StopStringFilter | None
    ) -> None:
        super().__init__(gate, tokenizer, stop_token_ids, stops)
        self._thinking = IncrementalDetokenizer(tokenizer)
        self._num_thinking_seen = 0

    def update(self, token_ids: list[int]) -> None:
        """Take what has become certain; `token_ids` are all generated ids, committed to the gate."""
        self._leave_out_spare_marker()
        self._add_thinking(token_ids, *self._gate.reasoning_span)
        content_start = self._gate.reasoning_end_index
        if content_start is not None:
            self._add_answer(token_ids, content_start)

    def flush(self, token_ids: list[int]) -> None:
        """Let out what was held back: half an end marker is thinking text after all when nothing follows."""
        if self._gate.is_thinking:
            self._add_thinking(token_ids, self._gate.reasoning_span[0], len(token_ids))
        elif self._gate.reasoning_ended is None:
            self._add_answer(token_ids, 0)  # half a start marker is an answer
        self.reasoning.add(self._thinking.flush())
        self.content.add(self._answer.flush())
        self.content.flush()

    def _add_thinking(self, token_ids: list[int], first: int, last: int) -> None:
        first = max(first, self._num_thinking_seen)
        if last > first:
            self.reasoning.add(self._thinking.feed(self._without_stops(token_ids[first:last])))
            self._num_thinking_seen = last


class ParsedSplit(SplitText):
    """A text parser of the family reads the output; the answer under a constraint is the gate's all the same.

    Args:
        family: The family.
        is_constrained: Whether the answer is under a constraint.
        gate: As in `SplitText`, like the other arguments.
        tokenizer: As above.
        stop_token_ids: As above.
        stops: As above.
    """

    def __init__(
        self,
        family: ReasoningFamily,
        gate: ReasoningGate,
        tokenizer: TokenDecoder,
        stop_token_ids: frozenset[int],
        stops: StopStringFilter | None,
        *,
        is_constrained: bool,
    ) -> None:
        super().__init__(gate, tokenizer, stop_token_ids, stops)
        self._family = family
        self._is_constrained = is_constrained
        self._parser: ReasoningParser | None = None
        self._prompt_tail = ""
        self._decoded = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
        self._num_seen = 0

    @property
    def is_answer(self) -> bool:
        """Whether the text so far has reached the answer."""
        return super().is_answer or (not self._is_constrained and self._parser is not None and self._parser.reasoning_ended)

    def update(self, token_ids: list[int]) -> None:
        """Take what has become certain; `token_ids` are all generated ids, committed to the gate."""
        if self._gate.reasoning_ended is None:
            return
        self._leave_out_spare_marker()
        end = self._gate.reasoning_end_index
        # The token in which the thinking ends may hold the end of a marker.
        stop = len(token_ids) if end is None or not self._is_constrained else end
        if stop > self._num_seen:
            self._parse(self._decoded.feed(self._without_stops(token_ids[self._num_seen : stop])))
            self._num_seen = stop
        if end is not None and self._is_constrained:
            self._add_answer(token_ids, end)

    def flush(self, token_ids: list[int]) -> None:
        """Let out what was held back."""
        if self._gate.reasoning_ended is None:
            self._add_answer(token_ids, 0)  # half a start marker is an answer
        elif not (self._is_constrained and self._gate.reasoning_ended):
            self._parse(self._decoded.flush(), is_last=True)
        self.content.add(self._answer.flush())
        self.content.flush()

    def _parse(self, text: str, *, is_last: bool = False) -> None:
        if self._parser is None:
            self._parser = self._make_parser()
            # What the prompt has of a marker is needed to see it, and is nobody's output.
            self._prompt_tail = self._tokenizer.decode(list(self._gate.text_prompt_tail), skip_special_tokens=False)
            text = self._prompt_tail + text
        delta = self._parser.feed(text)
        pieces = [delta, self._parser.finish()] if is_last else [delta]
        for piece in pieces:
            self.reasoning.add(self._without_prompt(piece.reasoning))
            if not self._is_constrained:
                self.content.add(piece.content)
            elif not self._gate.reasoning_ended:
                # The gate has not seen the answer, so nothing is.
                self.reasoning.add(piece.content)

    def _without_prompt(self, reasoning: str) -> str:
        if not reasoning:
            return ""
        tail, self._prompt_tail = self._prompt_tail, ""
        return reasoning.removeprefix(tail)

    def _make_parser(self) -> ReasoningParser:
        state, channels = self._gate.text_prompt_state, self._family.channels
        if self._is_constrained and state == "unknown" and channels is not None and not channels.plain_openers:
            state = "open"  # text without a header is no answer under a constraint
        return get_parser(
            self._family,
            prompt_state=state,
            thinking_enabled=None if self._is_constrained else self._gate.thinking_enabled,
            tools_offered=self._gate.tools_offered,
            structured=self._is_constrained,
        )


def make_split(
    gate: ReasoningGate,
    tokenizer: TokenDecoder,
    stop_token_ids: frozenset[int],
    stops: StopStringFilter | None,
    *,
    is_constrained: bool,
) -> SplitText:
    """Make the split that fits the family of the gate's markers."""
    family = gate.markers.family if gate.markers is not None else None
    split: SplitText = TokenSplit(gate, tokenizer, stop_token_ids, stops)
    if gate.markers is not None and family is not None:
        reads_content = not is_constrained and (family.content_wrappers or family.keeps_reasoning_in_content)
        if gate.markers.symbols is not None or reads_content:
            split = ParsedSplit(family, gate, tokenizer, stop_token_ids, stops, is_constrained=is_constrained)
        if not is_constrained and family.format == "delimited" and not family.keeps_reasoning_in_content:
            split.spare_markers = family.ends
    return split


class _SpelledText:
    """Text of tokens by their bytes; half a character is held back until it is whole."""

    def __init__(self, symbols: TokenSymbols) -> None:
        self._symbols = symbols
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Sequence[int]) -> str:
        """Add tokens; those that are no text have none."""
        return self._decoder.decode(b"".join(self._symbols.bytes_of(token_id) for token_id in token_ids))

    def feed_bytes(self, data: bytes) -> str:
        """Add a part of a token."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """Give what was held back; half a character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)
