"""What a compile and a row of the mask will cost: as far as the text of a constraint tells, and as was measured."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

from .rewrite import rewriting_of
from .spec import GrammarSpec

# Measured with llguidance 1.9.1 and a vocabulary of 129,000: a microsecond a character of what it is given, two times
# the square of the optional properties of an object (1,000 of them take 2.2 s), sixteen times the product of the divisors in
# `multipleOf` (999,983 takes more than 20 s and much memory). Its own limits end everything else within some seconds.
_LLGUIDANCE_S = 0.002
_LLGUIDANCE_CHARACTER_S = 1e-6
_LLGUIDANCE_OPTIONAL_S = 2e-6
_LLGUIDANCE_DIVISOR_S = 16e-6
QUICK_S = 0.6
# Measured with xgrammar 0.2.9: grows with text and vocabulary, with the square of optional properties too, and may explode with
# neither. The process takes some time by itself.
_XGRAMMAR_S = 4e-10
_XGRAMMAR_OPTIONAL_S = 2e-4
# Names beside listed ones: with 151,000 entries an object with one listed name takes 0.1 s, one with three 0.16 s.
_XGRAMMAR_OPEN_S = 4e-7
_XGRAMMAR_NAME_S = 1.5e-7
_PROCESS_S = 0.05
# On tiny vocabularies only text counts, whatever bounds of lengths there are, and the repeats of a pattern, which may multiply.
MAX_TINY = 6_000_000
MAX_REPEATS = 3
# Seconds a row, measured on objects, arrays and strings with vocabularies of 128,000 to 262,000 entries.
_MASK_S = {"xgrammar": 20e-6, "llguidance": 40e-6}
# xgrammar tries every token of the vocabulary anew wherever a string has bounds on its length: 50 ms a row with 151,000 entries.
_XGRAMMAR_LENGTH_S = 3.5e-7
_UNKNOWN_MASK_S = 1e-3
MAX_LEARNED = 4096


class CompileCosts:
    """What compiles and rows cost on one vocabulary: learned where they were done, predicted elsewhere; for several threads.

    A prediction is a guess that orders backends. What may run where it cannot be stopped is decided by the functions below.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._learned: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._learned_masks: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._lock = Lock()

    def learn(self, backend: str, spec: GrammarSpec, seconds: float) -> None:
        """Note how long a compile took; infinity if it did not end."""
        with self._lock:
            _keep(self._learned, (backend, hash(spec)), seconds)

    def learn_mask(self, backend: str, spec: GrammarSpec, row_s: float) -> None:
        """Note what a row took on average."""
        with self._lock:
            _keep(self._learned_masks, (backend, hash(spec)), row_s)

    def compile_s(self, backend: str, spec: GrammarSpec) -> float:
        """Give the seconds that a compile takes."""
        with self._lock:
            learned = self._learned.get((backend, hash(spec)))
        if learned is not None:
            return learned
        if backend == "llguidance":
            return _llguidance_s(spec)
        facts = _read_schema(spec)
        length = len(spec.source) + facts.pattern_length
        entry_s = _XGRAMMAR_S * length + _XGRAMMAR_OPEN_S * facts.num_open + _XGRAMMAR_NAME_S * facts.open_names
        work_s = entry_s * self._vocab_size + _XGRAMMAR_OPTIONAL_S * facts.optional_squared
        return work_s if is_tiny_for_xgrammar(spec, self._vocab_size) else _PROCESS_S + work_s

    def mask_s(self, backend: str, spec: GrammarSpec) -> float:
        """Give the seconds that one row takes on average."""
        with self._lock:
            learned = self._learned_masks.get((backend, hash(spec)))
        if learned is not None:
            return learned
        if backend == "xgrammar" and _read_schema(spec).has_lengths:
            return _XGRAMMAR_LENGTH_S * self._vocab_size
        return _MASK_S.get(backend, _UNKNOWN_MASK_S)


def _keep(learned: OrderedDict[tuple[str, int], float], key: tuple[str, int], seconds: float) -> None:
    learned[key] = seconds
    while len(learned) > MAX_LEARNED:
        learned.popitem(last=False)


def is_quick_for_llguidance(spec: GrammarSpec) -> bool:
    """Whether llguidance compiles the spec in some hundred milliseconds at most, for certain."""
    return _llguidance_s(spec) <= QUICK_S


def is_tiny_for_xgrammar(spec: GrammarSpec, vocab_size: int) -> bool:
    """Whether xgrammar compiles the spec in some hundred milliseconds at most; True for small schemas on tiny vocabularies."""
    if spec.kind not in ("json_schema", "choice") or len(spec.source) * vocab_size > MAX_TINY:
        return False
    if (len(spec.source) + _read_schema(spec).pattern_length) * vocab_size > MAX_TINY:
        return False
    patterns = (node.get("pattern") for node in _objects(json.loads(spec.source)))
    return all(sum(map(pattern.count, "*+?{")) <= MAX_REPEATS for pattern in patterns if isinstance(pattern, str))


def _llguidance_s(spec: GrammarSpec) -> float:
    facts = _read_schema(spec)
    return (
        _LLGUIDANCE_S
        + _LLGUIDANCE_CHARACTER_S * facts.length
        + _LLGUIDANCE_OPTIONAL_S * facts.optional_squared
        + _LLGUIDANCE_DIVISOR_S * min(facts.divisor, 10**9)
    )


class _Facts(NamedTuple):
    """What costs something.

    Attributes:
        length: Characters.
        divisor: The least common multiple of the divisors.
        optional_squared: Of the optional properties of each object the square.
        pattern_length: Characters of patterns.
        has_lengths: Whether a string has bounds on its length.
        num_open: Objects that may hold names beside listed ones.
        open_names: The names that are listed there.
    """

    length: int
    divisor: int
    optional_squared: int
    pattern_length: int
    has_lengths: bool
    num_open: int
    open_names: int


@lru_cache(maxsize=64)
def _read_schema(spec: GrammarSpec) -> _Facts:
    """Read what llguidance is given: formats are long patterns there, and what is not told costs nothing."""
    schema: Any = None
    length = len(spec.source)
    if spec.kind == "json_schema":
        rewriting = rewriting_of(spec.source, "llguidance")
        schema, length = rewriting.schema, len(rewriting.text)
    elif spec.kind == "structural_tag":
        schema = json.loads(spec.source)
    divisor, optional_squared, pattern_length, has_lengths = 1, 0, 0, False
    num_open = open_names = 0
    for node in _objects(schema):
        divisor = math.lcm(min(divisor, 10**9), _divisor(node.get("multipleOf")))
        has_lengths |= "maxLength" in node or "minLength" in node
        pattern = node.get("pattern")
        pattern_length += len(pattern) if isinstance(pattern, str) else 0
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            optional_squared += len(properties.keys() - set(required if isinstance(required, list) else ())) ** 2
            if properties and node.get("additionalProperties", True) is not False:
                num_open += 1
                open_names += len(properties)
    return _Facts(length, divisor, optional_squared, pattern_length, has_lengths, num_open, open_names)


def _divisor(multiple_of: Any) -> int:
    if isinstance(multiple_of, bool) or not isinstance(multiple_of, int | float) or multiple_of <= 0:
        return 1
    return Fraction(str(multiple_of)).numerator


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
