"""Regular expressions: what is read, what is refused and where, and that both backends match what Python matches."""

from __future__ import annotations

import random
import re
import time
import warnings

import pytest

from engine import GrammarError, GrammarSpec, InvalidGrammarError, UnsupportedGrammarError
from engine.grammar.nodes import MAX_DEPTH
from engine.grammar.regex_check import parse_regex
from tests.engine.grammar_backends import BACKENDS, accepts, make_backend, new_matcher

# (pattern, column, words of the message)
INVALID = {
    "E1.d": ("(", 1, "never closed"),
    "closing": ("ab)", 3, "none opens"),
    "class": ("x[a-", 2, "never closed"),
    "empty-class": ("[]", 1, "never closed"),
    "backwards": ("a[z-a]", 3, "backwards"),
    "class-range": (r"[\d-x]", 2, "whose end is a class"),
    "nothing": ("a|*", 3, "nothing to repeat"),
    "anchor": ("^*", 2, "nothing to repeat"),
    "twice": ("a**", 3, "repetition of a repetition"),
    "crossed": ("a{3,2}", 2, "larger than the most"),
    "huge": ("a{9999999999}", 2, "repetitions"),
    "huger": ("a{" + "9" * 5000 + "}", 2, "repetitions"),
    "backslash": ("ab\\", 3, "backslash at the end"),
    "escape": (r"a\q", 2, "unknown escape"),
    "property": (r"a\p{Han}", 2, "no general category"),
    "property-in-class": (r"[\p]", 2, "no general category"),
    "braced-far": (r"\u{110000}", 1, "beyond"),
    "hex": (r"\x4", 1, "hexadecimal"),
    "far": (r"\U00110000", 1, "beyond"),
    "octal": (r"\777", 1, "octal"),
    "name": (r"\N{NO SUCH}", 1, "name"),
    "group": ("(?&a)", 1, "kind of group"),
    "group-name-js": ("(?<1>x)", 1, "identifier"),
    "group-name": ("(?P<1>x)", 1, "identifier"),
    "group-twice": ("(?P<a>x)(?P<a>y)", 9, "second group"),
    "flags": ("a(?i)b", 2, "kind of group"),
    "flag-clash": ("(?i-i:a)", 1, "contradict"),
    "bytes-flag": ("(?L)a", 1, "bytes"),
    "nul": ("ab\0", 3, "NUL"),
    "surrogate": ("a\ud800", 2, "surrogate"),
    "comment": ("a(?#b", 2, "not closed"),
    "never": (r"[^\s\S]", 1, "no text matches"),
    "never-ahead": ("a(?=b)", 1, "no text matches"),
    "never-not-ahead": ("(?!(?:ab)*$)(?:ab)*", 1, "no text matches"),
    "never-so-long": (r"(?=.{3})\d{2}|b(?=c)", 1, "no text matches"),
}
UNSUPPORTED = {
    "back-reference": (r"(a)\1", 4, "back-reference"),
    "named-reference": ("(?P<a>x)(?P=a)", 9, "back-reference"),
    "look-behind": ("a(?<=a)", 2, "look-behind"),
    "not-look-behind": ("a(?<!b)", 2, "look-behind"),
    "atomic": ("(?>a)", 1, "atomic"),
    "conditional": ("(a)?(?(1)b)", 5, "conditional"),
    "possessive": ("a*+", 3, "possessive"),
    "boundary": (r"a\b", 2, "word boundary"),
    "inner-end": ("a$b", 2, "away from the end"),
    "inner-start": ("a^b", 2, "away from the start"),
    "repeated-anchor": ("(?:^a)*", 4, "away from the start"),
    "inner-look": ("((?=a)b)c", 2, "look-ahead"),
    "lines": (r"(?m)a\n^b", 8, "multi-line"),
    "lines-end": (r"(?m)a$\nb", 6, "multi-line"),
    "shared": (r"(\w{1,100}\s?){1,50}", 1, "share a text"),
    "shared-too": ("(a{1,40}b?){1,40}", 1, "share a text"),
    "unfolds": ("(?:a{600}){600}", 1, "unfolds"),
}


