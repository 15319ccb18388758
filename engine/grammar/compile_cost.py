"""What a compile will cost, as far as the text of a constraint tells. Pure reading, no vocabulary."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from fractions import Fraction
from threading import Lock
from typing import Any

from .spec import GrammarSpec

# Measured with llguidance 1.9.1 and a vocabulary of 129,000: half a microsecond a character, two microseconds times the square of
# the optional properties of an object (1,000 of them take 2.2 s), sixteen microseconds times the product of the divisors in
# `multipleOf` (999,983 takes more than 20 s and much memory). Its own limits end everything else within some seconds.
MAX_CHARACTERS = 250_000
MAX_OPTIONAL_SQUARED = 60_000
MAX_DIVISOR = 10_000
# Of xgrammar 0.2.9, on the product of characters and vocabulary (0.1 s per million, whatever bounds of lengths there are), and on
# the repeats of a pattern, which may multiply.
MAX_TINY = 6_000_000
MAX_REPEATS = 3


# Seconds a row, measured on objects, arrays and strings with vocabularies of 128,000 to 262,000 entries.
_MASK_S = {"xgrammar": 20e-6, "llguidance": 40e-6}
_UNKNOWN_MASK_S = 1e-3
MAX_LEARNED = 4096


class CompileCosts:
    """What compiles cost on one vocabulary: learned from those that were done, predicted for others; for several threads.

    A prediction is a guess that orders backends. What may run where it cannot be stopped is decided by the functions below.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._learned: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._lock = Lock()

    def learn(self, backend: str, spec: GrammarSpec, seconds: float) -> None:
        """Note how long a compile took; infinity if it did not end."""
        with self._lock:
            self._learned[backend, hash(spec)] = seconds
            while len(self._learned) > MAX_LEARNED:
                self._learned.popitem(last=False)

    def compile_s(self, backend: str, spec: GrammarSpec) -> float:
        """Give the seconds that a compile takes."""
        with self._lock:
            learned = self._learned.get((backend, hash(spec)))
        if learned is not None:
            return learned
        if backend == "llguidance":
            return 0.002 + 5e-7 * len(spec.source) if is_quick_for_llguidance(spec) else 2.0
        # Of xgrammar half the schemas of 500 characters take 25 ms at 129,000 entries, a tenth more than a second.
        return 1e-4 + 4e-10 * len(spec.source) * self._vocab_size

    def mask_s(self, backend: str) -> float:
        """Give the seconds that one row takes on average."""
        return _MASK_S.get(backend, _UNKNOWN_MASK_S)


def is_quick_for_llguidance(spec: GrammarSpec) -> bool:
    """Whether llguidance compiles the spec in some hundred milliseconds at most, for certain."""
    if len(spec.source) > MAX_CHARACTERS:
        return False
    if spec.kind not in ("json_schema", "structural_tag"):
        return True
    divisor, optional_squared = 1, 0
    for node in _objects(json.loads(spec.source)):
        divisor = math.lcm(divisor, _divisor(node.get("multipleOf")))
        properties, required = node.get("properties"), node.get("required")
        if isinstance(properties, dict):
            optional_squared += len(properties.keys() - set(required if isinstance(required, list) else ())) ** 2
        if divisor > MAX_DIVISOR or optional_squared > MAX_OPTIONAL_SQUARED:
            return False
    return True


def is_tiny_for_xgrammar(spec: GrammarSpec, vocab_size: int) -> bool:
    """Whether xgrammar compiles the spec in some hundred milliseconds at most; True for small schemas on tiny vocabularies."""
    if spec.kind not in ("json_schema", "choice") or len(spec.source) * vocab_size > MAX_TINY:
        return False
    patterns = (node.get("pattern") for node in _objects(json.loads(spec.source)))
    return all(sum(map(pattern.count, "*+?{")) <= MAX_REPEATS for pattern in patterns if isinstance(pattern, str))


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
