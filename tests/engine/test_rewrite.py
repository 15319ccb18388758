"""Rewriting keeps the meaning: the original and the rewritten schema agree on every document, by an independent validator.

Where keywords are left to the check afterwards, the rewritten schema may only say less.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import EngineError, GrammarSpec, InvalidGrammarError, UnsupportedGrammarError
from engine.grammar.rewrite import BACKENDS, Program, rewrite, rewriting_of
from engine.grammar.rewrite.formats import format_pattern
from engine.grammar.rewrite.graph import SchemaGraph
from engine.grammar.rewrite.pattern_parse import UnreadablePatternError, parse_pattern
from engine.grammar.rewrite.pattern_print import print_language
from engine.grammar.rewrite.regular import Automaton, Language, Languages, TooLargeError, build, join_ranges
from engine.grammar.support import Enforcement, support_report
from tests.bench_modules import load_bench

# Spellings of these are left out of the masks on purpose, see `formats.py`.
NARROWED = ("format/time", "format/date-time", "format/hostname", "format/email")


load_bench("schema_documents")
load_bench("schema_packages")
sources = load_bench("schema_sources")


def check_same_meaning(schema: Any, valid: Any, invalid: Any, *, is_narrowed: bool = False) -> None:
    rewriting = rewrite(Program(schema), backend="llguidance")
    is_valid = jsonschema_rs.validator_for(rewriting.schema, validate_formats=True).is_valid
    lost = [document for document in valid if not is_valid(document)]
    assert not lost or is_narrowed
    assert rewriting.checked or not [document for document in invalid if is_valid(document)]


def refers_elsewhere(schema: Any) -> bool:
    try:
        SchemaGraph(schema)
    except UnsupportedGrammarError:
        return True
    return False


@pytest.mark.parametrize("draft", ["draft7", "draft2020-12"])
def test_official_suite_keeps_its_meaning(draft: str) -> None:
    num_groups = 0
    for case in sources.suite_cases(draft):
        if "custom metaschema" in case.name or refers_elsewhere(case.schema):
            continue
        check_same_meaning(case.schema, case.valid, case.invalid, is_narrowed=any(name in case.name for name in NARROWED))
        num_groups += 1
    assert num_groups > 280


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
def test_combined_keywords_keep_their_meaning(seed: int) -> None:
    schema = sources.combine(random.Random(seed), 0)
    if not jsonschema_rs.meta.is_valid(schema):
        return
    case = sources.with_documents("", "", schema)
    check_same_meaning(case.schema, case.valid, case.invalid)


KEYWORDS = (
    "type properties items required anyOf oneOf allOf not if then else $ref $defs enum const pattern format minLength maxItems "
    "contains uniqueItems dependentRequired patternProperties additionalProperties propertyNames prefixItems minimum multipleOf "
    "$id $anchor unevaluatedProperties unevaluatedItems $dynamicRef $schema minProperties x-guidance"
).split()
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.sampled_from(("#", "#/$defs/a", "string", "(", "\0", "x")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=4),
    max_leaves=25,
)


@settings(deadline=None, max_examples=300)
@given(JUNK)
def test_admission_never_crashes(schema: Any) -> None:
    with contextlib.suppress(EngineError):
        support_report(GrammarSpec.from_json_schema(schema))


def test_nested_choices_do_not_explode() -> None:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    for depth in range(14):
        schema = {"oneOf": [schema, {"type": "object", "properties": {f"p{depth}": schema}, "required": [f"p{depth}"]}]}
        if depth == 11:
            support_report(GrammarSpec.from_json_schema(schema))
    # Written down, this is 49,000 subschemas.
    with pytest.raises(InvalidGrammarError, match="more than 30000 subschemas"):
        GrammarSpec.from_json_schema(schema)


def test_E13_many_constants_are_quick() -> None:
    values = [f"v{number:05}" for number in range(20_000)]
    rewriting = rewrite(Program({"type": "string", "enum": values}), backend="llguidance")
    assert rewriting.schema == {"enum": values}


LETTERS = "abc"
TEXTS = ["".join(text) for size in range(5) for text in itertools.product(LETTERS, repeat=size)]


def draw_language(languages: Languages, rng: random.Random, depth: int) -> Language:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return languages.set(join_ranges((ord(letter), ord(letter)) for letter in rng.sample(LETTERS, rng.randint(1, 2))))
    first, second = draw_language(languages, rng, depth - 1), draw_language(languages, rng, depth - 1)
    if kind < 0.5:
        return languages.cat(first, second)
    if kind < 0.7:
        return languages.union([first, second])
    if kind < 0.85:
        low = rng.randint(0, 2)
        return languages.repeat(first, low, rng.choice([None, low + 1, low + 2]))
    return languages.complement(first) if kind < 0.92 else languages.intersection([first, second])


@pytest.mark.parametrize("as_json_text", [False, True])
def test_printed_language_is_the_language(as_json_text: bool) -> None:
    rng = random.Random(3)
    for _ in range(120):
        languages = Languages()
        language = draw_language(languages, rng, 3)
        try:
            pattern = print_language(languages, language, as_json_text=as_json_text)
        except TooLargeError:
            continue
        is_valid = jsonschema_rs.validator_for({"pattern": pattern}).is_valid
        assert [is_valid(text) for text in TEXTS] == [languages.accepts(language, text) for text in TEXTS], pattern


PATTERNS = (
    "^[a-z]+$", "o", "^(foo|bar)$", r"^\S+@\S+$", r"\d{3}", "^(?!foo)", r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "", "a|^b", "(^a|b$)",
    "^$", "^a(?=b)b?c*", "^.$", r'^["\\\n]*x$', "é", "😀+", r"^\w+([\.-]?\w+)*@\w+$",
    "^(?=.*[0-9])(?=.*[a-z]).{3,6}$", r"^[\]\[^-]+$", "(?i)^[a-c]+$", "^(?i)[^k]$", "^a(?i)b|c$", "^(?:a(?i)b|c)x$",
    "^(?i:a|B)c$", r"(?i)^[\w-]+$", r"(?i)^[^\d]+$", r"^\p{L}+$", r"^[\p{Lu}\p{Nd}_-]*$", r"^\P{Letter}$", r"^[^\p{gc=P}]+$",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_is_read_as_the_validator_reads_it(pattern: str) -> None:
    rng = random.Random(5)
    languages = Languages()
    language = parse_pattern(languages, pattern)
    is_valid = jsonschema_rs.validator_for({"pattern": pattern}).is_valid
    for _ in range(300):
        text = "".join(rng.choice('ab0"\\\n\t -.@é😀cfoxABkK\u212a') for _ in range(rng.randint(0, 6)))
        assert languages.accepts(language, text) is is_valid(text), text


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?<=ab)c", r"(\ba)+", "(?i)é", r"(?i)\W", r"\p{Greek}", "[[:alpha:]]"])
def test_pattern_that_is_not_regular_is_not_guessed(pattern: str) -> None:
    with pytest.raises(UnreadablePatternError):
        parse_pattern(Languages(), pattern)


LOOKING_BACK = (
    r"\bab\b", r"a\b", r"\Bb", r"^\b", r"b\B", r"(a|-)\b-?", r"(?<=a)b", r"(?<!a)b", r"^(?!-)[ab-]{1,3}(?<!-)$", r"(?<![ab])-",
    r"^(a*\b-?){2}$", r"(?<=[-a])(?<!a)b|a(?<=a)\b", r"(^a)?b$", r"a*^b", r"(?=a\b)a", r"(?<!-)$", r"^[ab]{2,}(?<=b)-", r"\b|x",
)  # fmt: skip


@pytest.mark.parametrize("pattern", LOOKING_BACK)
def test_pattern_that_looks_back_is_read_as_ascii_has_it(pattern: str) -> None:
    """ECMA-262 has no words beyond ASCII, which Python's flag says too."""
    languages = Languages()
    language = parse_pattern(languages, pattern)
    for length in range(6):
        for text in map("".join, itertools.product("ab-é", repeat=length)):
            assert languages.accepts(language, text) is bool(re.search(pattern, text, re.ASCII)), text