@pytest.mark.parametrize(("pattern", "column", "words"), INVALID.values(), ids=INVALID)
def test_invalid_regex_names_the_column(pattern: str, column: int, words: str) -> None:
    with pytest.raises(InvalidGrammarError, match=re.escape(words)) as caught:
        GrammarSpec.regex(pattern)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(("pattern", "column", "words"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_irregular_regex_names_the_column(pattern: str, column: int, words: str) -> None:
    with pytest.raises(UnsupportedGrammarError, match=re.escape(words)) as caught:
        GrammarSpec.regex(pattern)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert caught.value.hint


HINTS = {"a(?i)b": "very start", "(?R)": "Python's syntax", "(?1)": "Python's syntax"}


@pytest.mark.parametrize(("pattern", "words"), HINTS.items(), ids=HINTS)
def test_unknown_group_is_answered_with_what_was_meant(pattern: str, words: str) -> None:
    with pytest.raises(InvalidGrammarError) as caught:
        GrammarSpec.regex(pattern)
    assert words in (caught.value.hint or "")


@pytest.mark.parametrize("pattern", ["(" * 20_000, "(?:" * 20_000 + ")" * 20_000, "[" * 20_000, "(a|" * 5_000, "\\" * 19_999])
def test_20000_levels_are_a_typed_error_at_once(pattern: str) -> None:
    start = time.process_time()
    with pytest.raises(GrammarError):
        GrammarSpec.regex(pattern)
    assert time.process_time() - start < 1


def test_deepest_allowed_regex_compiles() -> None:
    depth = MAX_DEPTH
    matcher = new_matcher(make_backend("xgrammar"), GrammarSpec.regex("(" * depth + "a|b" + ")+" * depth))
    assert accepts(matcher, "abba")


def test_place_in_a_regex_of_several_lines() -> None:
    with pytest.raises(InvalidGrammarError) as caught:
        GrammarSpec.regex("(?x) a b # first\n c ) d")
    assert (caught.value.line, caught.value.column) == (2, 4)
    assert "line 2, column 4" in str(caught.value)


# Each with texts; `re.fullmatch` says which of them match.
PATTERNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "B12": ("[0-9]{3}", ("123", "000", "12", "1234", "12a", "", " 123")),
    "anchored": ("^a+$|^b$", ("a", "aa", "b", "bb", "", "ab")),
    "zed": (r"\Aab\Z", ("ab", "ab\n")),
    "end-newline": ("a$", ("a", "a\n")),
    "unicode-digits": (r"\d+", ("12", "१२", "²", "x")),
    "ascii-digits": (r"(?a)\d+", ("12", "१२")),
    "unicode-words": (r"\w+", ("straße", "日本", "e\u0301", "a b", "_1")),
    "spaces": (r"a\sb", ("a b", "a\u00a0b", "a\x1cb", "a\u200bb")),
    "ignore-case": ("(?i)stra[ß]e k", ("STRAßE k", "stra\u1e9ee \u212a", "strasse k", "\u017ftraße K")),
    "ignore-case-not": ("(?i)[^a-c]", ("A", "b", "d", "D", "é")),
    "dot": ("a.b", ("a\nb", "axb", "a\u2028b", "a🙂b")),
    "dot-all": ("(?s)a.b", ("a\nb", "a🙂b", "ab")),
    "scoped-flags": ("(?s:.)(?i:x).", ("\nXa", "ax\n", "\nxb")),
    "verbose": ("(?x) a  b [ ] c # d\n", ("ab c", "abc", "a b c")),
    "lazy": ("a+?b*?", ("a", "aab", "b")),
    "braces": ("a{,2}b{1,}c{}d{x}", ("bc{}d{x}", "aabbc{}d{x}", "aaabc{}d{x}")),
    "escapes": (r"\t\n\x41\u00e9\U0001F600\101\N{BULLET}\/\-\ ", ("\t\nAé😀A•/- ", "\t\nAé😀A•/-")),
    "class-escapes": (r"[\]\-\b\n^]+", ("]-\b\n^", "a", "\\")),
    "class-edges": ("[]a-][^]a]", ("]b", "-x", "a]", "]-")),
    "nul": (r"a\x00[\0-\x02]", ("a\0\1", "a\0\3", "a")),
    "groups": ("(?P<x>a|b(?#c))(?:c)()", ("ac", "bc", "abc")),
    "empty-alternative": ("(|a)(b||c)", ("", "ab", "c", "d")),
    "look-ahead": (r"^(?=.*[A-Z])(?=.*\d).{4,6}$", ("Abc1", "abc1", "ABCD", "A1", "Abc1234", "1bcD")),
    "not-ahead": ("(?!foo|.*bar)[a-z]+", ("fo", "foo", "food", "abar", "ba")),
    "look-ahead-end": ("(?!ab$)[ab]+", ("ab", "abb", "a", "aab")),
    "look-ahead-rare": (r"(?=.*\d)(?=.*\W)(?!.*\s).{8,200}", ("abcdefg1!", "abcdefgh1", "abcd fg1!", "1" * 199 + "-")),
    "look-ahead-line": (r"(?ms)(?=ab$)a.*", ("ab", "ab\nc", "abc")),
    "look-ahead-inside": ("x(?=a)(a|b)b?", ("xa", "xb", "xab")),
    "nested-stars": ("(a*)*(b+)+", ("aab", "b", "aa", "")),
    "ends-as-begins": ("(a|ab)(b|bc)c", ("abc", "abbc", "abbcc", "abcc")),
    "quotes": (r'"\\?[^"\\]*"', ('"a"', '"\\a"', '"', '"a\\b"')),
    "C32": (r"[^\t]{2,150}", ("ab", "a" * 150, "a" * 151, "a", "a\tb")),
}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("pattern", "texts"), PATTERNS.values(), ids=PATTERNS)
def test_regex_matches_what_python_matches(name: str, pattern: str, texts: tuple[str, ...]) -> None:
    spec = GrammarSpec.regex(pattern)
    if name == "xgrammar" and ("(?=" in pattern or "(?!" in pattern):
        with pytest.raises(UnsupportedGrammarError, match="look-ahead"):
            make_backend(name).check(spec)
        return
    matcher = new_matcher(make_backend(name), spec)
    for text in texts:
        assert accepts(matcher, text) == bool(re.fullmatch(pattern, text)), text


