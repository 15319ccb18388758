"""What becomes of every keyword of a schema: masked, checked on the finished value, or refused; per backend.

The report is read off the schema that a backend is given (`rewrite/`): a keyword that is not in it is checked afterwards. Tests
prove both ways on the installed backends, so that a new version of one makes a test fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from ..errors import UnsupportedGrammarError
from .inner_schemas import unmasked
from .rewrite import BACKENDS, JsonSchema, Rewriting, program_of, rewriting_of
from .rewrite.expand import ASSERTING
from .schema_check import walk_schemas
from .sources import ebnf_text, lark_text
from .spec import GrammarSpec
from .structural_tag import tag_schemas

Status = Literal["masked", "checked", "refused"]
MAX_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class SupportEntry:
    """One keyword at one place.

    Attributes:
        pointer: JSON pointer of the keyword, `#/...`; of the whole constraint, `#`.
        keyword: Its name; for a constraint that is no schema, its kind.
        status: Per backend what becomes of it.
        note: Why it is not masked, or what it allows that a mask does not; else empty.
    """

    pointer: str
    keyword: str
    status: Mapping[str, Status]
    note: str = ""


@dataclass(frozen=True, slots=True)
class SupportReport:
    """What becomes of a constraint, keyword by keyword, in the order of the schema.

    Attributes:
        may_repeat_names: Whether masks let a property name come twice in an object, which no keyword forbids and the check of the
            finished value refuses: so wherever an object may hold undeclared names.
    """

    entries: tuple[SupportEntry, ...]
    backends: tuple[str, ...] = BACKENDS
    may_repeat_names: bool = False

    def checked(self, backend: str) -> tuple[str, ...]:
        """Give the pointers of keywords that the masks of a backend do not enforce: check these on the finished value."""
        return self._with_status(backend, "checked")

    def masked(self, backend: str) -> tuple[str, ...]:
        """Give the pointers of keywords that the masks of a backend enforce."""
        return self._with_status(backend, "masked")

    def refused(self, backend: str) -> tuple[str, ...]:
        """Give the pointers of what a backend does not take at all."""
        return self._with_status(backend, "refused")

    def _with_status(self, backend: str, status: Status) -> tuple[str, ...]:
        return tuple(entry.pointer for entry in self.entries if entry.status.get(backend) == status)


def support_report(spec: GrammarSpec) -> SupportReport:
    """Tell what becomes of a constraint; builds no mask.

    Raises:
        InvalidGrammarError: The schema is beyond what can be handled; `pointer` names the place.
        UnsupportedGrammarError: A reference that leaves the schema.
    """
    if spec.kind == "json_schema":
        return _with_options(spec, _schema_report(spec.source))
    status, reasons = _text_status(spec)
    entry = SupportEntry("#", spec.kind, status, "; ".join(reasons))
    return SupportReport((entry, *_tag_entries(spec.source)) if spec.kind == "structural_tag" else (entry,))


@lru_cache(maxsize=MAX_REMEMBERED)
def _tag_entries(source: str) -> tuple[SupportEntry, ...]:
    """Say what becomes of the schemas inside a tag: nobody checks them afterwards, so what is not masked is refused."""
    entries = []
    for place, schema in tag_schemas(source):
        missed = unmasked(schema, "xgrammar")
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        for pointer in dict.fromkeys((*_asserting_pointers(text), *missed)):
            found: Status = "refused" if pointer in missed else "masked"
            status: dict[str, Status] = {"xgrammar": found, "llguidance": "refused"}
            entries.append(SupportEntry(place + pointer[1:], _keyword(pointer), status, missed.get(pointer, "")))
    return tuple(entries)


class Enforcement:
    """What a report says of single backends, each looked at when it is asked for: rewriting for one costs as much as reading.

    Args:
        spec: The constraint.
    """

    backends = BACKENDS

    def __init__(self, spec: GrammarSpec) -> None:
        self._spec = spec

    def checked(self, backend: str) -> tuple[str, ...]:
        """As `SupportReport.checked`."""
        spec = self._spec
        if spec.kind != "json_schema" or backend not in BACKENDS or (spec.any_order and backend == "xgrammar"):
            return support_report(spec).checked(backend)
        return _checked(spec.source, backend)

    def narrowed(self, backend: str) -> tuple[str, ...]:
        """Give the pointers of keywords that allow values which this backend never writes."""
        if self._spec.kind != "json_schema" or backend not in BACKENDS:
            return ()
        return tuple(sorted(rewriting_of(self._spec.source, backend).narrowed))

    def may_do_worse(self, backend: str) -> bool:
        """Whether another backend may enforce more than this one, or write more; asks this one only."""
        spec = self._spec
        if spec.kind != "json_schema" or backend not in BACKENDS:
            return bool(self.checked(backend))
        rewriting = rewriting_of(spec.source, backend)
        return bool(rewriting.narrowed) or not rewriting.left_out.issuperset(rewriting.checked)

    def refused(self, backend: str) -> tuple[str, ...]:
        """As `SupportReport.refused`."""
        if self._spec.kind != "json_schema":
            return support_report(self._spec).refused(backend)
        options = _with_options(self._spec, SupportReport(()))
        return options.refused(backend)


@lru_cache(maxsize=MAX_REMEMBERED * len(BACKENDS))
def _checked(source: str, backend: str) -> tuple[str, ...]:
    missed = rewriting_of(source, backend).checked
    if len(missed) < 2:
        return tuple(missed)
    places = {pointer: number for number, pointer in enumerate(dict.fromkeys(_asserting_pointers(source)))}
    return tuple(sorted(missed, key=lambda pointer: (places.get(pointer, len(places)), pointer)))


def _asserting_pointers(source: str) -> Iterator[str]:
    for node in program_of(source).graph.nodes:
        yield from (node.where(keyword) for keyword in node.keywords if keyword in ASSERTING)


def _text_status(spec: GrammarSpec) -> tuple[dict[str, Status], list[str]]:
    """Say which backends can express a constraint that is no schema, and why the others cannot."""
    status: dict[str, Status] = {}
    reasons = []
    spell = {"xgrammar": ebnf_text, "llguidance": lark_text}
    for name in BACKENDS:
        status[name] = "masked"
        try:
            if spec.kind != "structural_tag":
                spell[name](spec.kind, spec.source)
            elif name != "xgrammar":
                raise UnsupportedGrammarError(f"{name} does not take structural tags")
        except UnsupportedGrammarError as error:
            status[name] = "refused"
            reasons.append(str(error))
    return status, reasons


def _with_options(spec: GrammarSpec, report: SupportReport) -> SupportReport:
    """Take in what the options of a request change."""
    entries = report.entries
    if spec.any_order:
        note = "in any order it is only seen at the end whether all are there"
        entries = tuple(
            replace(entry, status={**entry.status, "xgrammar": "checked"}, note=note) if entry.keyword == "required" else entry
            for entry in entries
        )
    if spec.any_order or spec.whitespace.style == "indented":
        option = "any_order" if spec.any_order else "whitespace"
        status: dict[str, Status] = {"xgrammar": "masked", "llguidance": "refused"}
        entries = (*entries, SupportEntry("#", option, status, f"this backend has no {option} like that"))
    return replace(report, entries=entries)


def rewritten_schema(spec: GrammarSpec, *, backend: str) -> JsonSchema:
    """Give the schema of a spec in the words of a backend, not to be changed."""
    return rewriting_of(spec.source, backend).schema


def refuse_unenforced(spec: GrammarSpec, report: SupportReport, backend: str) -> None:
    """Refuse a strict spec of which the masks of a backend enforce only a part.

    Raises:
        UnsupportedGrammarError: It asks for more than the masks enforce; `pointer` names the first place.
    """
    checked = report.checked(backend)
    if spec.strict and checked:
        entry = next(entry for entry in report.entries if entry.pointer == checked[0])
        others = f" ({len(checked) - 1} more places)" if len(checked) > 1 else ""
        raise UnsupportedGrammarError(
            f"{entry.keyword} cannot be enforced while the answer is written, and strict was asked for: {entry.note}{others}",
            pointer=entry.pointer,
            hint="leave strict out: it is checked on the finished value then",
        )


@lru_cache(maxsize=MAX_REMEMBERED)
def _schema_report(source: str) -> SupportReport:
    rewritings = {backend: rewriting_of(source, backend) for backend in BACKENDS}
    pointers = dict.fromkeys(_asserting_pointers(source))
    pointers.update(dict.fromkeys(sorted(pointer for found in rewritings.values() for pointer in found.checked)))
    entries = (*(_entry(pointer, rewritings) for pointer in pointers), *_foreign_entries(source))
    is_open = any(_is_open(place.schema) for found in rewritings.values() for place in walk_schemas(found.schema))
    return SupportReport(entries, may_repeat_names=is_open)


def _foreign_entries(source: str) -> Iterator[SupportEntry]:
    """Name words of other languages that look as if they said something."""
    for node in program_of(source).graph.nodes:
        if node.keywords.get("nullable") is True:
            note = "a word of OpenAPI 3.0 that says nothing in a JSON schema: name null among the types to allow it"
            yield SupportEntry(node.where("nullable"), "nullable", dict.fromkeys(BACKENDS, "masked"), note)


def _is_open(schema: Any) -> bool:
    """Whether a rewritten schema takes objects with names that it does not list."""
    if not isinstance(schema, dict):
        return bool(schema)
    if not schema.keys() - {"$defs"}:
        return True
    is_object = "object" in schema.get("type", ())
    return is_object and (schema.get("additionalProperties") is not False or bool(schema.get("patternProperties")))


def _entry(pointer: str, rewritings: Mapping[str, Rewriting]) -> SupportEntry:
    status: dict[str, Status] = {name: "checked" if pointer in found.checked else "masked" for name, found in rewritings.items()}
    said = [notes[pointer] for found in rewritings.values() for notes in (found.checked, found.narrowed) if pointer in notes]
    return SupportEntry(pointer, _keyword(pointer), status, "; ".join(dict.fromkeys(said)))


def _keyword(pointer: str) -> str:
    return pointer.rsplit("/", 1)[-1].replace("~1", "/").replace("~0", "~")
