"""Thinking and answer of one remote reply, from fields of their own or from markers in the text.

A server that separates the thinking itself decides; only where it does not are markers looked for, with the parser of the
model's family.
"""

from __future__ import annotations

from dataclasses import replace

from reasoning_parsers import FamilyRegistry, ReasoningFamily, ReasoningParser, get_parser, installed_registry, is_named

from .base import UpstreamDelta

# What an answer under a schema begins with: an object or a code fence. Other text may be thinking that the chat template opened.
_ANSWER_HEADS = ("{", "`")
# Tags that models were told to think in, whatever their own are. An answer under a schema begins with none of them.
_OTHER_STARTS = tuple(
    f"<{name}>"
    for name in ("thinking", "thought", "thoughts", "reasoning", "reflection", "analysis", "scratchpad", "antThinking")
)
_USUAL_PAIR = ReasoningFamily(name="other_tags", start="<think>", end="</think>")


def find_family(model: str, family: str, families: FamilyRegistry | None = None) -> ReasoningFamily | None:
    """Return the row for `family`: `auto` looks for a family's name in the model's, `none` is None.

    Raises:
        UnknownFamilyError: No row has this name.
    """
    if family == "none":
        return None
    families = families or installed_registry()
    if family != "auto":
        return families.get_family(family)
    # The names of the row that reads a tokenizer's template (`hf`) say nothing of a model.
    rows = {name: row for row in families.list_families() if not row.reads_response_template for name in (row.name, *row.aliases)}
    named = max((name for name in rows if is_named(name, model)), key=len, default="qwen3")
    return rows[named]


class ContentSplitter:
    """Feed what arrives, get deltas; `finish` gives what was held back.

    Attributes:
        notes: Sentences on what was found, for `Result.notes`.
    """

    def __init__(self, family: ReasoningFamily | None, *, thinking: bool | None, has_schema: bool) -> None:
        self._family = family
        self._thinking = thinking
        self._has_schema = has_schema
        self._parser: ReasoningParser | None = None
        self._head = ""
        self._held_reasoning = ""
        self._has_field = False
        self._has_content = False
        self.notes: list[str] = []

    def feed(self, reasoning: str, content: str) -> UpstreamDelta:
        """Take text from the server's two fields, either may be empty."""
        self._has_field |= bool(reasoning)
        if self._thinking is False and reasoning and not self._has_content:
            # Servers file the answer as thinking when thinking is off (vllm#19222): wait what comes.
            self._held_reasoning += reasoning
            reasoning = ""
        if content.strip() and self._held_reasoning:
            reasoning, self._held_reasoning = self._held_reasoning + reasoning, ""
        self._has_content |= bool(content.strip())
        delta = self._split(content)
        return UpstreamDelta(reasoning + delta.reasoning, delta.content)

    def finish(self) -> UpstreamDelta:
        """Say that the reply is over."""
        if self._held_reasoning:
            self.notes.append("the upstream filed the answer as thinking, with thinking off; it was taken as the answer")
            return UpstreamDelta(content=self._held_reasoning)
        if self._parser is None:
            return UpstreamDelta(content=self._head)
        rest = self._parser.finish()
        return UpstreamDelta(rest.reasoning, rest.content)

    @property
    def is_reasoning_open(self) -> bool | None:
        """Whether the answer was not reached: thinking, or another channel, was opened and not left. None if nothing told."""
        return None if self._parser is None else not self._parser.reasoning_ended

    def _split(self, content: str) -> UpstreamDelta:
        if self._parser is None:
            if self._family is None or self._has_field:
                head, self._head = self._head, ""
                return UpstreamDelta(content=head + content)
            self._head += content
            head = self._head.lstrip()
            if not head or self._may_become_other_start(head):
                return UpstreamDelta()
            content, self._head = self._head, ""
            self._parser = self._choose_parser(self._family, head)
        delta = self._parser.feed(content)
        return UpstreamDelta(delta.reasoning, delta.content)

    def _may_become_other_start(self, head: str) -> bool:
        return self._has_schema and any(start.startswith(head) and start != head for start in _OTHER_STARTS)

    def _choose_parser(self, family: ReasoningFamily, head: str) -> ReasoningParser:
        thinking = self._thinking
        other = next((start for start in _OTHER_STARTS if self._has_schema and head.startswith(start)), None)
        if other is not None and not any(head.startswith(start) for start in family.starts):
            family = replace(_USUAL_PAIR, start=other, end=f"</{other[1:]}")
        if self._has_schema and head.startswith(_ANSWER_HEADS):
            # The answer stands at the head. Not even a closing marker in it, inside a string, ends anything.
            return get_parser(family, prompt_state="ended")
        if self._has_schema and thinking is None and not any(start.startswith(head[: len(start)]) for start in family.starts):
            # Neither marker nor answer at the head: a chat template may have opened the thinking.
            thinking = True
        return get_parser(family, thinking_enabled=thinking, structured=self._has_schema)
