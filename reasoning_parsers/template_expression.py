"""Expressions of a chat template, evaluated as far as their values are known.

Unknown spreads: what depends on an unknown value is unknown, unless `and` or `or` settle it. A function call is unknown. The
scope takes notes meanwhile: which variables are read that nobody set, and what they are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from .template_source import Code, Token


class _Mark(Enum):
    UNKNOWN = auto()
    UNDEFINED = auto()
    NAMESPACE = auto()


UNKNOWN = _Mark.UNKNOWN
UNDEFINED = _Mark.UNDEFINED
"""Value of a variable that nobody gave: false, equal to nothing."""
NAMESPACE = _Mark.NAMESPACE
"""Value of `namespace(...)`; its attributes are variables with a dot in their names."""

_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}


@dataclass(frozen=True, slots=True)
class Value:
    """A value, and the input variable that it is or comes from unchanged, where there is one."""

    value: object
    source: str | None = None
    attributes: Mapping[str, Value] = field(default_factory=dict)


@dataclass(slots=True)
class Notes:
    """What was seen of the variables that nobody set."""

    inputs: dict[str, None] = field(default_factory=dict)
    compared: dict[str, list[object]] = field(default_factory=dict)
    defaults: dict[str, object] = field(default_factory=dict)


class Scope:
    """Variables by name, and notes."""

    def __init__(self, variables: dict[str, Value]) -> None:
        self._given = {name: Value(value.value, name) for name, value in variables.items()}
        self.variables: dict[str, Value] = dict(self._given)
        self.notes = Notes()

    def set(self, name: str, value: Value) -> None:
        """Set a variable; a target without a name is nothing that can be followed."""
        if name:
            self.variables[name] = value

    def get(self, name: str) -> Value:
        """Read a variable."""
        value = self.variables.get(name)
        if value is None or value is self._given.get(name):
            self.notes.inputs[name] = None
        return value or Value(UNDEFINED, name)


def evaluate(code: Code, scope: Scope) -> Value:
    """Evaluate an expression; one that cannot be read is unknown."""
    parser = _Parser(code, scope)
    try:
        value = parser.condition()
    except _NotUnderstoodError:
        return Value(UNKNOWN)
    return value if parser.is_done else Value(UNKNOWN)


def is_true(value: object) -> bool | None:
    """Whether a value counts as true; None if that is unknown."""
    if value is UNKNOWN:
        return None
    return value is not UNDEFINED and bool(value)


class _NotUnderstoodError(Exception):
    pass


class _Parser:
    """Recursive descent, one method for each level of precedence, lowest first."""

    def __init__(self, code: Code, scope: Scope) -> None:
        self._code = code
        self._position = 0
        self._scope = scope

    @property
    def is_done(self) -> bool:
        return self._position == len(self._code)

    def condition(self) -> Value:
        value = self._either()
        if not self._take("if"):
            return value
        truth = is_true(self._either().value)
        other = self.condition() if self._take("else") else Value(UNDEFINED)
        if truth is None:
            return value if value == other else Value(UNKNOWN)
        return value if truth else other

    def _either(self) -> Value:
        value = self._both()
        while self._take("or"):
            other = self._both()
            truth = is_true(value.value)
            if truth is None:
                value = Value(True if is_true(other.value) else UNKNOWN)
            elif not truth:
                value = other
        return value

    def _both(self) -> Value:
        value = self._negation()
        while self._take("and"):
            other = self._negation()
            truth = is_true(value.value)
            if truth is None:
                value = Value(False if is_true(other.value) is False else UNKNOWN)
            elif truth:
                value = other
        return value

    def _negation(self) -> Value:
        if self._take("not"):
            truth = is_true(self._negation().value)
            return Value(UNKNOWN if truth is None else not truth)
        return self._comparison()

    def _comparison(self) -> Value:
        value = self._sum()
        while True:
            if self._take("not"):
                self._expect("in")
                value = _negated(self._contained(value, self._sum()))
            elif self._take("in"):
                value = self._contained(value, self._sum())
            elif self._take("=="):
                value = self._equal(value, self._sum())
            elif self._take("!="):
                value = _negated(self._equal(value, self._sum()))
            elif self._take("<", ">", "<=", ">="):
                self._sum()
                value = Value(UNKNOWN)
            else:
                return value

    def _equal(self, left: Value, right: Value) -> Value:
        self._note(left, right)
        self._note(right, left)
        if UNKNOWN in (left.value, right.value):
            return Value(UNKNOWN)
        return Value(type(left.value) is type(right.value) and left.value == right.value)

    def _contained(self, left: Value, right: Value) -> Value:
        if not isinstance(right.value, list) or UNKNOWN in right.value:
            return Value(UNKNOWN)
        for item in right.value:
            self._note(left, Value(item))
        return Value(UNKNOWN if left.value is UNKNOWN else left.value in right.value)

    def _note(self, variable: Value, other: Value) -> None:
        if variable.source is not None and isinstance(other.value, str | int) and other.source is None:
            self._scope.notes.compared.setdefault(variable.source, []).append(other.value)

    def _sum(self) -> Value:
        value = self._postfix()
        while (operator := self._take("+", "~", "-", "*", "/", "//", "%", "**")) is not None:
            other = self._postfix()
            is_text = isinstance(value.value, str) and isinstance(other.value, str)
            value = Value(f"{value.value}{other.value}" if is_text and operator in "+~" else UNKNOWN)
        return value

    def _postfix(self) -> Value:
        value = self._primary()
        while True:
            if self._take("."):
                value = self._attribute(value, self._next())
            elif self._take("["):
                self._arguments("]")
                value = Value(UNKNOWN)
            elif self._take("("):
                self._arguments(")")
            elif self._take("|"):
                value = self._filter(value)
            elif self._take("is"):
                value = self._test(value)
            else:
                return value

    def _attribute(self, value: Value, name: Token) -> Value:
        if value.value is NAMESPACE and value.source is not None:
            return self._scope.variables.get(f"{value.source}.{name.text}", Value(UNDEFINED))
        return Value(UNKNOWN)

    def _filter(self, value: Value) -> Value:
        name = self._next().text
        arguments = self._arguments(")") if self._take("(") else []
        if name in ("default", "d"):
            given = arguments[0] if arguments else Value("")
            if value.source is not None:
                self._scope.notes.defaults.setdefault(value.source, given.value)
            replaces_false = len(arguments) > 1 and is_true(arguments[1].value) is True
            if value.value is UNDEFINED or (replaces_false and is_true(value.value) is False):
                return Value(given.value, value.source)
            return value
        if isinstance(value.value, str) and name in ("trim", "lower", "upper", "string", "safe"):
            changed = {"trim": value.value.strip(), "lower": value.value.lower(), "upper": value.value.upper()}
            return Value(changed.get(name, value.value), value.source)
        return Value(UNKNOWN, value.source if name in ("trim", "lower", "string") else None)

    def _test(self, value: Value) -> Value:
        is_negated = self._take("not") is not None
        name = self._next().text
        if self._take("("):
            self._arguments(")")
        found = _tested(name, value.value)
        if found is None:
            return Value(UNKNOWN)
        return Value(found is not is_negated)

    def _primary(self) -> Value:
        token = self._next()
        if token.kind == "string":
            return Value(token.text)
        if token.kind == "number":
            return Value(float(token.text) if set(token.text) & set(".eE") else int(token.text))
        if token.kind == "name":
            return self._name(token.text)
        if token.text == "(":
            items = self._arguments(")")
            is_tuple = len(items) != 1 or self._code[self._position - 2].text == ","
            return Value([item.value for item in items]) if is_tuple else items[0]
        if token.text == "[":
            return Value([item.value for item in self._arguments("]")])
        if token.text == "{":
            self._arguments("}")
            return Value(UNKNOWN)
        if token.text == "-":
            number = self._postfix().value
            return Value(-number if isinstance(number, int | float) else UNKNOWN)
        raise _NotUnderstoodError

    def _name(self, name: str) -> Value:
        if name in _CONSTANTS:
            return Value(_CONSTANTS[name])
        if name == "namespace" and self._take("("):
            return Value(NAMESPACE, attributes=self._keywords())
        if self._take("("):
            # A function or a macro: no variable that anybody could give.
            self._arguments(")")
            return Value(UNKNOWN)
        value = self._scope.get(name)
        return Value(NAMESPACE, name) if value.value is NAMESPACE else value

    def _keywords(self) -> dict[str, Value]:
        """Arguments of `namespace(...)`, up to the closing bracket."""
        found = {}
        while not self._take(")"):
            name = self._next().text
            self._expect("=")
            found[name] = self.condition()
            self._take(",")
        return found

    def _arguments(self, closing: str) -> list[Value]:
        """Expressions up to a bracket. Names of keyword arguments, keys of mappings and parts of slices are passed over."""
        values = []
        while not self._take(closing):
            if self._is_keyword:
                self._position += 2
            elif not self._take(",", ":", "*", "**"):
                values.append(self.condition())
        return values

    @property
    def _is_keyword(self) -> bool:
        """Whether a name and an equals sign come next."""
        head = self._code[self._position : self._position + 2]
        return len(head) == 2 and head[0].kind == "name" and head[1] == Token("operator", "=")

    def _next(self) -> Token:
        if self.is_done:
            raise _NotUnderstoodError
        self._position += 1
        return self._code[self._position - 1]

    def _take(self, *texts: str) -> str | None:
        """Take the next token if it is one of these words or operators, and no text in quotes."""
        if self.is_done or self._code[self._position].kind == "string" or self._code[self._position].text not in texts:
            return None
        return self._next().text

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise _NotUnderstoodError


def _negated(value: Value) -> Value:
    return value if value.value is UNKNOWN else Value(not value.value)


def _tested(name: str, value: object) -> bool | None:
    """Whether a value passes a test; None if that is unknown, or the test is."""
    if value is UNKNOWN:
        return None
    tests = {
        "defined": value is not UNDEFINED,
        "undefined": value is UNDEFINED,
        "none": value is None,
        "true": value is True,
        "false": value is False,
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
        "number": isinstance(value, int | float),
        "mapping": False,
    }
    return tests.get(name)