@pytest.mark.parametrize("backend", BACKENDS)
def test_word_boundary_is_masked_and_checked(backend: str) -> None:
    """The check takes letters beyond ASCII for parts of words."""
    for pattern, is_checked in ((r"\bab\b", True), (r"a(?<!b)c", False)):
        rewriting = rewrite(Program({"type": "string", "pattern": pattern}), backend=backend)
        assert list(rewriting.checked) == ["#/pattern"] * is_checked
        assert "pattern" in rewriting.schema if isinstance(rewriting.schema, dict) else False


def sample(automaton: Automaton, rng: random.Random) -> str:
    state, text = 0, ""
    while len(text) < 200:
        moves = automaton.moves[state]
        if not moves or (state in automaton.accepting and rng.random() < 0.15):
            break
        state = rng.choice(list(moves))
        low, high = rng.choice(moves[state])
        text += chr(rng.choice((low, high, rng.randint(low, high))))
    return text if state in automaton.accepting else ""


SOUND = "date time date-time duration email hostname ipv4 ipv6 uuid uri uri-reference iri iri-reference uri-template json-pointer"


@pytest.mark.parametrize("name", SOUND.split())
def test_format_pattern_lets_nothing_else_through(name: str) -> None:
    known = format_pattern(name)
    assert known is not None
    languages = Languages()
    automaton = build(languages, parse_pattern(languages, known.patterns[0]), max_states=2_000)
    is_valid = jsonschema_rs.validator_for({"format": name}, validate_formats=True).is_valid
    rng = random.Random(11)
    texts = [text for _ in range(400) if (text := sample(automaton, rng))]
    assert len(texts) > 50
    assert [text for text in texts if not is_valid(text)] == []


@pytest.mark.parametrize("draft", ["draft7", "draft2020-12"])
def test_what_no_backend_is_told_is_checked_for_every_backend(draft: str) -> None:
    num_left_out = 0
    for case in sources.suite_cases(draft):
        with contextlib.suppress(EngineError):
            spec = GrammarSpec.from_json_schema(case.schema)
            rewritings = {backend: rewriting_of(spec.source, backend) for backend in BACKENDS}
            for backend, rewriting in rewritings.items():
                assert rewriting.left_out <= rewriting.checked.keys()
                num_left_out += len(rewriting.left_out)
                if not Enforcement(spec).may_do_worse(backend):
                    assert all(len(rewriting.checked) <= len(other.checked) for other in rewritings.values()), case.name
    assert num_left_out > 20
