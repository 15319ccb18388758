"""The grammar text that xgrammar makes of a schema, mended.

Stands on the standard library only: the compile process loads this file by its path, and parses there, since one schema takes a
millisecond and another one 14 seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

# A length that nobody else writes, to find the runs by.
_PATTERN_RUN = 7_777
_WHITE_SPACE_RUN = re.compile(rf"\bwhitespace(?:_\d+)?\{{0, {_PATTERN_RUN}\}}")
# xgrammar 0.2.9 lets raw control characters into strings with length bounds (JSON forbids them, RFC 8259 section 7), and no
# escapes, so that such a string could hold no quote and no line break.
_NEGATED_CLASS = re.compile(r'"(?:\\.|[^"\\])*"|\[\^((?:\\.|[^\]\\])*)\]')
"""A negated class; or a text, in which there is none."""
_BOUNDED_CHARACTER = r"[^\"\\\r\n]"
_BOUNDED_CHARACTER_OR_ESCAPE = r'(([^\0-\u001f\"\\]) | ("\\" basic_escape))'
# The escape of half a character (a lone surrogate) is no text; both halves together are one character.
_OPEN_ESCAPE = '("u" [A-Fa-f0-9] [A-Fa-f0-9] [A-Fa-f0-9] [A-Fa-f0-9])'
_WHOLE_CHARACTER_ESCAPE = (
    '("u" [A-CEFa-cef0-9] [A-Fa-f0-9] [A-Fa-f0-9] [A-Fa-f0-9]) | ("u" [Dd] [0-7] [A-Fa-f0-9] [A-Fa-f0-9]) | '
    r'("u" [Dd] [89ABab] [A-Fa-f0-9] [A-Fa-f0-9] "\\u" [Dd] [C-Fc-f] [A-Fa-f0-9] [A-Fa-f0-9])'
)
# In the names of undeclared properties xgrammar spells declared ones raw, quotes included, and forgets that an escape spells
# them too. A name may hold an escape only after it differs from every declared one.
_ESCAPE_IN_NAME = re.compile(r""" \| \("\\(?:["\\a-z0]|u00[01][0-9a-f])" (?:\w+_addl_key_\d+|basic_escape basic_string_sub)\)""")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|.)", re.DOTALL)


class SchemaOrder(NamedTuple):
    """A schema and its options, as plain values that can be sent.

    Attributes:
        schema: JSON text, in the words of xgrammar.
        any_order: Whether properties may come in any order.
        max_digits: Digits of a number before and after the point; None is no cap.
        indent: Spaces a level, None for one line.
        max_whitespace: Longest run of free white space, None for no end.
        whitespace_rule: EBNF of white space, instead of a run.
        is_compact: No free white space.
    """

    schema: str
    any_order: bool
    max_digits: int | None
    indent: int | None
    max_whitespace: int | None
    whitespace_rule: str | None
    is_compact: bool


def write_ebnf(order: SchemaOrder, parse: Callable[..., str]) -> str:
    """Give the EBNF of a schema.

    Args:
        order: What to write.
        parse: xgrammar's own parser, to text; takes the arguments of its native core, by position.

    Raises:
        ValueError: xgrammar's rules do not read as expected; a mend that is not made must not go unnoticed.
    """
    # Switching free white space off alone leaves ", " and ": ".
    separators = None if not order.is_compact else (",", ":") if order.indent is None else (",", ": ")
    most = _PATTERN_RUN if order.whitespace_rule is not None else order.max_whitespace
    text = parse(order.schema, not order.is_compact, order.indent, separators, False, most, False, order.any_order)
    ebnf = _repair_strings(_spell_escapes_out(text))
    if order.whitespace_rule is not None:
        ebnf = _put_whitespace(ebnf, order.whitespace_rule)
    return ebnf if order.max_digits is None else _cap_digits(ebnf, order.max_digits)


def _put_whitespace(ebnf: str, rule: str) -> str:
    """Put a rule where xgrammar writes runs of white space."""
    text, count = _WHITE_SPACE_RUN.subn("json_white_space", ebnf)
    if not count:
        raise ValueError("xgrammar's rules do not hold runs of white space")
    return f"{text}\njson_white_space ::= {rule}\n"


def _spell_escapes_out(ebnf: str) -> str:
    r"""Write `\xfc` as `\u00fc`: xgrammar 0.2.9 prints the former, and reads hexadecimal digits after it as part of it."""
    return _ESCAPE.sub(lambda match: rf"\u00{match[1]}" if match[1] else match[0], ebnf)


def _repair_strings(ebnf: str) -> str:
    rules = (_ESCAPE_IN_NAME.sub("", rule) if "_addl_key" in rule.partition(" ::= ")[0] else rule for rule in ebnf.splitlines())
    whole = "\n".join(rules).replace(_OPEN_ESCAPE, _WHOLE_CHARACTER_ESCAPE)
    return _NEGATED_CLASS.sub(_without_surrogates, whole.replace(_BOUNDED_CHARACTER, _BOUNDED_CHARACTER_OR_ESCAPE))


def _without_surrogates(found: re.Match[str]) -> str:
    """Take halves of characters out of a negated class: xgrammar takes their three bytes, which are no UTF-8."""
    return found[0] if found[1] is None else f"[^{found[1]}\\ud800-\\udfff]"


def _cap_digits(ebnf: str, max_digits: int) -> str:
    """Bound the digits of xgrammar's own number rules, which are open; exponents to 279, so that none is infinite."""
    more = f"basic_number_digits{{0, {max_digits - 1}}}"
    bounded = {
        "(basic_integer_1 [1-9] [0-9]*)": f"(basic_integer_1 [1-9] {more})",
        'basic_number_2 ::= (("0") | ([1-9] [0-9]*))': f'basic_number_2 ::= (("0") | ([1-9] {more}))',
        '("." basic_number_digits{1, -1})': f'("." basic_number_digits{{1, {max_digits}}})',
        "([eE] basic_number_4 basic_number_digits{1, -1}))": (
            "([eE] basic_number_4 basic_number_digits{1, 2}) | ([eE] basic_number_4 basic_exponent))\n"
            'basic_exponent ::= (("1" [0-9] [0-9]) | ("2" [0-7] [0-9]))'
        ),
    }
    for open_rule, bounded_rule in bounded.items():
        if open_rule not in ebnf:
            raise ValueError(f"xgrammar's number rules do not hold {open_rule!r}")
        ebnf = ebnf.replace(open_rule, bounded_rule)
    return ebnf
