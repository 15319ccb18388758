"""All places of a schema that a value can reach, expanded, and which of them some finite value satisfies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import InvalidGrammarError
from .contradictions import admits, why
from .expand import Expander, flatten
from .facets import Conjunction, Facets
from .graph import SchemaGraph
from .layout import Layout, make_layout
from .pattern_parse import parse_pattern
from .pattern_print import print_language
from .regular import Language, Languages, TooLargeError
from .text import text_language
from .value_choices import join_values

MAX_PLACES = 20_000


class Program:
    """A schema in normal form.

    Args:
        schema: A valid JSON schema.

    Attributes:
        root: The conjunction of the whole schema.
        alternatives: Per reachable conjunction its alternatives.
        productive: The conjunctions that some finite value satisfies.

    Raises:
        InvalidGrammarError: A reference that leads nowhere or back to itself, or more places than can be handled.
        UnsupportedGrammarError: A reference that leaves the schema.
    """

    def __init__(self, schema: Any) -> None:
        self.graph = SchemaGraph(schema)
        join_values(self.graph)
        self.expander = Expander(self.graph)
        self.languages = Languages()
        self._patterns: dict[str, Language] = {}
        self._printed: dict[tuple[Language, bool], str | None] = {}
        # By identity; an alternative is kept alive here, so that no other one takes its place.
        self._layouts: dict[int, tuple[Facets, Layout]] = {}
        self.root = flatten((self.graph.root,))
        self.alternatives: dict[Conjunction, list[Facets]] = {}
        self._explore([self.root, ()])
        self._refuse_endless_links()
        self.productive = self._find_productive()

    def layout(self, one: Facets) -> Layout:
        """Give the places inside an alternative."""
        known = self._layouts.get(id(one))
        if known is None:
            known = self._layouts[id(one)] = (one, make_layout(self, one))
        return known[1]

    def pattern_language(self, pattern: str) -> Language:
        """Read a pattern, once."""
        known = self._patterns.get(pattern)
        if known is None:
            known = self._patterns[pattern] = parse_pattern(self.languages, pattern)
        return known

    def print(self, language: Language, *, as_json_text: bool) -> str:
        """Write a language as a pattern, once; as `print_language`.

        Raises:
            TooLargeError: The pattern would be too long, or the language is empty.
        """
        key = (language, as_json_text)
        if key not in self._printed:
            try:
                self._printed[key] = print_language(self.languages, language, as_json_text=as_json_text)
            except TooLargeError:
                self._printed[key] = None
        text = self._printed[key]
        if text is None:
            raise TooLargeError
        return text

    def admits_name(self, one: Facets, name: str) -> bool:
        """Whether `propertyNames` allows a name."""
        return all(any(admits(self.expander, other, name) for other in self.expander.expand((node,))) for node in one.names)

    def name_language(self, one: Facets) -> Language | None:
        """Give the names that `propertyNames` allows, None for all."""
        if not one.names:
            return None
        found = [other for other in self.expander.expand(one.names) if "string" in other.kinds]
        resolved = [inner for other in found for inner in self._resolve(other)]
        return self.languages.union(text_language(self.languages, other, self.pattern_language) for other in resolved)

    def _resolve(self, one: Facets) -> Iterator[Facets]:
        if one.link is None:
            yield one
        else:
            for other in self.expander.expand(one.link):
                yield from self._resolve(other)

    def find_impossible(self) -> tuple[str, str] | None:
        """Tell why no value satisfies the schema: the pointer of a place and a reason; None if one does."""
        if self.root in self.productive:
            return None
        seen: set[Conjunction] = set()
        conjunction = self.root
        while conjunction not in seen:
            seen.add(conjunction)
            if not self.alternatives[conjunction]:
                return why(self.expander, conjunction) or ("#", "no value can satisfy this schema")
            alternatives = self.alternatives[conjunction]
            needs = (child for one in alternatives for child in self._needs(one) if child not in self.productive)
            missing = next(needs, None)
            if missing is None:
                pointers = sorted(pointer for one in alternatives for pointer in one.where("minProperties"))
                return (pointers[0] if pointers else "#", "there are not as many names as minProperties wants")
            conjunction = missing
        pointer = conjunction[0].pointer if conjunction else "#"
        return (pointer, "it needs itself without an end: no finite value can satisfy it")

    def ensure(self, one: Facets) -> Layout:
        """Give the places inside an alternative that was made later, all of them known."""
        layout = self.layout(one)
        new = [flat for child in layout.children() if (flat := flatten(child)) not in self.alternatives]
        if new:
            self._explore(new)
            self._refuse_endless_links()
            self.productive = self._find_productive()
        return layout

    def _explore(self, stack: list[Conjunction]) -> None:
        while stack:
            conjunction = stack.pop()
            if conjunction in self.alternatives:
                continue
            if len(self.alternatives) > MAX_PLACES:
                raise InvalidGrammarError(f"the schema has more than {MAX_PLACES} places", pointer="#")
            found = self.alternatives[conjunction] = self.expander.expand(conjunction)
            for one in found:
                if one.link is not None:
                    stack.append(one.link)
                elif one.values is None:
                    stack.extend(flatten(child) for child in self.layout(one).children())
                    stack.extend(flatten((found.node,)) for found in one.contains)

    def _refuse_endless_links(self) -> None:
        """A choice that leads back to itself at the same place describes nothing."""
        done: set[Conjunction] = set()
        for start in self.alternatives:
            path: dict[Conjunction, Iterator[Conjunction]] = {start: self._links(start)} if start not in done else {}
            while path:
                current = next(reversed(path))
                target = next(path[current], None)
                if target is None:
                    done.add(current)
                    del path[current]
                elif target in path:
                    pointer = target[0].pointer if target else "#"
                    raise InvalidGrammarError("this reference leads back to itself: no value ends it", pointer=pointer)
                elif target not in done:
                    path[target] = self._links(target)

    def _links(self, conjunction: Conjunction) -> Iterator[Conjunction]:
        return iter([one.link for one in self.alternatives[conjunction] if one.link is not None])

    def _needs(self, one: Facets) -> Iterator[Conjunction]:
        """Give the conjunctions that every value of an alternative needs a value of, if it has one type only."""
        if one.link is not None:
            yield one.link
        elif one.values is None and one.kinds == {"object"}:
            layout = self.layout(one)
            yield from (flatten(layout.properties[name] or ()) for name in one.required)
        elif one.values is None and one.kinds == {"array"}:
            layout = self.layout(one)
            yield from (flatten(child) for child in layout.prefix[: one.min_items])
            if one.min_items > len(layout.prefix) and layout.items is not None:
                yield flatten(layout.items)

    def _lacks_names(self, one: Facets) -> bool:
        """Whether an object must have more properties than there are names for."""
        if one.link is not None or one.values is not None or one.kinds != {"object"} or not one.min_properties:
            return False
        layout = self.layout(one)
        is_closed = layout.rest is None and not layout.regions
        return is_closed and sum(child is not None for child in layout.properties.values()) < one.min_properties

    def _find_productive(self) -> set[Conjunction]:
        waiting: dict[Conjunction, list[tuple[Conjunction, int]]] = {}
        missing: dict[tuple[Conjunction, int], int] = {}
        productive: set[Conjunction] = set()
        ready: list[Conjunction] = []
        for conjunction, alternatives in self.alternatives.items():
            for number, one in enumerate(alternatives):
                if self._lacks_names(one):
                    continue
                needs = set(self._needs(one))
                missing[conjunction, number] = len(needs)
                for need in needs:
                    waiting.setdefault(need, []).append((conjunction, number))
                if not needs:
                    ready.append(conjunction)
        while ready:
            conjunction = ready.pop()
            if conjunction in productive:
                continue
            productive.add(conjunction)
            for user, number in waiting.get(conjunction, ()):
                missing[user, number] -= 1
                if not missing[user, number]:
                    ready.append(user)
        return productive
