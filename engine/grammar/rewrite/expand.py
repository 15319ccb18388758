"""Write a conjunction of subschemas as a union of alternatives (`Facets`).

References are followed, `allOf` is merged, choices are multiplied. What would grow beyond its limits is left out of the
alternatives, which then say less, and is named in their `checks`; they never say more than the schema. Choices are in
`branches.py`, complements in `complement.py`, contradictions in `contradictions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...errors import InvalidGrammarError
from . import branches, contradictions
from .facets import ArrayGroup, Conjunction, Contains, Facets, ObjectGroup, TextRule, key_of, to_fraction
from .formats import format_pattern
from .graph import CHECK, EXCLUDED, FRACTION, NOT_FORMAT, NOT_PATTERN, REFERENCES, Node, SchemaGraph

MAX_WORK = 20_000
"""Subschemas taken into alternatives for one schema; afterwards choices are only taken in where nothing stands beside them."""
MAX_OVERWORK = 10_000
"""As many more are taken in without their choices; then all that is left is for the check afterwards."""
MAX_CHAIN = 150
"""References and choices that lead from one to the next at one place."""
FAR = 10**9
BRANCHING = ("anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas")
_COMPOSING = frozenset((*REFERENCES, *BRANCHING, "allOf"))
Alternatives = list[Facets]


class Expander:
    """Expands the places of one schema, each once.

    Attributes:
        reasons: Why a conjunction that nothing satisfies is one: the pointer of a keyword, and what is wrong there.
    """

    def __init__(self, graph: SchemaGraph) -> None:
        self.graph = graph
        self.reasons: dict[Conjunction, tuple[str, str]] = {}
        self._known: dict[Conjunction, Alternatives] = {}
        # Of places that say their type and nothing else, which most do.
        self._of_type: dict[str, Alternatives] = {}
        self._in_progress: set[Conjunction] = set()
        self._entered: list[Node] = []
        self._path: tuple[int, ...] = ()
        self._work = 0
        self._last_reason = ("#", "no value can satisfy this schema")
        self.tracking = 0

    @property
    def is_tired(self) -> bool:
        """Whether the work for this schema is used up."""
        return self._work > MAX_WORK

    def expand(self, conjunction: Conjunction) -> Alternatives:
        """Give the alternatives of a conjunction; none when no value satisfies it."""
        conjunction = flatten(conjunction)
        known = self._known.get(conjunction)
        if known is not None:
            return known
        kind = _only_type(conjunction)
        alternatives = self._of_type.get(kind) if kind is not None else None
        if alternatives is None:
            alternatives = self._expand(conjunction)
            if kind is not None and not self.is_tired:
                self._of_type[kind] = alternatives
        self._known[conjunction] = alternatives
        return alternatives

    def _expand(self, conjunction: Conjunction) -> Alternatives:
        self._in_progress.add(conjunction)
        saved = self._entered, self._path, self.tracking
        self._entered, self._path, self.tracking = [], (), 0
        try:
            alternatives = branches.links(self, conjunction)
            if alternatives is None:
                alternatives = [Facets()]
                for number, node in enumerate(conjunction):
                    self._path = (number,)
                    alternatives = self.apply(node, alternatives)
        finally:
            self._entered, self._path, self.tracking = saved
            self._in_progress.discard(conjunction)
        if not alternatives:
            self.reasons[conjunction] = self._last_reason
        return alternatives

    def is_surely_empty(self, conjunction: Conjunction) -> bool:
        """Whether it is known that no value satisfies a conjunction; False while it is being expanded."""
        conjunction = flatten(conjunction)
        if conjunction in self._in_progress or len(self._in_progress) > contradictions.MAX_DEPTH or self.is_tired:
            return any(node.always is False for node in conjunction)
        return not self.expand(conjunction)

    @contextmanager
    def step(self, *numbers: int) -> Iterator[None]:
        """Go further down the order of the schema."""
        saved = self._path
        self._path = (*saved, *numbers)
        try:
            yield
        finally:
            self._path = saved

    def fail(self, pointer: str, reason: str) -> Alternatives:
        """Say why nothing is left."""
        self._last_reason = (pointer, reason)
        return []

    def apply(self, node: Node, alternatives: Alternatives) -> Alternatives:
        """Take one subschema into each of the alternatives.

        Raises:
            InvalidGrammarError: A reference leads back to where it came from, and no value ends that.
        """
        if node.always is not None:
            return alternatives if node.always else self.fail(node.pointer, "no value can satisfy `false`")
        if node in self._entered:
            raise InvalidGrammarError("this reference leads back to itself: no value ends it", pointer=node.pointer)
        is_composed = not _COMPOSING.isdisjoint(node.keywords)
        if is_composed and not self.tracking and all(node in one.applied for one in alternatives):
            return alternatives
        if self._work > MAX_WORK + MAX_OVERWORK:
            return [one.with_check(*map(node.where, asserted_words(node))) for one in alternatives]
        if len(self._entered) > MAX_CHAIN:
            raise InvalidGrammarError(
                f"more than {MAX_CHAIN} references or choices lead to one another here", pointer=node.pointer
            )
        self._work += max(1, len(alternatives))
        self._entered.append(node)
        try:
            if "unevaluatedProperties" in node.keywords or "unevaluatedItems" in node.keywords:
                found = [other for one in alternatives for other in self._apply_tracking(node, one)]
            else:
                found = self._apply_keywords(node, alternatives)
        finally:
            self._entered.pop()
        return [one.with_applied(node) for one in found] if is_composed else found

    def _apply_tracking(self, node: Node, one: Facets) -> Alternatives:
        self.tracking += 1
        try:
            found = self._apply_keywords(node, [one])
        finally:
            self.tracking -= 1
        has_dynamic = bool(self.graph.dynamic)
        found = [branches.take_unevaluated(node, one, other, self._path, has_dynamic=has_dynamic) for other in found]
        return contradictions.settle_all(self, found, node.pointer)

    def _apply_keywords(self, node: Node, alternatives: Alternatives) -> Alternatives:
        if _has_plain(node):
            alternatives = [one.copy() for one in alternatives]
            for one in alternatives:
                _apply_plain(node, one, self._path)
            alternatives = contradictions.settle_all(self, alternatives, node.pointer)
        if _COMPOSING.isdisjoint(node.keywords):
            return alternatives
        for place, (keyword, value) in enumerate(node.keywords.items()):
            if keyword in REFERENCES and isinstance(value, Node):
                with self.step(place):
                    alternatives = self.apply(value, alternatives)
            elif keyword == "allOf":
                for number, part in enumerate(value):
                    with self.step(place, number):
                        alternatives = self.apply(part, alternatives)
        for keyword in BRANCHING:
            if keyword in node.keywords and alternatives:
                with self.step(list(node.keywords).index(keyword)):
                    alternatives = branches.apply(self, node, keyword, alternatives)
        return alternatives


def flatten(conjunction: Conjunction) -> Conjunction:
    """Drop what says nothing, follow what is only a reference, unpack what is only `allOf`, and each of them once."""
    if len(conjunction) == 1:  # nearly all of them are flat already
        keywords = conjunction[0].keywords
        if "$ref" not in keywords and "allOf" not in keywords and not ASSERTING.isdisjoint(keywords):
            return conjunction
    flat: dict[Node, None] = {}
    stack = [(node, False) for node in reversed(conjunction)]
    entered: dict[Node, bool] = {}
    while stack:
        node, is_left = stack.pop()
        if is_left:
            entered[node] = False
        elif node.always is False:
            return (node,)
        elif node.always is None and node not in entered:
            words = asserted_words(node)
            if words in _WRAPPING:
                entered[node] = True
                parts = node.keywords[words[0]]
                stack.append((node, True))
                stack.extend((part, False) for part in (reversed(parts) if words == ["allOf"] else [parts]))
            elif words:
                flat[node] = None
        elif entered.get(node):  # it leads back to itself, which is said when it is applied
            flat[node] = None
    return tuple(flat)


def _only_type(conjunction: Conjunction) -> str | None:
    """Give the type of a place that says nothing else."""
    kind = conjunction[0].keywords.get("type") if len(conjunction) == 1 else None
    return kind if isinstance(kind, str) and asserted_words(conjunction[0]) == ["type"] else None


_WRAPPING = (["$ref"], ["allOf"])


def asserted_words(node: Node) -> list[str]:
    """Give the keywords of a node that a value can break; others, those that nobody knows among them, say nothing."""
    return [keyword for keyword in node.keywords if keyword in ASSERTING or keyword[:1] == "\0"]


def _has_plain(node: Node) -> bool:
    return not _PLAIN.keys().isdisjoint(node.keywords)


def _apply_plain(node: Node, one: Facets, path: tuple[int, ...]) -> None:
    """Take in the keywords that are no applicators on the same value."""
    keywords = node.keywords
    for keyword, value in keywords.items():
        rule = _PLAIN.get(keyword)
        if rule is not None:
            one.note(keyword, node.where(keyword))
            rule(node, one, value)
    if "prefixItems" in keywords or "items" in keywords:
        one.arrays += (ArrayGroup(tuple(keywords.get("prefixItems", ())), keywords.get("items"), True),)
    step = next((step for step, key in enumerate(keywords) if key in _OBJECT_WORDS), None)
    if step is not None:
        one.objects += (
            ObjectGroup(
                keywords.get("properties", {}),
                keywords.get("patternProperties", {}),
                keywords.get("additionalProperties"),
                (*path, step),
                True,
            ),
        )


_OBJECT_WORDS = frozenset(("properties", "patternProperties", "additionalProperties"))


def _take_type(node: Node, one: Facets, value: Any) -> None:
    if isinstance(value, str) and value != "integer":
        one.kinds = one.kinds & {value}
        return
    named = [value] if isinstance(value, str) else list(value)
    kinds = {"number" if name == "integer" else name for name in named}
    if "integer" in named and "number" not in named:
        one.is_integer = True
    one.kinds &= kinds


def _take_values(node: Node, one: Facets, value: Any) -> None:
    if one.values is None:
        one.values = tuple(value)
    else:
        keys = set(map(key_of, value))
        one.values = tuple(known for known in one.values if key_of(known) in keys)


def _take_excluded(node: Node, one: Facets, value: Any) -> None:
    one.excluded += tuple(value)


def _take_low(is_open: bool) -> Callable[[Node, Facets, Any], None]:
    return lambda node, one, value: one.raise_low(to_fraction(value), is_open)


def _take_high(is_open: bool) -> Callable[[Node, Facets, Any], None]:
    return lambda node, one, value: one.lower_high(to_fraction(value), is_open)


def _take_multiple(node: Node, one: Facets, value: Any) -> None:
    one.multiples += (to_fraction(value),)


def _take_least(name: str) -> Callable[[Node, Facets, Any], None]:
    return lambda node, one, value: setattr(one, name, max(getattr(one, name), int(value)))


def _take_most(name: str) -> Callable[[Node, Facets, Any], None]:
    def take(node: Node, one: Facets, value: Any) -> None:
        if value > FAR:
            return  # no answer is that long, and backends fail on such numbers
        known = getattr(one, name)
        setattr(one, name, int(value) if known is None else min(known, int(value)))

    return take


def _take_text(kind: Any, is_negated: bool = False) -> Callable[[Node, Facets, Any], None]:
    def take(node: Node, one: Facets, value: Any) -> None:
        if kind == "format" and not is_negated and format_pattern(value) is None:
            return  # an annotation
        keyword = "not" if is_negated else kind
        rule = TextRule(kind, value, node.where(keyword), is_negated)
        if all((known.kind, known.text, known.is_negated) != (kind, value, is_negated) for known in one.texts):
            one.texts += (rule,)

    return take


def _take_contains(node: Node, one: Facets, value: Any) -> None:
    low = int(node.keywords.get("minContains", 1))
    high = node.keywords.get("maxContains")
    if low or high is not None:
        one.contains += (Contains(value, low, None if high is None else int(high), True),)
        if low and value.always is False:
            one.kinds -= {"array"}
        one.min_items = max(one.min_items, low)


def _take_unique(node: Node, one: Facets, value: Any) -> None:
    one.is_unique |= bool(value)


def _take_required(node: Node, one: Facets, value: Any) -> None:
    one.required = tuple(dict.fromkeys((*one.required, *value)))


def _take_names(node: Node, one: Facets, value: Node) -> None:
    one.names += (value,)


def _take_fraction(node: Node, one: Facets, value: Any) -> None:
    one.fractions |= {value}


def _take_check(node: Node, one: Facets, value: Any) -> None:
    one.checks |= {value}


def _take_content(node: Node, one: Facets, value: Any) -> None:
    """Drafts up to 7 assert what the text of a string holds; later ones only note it."""
    if "string" in one.kinds:
        one.checks |= {node.where("contentEncoding"), node.where("contentMediaType")} - {node.pointer}


def _take_nothing(node: Node, one: Facets, value: Any) -> None:
    """The group as a whole is taken in afterwards."""


_PLAIN: Mapping[str, Callable[[Node, Facets, Any], None]] = {
    "type": _take_type,
    "enum": _take_values,
    "const": lambda node, one, value: _take_values(node, one, (value,)),
    EXCLUDED: _take_excluded,
    CHECK: _take_check,
    FRACTION: _take_fraction,
    "minimum": _take_low(False),
    "exclusiveMinimum": _take_low(True),
    "maximum": _take_high(False),
    "exclusiveMaximum": _take_high(True),
    "multipleOf": _take_multiple,
    "minLength": _take_least("min_length"),
    "maxLength": _take_most("max_length"),
    "contentEncoding": _take_content,
    "contentMediaType": _take_content,
    "pattern": _take_text("pattern"),
    "format": _take_text("format"),
    NOT_PATTERN: _take_text("pattern", is_negated=True),
    NOT_FORMAT: _take_text("format", is_negated=True),
    "minItems": _take_least("min_items"),
    "maxItems": _take_most("max_items"),
    "contains": _take_contains,
    "uniqueItems": _take_unique,
    "required": _take_required,
    "minProperties": _take_least("min_properties"),
    "maxProperties": _take_most("max_properties"),
    "propertyNames": _take_names,
    "properties": _take_nothing,
    "patternProperties": _take_nothing,
    "additionalProperties": _take_nothing,
    "prefixItems": _take_nothing,
    "items": _take_nothing,
}
ASSERTING = frozenset(keyword for keyword in _PLAIN if not keyword.startswith("\0")).union(
    BRANCHING, REFERENCES, ("allOf", "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems")
)
"""Keywords that a value can break."""
