"""What a request gets from the grammar manager: the compiled grammar, and how it came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .matcher import CompiledGrammar, Matcher

CacheUse = Literal["none", "memory", "disk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedGrammar:
    """A compiled grammar and where it comes from.

    Attributes:
        compiled: Shared by all requests of the spec.
        backend: Name of the backend that compiled it.
        reason: Why this backend.
        unenforced: JSON pointers of keywords that its masks do not enforce.
        compile_s: Seconds that compiling took when it was done.
        cache: Where this request found it; `none` where it was compiled for it.
        shared: The same grammar, whose sequences share the masks that they meet; None where they do not.
    """

    compiled: CompiledGrammar
    backend: str
    reason: str
    unenforced: tuple[str, ...] = ()
    compile_s: float = 0.0
    cache: CacheUse = "none"
    shared: CompiledGrammar | None = None

    def new_matcher(self, stop_token_ids: Sequence[int]) -> Matcher:
        """Make a matcher at the start of the grammar; see `CompiledGrammar.new_matcher`."""
        return (self.shared or self.compiled).new_matcher(stop_token_ids)


@dataclass(slots=True)
class GrammarCounts:
    """What a manager did since it was made.

    Attributes:
        compiles: Compiles that were begun for a request.
        upgrades: Compiles that were begun for later requests, in the background.
        memory_hits: Requests that found their grammar ready.
        disk_hits: Grammars that were loaded instead of compiled.
        cancelled: Compiles that nobody waited for any more.
        failed: Compiles that ended with an error.
    """

    compiles: int = 0
    upgrades: int = 0
    memory_hits: int = 0
    disk_hits: int = 0
    cancelled: int = 0
    failed: int = 0