# Spellings of other engines, and what they are in Python's.
FOREIGN: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "xgrammar-183": (r"(?<y>\d{4})-(?<m>\d\d)", r"(?P<y>\d{4})-(?P<m>\d\d)", ("2024-01", "2024-1")),
    "end-of-text": (r"\Aab\z", r"ab\Z", ("ab", "ab\n")),
    "letters": (r"\p{L}+\P{L}\pN", r"[^\W\d_]+[^A-Za-z]\d", ("é-1", "東京 2", "1-1", "aa1")),
    "letters-in-class": (r"[\p{Lu}\p{gc=Nd}-]+", "[A-ZÉ0-9-]+", ("É-1", "é")),
    "braced-hex": (r"\u{1F642}\x{e9}[\u{61}-\u{63}]", "🙂é[a-c]", ("🙂éb", "🙂éd")),
    "posix": ("[[:alpha:]_][^[:digit:]]", "[A-Za-z_][^0-9]", ("a!", "_é", "_1", "[a")),
    "whole-lines": (r"(?m)^a$|^b\nc$", r"a|b\nc", ("a", "b\nc", "a\n")),
}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("pattern", "meaning", "texts"), FOREIGN.values(), ids=FOREIGN)
def test_spelling_of_another_engine_is_taken(name: str, pattern: str, meaning: str, texts: tuple[str, ...]) -> None:
    matcher = new_matcher(make_backend(name), GrammarSpec.regex(pattern))
    for text in texts:
        assert accepts(matcher, text) == bool(re.fullmatch(meaning, text)), text


