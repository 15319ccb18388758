"""Regular languages over characters: built with union, intersection and complement, explored by derivatives.

See J. A. Brzozowski, "Derivatives of Regular Expressions", 1964, and S. Owens, J. Reppy and A. Turon,
"Regular-expression derivatives re-examined", 2009.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint, inclusive ranges of code points."""
LAST = 0x10FFFF
EVERY: Ranges = ((0, 0xD7FF), (0xE000, LAST))
"""Every character; halves of surrogate pairs are none."""


class TooLargeError(Exception):
    """A language needs more states or text than it may. Internal: the caller then does without."""


@dataclass(frozen=True, eq=False, slots=True)
class Language:
    """A node of an expression; equal ones of one builder are the same object.

    Attributes:
        kind: `none`, `empty` (the empty text), `set`, `cat`, `or`, `and`, `not`, `repeat`.
        parts: Operands.
        ranges: Characters of a `set`.
        low: Least repeats.
        high: Most repeats, None for no end.
        is_nullable: Whether the empty text is in the language.
        number: Of its making, which is the order of the operands of `or` and `and`: the same in every run.
    """

    kind: str
    parts: tuple[Language, ...] = ()
    ranges: Ranges = ()
    low: int = 0
    high: int | None = None
    is_nullable: bool = False
    number: int = 0


