"""What filling a row of the mask costs: by class of schemas, beside both raw backends in the same run; and 64 rows in one call.

"ours, first" is what the first request with a schema gets; "ours" is what later ones get, when both backends were compared.

Rows: each document is written token by token, and the row in front of every token is filled. Contenders take turns on a document;
of every place the best of some rounds counts, since other work on the machine can only add to it. "first" is the first
writing of a document by a grammar that nobody used before, where lazy backends do their work.

Batch: 64 matchers at different places of one document, one by one and in one call, in turns, and all go on by a token each time.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import llguidance
import llguidance.numpy
import xgrammar
from bench_vocabulary import BenchVocabulary
from fill_schemas import FillCase, fill_cases

from engine import EngineError, GrammarSpec
from engine.grammar import GrammarManager, Matcher, fill_bitmasks, new_bitmask
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.backends.xgrammar_backend import XGrammarBackend
from engine.grammar.compile_process import CompileProcess
from engine.grammar.matcher import CompiledGrammar, GrammarBackend
from engine.grammar.prepared import PreparedGrammar
from engine.grammar.vocabulary import Vocabulary

NUM_ROWS = 64
Walker = Callable[[Sequence[int]], tuple[list[float], float] | None]
"""Writes ids from the start: seconds of every row, and of all accepts; None if an id is refused."""


@dataclass(slots=True)
class Costs:
    """Of one contender and one case; means over places, in microseconds.

    Attributes:
        fill: A row, warm.
        first: A row, the first time.
        accept: A token, warm.
    """

    fill: float
    first: float
    accept: float


def walk(fill: Callable[[], object], accept: Callable[[int], bool], token_ids: Sequence[int]) -> tuple[list[float], float] | None:
    """Fill before every id, then accept it."""
    row_s, accept_s = [], 0.0
    clock = time.perf_counter
    for token_id in token_ids:
        started = clock()
        fill()
        filled = clock()
        is_taken = accept(token_id)
        ended = clock()
        if not is_taken:
            return None
        row_s.append(filled - started)
        accept_s += ended - filled
    return row_s, accept_s


class RawLLGuidance:
    """llguidance as its documentation has it: its own vocabulary reader, a shared grammar, a matcher each."""

    def __init__(self, vocabulary: BenchVocabulary) -> None:
        self._tokenizer = vocabulary.raw_llguidance()
        self._bitmask = llguidance.numpy.allocate_token_bitmask(1, vocabulary.vocabulary.vocab_size)

    def compile(self, schema: Any, timeout_s: float) -> Walker | None:
        """Give a walker, or None where it refuses."""
        options: Any = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=options)
        first = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if first.is_error():
            return None

        def walker(token_ids: Sequence[int]) -> tuple[list[float], float] | None:
            matcher = first.deep_copy()
            return walk(
                lambda: llguidance.numpy.fill_next_token_bitmask(matcher, self._bitmask, 0), matcher.consume_token, token_ids
            )

        return walker


class RawXGrammar:
    """xgrammar as its documentation has it. Schemas that it does not compile within the limit in the process are left out."""

    def __init__(self, vocabulary: BenchVocabulary, process: CompileProcess, backend: XGrammarBackend) -> None:
        self._process = process
        self._backend = backend
        self._info = vocabulary.raw_xgrammar()
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=2, cache_enabled=False)
        self._bitmask = xgrammar.allocate_token_bitmask(1, vocabulary.vocabulary.vocab_size)
        self._stop = vocabulary.vocabulary.stop_token_ids[0]

    def compile(self, schema: Any, timeout_s: float) -> Walker | None:
        """Give a walker, or None where it refuses or takes too long."""
        try:
            grammar = xgrammar.Grammar.from_json_schema(
                json.dumps(schema), any_whitespace=False, separators=(",", ":"), strict_mode=False
            )
            ticket = self._process.new_ticket()
            report = self._process.run(
                ticket,
                "xgrammar",
                json.dumps({"grammar": grammar.serialize_json()}),
                timeout_s=timeout_s,
                keep_over_s=1e9,
                niceness=0,
            )
            if report.status != "ok":
                return None
            compiled = self._compiler.compile_grammar(grammar)
        except Exception:  # whatever it raises is a refusal
            return None

        def walker(token_ids: Sequence[int]) -> tuple[list[float], float] | None:
            matcher = xgrammar.GrammarMatcher(compiled)
            return walk(lambda: matcher.fill_next_token_bitmask(self._bitmask), matcher.accept_token, token_ids)

        return walker


class Ours:
    """The grammar manager with its own choice of a backend; of the first request, or of later ones."""

    def __init__(self, vocabulary: Vocabulary, manager: GrammarManager, *, is_first: bool) -> None:
        self._vocabulary = vocabulary
        self._manager = manager
        self._is_first = is_first
        self._bitmask = new_bitmask(1, vocabulary.vocab_size)
        self.used = ""

    def _later(self, spec: GrammarSpec) -> PreparedGrammar:
        """Use it again until nothing faster is being looked for."""
        self._manager.request(spec).result()
        while self._manager.num_upgrading:
            time.sleep(0.05)
        return self._manager.request(spec).result()

    def compile(self, schema: Any, timeout_s: float) -> Walker | None:
        """Give a walker, or None where it refuses."""
        try:
            spec = GrammarSpec.from_json_schema(schema)
            prepared = self._manager.request(spec).result(timeout_s)
            if not self._is_first:
                prepared = self._later(spec)
        except (EngineError, TimeoutError):
            return None
        self.used = prepared.backend

        def walker(token_ids: Sequence[int]) -> tuple[list[float], float] | None:
            matcher = prepared.new_matcher(self._vocabulary.stop_token_ids)
            return walk(
                lambda: matcher.fill_bitmask(self._bitmask, 0), lambda token_id: matcher.accept_tokens([token_id]), token_ids
            )

        return walker


def measure_case(contenders: dict[str, Walker], documents: Sequence[Sequence[int]], *, rounds: int) -> dict[str, Costs]:
    """Let the contenders write all documents in turns; those that refuse one are left out."""
    first: dict[str, list[float]] = {name: [] for name in contenders}
    best: dict[str, list[list[float]]] = {name: [] for name in contenders}
    accept_s: dict[str, float] = dict.fromkeys(contenders, 0.0)
    out: set[str] = set()
    gc.disable()
    for token_ids in documents:
        runs: dict[str, list[tuple[list[float], float]]] = {name: [] for name in contenders}
        for _ in range(1 + rounds):
            for name, walker in contenders.items():
                result = walker(token_ids) if name not in out else None
                if result is None:
                    out.add(name)
                else:
                    runs[name].append(result)
        for name in contenders.keys() - out:
            first[name] += runs[name][0][0]
            best[name].append([min(place) for place in zip(*(row_s for row_s, _ in runs[name][1:]), strict=True)])
            accept_s[name] += min(accept for _, accept in runs[name][1:])
    gc.enable()
    num_places = sum(map(len, documents))
    return {
        name: Costs(
            1e6 * statistics.mean(place for document in best[name] for place in document),
            1e6 * statistics.mean(first[name]),
            1e6 * accept_s[name] / num_places,
        )
        for name in contenders
        if name not in out
    }


def measure_rows(vocabulary: BenchVocabulary, *, is_quick: bool) -> list[dict[str, Any]]:
    """Give a row of the table per case, then per class."""
    xgrammar_backend = XGrammarBackend(vocabulary.vocabulary, num_threads=1)
    backend_list: list[GrammarBackend] = [xgrammar_backend, LLGuidanceBackend(vocabulary.vocabulary)]
    manager = GrammarManager(backend_list)
    process = CompileProcess(vocabulary.vocabulary, memory_bytes=6 * 2**30)
    raw_llguidance, raw_xgrammar = RawLLGuidance(vocabulary), RawXGrammar(vocabulary, process, xgrammar_backend)
    rows: list[dict[str, Any]] = []
    try:
        for case in fill_cases(with_large=not is_quick):
            ours = {
                name: Ours(vocabulary.vocabulary, manager, is_first=name == "ours, first") for name in ("ours, first", "ours")
            }
            compilers: dict[str, RawXGrammar | RawLLGuidance | Ours] = {
                "raw xgrammar": raw_xgrammar,
                "raw llguidance": raw_llguidance,
                **ours,
            }
            walkers = {name: compiler.compile(case.schema, 20.0) for name, compiler in compilers.items()}
            documents = [vocabulary.encode(text) for text in case.texts]
            costs = measure_case(
                {name: walker for name, walker in walkers.items() if walker}, documents, rounds=5 if is_quick else 15
            )
            rows.append(describe(case, sum(map(len, documents)), costs, ours))
    finally:
        manager.close()
        process.close()
    return rows


def describe(case: FillCase, num_rows: int, costs: dict[str, Costs], ours: dict[str, Ours]) -> dict[str, Any]:
    """Give one row of the table."""
    row: dict[str, Any] = {"class": case.kind, "schema": case.name, "rows": num_rows}
    for name in ("raw xgrammar", "raw llguidance", *ours):
        cost = costs.get(name)
        row[f"{name} us"] = round(cost.fill, 1) if cost else None
        row[f"{name} first us"] = round(cost.first, 1) if cost else None
        row[f"{name} accept us"] = round(cost.accept, 1) if cost else None
    raw = [costs[name].fill for name in ("raw xgrammar", "raw llguidance") if name in costs]
    for name, each in ours.items():
        row[f"{name} is"] = each.used
        row[f"{name} times better raw"] = round(costs[name].fill / min(raw), 2) if name in costs and raw else None
    return row


def seconds(function: Callable[[], object]) -> float:
    """Time one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@dataclass(slots=True)
