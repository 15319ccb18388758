"""Specs as llguidance reads them: one Lark text each, JSON schemas inside it.

`no_forcing` is on in all of them: otherwise a row allows one spelling of a forced text only, whatever the model would write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...errors import UnsupportedGrammarError
from ..rewrite import rewriting_of
from ..schema_check import each_subschema, map_subschemas
from ..sources import lark_text, read_rules
from ..spec import GrammarSpec

_HEAD = '%llguidance {"no_forcing": true}\n'
_FAR = {"integer": 10**18, "number": 10**15}
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_FINEST_STEP = 1e-9
_MAX_LARK_RULES = 5000
"""Terminals that hold each other some ten thousand deep would overflow even a deep stack, and the process would end."""
_WHITE_SPACE = r"[\x20\x0A\x0D\x09]"


def lark_source(spec: GrammarSpec) -> str:
    """Give the Lark text of a spec.

    Raises:
        UnsupportedGrammarError: llguidance cannot express it, and its own message would not say where.
    """
    if spec.kind == "json_schema":
        return _HEAD + "start: %json " + _schema_text(spec)
    if spec.kind == "structural_tag":
        raise UnsupportedGrammarError("llguidance does not take structural tags", hint="use xgrammar")
    if len(read_rules(spec.kind, spec.source).rules) > _MAX_LARK_RULES:
        raise UnsupportedGrammarError(f"llguidance takes grammars of up to {_MAX_LARK_RULES} rules", hint="use fewer rules")
    return _HEAD + lark_text(spec.kind, spec.source)


def _schema_text(spec: GrammarSpec) -> str:
    if spec.any_order:
        raise UnsupportedGrammarError("llguidance keeps the order of the schema", hint="leave any_order out")
    rewriting = rewriting_of(spec.source, "llguidance")
    schema, text = rewriting.schema, rewriting.text
    if schema is False:
        raise UnsupportedGrammarError("no value can satisfy this schema", pointer="#")
    if spec.max_number_digits is not None and any(map(_is_endless, each_subschema(schema))):
        text = json.dumps(_bound_numbers(schema), ensure_ascii=False)
    inside = text[1:-1] if isinstance(schema, dict) else ""
    options = f'"x-guidance": {json.dumps(_white_space_options(spec))}'
    return f"{{{inside}, {options}}}" if inside else f"{{{options}}}"


def _white_space_options(spec: GrammarSpec) -> dict[str, Any]:
    style = spec.whitespace.style
    if style == "compact":
        return {"whitespace_flexible": False}
    if style == "pattern":
        return {"whitespace_pattern": spec.whitespace.regex}
    if style == "flexible":
        most = spec.whitespace.max_run
        return {"whitespace_flexible": True} if most is None else {"whitespace_pattern": f"{_WHITE_SPACE}{{1,{most}}}"}
    raise UnsupportedGrammarError("llguidance cannot indent", hint="use flexible white space, or xgrammar")


def _is_endless(schema: Any) -> bool:
    return isinstance(schema, dict) and not _ENDLESS.isdisjoint(schema)


_ENDLESS = frozenset(("multipleOf", "exclusiveMinimum", "exclusiveMaximum"))


def _bound_numbers(schema: Any) -> Any:
    """Close what the cap of digits could not end: multiples without a range, and decimals above an excluded bound.

    At the last digit that the cap leaves, no multiple may be in reach, and `0.000...` is not above 0 yet; a range, and a step for
    the decimals, lets the automaton see the end in time.
    """
    if not isinstance(schema, Mapping):
        return schema
    closed = map_subschemas(schema, _bound_numbers)
    kinds = schema.get("type", ["integer", "number"])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    if "multipleOf" in schema:
        far = _FAR["number" if "number" in kinds else "integer"]
        if not {"minimum", "exclusiveMinimum"} & schema.keys():
            closed["minimum"] = min([-far, *(schema[key] for key in _BOUNDS if key in schema)])
        if not {"maximum", "exclusiveMaximum"} & schema.keys():
            closed["maximum"] = max([far, *(schema[key] for key in _BOUNDS if key in schema)])
    elif "number" in kinds and {"exclusiveMinimum", "exclusiveMaximum"} & schema.keys():
        bounds = [schema[key] for key in _BOUNDS if key in schema]
        if all(isinstance(bound, (int, float)) and round(bound, 8) == bound for bound in bounds):
            closed["multipleOf"] = _FINEST_STEP
    return closed