class Languages:
    """Makes languages; all that are combined must come from one of these."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Language] = {}
        self._derivatives: dict[tuple[Language, int], Language] = {}
        self._firsts: dict[Language, frozenset[Language]] = {}
        self._letters: dict[frozenset[Language], Letters] = {}
        self.none = self._make("none")
        self.empty = self._make("empty", is_nullable=True)
        self.character = self.set(EVERY)
        self.everything = self.repeat(self.character, 0, None)

    def _make(
        self, kind: str, parts: tuple[Language, ...] = (), ranges: Ranges = (), low: int = 0, high: int | None = None,
        is_nullable: bool = False,
    ) -> Language:  # fmt: skip
        key = (kind, parts, ranges, low, high)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Language(kind, parts, ranges, low, high, is_nullable, len(self._known))
        return known

    def set(self, ranges: Ranges) -> Language:
        """Give the language of single characters."""
        return self._make("set", ranges=ranges) if ranges else self.none

    def text(self, text: str) -> Language:
        """Give the language of one text."""
        return self.cat(*(self.set(((ord(letter), ord(letter)),)) for letter in text))

    def cat(self, *parts: Language) -> Language:
        """Give the texts of the parts, one after the other."""
        result = self.empty
        for part in reversed(parts):
            result = self._pair(part, result)
        return result

    def _pair(self, first: Language, rest: Language) -> Language:
        if first is self.none or rest is self.none:
            return self.none
        if first is self.empty:
            return rest
        if rest is self.empty:
            return first
        if first.kind == "cat":
            return self._pair(first.parts[0], self._pair(first.parts[1], rest))
        if first is self.everything and (rest is self.everything or (rest.kind == "cat" and rest.parts[0] is self.everything)):
            return rest
        return self._make("cat", (first, rest), is_nullable=first.is_nullable and rest.is_nullable)

    def union(self, parts: Iterable[Language]) -> Language:
        """Give the texts that are in one of the parts."""
        flat = self._flat("or", parts)
        if self.everything in flat:
            return self.everything
        sets = [part for part in flat if part.kind == "set"]
        others = [part for part in flat if part.kind not in ("set", "none")]
        if sets:
            others.append(self.set(join_ranges(pair for part in sets for pair in part.ranges)))
        if self.empty in others and any(part.is_nullable for part in others if part is not self.empty):
            others.remove(self.empty)
        return self._many("or", others, self.none, any(part.is_nullable for part in others))

    def intersection(self, parts: Iterable[Language]) -> Language:
        """Give the texts that are in all of the parts."""
        flat = [part for part in self._flat("and", parts) if part is not self.everything]
        if self.none in flat:
            return self.none
        if self.empty in flat:
            return self.empty if all(part.is_nullable for part in flat) else self.none
        return self._many("and", flat, self.everything, all(part.is_nullable for part in flat))

    def _flat(self, kind: str, parts: Iterable[Language]) -> list[Language]:
        flat: dict[Language, None] = {}
        for part in parts:
            flat.update(dict.fromkeys(part.parts if part.kind == kind else (part,)))
        return list(flat)

    def _many(self, kind: str, parts: list[Language], nothing: Language, is_nullable: bool) -> Language:
        if len(parts) < 2:
            return parts[0] if parts else nothing
        return self._make(kind, tuple(sorted(parts, key=_number)), is_nullable=is_nullable)

    def complement(self, part: Language) -> Language:
        """Give the texts that are not in the language."""
        if part.kind == "not":
            return part.parts[0]
        if part is self.none:
            return self.everything
        if part is self.everything:
            return self.none
        return self._make("not", (part,), is_nullable=not part.is_nullable)

    def repeat(self, part: Language, low: int, high: int | None) -> Language:
        """Give `low` to `high` texts of the language, one after the other."""
        if high == 0 or part is self.empty:
            return self.empty
        if part is self.none:
            return self.empty if low == 0 else self.none
        if low == high == 1:
            return part
        if part.is_nullable:
            low = 0
        if part.kind == "repeat" and part.low == 0 and part.high is None:
            return part
        return self._make("repeat", (part,), low=low, high=high, is_nullable=low == 0)

    def length(self, low: int, high: int | None) -> Language:
        """Give the texts of `low` to `high` characters."""
        return self.repeat(self.character, low, high)

    def derivative(self, language: Language, code: int) -> Language:
        """Give what may follow the character `code`."""
        key = (language, code)
        known = self._derivatives.get(key)
        if known is None:
            known = self._derivatives[key] = self._derive(language, code)
        return known

    def _derive(self, language: Language, code: int) -> Language:
        kind, parts = language.kind, language.parts
        if kind == "set":
            place = bisect(language.ranges, (code, LAST)) - 1
            return self.empty if place >= 0 and code <= language.ranges[place][1] else self.none
        if kind == "cat":
            after = self._pair(self.derivative(parts[0], code), parts[1])
            return self.union((after, self.derivative(parts[1], code))) if parts[0].is_nullable else after
        if kind == "or":
            return self.union(self.derivative(part, code) for part in parts)
        if kind == "and":
            return self.intersection([self.derivative(part, code) for part in parts])
        if kind == "not":
            return self.complement(self.derivative(parts[0], code))
        if kind == "repeat":
            high = None if language.high is None else language.high - 1
            return self._pair(self.derivative(parts[0], code), self.repeat(parts[0], max(0, language.low - 1), high))
        return self.none

    def accepts(self, language: Language, text: str) -> bool:
        """Whether a text is in the language."""
        for letter in text:
            language = self.derivative(language, ord(letter))
        return language.is_nullable

    def letters(self, language: Language) -> Letters:
        """Give classes of characters such that all of one lead to the same derivative."""
        sets = self._first_sets(language)
        known = self._letters.get(sets)
        if known is None:
            known = self._letters[sets] = Letters(tuple(sorted(sets, key=_number)))
        return known

    def _first_sets(self, language: Language) -> frozenset[Language]:
        """Give the sets of which the first character decides what may follow."""
        known = self._firsts.get(language)
        if known is None:
            if language.kind == "set":
                known = frozenset((language,))
            elif language.kind == "cat" and not language.parts[0].is_nullable:
                known = self._first_sets(language.parts[0])
            else:
                known = frozenset().union(*map(self._first_sets, language.parts))
            self._firsts[language] = known
        return known


class Letters:
    """All characters, in classes that some sets do not tell apart.

    A category of Unicode is some hundred ranges, and only in or out of it matters.

    Attributes:
        classes: Per class its first character and its ranges.
    """

    def __init__(self, sets: tuple[Language, ...]) -> None:
        borders: dict[int, int] = {0: 0, 0xD800: 0, 0xE000: 0}
        for number, found in enumerate(sets):
            for low, high in found.ranges:
                for point in (low, high + 1):
                    borders[point] = borders.get(point, 0) ^ (1 << number)
        by_sets: dict[int, list[tuple[int, int]]] = {}
        inside = 0
        points = sorted(borders)
        for point, end in zip(points, [*points[1:], LAST + 1], strict=True):
            inside ^= borders[point]
            # Halves of surrogate pairs are in no text.
            if point <= LAST and not 0xD800 <= point < 0xE000:
                by_sets.setdefault(inside, []).append((point, end - 1))
        self.classes: tuple[tuple[int, Ranges], ...] = tuple((found[0][0], join_ranges(found)) for found in by_sets.values())
        self._joined: dict[tuple[int, ...], Ranges] = {}

    def join(self, numbers: tuple[int, ...]) -> Ranges:
        """Give the characters of some classes, by their places."""
        known = self._joined.get(numbers)
        if known is None:
            known = join_ranges(pair for number in numbers for pair in self.classes[number][1])
            self._joined[numbers] = known
        return known


def _number(language: Language) -> int:
    return language.number


@dataclass(frozen=True, slots=True)
class Automaton:
    """A deterministic automaton without dead states; state 0 is the start (if it is not dead, the language is not empty).

    Attributes:
        moves: Per state the ranges that lead to each next state.
        accepting: States in which a text may end.
    """

    moves: tuple[dict[int, Ranges], ...]
    accepting: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether no text is accepted."""
        return not self.accepting