class Crowd:
    """Matchers of one grammar at different places of one document, which all go on by a token at a time.

    They have to: a library remembers the row of a matcher that has not moved.
    """

    matchers: list[Matcher]
    token_ids: Sequence[int]
    places: list[int]

    @classmethod
    def spread(cls, new_matcher: Callable[[], Matcher], token_ids: Sequence[int], num_rows: int) -> Crowd:
        """Place them evenly."""
        places = [number * len(token_ids) // num_rows for number in range(num_rows)]
        matchers = [new_matcher() for _ in places]
        for matcher, place in zip(matchers, places, strict=True):
            assert matcher.accept_tokens(token_ids[:place])
        return cls(matchers, token_ids, places)

    def go_on(self) -> None:
        """Move each by a token, and those at the end back to the start."""
        for number, (matcher, place) in enumerate(zip(self.matchers, self.places, strict=True)):
            if place == len(self.token_ids) - 1:
                matcher.reset()
                self.places[number] = 0
            else:
                assert matcher.accept_tokens([self.token_ids[place]])
                self.places[number] = place + 1


def measure_batch(vocabulary: BenchVocabulary, *, is_quick: bool) -> list[dict[str, Any]]:
    """Fill 64 rows one by one and in one call, per class: by each backend, and as requests get them, with masks that are kept."""
    own = vocabulary.vocabulary
    rows = []
    manager = GrammarManager([LLGuidanceBackend(own)])
    try:
        for case in fill_cases(with_large=False):
            spec = GrammarSpec.from_json_schema(case.schema)
            grammars: dict[str, CompiledGrammar | PreparedGrammar] = {
                backend.name: backend.compile(spec)
                for backend in (XGrammarBackend(own, num_threads=1), LLGuidanceBackend(own))
                if backend.name != "xgrammar" or case.kind != "bounded strings"  # minutes to compile
            }
            grammars["with kept masks"] = manager.request(spec).result()
            token_ids = max((vocabulary.encode(text) for text in case.texts), key=len)
            for name, grammar in grammars.items():

                def new_matcher(grammar: CompiledGrammar | PreparedGrammar = grammar) -> Matcher:
                    return grammar.new_matcher(own.stop_token_ids)

                one, other = (Crowd.spread(new_matcher, token_ids, NUM_ROWS) for _ in range(2))
                num_passes = 2 if is_quick else 4
                alone, together, gain = compete(one, other, own.vocab_size, num_steps=len(token_ids), num_passes=num_passes)
                rows.append({
                    "class": case.kind, "rows by": name, "us a row, one by one": round(1e6 * alone / NUM_ROWS, 1),
                    "one by one ms": round(1e3 * alone, 3), "one call ms": round(1e3 * together, 3),
                    "times faster": round(alone / together, 2), "two threads": round(gain, 2),
                })  # fmt: skip
    finally:
        manager.close()
    return rows


def compete(alone: Crowd, together: Crowd, vocab_size: int, *, num_steps: int, num_passes: int) -> tuple[float, float, float]:
    """Give the mean seconds of a step one by one, and in one call; of every step the best of some passes.

    Beside them what a checksum gains from two threads: how much of a second core there was.
    """
    bitmask = new_bitmask(NUM_ROWS, vocab_size)
    indexes = list(range(NUM_ROWS))

    def one_by_one() -> None:
        for index, matcher in enumerate(alone.matchers):
            matcher.fill_bitmask(bitmask, index)

    def one_call() -> None:
        fill_bitmasks(together.matchers, bitmask, indexes)

    best = [[float("inf")] * num_steps for _ in range(2)]
    with ThreadPoolExecutor(1) as other:
        controls = [control(other)]
        for _ in range(1 + num_passes):
            for step in range(num_steps):
                for index, (crowd, fill) in enumerate(((alone, one_by_one), (together, one_call))):
                    taken = seconds(fill)
                    best[index][step] = min(best[index][step], taken)
                    crowd.go_on()
            controls.append(control(other))
    twice, shared = (min(times) for times in zip(*controls, strict=True))
    return statistics.mean(best[0]), statistics.mean(best[1]), twice / shared


BLOB = bytes(range(256)) * 8000


def control(other: ThreadPoolExecutor) -> tuple[float, float]:
    """Seconds of two checksums one after the other, and on two threads."""

    def shared() -> None:
        future = other.submit(zlib.crc32, BLOB)
        zlib.crc32(BLOB)
        future.result()

    return seconds(lambda: (zlib.crc32(BLOB), zlib.crc32(BLOB))), seconds(shared)
