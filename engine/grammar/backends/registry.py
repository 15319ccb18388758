"""The grammar backends by name: the two that ship, and others that installed packages bring.

A package offers one as an entry point of the group `thinkgate.grammar_backends`, which names a function from a `Vocabulary` to a
`GrammarBackend`. Backends are imported when they are first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from ...errors import BackendLoadError, UnknownBackendError
from ..matcher import GrammarBackend
from ..vocabulary import Vocabulary

ENTRY_POINT_GROUP = "thinkgate.grammar_backends"
BackendFactory = Callable[[Vocabulary], GrammarBackend]
_VERBS = ("check", "compile", "fill_bitmasks")


def backend_names() -> tuple[str, ...]:
    """List the backends: the shipped ones in order of preference, then the installed ones by name."""
    return (*_SHIPPED, *sorted(set(_installed()) - set(_SHIPPED)))


def load_backend(name: str, vocabulary: Vocabulary) -> GrammarBackend:
    """Make the backend `name` for a vocabulary.

    Raises:
        UnknownBackendError: There is none of that name.
        BackendLoadError: It cannot be imported, fails to start, or is no backend.
    """
    if name in _SHIPPED:
        return _SHIPPED[name](vocabulary)
    entries = _installed().get(name, [])
    if not entries:
        raise UnknownBackendError(f"there is no grammar backend {name!r}", hint=f"there are {', '.join(backend_names())}")
    if len(entries) > 1:
        raise BackendLoadError(f"several packages bring a grammar backend {name!r}: {', '.join(map(_origin, entries))}")
    return _load(entries[0], vocabulary)


def _load(entry: EntryPoint, vocabulary: Vocabulary) -> GrammarBackend:
    try:
        backend = entry.load()(vocabulary)
    except Exception as error:  # it is foreign code and may raise anything
        raise BackendLoadError(f"the grammar backend {entry.name!r} of {_origin(entry)} does not load: {error!r}") from error
    missing = [verb for verb in _VERBS if not callable(getattr(backend, verb, None))]
    if missing:
        raise BackendLoadError(f"the grammar backend {entry.name!r} of {_origin(entry)} cannot {' or '.join(missing)}")
    if getattr(backend, "name", None) != entry.name:
        raise BackendLoadError(
            f"the grammar backend {entry.name!r} of {_origin(entry)} calls itself {getattr(backend, 'name', None)!r}"
        )
    checked: GrammarBackend = backend
    return checked


def _installed() -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(entry.name, []).append(entry)
    return found


def _origin(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _load_llguidance(vocabulary: Vocabulary) -> GrammarBackend:
    from .llguidance_backend import LLGuidanceBackend

    return LLGuidanceBackend(vocabulary)


def _load_xgrammar(vocabulary: Vocabulary) -> GrammarBackend:
    from .xgrammar_backend import XGrammarBackend

    return XGrammarBackend(vocabulary, num_threads=1)


_SHIPPED: dict[str, BackendFactory] = {"xgrammar": _load_xgrammar, "llguidance": _load_llguidance}
