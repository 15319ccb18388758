"""Constraints that are no JSON schema, as the backends read them: EBNF for xgrammar, Lark for llguidance.

One reading, two spellings, so that both backends take the same texts. Two exceptions, both by llguidance's nature: it reads
lexemes greedily (`/[a-z]+/ "b"` never ends there), so that a Lark text whose lexemes overlap means more to xgrammar than to
llguidance; and recursive EBNF, which has no lexemes, goes to xgrammar only.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..errors import UnsupportedGrammarError
from .choices import choice_rules
from .ebnf import parse_ebnf
from .ebnf_writer import render_ebnf
from .lark import START, parse_lark
from .lark_writer import render_lark
from .nodes import BEGIN, Foreign, Node, Ref, Rule, Rules, Tokens, map_refs, walk
from .regex_check import parse_regex
from .repeats_check import MAX_XGRAMMAR_WAYS, worst_sharing
from .rules_check import check_rules, expanded_states, is_recursive
from .spec_kinds import GrammarKind

_REGEX = "REGEX"


@lru_cache(maxsize=64)
def read_rules(kind: GrammarKind, source: str) -> Rules:
    """Read and check a regex, a choice, an EBNF or a Lark text.

    Raises:
        InvalidGrammarError: With line and column.
        UnsupportedGrammarError: Something that no backend has.
    """
    if kind == "choice":
        return choice_rules(source)
    if kind == "regex":
        rules = _regex_rules(parse_regex(source))
    else:
        rules = parse_ebnf(source) if kind == "ebnf" else parse_lark(source)
    check_rules(rules, kind)
    return rules


def _regex_rules(node: Node) -> Rules:
    # A terminal, since only terminals may hold intersections.
    return Rules({START: Rule(START, Ref(_REGEX, BEGIN), BEGIN), _REGEX: Rule(_REGEX, node, BEGIN, is_terminal=True)}, START)


@lru_cache(maxsize=16)
def ebnf_text(kind: GrammarKind, source: str) -> str:
    """Give the text for xgrammar; the start rule is `root`.

    Raises:
        UnsupportedGrammarError: xgrammar cannot express it, or would take for ever.
    """
    rules = read_rules(kind, source)
    sharing = worst_sharing(rules)
    if sharing.depth > 1 and sharing.ways > MAX_XGRAMMAR_WAYS:
        raise UnsupportedGrammarError(
            "nested repetitions that share a text in too many ways: xgrammar takes seconds for every token of those",
            hint="use llguidance, or put something between the rounds that cannot be part of one",
        )
    return render_ebnf(rules)


@lru_cache(maxsize=16)
def lark_text(kind: GrammarKind, source: str) -> str:
    """Give the text for llguidance, without a `%llguidance` line; the start rule is `start`.

    Raises:
        UnsupportedGrammarError: llguidance cannot express it.
    """
    rules = read_rules(kind, source)
    return render_lark(rules if kind != "ebnf" else _as_terminals(rules))


def check_token_ids(kind: GrammarKind, source: str, vocab_size: int) -> None:
    """Refuse token ids that the vocabulary does not have.

    Raises:
        UnsupportedGrammarError: With line and column.
    """
    if kind not in ("ebnf", "lark"):
        return
    for rule in read_rules(kind, source).rules.values():
        for node in walk(rule.node):
            if isinstance(node, Tokens) and node.ranges and not _is_all(node) and node.ranges[-1][1] >= vocab_size:
                raise UnsupportedGrammarError(
                    f"{kind}, line {node.place.line}, column {node.place.column}: token {node.ranges[-1][1]} is not in this "
                    f"vocabulary of {vocab_size}",
                    line=node.place.line,
                    column=node.place.column,
                )


def _is_all(node: Tokens) -> bool:
    return node.ranges == ((0, 2**31 - 1),)


def named_token_ids(kind: GrammarKind, source: str) -> frozenset[int]:
    """Give the ids that an EBNF or Lark text names one by one."""
    if kind not in ("ebnf", "lark"):
        return frozenset()
    nodes = (node for rule in read_rules(kind, source).rules.values() for node in walk(rule.node) if isinstance(node, Tokens))
    return frozenset(low for node in nodes if not node.is_negated for low, high in node.ranges if low == high)


def num_states(kind: GrammarKind, source: str) -> int:
    """Count the characters of the grammar with its repetitions written out: what compiling it costs."""
    return sum(expanded_states(read_rules(kind, source)).values())


def _as_terminals(rules: Rules) -> Rules:
    """Make every rule of a grammar that is not recursive a terminal, so that all of it is one regular expression."""
    if is_recursive(rules):
        raise UnsupportedGrammarError(
            "a recursive EBNF grammar has no lexemes, which llguidance needs", hint="use xgrammar, or write it as Lark"
        )
    tokens = next(
        (node for rule in rules.rules.values() for node in walk(rule.node) if isinstance(node, (Tokens, Foreign))), None
    )
    if tokens is not None:
        raise UnsupportedGrammarError(
            "tokens by id in EBNF: only xgrammar takes them", line=tokens.place.line, column=tokens.place.column
        )
    names = {name: f"T{index}" for index, name in enumerate(rules.rules)}
    terminals = {
        names[name]: replace(rule, name=names[name], node=map_refs(rule.node, names), is_terminal=True)
        for name, rule in rules.rules.items()
    }
    start = Rule(START, Ref(names[rules.start], BEGIN), BEGIN)
    return Rules({START: start, **terminals}, START)