ATOMS = (
    "a",
    "b",
    "ab",
    ".",
    "[ab]",
    "[^a]",
    "[a-c0]",
    r"\d",
    r"\w",
    r"[^\W\d]",
    r"\s",
    "é",
    r"[à-ü]",
    r"\n",
    "(?:)",
    "日",
    "-",
    r"\.",
)
ALPHABET = "abc0 é日.-\n"


def random_regex(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(ATOMS)
    if kind < 0.6:
        return "".join(random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.8:
        return "(?:" + "|".join(random_regex(rng, depth - 1) for _ in range(rng.randint(1, 3))) + ")"
    inner = random_regex(rng, depth - 1)
    return f"(?:{inner})" + rng.choice(("*", "+", "?", "{2}", "{1,3}", "{2,}", "{,2}", "*?", "{0}"))


def random_text(rng: random.Random) -> str:
    return "".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 6)))


@pytest.mark.parametrize("name", BACKENDS)
def test_random_regexes_match_what_python_matches(name: str) -> None:
    rng = random.Random(f"regex {name}")
    num_matches = 0
    for _ in range(170):
        pattern = random_regex(rng, 3)
        matcher = new_matcher(make_backend(name), GrammarSpec.regex(pattern))
        for text in (random_text(rng) for _ in range(25)):
            is_match = bool(re.fullmatch(pattern, text))
            num_matches += is_match
            assert accepts(matcher, text) == is_match, (pattern, text)
    assert num_matches > 250


PIECES = (
    *"ab^$.|()[]{}*+?\\-,0123<>=!:#PNdwsbBAZnxuU& \n\t",
    "(?:",
    "(?P<",
    "(?i)",
    "(?s:",
    "[^",
    "{2,3}",
    "\\x4",
    "\\N{DASH}",
    "é",
)


def test_syntax_is_pythons() -> None:
    """What Python cannot compile is invalid, and what it can is read or refused as irregular."""
    rng = random.Random(5)
    num_valid = 0
    for _ in range(4_000):
        pattern = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 8)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(pattern)
            is_valid = True
        except (re.error, OverflowError):
            is_valid = False
        try:
            parse_regex(pattern)
            is_read: bool | None = True
        except UnsupportedGrammarError:
            is_read = None
        except InvalidGrammarError:
            is_read = False
        num_valid += is_valid
        if is_read is not None:
            assert is_read == is_valid, pattern
    assert num_valid > 500


@pytest.mark.parametrize("pattern", ["(.*a){1,300}", "((a*b?){1,40}c?){1,20}"])
def test_regex_that_a_backend_cannot_finish_is_refused_there(pattern: str) -> None:
    spec = GrammarSpec.regex(pattern)
    with pytest.raises(UnsupportedGrammarError, match="nested repetitions"):
        make_backend("xgrammar").check(spec)
    start = time.process_time()
    assert accepts(new_matcher(make_backend("llguidance"), spec), "a" * 200)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "((a{1,40}){1,40}){1,40}", "(a|aa)+", "(x+x+)+y", "(.*)*x", "([a-z!]{1,300},){1,300}"],
)
@pytest.mark.parametrize("name", BACKENDS)
def test_regex_that_makes_backtrackers_hang_does_not_hang(name: str, pattern: str) -> None:
    start = time.process_time()
    accepts(new_matcher(make_backend(name), GrammarSpec.regex(pattern)), "a" * 120 + "!")
    assert time.process_time() - start < 2
