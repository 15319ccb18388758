"""llguidance as a grammar backend: compiles in milliseconds, and every step of it is bounded by fuel.

It does its work lazily, mask by mask, where xgrammar prepares it. Refusals of the library are found here and get a place.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from importlib.metadata import version
from threading import Lock

import llguidance
import torch

from ...errors import GrammarCompileError, GrammarError, UnsupportedGrammarError
from ..bitmask import BITS_PER_WORD, bitmask_width
from ..compile_cost import is_quick_for_llguidance
from ..deep_stack import call_on_deep_stack
from ..matcher import CompiledGrammar, Matcher
from ..number_cap import NumberTokens, limits_for
from ..sources import check_token_ids
from ..spec import GrammarSpec
from ..vocabulary import Vocabulary
from .counted_text import refuse_many_states
from .lanes import Lanes, share_out, sum_of
from .llguidance_matcher import LLGuidanceCompiled, LLGuidanceMatcher
from .llguidance_place import find_place
from .llguidance_source import lark_source

MAX_LEXER_STATES = 60_000
"""Of one matcher, 1 to 2 kB each; the library's own limit of 250,000 would be half a gigabyte for one request."""
MAX_SOURCE_LENGTH = 2_000_000
"""A longer text of small rules could nest deeper than any stack."""
MAX_BUILT = 8
_TEXT = r'[^"\\\x00-\x1F\x7F]'
_SPACES = r"\u0085\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF"
_WORD = rf"[^\x00-\x2F\x3A-\x40\x5B-\x60\x7B-\x7F{_SPACES}]"
_SLICES = [
    r"[\x20\x0A\x0D\x09]+",
    *(f"{_TEXT}{{1,{length}}}" for length in (4, 8, 12, 20, 30, 128)),
    f"{_TEXT}+",
    r"[a-z]{1,12}",
    r"[a-zA-Z0-9]{1,12}",
    f"{_WORD}{{1,12}}",
    _WORD.replace(r"\x2F", r"\x1F\x21-\x2F") + "{1,12}",
    r'[^"/\\\x00-\x1F\x7F]{1,20}',
]
"""Tokens that such an expression matches are decided at once where a string may go on so; all others are walked byte by byte.

Only classes of characters and counts of them are compared, so that a pattern is served by a class that is within its own: letters
for names, words of any script for what forbids some mark, all but a slash for paths. Bounded strings need lengths. Each of them
costs 50 to 90 ms and 9 MB when an engine starts.
"""


