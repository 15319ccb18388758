"""EBNF, Lark and choices: what is read, what is refused and where, and that both backends take the same texts."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from engine import GrammarError, GrammarSpec, InvalidGrammarError, UnsupportedGrammarError
from engine.grammar.cursor import MAX_GRAMMAR_CHARS
from tests.engine.grammar_backends import BACKENDS, SPECIAL, accepts, allowed, make_backend, new_matcher

MAKERS: dict[str, Any] = {"ebnf": GrammarSpec.ebnf, "lark": GrammarSpec.lark}
# (kind, text, line, column, words of the message)
REFUSED: dict[str, tuple[str, str, int, int, str]] = {
    "E1.e": ("ebnf", 'root ::= root "a"\n', 1, 1, "root can never end"),
    "ring": ("ebnf", 'root ::= "x" | a\na ::= b "y"\nb ::= "(" a ")"\n', 2, 1, "a can never end"),
    "undefined": ("ebnf", 'root ::= word\nwrod ::= "x"\n', 1, 10, "word is not defined"),
    "single-quotes": ("ebnf", "root ::= 'a'\n", 1, 10, "unexpected"),
    "unquoted": ("ebnf", "root ::= yes | no\n", 1, 10, "yes is not defined"),
    "no-root": ("ebnf", 'start ::= "a"\n', 1, 1, "no rule `root`"),
    "twice": ("ebnf", 'root ::= "a"\nroot ::= "b"\n', 2, 1, "defined twice"),
    "empty-rule": ("ebnf", "root ::= a\na ::= # nothing\n", 2, 6, "says nothing"),
    "class-in-text": ("ebnf", r'root ::= "\d"', 1, 11, "unknown escape"),
    "token-by-name": ("ebnf", "root ::= <think> [a-z]* </think>", 1, 10, "a token by name"),
    "open-text": ("ebnf", 'root ::= "a\n', 1, 10, "never closed"),
    "open-class": ("ebnf", "root ::= [a-z\n", 1, 10, "never closed"),
    "backwards": ("ebnf", "root ::= [z-a]\n", 1, 11, "backwards"),
    "open-group": ("ebnf", 'root ::= ("a"\nx ::= "b"', 1, 10, "never closed"),
    "closing": ("ebnf", 'root ::= "a")', 1, 13, "unexpected"),
    "escape": ("ebnf", r'root ::= "\q"', 1, 11, "unknown escape"),
    "surrogate": ("ebnf", r'root ::= "\ud800"', 1, 11, "no character"),
    "bounds": ("ebnf", 'root ::= "a"{3,2}', 1, 13, "larger than the most"),
    "number": ("ebnf", 'root ::= "a"{x}', 1, 14, "a number"),
    "huge": ("ebnf", 'root ::= "a"{9999999}', 1, 13, "repetitions"),
    "unfolds": ("ebnf", 'root ::= ("a"{1000}){1000}', 1, 1, "unfolds"),
    "macro": ("ebnf", 'root ::= TagDispatch(("a", x))', 1, 10, "TagDispatch"),
    "look-ahead": ("ebnf", 'root ::= "a" (= "b")', 1, 14, "look-ahead"),
    "nul": ("ebnf", 'root ::= "a\0"', 1, 12, "NUL"),
    "lark-in-ebnf": ("ebnf", 'start: "a"\n', 1, 6, "`::=` must follow"),
    "prose": ("ebnf", "Say yes or no.", 1, 5, "`::=` must follow"),
    "never": ("ebnf", "root ::= []", 1, 1, "can never end"),
    "S4b": ("lark", 'start: head\n\nhead: tail "a"\n', 3, 7, "tail is not defined"),
    "lark-column": ("lark", 'start: a\na: "x"\n | "y" (bb)\n', 3, 9, "bb is not defined"),
    "lark-single-quotes": ("lark", "start: 'a'\n", 1, 8, "unexpected"),
    "lark-no-start": ("lark", 'root: "a"\n', 1, 1, "no rule `start`"),
    "lark-never": ("lark", 'start: start "a"\n', 1, 1, "start can never end"),
    "lark-never-both": ("lark", 'start: "x" a\na: A\nA: /[a-c]+/ & /[0-9]*/\n', 1, 1, "start can never end"),
    "lark-never-ahead": ("lark", 'start: "x" | a\na: /a(?=b)/\n', 2, 1, "a can never end"),
    "terminal-ring": ("lark", 'start: A\nA: B "x"\nB: "b" | A\n', 2, 1, "calls itself"),
    "terminal-calls-rule": ("lark", 'start: A\nA: b\nb: "x"\n', 2, 4, "calls the rule b"),
    "token-in-terminal": ("lark", 'start: A\nA: "a" <[3]>\n', 2, 8, "token by id"),
    "lark-regex": ("lark", 'start: "a"\n\t| /x(/\n', 2, 6, "never closed"),
    "lark-look-behind": ("lark", 'start: "a" /b(?<=x)/\n', 1, 14, "look-behind"),
    "lark-open-regex": ("lark", "start: /ab\n", 1, 8, "never closed"),
    "lark-tabs": ("lark", 'start:\t"a"\n\t|\tb\n', 2, 4, "b is not defined"),
    "template": ("lark", 'start: pair{a}\na: "x"\n', 1, 12, "templates"),
    "template-head": ("lark", 'pair{x}: x\nstart: "a"\n', 1, 5, "templates"),
    "import": ("lark", "%import python.NAME\nstart: NAME\n", 1, 1, "another file"),
    "import-name": ("lark", "%import common.NOPE\nstart: NOPE\n", 1, 16, "common has no NOPE"),
    "declare": ("lark", '%declare A\nstart: "a"\n', 1, 1, "%declare"),
    "engine-options": ("lark", '%llguidance {"no_forcing": false}\nstart: "a"\n', 1, 1, "not passed on"),
    "options": ("lark", "start[max_tokens=3]: /a/\n", 1, 6, "options"),
    "lark-both": ("lark", 'start: "a" & "b"\n', 1, 12, "outside a terminal"),
    "lark-other": ("lark", 'start: ~"b"\n', 1, 8, "outside a terminal"),
    "lark-json": ("lark", 'start: %json {"type": "strnig"}\n', 1, 8, "#/type"),
    "lark-json-unmasked": (
        "lark",
        'start: "x"\n| %json {"type": "array", "items": {"type": "string"}, "uniqueItems": true}\n',
        2,
        3,
        "#/uniqueItems",
    ),
    "lark-json-impossible": ("lark", 'start: %json {"enum": []}\n', 1, 8, "no value can satisfy"),
    "lark-json-text": ("lark", "start: %json {type}\n", 1, 15, "not JSON"),
    "grammar-name": ("lark", "start: @other\n", 1, 8, "other grammars"),
    "token-range": ("lark", "start: <[5-1]>\n", 1, 8, "token ids look like"),
    "lark-range": ("lark", 'start: "ab".."c"\n', 1, 8, "single characters"),
    "ebnf-in-lark": ("lark", 'start ::= "a"\n', 1, 8, "`::`"),
    "lark-surrogate": ("lark", r'start: "\ud800"', 1, 8, "surrogate"),
}


@pytest.mark.parametrize(("kind", "text", "line", "column", "words"), REFUSED.values(), ids=REFUSED)
def test_grammar_error_names_line_and_column(kind: str, text: str, line: int, column: int, words: str) -> None:
    with pytest.raises((InvalidGrammarError, UnsupportedGrammarError)) as caught:
        MAKERS[kind](text)
    assert words in str(caught.value)
    assert f"line {line}, column {column}" in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_undefined_rule_is_answered_with_a_near_one() -> None:
    with pytest.raises(InvalidGrammarError) as caught:
        GrammarSpec.ebnf('root ::= numbr\nnumber ::= "1"\n')
    assert caught.value.hint == "did you mean number?"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ebnf", "root ::= " + "(" * 20_000),
        ("ebnf", 'root ::= r0\nr19999 ::= "a"\n' + "".join(f"r{i} ::= r{i + 1}\n" for i in range(19_999))),
        ("lark", "start: " + "(" * 20_000),
        ("lark", "start: " + "[" * 20_000 + '"a"' + "]" * 20_000),
        ("lark", "start: %json " + '{"items":' * 20_000 + "{}" + "}" * 20_000),
        ("lark", "start: A0\nA" + "\nA".join(f"{i}: A{i + 1} A{i + 1}" for i in range(6000)) + '\nA6000: "x"'),
        ("ebnf", 'root ::= "' + "a" * MAX_GRAMMAR_CHARS + '"'),
        ("ebnf", "root ::= " + " | ".join(f"x{i}" for i in range(20_000)) + "\n"),
    ],
    ids=["groups", "chain", "lark-groups", "maybes", "json", "doubling", "long", "wide"],
)
def test_large_grammar_is_checked_at_once(kind: str, text: str) -> None:
    start = time.process_time()
    try:
        MAKERS[kind](text)
    except GrammarError:
        pass
    assert time.process_time() - start < 12


# (kind, text, accepted, refused, backends that take it)
BOTH = ("xgrammar", "llguidance")
GRAMMARS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "E1.f": ("ebnf", 'root ::= root "a" | "b"\n', ("b", "ba", "baa"), ("", "a", "ab"), ("xgrammar",)),
    "hidden-left": ("ebnf", 'root ::= empty root "a" | "b"\nempty ::= ""\n', ("b", "ba"), ("", "a"), ("xgrammar",)),
    "self": ("ebnf", 'root ::= root | "x"\n', ("x",), ("", "xx"), ("xgrammar",)),
    "brackets": ("ebnf", 'root ::= "(" root ")" | ""\n', ("", "()", "(())"), ("(", ")(", "(()"), ("xgrammar",)),
    "flat": ("ebnf", 'root ::= word ("," word){0,2}\nword ::= [a-z]+ | ab\nab ::= "A" "B"?\n',
        ("x", "a,AB,c"), ("", "a,", "B"), BOTH),
    "unused": ("ebnf", '# a comment\nroot ::= "a" # more\n  | "b"\nunused ::= root unused | "c"\n',
        ("a", "b"), ("c",), ("xgrammar",)),
    "escapes": ("ebnf", r'root ::= "\"\\\n\x41\u00e9\U0001F600" [\]\-\\^a-c\n]' + "\n",
        ('"\\\nAé😀]', '"\\\nAé😀\n'), ("", "A"), BOTH),
    "llama.cpp-4799": ("ebnf", 'root ::= "a" ws "b"\nws ::= | " " | "\\n" [ \\t]{0,2}\n',
        ("ab", "a b", "a\n\tb"), ("a  b",), BOTH),
    "empty-sides": ("ebnf", 'root ::= ("a" | ) "b" ("c" || "d") x\nx ::= "x" |\n', ("b", "abcx", "bd"), ("", "ac"), BOTH),
    "any": ("ebnf", 'root ::= . "-" ..? x.y\nx.y ::= "z"\n', ("a-bz", "\n-é🙂z"), ("-z", "a-z"), BOTH),
    "most-only": ("ebnf", 'root ::= "a"{ ,2} "b"\n', ("b", "aab"), ("aaab",), BOTH),
    "punctuation": ("ebnf", r'root ::= "\/\-\." [\-\/]' + "\n", ("/-.-", "/-./"), ("-",), BOTH),
    "gbnf-token": ("ebnf", f'root ::= "a" <[{SPECIAL}]> "b"\n', (), ("ab",), ("xgrammar",)),
    "hex-after-escape": ("ebnf", 'root ::= "üe5"\n', ("üe5",), ("ü5", "ue5"), BOTH),
    "negated": ("ebnf", r'root ::= [^"\\\x00-\x1f]*' + "\n", ("", "é 🙂"), ('"', "\n", "\\"), BOTH),
    "names": ("ebnf", 'root ::= my-rule.x true\nmy-rule.x ::= "a"\ntrue ::= "b"\n', ("ab",), ("a",), BOTH),
    "overlap": ("ebnf", 'root ::= ("a" | "ab") "b" [a-z]* "z"\n', ("abz", "abbz", "abzz"), ("ab", "abb", "z"), BOTH),
    "twice": ("ebnf", 'root ::= "ab"{2}+\n', ("abab", "abababab"), ("", "ab", "ababab"), BOTH),
    "token": ("ebnf", f'root ::= "a" Token({SPECIAL}) "b"\n', (), ("ab",), ("xgrammar",)),
    "lark": ("lark", '?start: item ("," item)* -> list\nitem.2: WORD | "<" start ">"\nWORD: /[a-z]+/\n',
        ("a", "a,<b,c>"), ("", "a,"), BOTH),
    "lark-tabs": ("lark", 'start:\t"a"\n\t|\tb\t// comment\nb:\t"x\ty"\t# more\n', ("a", "x\ty"), ("x y",), BOTH),
    "lark-import": ("lark", "%import common (INT, CNAME)\n%import common.WORD -> W\nstart: INT | CNAME | W\n",
        ("12", "_a1"), ("1a",), BOTH),
    "lark-ranges": ("lark", 'start: "a".."c" [ "-" ] "x"~2 "y"{1,} "Z"i\n',
        ("axxyz", "c-xxyyZ"), ("dxxyz", "axyz", "axxz"), BOTH),
    "lark-flags": ("lark", 'start: /a.b/is | /x\\/y/\n', ("A\nB", "x/y"), ("ab",), BOTH),
    "lark-several-lines": ("lark", 'start: ("a"\n  | "b")\n  "c"\n\n', (), (), ()),
    "lark-group-lines": ("lark", 'start: ("a"\n  | "b"\n  ) "c"\n', ("ac", "bc"), ("a",), BOTH),
    "lark-left": ("lark", 'start: start "a" | "b"\n', ("b", "baa"), ("", "a"), BOTH),
    "lark-unicode": ("lark", r'start: "é\u00fce5\ud83d\ude00"' + "\n", ("éüe5😀",), ("éü",), BOTH),
    "lark-ignore": ("lark", '%ignore " "+\nstart: "a" "b"\n', ("ab", "a  b"), ("a", "ba"), ("llguidance",)),
    "lark-both": ("lark", "start: A\nA: /[a-z]+/ & ~/.*foo.*/\n", ("bar", "fo"), ("foo", "afoob"), ("llguidance",)),
    "lark-look-ahead": ("lark", 'start: "<" /(?!foo)[a-z]+/ ">"\n', ("<bar>", "<fo>"), ("<foo>", "<food>"), ("llguidance",)),
    "lark-lazy": ("lark", 'start: a "c"\na[lazy]: /[a-z]*b/\n', ("abc",), ("abbc", "ac"), ("llguidance",)),
    "lark-json-not": ("lark", 'start: %json {"type": "string", "not": {"const": "x"}}\n', ('"xx"',), ('"x"',), ("llguidance",)),
    "lark-json": ("lark", 'start: "x=" %json {"type": "integer"}\n', ("x=12",), ("x=", "x= 1", "x=a"), ("llguidance",)),
    "lark-property": ("lark", r"start: /\p{Lu}+/" + "\n", ("ÄB",), ("a",), ("llguidance",)),
    "lark-empty": ("lark", 'start: "a" x\nx:\n | "b"\n', ("a", "ab"), ("", "b"), BOTH),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(("kind", "text", "accepted", "refused", "backends"), GRAMMARS.values(), ids=GRAMMARS)
def test_grammar_takes_its_texts(
    name: str, kind: str, text: str, accepted: tuple[str, ...], refused: tuple[str, ...], backends: tuple[str, ...]
) -> None:
    if not backends:
        with pytest.raises(InvalidGrammarError):
            MAKERS[kind](text)
        return
    spec = MAKERS[kind](text)
    if name not in backends:
        with pytest.raises(UnsupportedGrammarError) as caught:
            make_backend(name).check(spec)
        assert caught.value.hint or caught.value.line
        return
    matcher = new_matcher(make_backend(name), spec)
    for answer in accepted:
        assert accepts(matcher, answer), answer
    for answer in refused:
        assert not accepts(matcher, answer), answer


@pytest.mark.parametrize("terminal", ['~"a"', '~"a" & ~"b"', '"c"? ~/[ab]*/', '~(~"a")', r"~/\p{Lu}/"])
def test_complement_is_of_texts_and_not_of_bytes(terminal: str) -> None:
    matcher = new_matcher(make_backend("llguidance"), GrammarSpec.lark(f"start: A\nA: {terminal}\n"))
    assert accepts(matcher, "é") == (terminal != '~(~"a")')
    assert not any(accepts(matcher, data) for data in (b"\xb9", b"\xff", b"\xed\xa0\x80", b"x\xc3"))


@pytest.mark.parametrize("name", BACKENDS)
def test_token_by_id_is_one_token(name: str) -> None:
    spec = GrammarSpec.lark(f'start: "a" <[{SPECIAL}]> "b"\n')
    matcher = new_matcher(make_backend(name), spec)
    assert matcher.accept_tokens([ord("a")])
    assert allowed(matcher) == [SPECIAL]
    assert matcher.accept_tokens([SPECIAL, ord("b")])
    assert matcher.is_completed()
    matcher.rollback(2)
    assert not matcher.accept_tokens([ord("b")])
    assert matcher.fork().accept_tokens([SPECIAL])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", ["ebnf", "lark"])
def test_F14_token_outside_the_vocabulary_is_this_requests_error(name: str, kind: str) -> None:
    gap = {"ebnf": 'root ::= gap Token(151668) answer\ngap ::= [\\n]*\nanswer ::= "x"\n',
           "lark": 'start: gap <[151668]> answer\ngap: /\\n*/\nanswer: "x"\n'}[kind]  # fmt: skip
    spec = MAKERS[kind](gap)
    backend = make_backend(name)
    with pytest.raises(UnsupportedGrammarError, match="151668"):
        backend.check(spec)
    assert accepts(new_matcher(backend, GrammarSpec.regex("ok")), "ok")


CHOICES = (
    "yes", "no", "", "a\nb", 'say "hi"\\', "é", "日本語", "🙂", "\u2028", "\x00\x1f\x7f", "a", "ab", "üe5", "]", "|", "a b ",
    "\\u0041", "::=",
)  # fmt: skip


@pytest.mark.parametrize("name", BACKENDS)
def test_choice_is_exactly_its_list(name: str) -> None:
    matcher = new_matcher(make_backend(name), GrammarSpec.choice(CHOICES))
    for text in CHOICES:
        assert accepts(matcher, text), text
        if text + "a" not in CHOICES:
            assert not accepts(matcher, text + "a")
        if text and text[:-1] not in CHOICES:
            assert not accepts(matcher, text[:-1])
    assert not accepts(matcher, "YES")


@pytest.mark.parametrize("name", BACKENDS)
def test_choice_of_any_unicode_is_exact(name: str) -> None:
    rng = random.Random(name)
    points = [*range(0xD800), *range(0xE000, 0x110000)]
    for _ in range(10):
        choices = list({"".join(map(chr, rng.choices(points, k=rng.randint(1, 4)))) for _ in range(40)})
        matcher = new_matcher(make_backend(name), GrammarSpec.choice(choices))
        assert all(accepts(matcher, text) for text in choices)
        assert not any(accepts(matcher, text + chr(rng.choice(points))) for text in choices)


@pytest.mark.parametrize("name", BACKENDS)
def test_E13_large_choice_is_quick(name: str) -> None:
    start = time.process_time()
    matcher = new_matcher(make_backend(name), GrammarSpec.choice([f"v{number:05}" for number in range(20_000)]))
    assert accepts(matcher, "v12345")
    assert not accepts(matcher, "v20000")
    assert time.process_time() - start < 10


@pytest.mark.parametrize("choices", [[], "yes", [1], ["a", None], [""], ["a\ud800"], {"a": 1}, None, ["x"] * 100_001], ids=repr)
def test_impossible_choice_is_refused(choices: Any) -> None:
    with pytest.raises(InvalidGrammarError):
        GrammarSpec.choice(choices)


LARK_PIECES = (
    '"a"', '"b"i', "/x+/", "/(/", "A", "start", "b", "(", ")", "[", "]", "|", "*", "+", "?", "~2", "{1,2}", ":", "::=", "\n",
    "\n\n", "<[3]>", "<|x|>", "%json {}", "%ignore", "%import common.INT", "->", "&", "~", "'", "\\", "#", "//", "\t", "é",
    "[lazy]", "..",
)  # fmt: skip
EBNF_PIECES = (
    '"a"', '"b"', "[a-z]", "[^\\n]", "b", "b", "root", "(", ")", "|", "*", "+", "?", "{2}", "[", "(=", "{1,", "::=", "\n",
    "Token(3)", '"', "\\", "#", "\0", "é",
)  # fmt: skip


def read_or_refuse(kind: str, text: str) -> str | None:
    """`read`, `refused`, or None for an error without a place."""
    try:
        MAKERS[kind](text)
    except GrammarError as error:
        return "refused" if error.line is not None else None
    return "read"


@pytest.mark.parametrize("kind", ["ebnf", "lark"])
def test_any_text_is_read_or_refused_with_a_typed_error(kind: str) -> None:
    rng = random.Random(kind)
    pieces = {"ebnf": EBNF_PIECES, "lark": LARK_PIECES}[kind]
    head = {"ebnf": "root ::= ", "lark": "start: "}[kind]
    outcomes = [read_or_refuse(kind, head + " ".join(rng.choices(pieces, k=rng.randint(1, 12)))) for _ in range(3_000)]
    assert None not in outcomes
    assert outcomes.count("read") > 60


@pytest.mark.parametrize("kind", ["ebnf", "lark", "regex"])
def test_any_bytes_are_read_or_refused_with_a_typed_error(kind: str) -> None:
    rng = random.Random(kind)
    maker = {**MAKERS, "regex": GrammarSpec.regex}[kind]
    for _ in range(2_000):
        text = rng.randbytes(rng.randint(1, 60)).decode("latin-1")
        try:
            maker(text)
        except GrammarError:
            pass


def test_what_was_read_compiles() -> None:
    """Whatever admission lets through, one backend takes, and neither crashes."""
    rng = random.Random(3)
    num_compiled = 0
    for _ in range(400):
        text = "root ::= " + " ".join(rng.choice(EBNF_PIECES[:14]) for _ in range(rng.randint(1, 8))) + '\nb ::= "c"\n'
        try:
            spec = GrammarSpec.ebnf(text)
        except GrammarError:
            continue
        num_compiled += 1
        new_matcher(make_backend("xgrammar"), spec)
    assert num_compiled > 20


def test_equal_choices_make_equal_grammars() -> None:
    assert json.loads(GrammarSpec.choice(["b", "a", "b"]).source) == ["b", "a"]
