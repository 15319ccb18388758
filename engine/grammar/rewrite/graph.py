"""A schema as a graph: every subschema a node, every reference a link, every keyword in the words of 2020-12.

Built without recursion, so that no depth of a schema can exhaust the stack. Nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ...errors import GrammarError, InvalidGrammarError, UnsupportedGrammarError
from .dialect import ID_KEYWORD, LATEST, SCHEMA, SCHEMA_LIST, SCHEMA_MAP, draft_of, read_keywords
from .metaschemas import metaschemas

# Words of our own, which nobody can write in a schema: names that begin with NUL are dropped when one is read.
CHECK = "\0check"
"""This subschema says less than the keyword at the pointer, which is its value."""
REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
_IDENTIFYING = frozenset(("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
_OBJECT = (dict, Mapping)
# The plain type first: to ask an abstract one takes ten times as long.
EXCLUDED = "\0excluded"
"""Values that are not allowed."""
FRACTION = "\0fraction"
"""No whole number; the value is the pointer to be checked where that cannot be said."""
NOT_PATTERN = "\0not-pattern"
NOT_FORMAT = "\0not-format"


@dataclass(eq=False, slots=True)
class Node:
    """One subschema; compared by identity.

    Attributes:
        pointer: Where it stands in the schema, `#/...`.
        always: The value of a boolean schema; None for an object.
        keywords: By name; subschemas inside are nodes: a node, a list of nodes, or a dict of nodes. `$ref` is a node.
        pointers: By name of the keyword, where it was written, if that is not under its name in this place.
        is_written: Whether the node is a place of the schema, and not made of others.
    """

    pointer: str
    always: bool | None = None
    keywords: dict[str, Any] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    is_written: bool = False

    def where(self, keyword: str) -> str:
        """Give the pointer of a keyword."""
        known = self.pointers.get(keyword)
        if known is not None:
            return known
        return f"{self.pointer}/{keyword}" if self.is_written and keyword in self.keywords else self.pointer


@dataclass(slots=True)
class _Scope:
    raw: Any
    draft: int
    base: str


class SchemaGraph:
    """Reads a schema.

    Args:
        schema: A valid JSON schema; it is not changed.

    Attributes:
        root: Its root.
        unreached: What is wrong with references in definitions that nothing refers to, and that say nothing therefore.
        dynamic: Pointers of dynamic references whose target depends on the way they are reached by: they are not followed.

    Raises:
        InvalidGrammarError: A reference that points to nothing.
        UnsupportedGrammarError: A reference that leaves the schema.
    """

    def __init__(self, schema: Any) -> None:
        self._raw = schema
        self._nodes: dict[str, Node] = {}
        self._scopes: dict[str, _Scope] = {}
        self._resources: dict[str, str] = {}
        self._anchors: dict[tuple[str, str], str] = {}
        self._dynamic_anchors: dict[str, set[str]] = {}
        self._links: list[tuple[Node, str, str]] = []
        self._targets: dict[tuple[str, str], Node] = {}
        self.dynamic: list[str] = []
        self.root = self._build("#", _Scope(schema, draft_of(schema, LATEST), ""))
        self._resources.setdefault("", "#")
        failed: list[tuple[Node, GrammarError]] = []
        while self._links:
            node, keyword, base = self._links.pop()
            try:
                self._link(node, keyword, base)
            except GrammarError as error:
                failed.append((node, error))
                del node.keywords[keyword]
        self.unreached = [error for _, error in failed]
        if failed:
            self._refuse_reached(failed)

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, by their place in the schema."""
        return (self._nodes[pointer] for pointer in self._scopes)

    def _build(self, pointer: str, scope: _Scope) -> Node:
        root = self._node(pointer)
        stack = [(root, scope)]
        while stack:
            node, where = stack.pop()
            if node.pointer not in self._scopes:
                stack.extend(reversed(self._read(node, where)))
        return root

    def _node(self, pointer: str) -> Node:
        """Give the node of a place, empty where it was not read yet."""
        node = self._nodes.get(pointer)
        if node is None:
            node = self._nodes[pointer] = Node(pointer)
        return node

    def _read(self, node: Node, scope: _Scope) -> list[tuple[Node, _Scope]]:
        """Fill the node of one place; give its children."""
        raw, pointer = scope.raw, node.pointer
        children: list[tuple[Node, _Scope]] = []
        if not isinstance(raw, _OBJECT):
            node.always = raw if isinstance(raw, bool) else True
            self._scopes[pointer] = scope
            return children
        scope = self._scopes[pointer] = self._enter(pointer, scope)
        node.is_written = True
        for name, value, word in read_keywords(raw, scope.draft):
            if name.startswith("\0"):
                continue
            if word != name:
                node.pointers[name] = f"{pointer}/{word}"
            node.keywords[name] = self._value(name, value, word, node, scope, children)
            if name in REFERENCES and isinstance(value, str):
                self._links.append((node, name, scope.base))
        return children

    def _value(self, name: str, value: Any, word: str, node: Node, scope: _Scope, children: list[tuple[Node, _Scope]]) -> Any:
        """Give the value of a keyword with nodes for the schemas in it, which are noted as children."""
        if name in SCHEMA_MAP and isinstance(value, _OBJECT):
            inside = {key: (self._node(f"{node.pointer}/{word}/{escape_pointer(key)}"), raw) for key, raw in value.items()}
            children += [(child, _Scope(raw, scope.draft, scope.base)) for child, raw in inside.values()]
            return {key: child for key, (child, _) in inside.items()}
        if name in SCHEMA_LIST and isinstance(value, list):
            nodes = [self._node(f"{node.pointer}/{word}/{index}") for index in range(len(value))]
            children += [(child, _Scope(raw, scope.draft, scope.base)) for child, raw in zip(nodes, value, strict=True)]
            return nodes
        if name in SCHEMA:
            child = self._node(f"{node.pointer}/{word}")
            children.append((child, _Scope(value, scope.draft, scope.base)))
            return child
        return value

    def _enter(self, pointer: str, scope: _Scope) -> _Scope:
        """Take in the identifiers of a schema object."""
        raw, base = scope.raw, scope.base
        if pointer != "#" and _IDENTIFYING.isdisjoint(raw):
            return scope
        draft = draft_of(raw, scope.draft)
        identifier = raw.get(ID_KEYWORD.get(draft, "$id"))
        if isinstance(identifier, str) and not (draft <= 7 and "$ref" in raw):
            uri, fragment = urldefrag(identifier)
            if uri:
                base = _join(base, uri)
                self._resources.setdefault(base, pointer)
            if fragment and draft <= 7:
                self._anchors.setdefault((base, fragment), pointer)
        elif pointer == "#":
            self._resources.setdefault(base, pointer)
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(raw.get(key), str) and draft >= 2019:
                self._anchors.setdefault((base, raw[key]), pointer)
        if isinstance(raw.get("$dynamicAnchor"), str):
            self._dynamic_anchors.setdefault(raw["$dynamicAnchor"], set()).add(pointer)
        if raw.get("$recursiveAnchor") is True:
            self._dynamic_anchors.setdefault("", set()).add(pointer)
        return _Scope(raw, draft, base)

    def _link(self, node: Node, keyword: str, base: str) -> None:
        """Put the node that a reference means in its place."""
        reference = node.keywords[keyword]
        target = self._targets.get((base, reference))
        if target is None:
            target = self._targets[base, reference] = self._resolve(reference, base, node.where(keyword))
        if keyword != "$ref":
            anchors = self._dynamic_anchors.get(urldefrag(reference)[1], set())
            is_static = target.pointer not in anchors or len(anchors) == 1
            if not is_static:
                self.dynamic.append(node.where(keyword))
                del node.keywords[keyword]
                return
        node.keywords[keyword] = target

    def _refuse_reached(self, failed: list[tuple[Node, GrammarError]]) -> None:
        """Raise the first error that is in reach of a value: definitions that nothing refers to may refer to nothing."""
        reached = {self.root}
        stack = [self.root]
        while stack:
            for keyword, value in stack.pop().keywords.items():
                inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
                found = [] if keyword in ("$defs", "definitions") else [node for node in inside if isinstance(node, Node)]
                stack += [node for node in found if node not in reached]
                reached.update(found)
        for node, error in failed:
            if node in reached:
                raise error

    def _resolve(self, reference: str, base: str, pointer: str) -> Node:
        uri, fragment = urldefrag(_join(base, reference))
        if uri not in self._resources and uri in metaschemas():
            self._build(f"{uri}#", _Scope(metaschemas()[uri], LATEST, uri))
        place = self._resources.get(uri)
        if place is None:
            raise UnsupportedGrammarError(
                f"the reference {reference!r} leaves the schema",
                pointer=pointer,
                hint="put the schema under $defs; nothing is fetched",
            )
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            if (uri, fragment) not in self._anchors:
                raise InvalidGrammarError(f"the reference {reference!r} points to nothing", pointer=pointer)
            return self._nodes[self._anchors[uri, fragment]]
        return self._follow(place, fragment, reference, pointer)

    def _follow(self, place: str, fragment: str, reference: str, pointer: str) -> Node:
        """Walk a JSON pointer from a resource's root; places that no keyword makes a subschema count too."""
        scope = self._scopes[place]
        raw = scope.raw
        for step in fragment.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(raw, Mapping) and key in raw:
                raw = raw[key]
            elif isinstance(raw, list) and re.fullmatch("0|[1-9][0-9]*", key) and int(key) < len(raw):
                raw = raw[int(key)]
            else:
                raise InvalidGrammarError(f"the reference {reference!r} points to nothing", pointer=pointer)
            place = f"{place}/{escape_pointer(key)}"
            scope = self._scopes.get(place, scope)
        if place not in self._nodes:
            if not isinstance(raw, (Mapping, bool)):
                raise InvalidGrammarError(f"the reference {reference!r} points to what is no schema", pointer=pointer)
            self._build(place, _Scope(raw, scope.draft, scope.base))
        return self._nodes[place]


def _join(base: str, reference: str) -> str:
    """Resolve a reference; `urljoin` knows no URNs."""
    if reference.startswith("#"):
        return urldefrag(base)[0] + reference
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference):
        return reference
    return urljoin(base, reference)


def escape_pointer(key: str) -> str:
    """Escape one reference token, RFC 6901 section 3 (https://www.rfc-editor.org/rfc/rfc6901)."""
    return key.replace("~", "~0").replace("/", "~1")
