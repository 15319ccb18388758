"""The places inside an alternative: which conjunction holds for which property, for which other names, for which item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import TYPE_CHECKING

from .children import declared_names, item_conjunction, prefix_length, property_conjunction
from .facets import Conjunction, Facets
from .graph import Node
from .pattern_parse import UnreadablePatternError
from .regular import Language, TooLargeError, build, has_no_text
from .text import text_language

if TYPE_CHECKING:
    from .program import Program

MAX_PATTERNS = 4
"""Patterns for names at one place of which every combination is looked at."""
MAX_PREFIX = 512
MAX_MOVES = 2_000


@dataclass(frozen=True, slots=True)
class Region:
    """Names that share a rule: in `language`, or found by `pattern` where the pattern is not readable."""

    language: Language | None
    pattern: str | None
    child: Conjunction


@dataclass(slots=True)
class Layout:
    """Children of one alternative; None means that there may be none.

    Attributes:
        properties: Known names in the order of the schema.
        regions: Other names with rules of their own; regions do not overlap.
        rest: All other names.
        is_loose: Names have more rules than this says.
        prefix: Items with rules of their own.
        items: All other items.
    """

    properties: dict[str, Conjunction | None] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    rest: Conjunction | None = ()
    is_loose: bool = False
    prefix: list[Conjunction] = field(default_factory=list)
    items: Conjunction | None = ()

    def children(self) -> Iterator[Conjunction]:
        """Give every conjunction in this layout."""
        yield from (child for child in self.properties.values() if child is not None)
        yield from (region.child for region in self.regions)
        yield from self.prefix
        yield from (child for child in (self.rest, self.items) if child is not None)


def make_layout(program: Program, one: Facets) -> Layout:
    """Lay an alternative out."""
    layout = Layout()
    if "array" in one.kinds:
        _lay_items(layout, one)
    if "object" in one.kinds:
        _lay_names(program, layout, one)
    return layout


def _lay_items(layout: Layout, one: Facets) -> None:
    length = min(prefix_length(one), MAX_PREFIX, one.max_items if one.max_items is not None else MAX_PREFIX)
    layout.prefix = [item_conjunction(one, index) for index in range(length)]
    layout.items = None if one.max_items == length else item_conjunction(one, length)
    if layout.items is not None and _is_false(layout.items):
        layout.items = None


def _lay_names(program: Program, layout: Layout, one: Facets) -> None:
    for name in declared_names(one):
        allowed = program.admits_name(one, name)
        child = property_conjunction(one, name)
        layout.properties[name] = None if _is_false(child) or not allowed else child
    patterns = list(dict.fromkeys(pattern for group in one.objects for pattern in group.patterns))
    if not patterns and not one.names:
        layout.rest = _child_of(one, frozenset())
    elif not _lay_regions(program, layout, one, patterns):
        _lay_loosely(layout, one, patterns)
    if layout.rest is not None and _is_false(layout.rest):
        layout.rest = None
    if layout.rest is None:
        layout.regions = [region for region in layout.regions if not _is_false(region.child)]


def _child_of(one: Facets, found: frozenset[str]) -> Conjunction:
    """Give what a name must satisfy in which exactly the patterns `found` are found."""
    nodes: list[Node] = []
    for group in one.objects:
        own = [node for pattern, node in group.patterns.items() if pattern in found]
        nodes += own or ([group.rest] if group.rest is not None else [])
    return tuple(dict.fromkeys(nodes))


def _lay_regions(program: Program, layout: Layout, one: Facets, patterns: list[str]) -> bool:
    languages = program.languages
    try:
        allowed = program.name_language(one)
        found = {pattern: program.pattern_language(pattern) for pattern in patterns}
        if len(patterns) > MAX_PATTERNS:
            return False
        subsets = chain.from_iterable(combinations(patterns, size) for size in range(len(patterns), -1, -1))
        has_overlap = False
        for inside in subsets:
            if not inside and allowed is None:
                continue
            outside = [] if len(inside) == 1 and not has_overlap else [found[other] for other in patterns if other not in inside]
            parts = [found[pattern] for pattern in inside] + [languages.complement(other) for other in outside]
            language = languages.intersection(parts + ([] if allowed is None else [allowed]))
            if build(languages, language, max_states=500).is_empty:
                continue
            has_overlap |= len(inside) > 1
            child = _child_of(one, frozenset(inside))
            language = _without_known(program, layout, one, language, child)
            if not _is_known(program, layout, language):
                layout.regions.append(Region(language, None, child))
    except (UnreadablePatternError, TooLargeError):
        layout.regions = []
        return False
    layout.rest = None if allowed is not None else _child_of(one, frozenset())
    return True


def _without_known(program: Program, layout: Layout, one: Facets, language: Language, child: Conjunction) -> Language:
    """Take the known names out for which the rule of a region is not part of their own."""
    languages = program.languages
    for name in layout.properties:
        own = property_conjunction(one, name)
        if not set(child) <= set(own) and languages.accepts(language, name):
            language = languages.intersection((language, languages.complement(languages.text(name))))
    return language


def _is_known(program: Program, layout: Layout, language: Language) -> bool:
    """Whether a region has no name beside the known ones: after all of them a comma would lead nowhere."""
    languages = program.languages
    known = [name for name in layout.properties if languages.accepts(language, name)]
    others = languages.intersection((language, *(languages.complement(languages.text(name)) for name in known)))
    return has_no_text(languages, others, max_moves=MAX_MOVES)


def _lay_loosely(layout: Layout, one: Facets, patterns: list[str]) -> None:
    if len(patterns) == 1:
        layout.regions = [Region(None, patterns[0], _child_of(one, frozenset(patterns)))]
        layout.rest = _child_of(one, frozenset())
        layout.is_loose = bool(one.names)
    else:
        layout.rest, layout.is_loose = (), True


def _is_false(conjunction: Conjunction) -> bool:
    return any(node.always is False for node in conjunction)


__all__ = ["Layout", "Region", "make_layout", "text_language"]
