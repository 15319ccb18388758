"""The kinds of constraint that there are."""

from __future__ import annotations

from typing import Literal

GrammarKind = Literal["json_schema", "regex", "choice", "ebnf", "lark", "structural_tag"]
