"""Follow a chat template without running it: what it writes for given variables, as far as that can be told from its source.

Messages and whatever else is not given are unknown. Where a condition is unknown both ways are followed, so the answer is honest:
a text that is certainly written, a place where unknown text stands, or a choice. Expressions are in `template_expression.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .template_expression import NAMESPACE, UNKNOWN, Scope, Value, evaluate, is_true
from .template_source import Assignment, Code, Condition, Loop, Node, Output, Text

GENERATION_PROMPT = "add_generation_prompt"
# Given by everybody who renders a chat template; without tools and documents they are falsy.
_GIVEN: Mapping[str, object] = {
    GENERATION_PROMPT: True,
    "tools": None,
    "documents": None,
    "messages": UNKNOWN,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Parts of which exactly one is written."""

    ways: tuple[tuple[Part, ...], ...]


Part = str | None | Choice
"""Text that is written, None for text that is not known, or a choice."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a template writes.

    Attributes:
        written: All of it.
        generation: What it writes where it asks for a generation prompt.
        asks_for_generation_prompt: Whether it asks at all.
        inputs: Variables that it reads and has not set, in order.
        compared: Per variable of these the texts and numbers that the template compares it with, in order.
        defaults: Per variable of these the value that a `default` filter gives it.
    """

    written: tuple[Part, ...]
    generation: tuple[Part, ...]
    asks_for_generation_prompt: bool
    inputs: tuple[str, ...]
    compared: Mapping[str, tuple[object, ...]]
    defaults: Mapping[str, object]


def walk_template(nodes: Iterable[Node], variables: Mapping[str, object]) -> Walk:
    """Follow a template with these variables; all others but the ones that everybody gives are undefined."""
    walker = _Walker(Scope({name: Value(value) for name, value in {**_GIVEN, **variables}.items()}))
    written = walker.follow(tuple(nodes))
    notes = walker.scope.notes
    return Walk(
        written=written,
        generation=tuple(walker.generation),
        asks_for_generation_prompt=walker.asks,
        inputs=tuple(name for name in notes.inputs if name not in _GIVEN),
        compared={name: tuple(dict.fromkeys(values)) for name, values in notes.compared.items()},
        defaults=dict(notes.defaults),
    )


class _Walker:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.generation: list[Part] = []
        self.asks = False

    def follow(self, nodes: tuple[Node, ...]) -> tuple[Part, ...]:
        parts: list[Part] = []
        for node in nodes:
            match node:
                case Text():
                    parts.append(node.text)
                case Output():
                    parts.append(_as_text(evaluate(node.code, self.scope)))
                case Assignment():
                    self._assign(node)
                case Loop():
                    parts.append(self._loop(node))
                case _:
                    parts.extend(self._branch(node))
        return tuple(parts)

    def _assign(self, node: Assignment) -> None:
        if node.body is not None:
            parts = self.follow(node.body)
            texts = [part for part in parts if isinstance(part, str)]
            value = Value("".join(texts) if len(texts) == len(parts) else UNKNOWN)
        else:
            value = evaluate(node.code, self.scope)
        if value.value is NAMESPACE:
            for name, attribute in value.attributes.items():
                self.scope.set(f"{node.target}.{name}", attribute)
        self.scope.set(node.target, value)

    def _loop(self, node: Loop) -> Choice:
        evaluate(node.code, self.scope)
        before = self.scope.variables
        self.scope.variables = {**before, "loop": Value(UNKNOWN), **{name: Value(UNKNOWN) for name in node.targets}}
        parts = self.follow(node.body)
        # What a loop sets is gone after it, but for attributes of a namespace.
        kept = {name: value for name, value in self.scope.variables.items() if name in before and "." in name}
        self.scope.variables = _join([before, {**before, **kept}])
        return Choice((parts, ()))

    def _branch(self, node: Condition) -> tuple[Part, ...]:
        ways: list[tuple[Part, ...]] = []
        outcomes: list[dict[str, Value]] = []
        before = self.scope.variables
        for condition, body in node.branches:
            truth = True if condition is None else is_true(evaluate(condition, self.scope).value)
            if truth is False:
                continue
            if condition is not None and _asks(condition):
                # Unknown here is whether the last message is one to be answered, and it is.
                return self._generation_prompt(body)
            self.scope.variables = dict(before)
            ways.append(self.follow(body))
            outcomes.append(self.scope.variables)
            if truth is True:
                break
        else:
            ways.append(())
            outcomes.append(before)
        self.scope.variables = _join(outcomes)
        return ways[0] if len(ways) == 1 else (Choice(tuple(ways)),)

    def _generation_prompt(self, body: tuple[Node, ...]) -> tuple[Part, ...]:
        parts = self.follow(body)
        self.asks = True
        self.generation.extend(parts)
        return parts


def _asks(condition: Code) -> bool:
    return any(token.kind == "name" and token.text == GENERATION_PROMPT for token in condition)


def _as_text(value: Value) -> str | None:
    if isinstance(value.value, str):
        return value.value
    return None if value.value is UNKNOWN else str(value.value)


def _join(outcomes: list[dict[str, Value]]) -> dict[str, Value]:
    """Variables after one of several ways: what differs is unknown."""
    first, *others = outcomes
    names = [name for outcome in outcomes for name in outcome]
    return {
        name: first[name] if all(other.get(name) == first.get(name) for other in others) else Value(UNKNOWN)
        for name in dict.fromkeys(names)
    }
