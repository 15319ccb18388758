"""Schemas rewritten so that a backend can enforce them: the same meaning in the words that the backend reads.

`graph.py` reads a schema, `expand.py` writes it as alternatives, `program.py` finds all its places, and the emitters write it for
a backend. What a backend cannot say is left out and named.
"""

from __future__ import annotations

from .backends import BACKENDS, Rewriting, rewrite, rewrite_schema
from .memo import program_of, rewriting_of
from .program import Program
from .share import JsonSchema

__all__ = ["BACKENDS", "JsonSchema", "Program", "Rewriting", "program_of", "rewrite", "rewrite_schema", "rewriting_of"]