def build(languages: Languages, language: Language, *, max_states: int) -> Automaton:
    """Explore a language.

    Raises:
        TooLargeError: It has more than `max_states` states.
    """
    numbers = {language: 0}
    order = [language]
    moves: list[dict[int, Ranges]] = []
    for state in order:
        letters = languages.letters(state)
        found: dict[int, list[int]] = {}
        for number, (letter, _) in enumerate(letters.classes):
            target = languages.derivative(state, letter)
            if target is languages.none:
                continue
            if target not in numbers:
                numbers[target] = len(order)
                order.append(target)
                if len(order) > max_states:
                    raise TooLargeError
            found.setdefault(numbers[target], []).append(number)
        moves.append({target: letters.join(tuple(classes)) for target, classes in found.items()})
    return _trim(moves, {number for state, number in numbers.items() if state.is_nullable})


def has_no_text(languages: Languages, language: Language, *, max_moves: int) -> bool:
    """Whether a language was found to be empty; False where it has a text, or `max_moves` moves did not tell."""
    seen = {language}
    # Straight down first: most languages have a text on the first way.
    stack = [_moves(languages, language)]
    num_moves = 0
    try:
        while stack and not language.is_nullable:
            target = next(stack[-1], None)
            num_moves += 1
            if num_moves > max_moves:
                return False
            if target is None:
                stack.pop()
            elif target not in seen:
                language = target
                seen.add(target)
                stack.append(_moves(languages, target))
    except RecursionError:
        return False
    return not language.is_nullable


def _moves(languages: Languages, state: Language) -> Iterator[Language]:
    """Give what may follow a state, dead ends left out, with repeats."""
    for letter, _ in languages.letters(state).classes:
        target = languages.derivative(state, letter)
        if target is not languages.none:
            yield target


def _trim(moves: list[dict[int, Ranges]], accepting: set[int]) -> Automaton:
    alive = set(accepting)
    sources: dict[int, set[int]] = {}
    for state, targets in enumerate(moves):
        for target in targets:
            sources.setdefault(target, set()).add(state)
    stack = list(accepting)
    while stack:
        for source in sources.get(stack.pop(), ()):
            if source not in alive:
                alive.add(source)
                stack.append(source)
    kept = [{target: ranges for target, ranges in found.items() if target in alive} for found in moves]
    return Automaton(tuple(kept), frozenset(accepting))


def join_ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def invert_ranges(ranges: Ranges) -> Ranges:
    """Give all other characters."""
    found = []
    for first, last in EVERY:
        start = first
        for low, high in ranges:
            if high < first or low > last:
                continue
            if low > start:
                found.append((start, low - 1))
            start = max(start, high + 1)
        if start <= last:
            found.append((start, last))
    return tuple(found)
