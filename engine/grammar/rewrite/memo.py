"""Remember what was read and rewritten lately: admission, choice of a backend and compiling all ask for the same schema."""

from __future__ import annotations

import json
from functools import lru_cache

from .backends import Rewriting, rewrite
from .program import Program

MAX_PROGRAMS = 4
"""A large schema is some hundred thousand objects, which every pass of the garbage collector walks through."""
MAX_REWRITINGS = 16


@lru_cache(maxsize=MAX_PROGRAMS)
def program_of(source: str) -> Program:
    """Read a schema from its JSON text.

    Raises:
        InvalidGrammarError: A reference that leads nowhere or back to itself, or more places than can be handled.
        UnsupportedGrammarError: A reference that leaves the schema.
    """
    return Program(json.loads(source))


@lru_cache(maxsize=MAX_REWRITINGS)
def rewriting_of(source: str, backend: str) -> Rewriting:
    """Rewrite a schema from its JSON text for a backend; raises as `program_of` does."""
    return rewrite(program_of(source), backend=backend)
