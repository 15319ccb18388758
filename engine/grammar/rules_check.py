"""Checks of a grammar that was read: every name is known, every rule can end, and it does not unfold beyond all bounds.

All are linear in the grammar.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from ..errors import UnsupportedGrammarError
from .cursor import raise_at
from .emptiness import empty_terminals
from .nodes import BEGIN, Both, Chars, Either, Foreign, Lexeme, Node, Ref, Repeat, Row, Rule, Rules, Text, Tokens, children, walk
from .repeats_check import MAX_WAYS, worst_sharing

MAX_STATES = 2**18
"""Characters that a grammar may have once its repetitions are written out."""


def check_rules(rules: Rules, subject: str) -> None:
    """Refuse a grammar that no backend could run.

    Raises:
        InvalidGrammarError: An undefined name, a rule that can never end, a terminal that is no regular expression.
        UnsupportedGrammarError: Too large.
    """
    if rules.start not in rules.rules:
        found = ", ".join(list(rules.rules)[:3])
        raise_at(subject, BEGIN, f"no rule `{rules.start}`, where every text starts", hint=f"there is {found}")
    for rule in rules.rules.values():
        _check_names(rules, rule, subject)
    _check_terminals(rules, subject)
    _check_ends(rules, subject)
    for name, states in expanded_states(rules).items():
        if states > MAX_STATES:
            raise_at(
                subject,
                rules.rules[name].place,
                f"it unfolds to more than {MAX_STATES} characters",
                hint="use smaller bounds in its repetitions",
                kind=UnsupportedGrammarError,
            )
    sharing = worst_sharing(rules)
    if sharing.depth > 1 and sharing.bounded_ways > MAX_WAYS:
        raise_at(
            subject,
            BEGIN,
            f"nested repetitions that can share a text in more than {MAX_WAYS} ways",
            hint="bound only one of them, or put something between their rounds that cannot be part of one",
            kind=UnsupportedGrammarError,
        )


def _check_names(rules: Rules, rule: Rule, subject: str) -> None:
    for node in walk(rule.node):
        if isinstance(node, Ref) and node.name not in rules.rules:
            close = difflib.get_close_matches(node.name, list(rules.rules)[:1000], 1)
            hint = f"did you mean {close[0]}?" if close else "a text stands in double quotes"
            raise_at(subject, node.place, f"the rule {node.name} is not defined", hint=hint)


def _check_terminals(rules: Rules, subject: str) -> None:
    terminals = {rule.name: rule for rule in rules.rules.values() if rule.is_terminal}
    for rule in terminals.values():
        for node in walk(rule.node):
            if isinstance(node, Ref) and node.name not in terminals:
                raise_at(
                    subject, node.place, f"the terminal {rule.name} calls the rule {node.name}", hint="write it in lower case"
                )
            if isinstance(node, Tokens):
                raise_at(subject, node.place, f"a token by id inside the terminal {rule.name}", hint="name it in a rule")
    ring = _find_ring(terminals)
    if ring is not None:
        raise_at(subject, ring.place, f"the terminal {ring.name} calls itself", hint="write it in lower case")


def _find_ring(rules: Mapping[str, Rule]) -> Rule | None:
    """Find a rule that reaches itself: what is left when rules without calls are taken away again and again."""
    calls = {name: {node.name for node in walk(rule.node) if isinstance(node, Ref)} for name, rule in rules.items()}
    callers: dict[str, list[str]] = {name: [] for name in rules}
    for name, called in calls.items():
        for other in called:
            callers[other].append(name)
    num_left = {name: len(called) for name, called in calls.items()}
    free = [name for name, count in num_left.items() if count == 0]
    while free:
        name = free.pop()
        del num_left[name]
        for caller in callers[name]:
            num_left[caller] -= 1
            if num_left[caller] == 0:
                free.append(caller)
    return rules[next(iter(num_left))] if num_left else None


def is_recursive(rules: Rules) -> bool:
    """Whether a rule calls itself, directly or not."""
    return _find_ring(rules.rules) is not None


def _check_ends(rules: Rules, subject: str) -> None:
    ending = _ending_rules(rules, empty_terminals(rules, _callees_first(rules)))
    for name in _reachable(rules):
        if name not in ending:
            raise_at(
                subject,
                rules.rules[name].place,
                f"the rule {name} can never end: no text matches it",
                hint="give it an alternative that does not call it",
            )


def _ending_rules(rules: Rules, empty: set[str]) -> set[str]:
    """Give the rules that some finite text matches: nodes become true when enough of their children are.

    Args:
        rules: The grammar.
        empty: Rules that are known to match none.
    """
    parents: list[int] = []
    num_left: list[int] = []
    callers: dict[str, list[int]] = {name: [] for name in rules.rules}
    owners: dict[int, str] = {}
    for name, rule in rules.rules.items():
        owners[len(parents)] = name
        stack: list[tuple[Node, int]] = [(rule.node, -1)]
        while stack:
            node, parent = stack.pop()
            index = len(parents)
            parents.append(parent)
            num_left.append(_num_needed(node))
            if isinstance(node, Ref):
                callers[node.name].append(index)
            stack.extend((child, index) for child in children(node))
    ending: set[str] = set()
    ready = [index for index, count in enumerate(num_left) if count == 0]
    while ready:
        index = ready.pop()
        waiting = [parents[index]] if parents[index] >= 0 else []
        if index in owners:
            if owners[index] in empty:
                continue
            ending.add(owners[index])
            waiting = callers[owners[index]]
        for other in waiting:
            num_left[other] -= 1
            if num_left[other] == 0:
                ready.append(other)
    return ending


def _num_needed(node: Node) -> int:
    """How many children must match some text so that the node does."""
    match node:
        case Row(items) | Both(items):
            return len(items)
        case Either() | Ref() | Lexeme():
            return 1
        case Chars(ranges):
            return 0 if ranges else 1
        case Repeat(_, low):
            return min(low, 1)
        case _:
            return 0


def _reachable(rules: Rules) -> Iterator[str]:
    seen = {rules.start}
    waiting = [rules.start]
    while waiting:
        name = waiting.pop()
        yield name
        for node in walk(rules.rules[name].node):
            if isinstance(node, Ref) and node.name not in seen:
                seen.add(node.name)
                waiting.append(node.name)


def expanded_states(rules: Rules) -> dict[str, int]:
    """Count per rule the characters of its text with repetitions written out; terminals are written out where they are called."""
    states: dict[str, int] = {}

    def count(node: Node) -> int:
        match node:
            case Text(text):
                return len(text) or 1
            case Ref(name):
                return states[name] if rules.rules[name].is_terminal else 1
            case Repeat(item, low, high):
                return count(item) * max(1, low if high is None else high)
            case Chars() | Tokens() | Foreign():
                return 1
            case _:
                return sum(map(count, children(node))) or 1

    for name in _callees_first(rules):
        # Capped: what is called twice doubles, and numbers of a thousand digits help nobody.
        states[name] = min(count(rules.rules[name].node), MAX_STATES + 1)
    return states


def _callees_first(rules: Rules) -> list[str]:
    """Order the rules so that terminals come after those they call."""
    order: list[str] = []
    done: set[str] = set()
    for start in rules.rules:
        stack = [start]
        while stack:
            name = stack[-1]
            if name in done:
                stack.pop()
                continue
            open_calls = [
                node.name
                for node in walk(rules.rules[name].node)
                if isinstance(node, Ref) and node.name not in done and rules.rules[node.name].is_terminal
            ]
            if open_calls:
                stack.extend(open_calls)
            else:
                done.add(name)
                order.append(stack.pop())
    return order