class LLGuidanceBackend:
    """Compiles specs with llguidance for one vocabulary; its verbs may be called from several threads.

    Args:
        vocabulary: The tokens.
        num_threads: Threads of a batched fill; None takes all cores.
    """

    name = "llguidance"
    version = version("llguidance")

    def __init__(self, vocabulary: Vocabulary, *, num_threads: int | None = None) -> None:
        self.vocabulary = vocabulary
        self.limits = llguidance.LLParserLimits(max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)
        tokens = _Tokens(vocabulary)
        self.end_token_id = tokens.eos_token_id
        # Of llguidance's own masks.
        self.mask_words = bitmask_width(len(tokens.tokens))
        self._tokenizer = llguidance.LLTokenizer(tokens, slices=_SLICES)
        self._number_tokens = NumberTokens(vocabulary.token_bytes)
        # Checked and not asked for yet: checking builds, and building twice is for nothing.
        self._built: OrderedDict[GrammarSpec, LLGuidanceCompiled] = OrderedDict()
        self._lock = Lock()
        self.num_threads = num_threads or max(1, os.cpu_count() or 1)
        # Not llguidance's own executor: it splits batches without regard to who waits for whom, and gains 1.0 to 1.3 times on two
        # cores where threads with an automaton each gain 1.7 to 1.9. They begin at the first batch that is shared.
        self._threads = ThreadPoolExecutor(max(1, self.num_threads - 1), thread_name_prefix="grammar-rows")
        self._lanes = Lanes()

    def check(self, spec: GrammarSpec) -> None:
        """Build the grammar, and keep it a while for `compile`; one that might take long is looked at without building.

        Raises:
            UnsupportedGrammarError: llguidance cannot compile this constraint.
        """
        check_token_ids(spec.kind, spec.source, self.vocabulary.vocab_size)
        if self.is_surely_quick(spec):
            compiled = self._build(spec)
            with self._lock:
                self._built[spec] = compiled
                while len(self._built) > MAX_BUILT:
                    self._built.popitem(last=False)
        else:
            self._source(spec)

    def compile(self, spec: GrammarSpec) -> CompiledGrammar:
        """Build the grammar.

        Raises:
            GrammarCompileError: llguidance failed.
        """
        with self._lock:
            built = self._built.pop(spec, None)
        if built is not None:
            return built
        try:
            return self._build(spec)
        except UnsupportedGrammarError as error:
            raise GrammarCompileError(str(error), pointer=error.pointer, line=error.line, column=error.column) from error

    def is_surely_quick(self, spec: GrammarSpec) -> bool:
        """Whether compiling takes some hundred milliseconds at most; its own limits end the others within some seconds."""
        return is_quick_for_llguidance(spec)

    def export_source(self, spec: GrammarSpec) -> str:
        """Give the grammar as the compile process takes it."""
        return str(llguidance.LLMatcher.grammar_from_lark(self._source(spec)))

    def load_compiled(self, text: str) -> CompiledGrammar:
        """Raise an error: llguidance has no form in which a compiled grammar could be kept.

        Raises:
            GrammarCompileError: Always.
        """
        raise GrammarCompileError("llguidance cannot load a compiled grammar")

    def fill_bitmasks(self, matchers: Sequence[Matcher], bitmask: torch.Tensor, rows: Sequence[int]) -> None:
        """Fill rows, on all cores where that is faster; see the protocol."""
        own = [matcher for matcher in matchers if isinstance(matcher, LLGuidanceMatcher)]
        can_share = self.num_threads > 1 and len({matcher.automaton for matcher in own}) > 1
        share = partial(self._fill_on_all_cores, list(zip(own, rows, strict=True)), bitmask) if can_share else None
        self._lanes.fill(matchers, bitmask, rows, costs=[matcher.compiled.cost for matcher in own], share=share)

    def _fill_on_all_cores(self, jobs: list[_Job], bitmask: torch.Tensor) -> None:
        """Fill the rows of each automaton on one thread: copies of one would wait for each other."""
        by_automaton: dict[int, list[_Job]] = {}
        for job in jobs:
            by_automaton.setdefault(job[0].automaton, []).append(job)
        shares = share_out(
            [(sum_of([matcher.compiled.cost for matcher, _ in group]), group) for group in by_automaton.values()],
            self.num_threads,
        )
        others = [self._threads.submit(_fill_rows, share, bitmask) for share in shares[1:]]
        try:
            _fill_rows(shares[0], bitmask)
        finally:
            # Nobody may meet a matcher or a row that is still being worked on.
            wait(others)
        for other in others:
            other.result()

    def new_raw(self, source: str) -> llguidance.LLMatcher:
        """Make llguidance's own matcher, with an automaton of its own; errors are in it."""
        grammar = llguidance.LLMatcher.grammar_from_lark(source)
        return call_on_deep_stack(lambda: llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self.limits))

    def _source(self, spec: GrammarSpec) -> str:
        source = lark_source(spec)
        refuse_many_states(spec)
        if len(source) > MAX_SOURCE_LENGTH:
            raise UnsupportedGrammarError(
                f"a constraint of {len(source)} characters; llguidance takes {MAX_SOURCE_LENGTH}",
                hint="use xgrammar, or split it",
            )
        return source

    def _build(self, spec: GrammarSpec) -> LLGuidanceCompiled:
        source = self._source(spec)
        started = time.perf_counter()
        raw = self.new_raw(source)
        build_s = time.perf_counter() - started
        if raw.is_error():
            raise self._refusal(spec, raw.get_error())
        cap = None
        if spec.kind == "json_schema" and spec.max_number_digits is not None:
            cap = self._number_tokens.cap(limits_for(spec.source, spec.max_number_digits))
        return LLGuidanceCompiled(self, source, raw, cap, build_s=build_s)

    def _refusal(self, spec: GrammarSpec, message: str) -> GrammarError:
        reason = _reason(message)
        pointer, line, column = None, None, None
        if spec.kind == "json_schema":
            pointer = call_on_deep_stack(lambda: find_place(json.loads(spec.source), reason, self._why_not))
        elif place := re.search(r"\b(\d+)\((\d+)\)", message):
            # Our own head is line 1.
            line, column = max(1, int(place[1]) - 1), int(place[2])
        return UnsupportedGrammarError(
            f"llguidance cannot compile this {spec.kind.replace('_', ' ')}: {reason}",
            pointer=pointer,
            line=line,
            column=column,
            hint="simplify it, or validate afterwards without a constraint",
        )

    def _why_not(self, schema: object) -> str:
        error = llguidance.LLMatcher.validate_grammar(
            llguidance.LLMatcher.grammar_from_lark("start: %json " + json.dumps(schema)), self._tokenizer, limits=self.limits
        )
        return _reason(error) if error and not error.startswith("WARNING") else ""


def _fill_rows(share: Sequence[_Job], bitmask: torch.Tensor) -> None:
    for matcher, row in share:
        matcher.fill_bitmask(bitmask, row)


_Job = tuple[LLGuidanceMatcher, int]
"""A matcher and its row."""


class _Tokens(llguidance.TokenizerWrapper):
    """The vocabulary as llguidance reads it, with an id that stands for the end and that no model ever writes.

    Best an id that is no text and has no name: masks are then as wide as the engine's. Else one more than there are.
    """

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        named = {*vocabulary.stop_token_ids, *(token_id for token_id, _ in vocabulary.special_tokens)}
        unused = (i for i, data in enumerate(vocabulary.token_bytes) if not data and i not in named)
        fits = vocabulary.vocab_size % BITS_PER_WORD != 0
        self.eos_token_id = vocabulary.vocab_size if fits else max(unused, default=vocabulary.vocab_size)
        tokens = [*vocabulary.token_bytes, b""][: max(vocabulary.vocab_size, self.eos_token_id + 1)]
        for token_id, text in (*vocabulary.special_tokens, (self.eos_token_id, "<end>")):
            tokens[token_id] = text.encode()
        self.tokens = tokens
        self.special_token_ids = [self.eos_token_id, *(token_id for token_id, _ in vocabulary.special_tokens)]
        self.bos_token_id = None
        self._index = vocabulary.index

    def __call__(self, text: str) -> list[int]:
        # Asked only where llguidance itself would spell forced text; it never does (`no_forcing`).
        return self._index.spell(text.encode()) or []


def _reason(message: str) -> str:
    """Give the sentence of llguidance's message that says why, without its excerpts."""
    lines = [line for line in message.splitlines() if line.strip() and not re.match(r"\s+(\d+ \||\^)", line)]
    text = " ".join(line.strip() for line in lines)
    return re.sub(r"^(at )?\d+\(\d+\): ", "", text).removeprefix("failed to compile JSON schema: ")
