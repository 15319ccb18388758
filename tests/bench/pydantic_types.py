"""What becomes of pydantic's types: masked, checked afterwards, or refused.

For each type documents are drawn from the masks and put through the type, so that what a type checks beyond its schema shows too.

    python tests/bench/pydantic_types.py [--json FILE] [--write]     # --write renews docs/pydantic.md
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import pathlib
import random
import re
import uuid
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pydantic
import torch
from pydantic import BaseModel, Field, RootModel, StringConstraints
from reporting import make_parser, print_table, write_json
from typing_extensions import TypedDict

from engine import EngineError, GrammarSpec
from engine.grammar import Matcher, new_bitmask
from engine.grammar.backends.llguidance_backend import LLGuidanceBackend
from engine.grammar.rewrite import BACKENDS
from engine.grammar.support import support_report
from engine.grammar.vocabulary import Vocabulary
from middleware.errors import MiddlewareError
from middleware.output_types import Accepted, OutputType

STOP = 256
BYTES = Vocabulary((*(bytes([byte]) for byte in range(256)), b""), 257, (STOP,))
TABLE = Path(__file__).parents[2] / "docs" / "pydantic.md"
NUM_DRAWN = 30
MAX_BYTES = 400


class Colour(enum.Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """An enumeration of numbers."""

    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    """One of two kinds."""

    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    """The other kind."""

    kind: Literal["dog"]
    bark: str


class Node(BaseModel):
    """Recursive."""

    value: int
    kids: list[Node] = []


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    """Generic."""

    items: list[T]
    total: int = Field(ge=0)


class Movie(TypedDict):
    """A typed dictionary."""

    title: str
    year: int


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: float
    y: float


class Pair(NamedTuple):
    """A named tuple."""

    first: int
    second: str


class Tags(RootModel[list[str]]):
    """A root model."""


class Closed(BaseModel):
    """No other properties."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    alias: str = Field(alias="other name")


TYPES: dict[str, Any] = {
    "bool": bool, "int": int, "float": float, "str": str | None, "bytes": bytes, "None": None | int, "Decimal": decimal.Decimal,
    "Decimal, max_digits=6, decimal_places=2": Annotated[decimal.Decimal, Field(max_digits=6, decimal_places=2)],
    "Fraction": fractions.Fraction, "datetime": datetime.datetime, "date": datetime.date, "time": datetime.time,
    "timedelta": datetime.timedelta, "AwareDatetime": pydantic.AwareDatetime, "NaiveDatetime": pydantic.NaiveDatetime,
    "PastDate": pydantic.PastDate, "FutureDate": pydantic.FutureDate, "UUID": uuid.UUID, "UUID4": pydantic.UUID4,
    "AnyUrl": pydantic.AnyUrl, "HttpUrl": pydantic.HttpUrl, "PostgresDsn": pydantic.PostgresDsn, "Path": pathlib.Path,
    "FilePath": pydantic.FilePath, "IPv4Address": ipaddress.IPv4Address, "IPv6Address": ipaddress.IPv6Address,
    "IPvAnyAddress": pydantic.IPvAnyAddress, "IPv4Network": ipaddress.IPv4Network, "SecretStr": pydantic.SecretStr,
    "SecretBytes": pydantic.SecretBytes, "Base64Str": pydantic.Base64Str, "ByteSize": pydantic.ByteSize, "Pattern": re.Pattern,
    "Json": pydantic.Json, "Json[list[int]]": pydantic.Json[list[int]], "Enum": Colour, "IntEnum": Level,
    "Literal": Literal["a", 1, None], "list[int]": list[int], "set[int]": set[int], "set[Enum]": set[Colour],
    "frozenset[str]": frozenset[str], "deque[int]": deque[int], "tuple[int, str]": tuple[int, str],
    "tuple[int, ...]": tuple[int, ...],
    "dict[str, int]": dict[str, int],
    "dict[int, str]": dict[int, str], "dict[Literal, int]": dict[Literal["a", "b"], int],
    "dict[UUID, int]": dict[uuid.UUID, int], "int | None": int | None, "int | str": int | str,
    "discriminated union": Annotated[Cat | Dog, Field(discriminator="kind")], "recursive model": Node, "generic model": Page[Cat],
    "RootModel": Tags, "TypedDict": Movie, "dataclass": Point, "NamedTuple": Pair, "extra='forbid', alias": Closed,
    "conint(gt=0, lt=10)": Annotated[int, Field(gt=0, lt=10)], "multiple_of=5": Annotated[int, Field(multiple_of=5)],
    "confloat(ge=0, le=1)": Annotated[float, Field(ge=0, le=1)], "PositiveInt": pydantic.PositiveInt,
    "constr(min_length=2, max_length=5)": Annotated[str, StringConstraints(min_length=2, max_length=5)],
    "pattern": Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}-\d{4}$")],
    "pattern with lengths": Annotated[str, StringConstraints(pattern=r"^[a-z]+$", min_length=2, max_length=4)],
    "conlist(int, min_length=1, max_length=3)": Annotated[list[int], Field(min_length=1, max_length=3)],
    "StrictInt": pydantic.StrictInt, "ImportString": pydantic.ImportString, "Any": dict[str, Any],
}  # fmt: skip
NOTES = {
    "checked": "in the schema, checked afterwards: ",
    "type": "the type asks for more than its schema says; checked afterwards",
}


@dataclass(frozen=True, slots=True)
class TypeFigure:
    """What becomes of one type."""

    type: str
    status: str
    note: str


def draw(matcher: Matcher, rng: random.Random) -> str | None:
    """Walk through the masks at random, towards an end; None if there is none within the limit."""
    row = new_bitmask(1, 257)
    written = bytearray()
    while len(written) < MAX_BYTES:
        matcher.fill_bitmask(row, 0)
        bits = np.unpackbits(row.numpy().view(np.uint8), bitorder="little")[:257]
        allowed = np.flatnonzero(bits).tolist()
        closing = [byte for byte in allowed if byte in (STOP, *b'"}]')]
        plain = [byte for byte in allowed if 0x20 <= byte < 0x7F]
        byte = rng.choice(closing) if closing and (rng.random() < 0.4 or len(written) > 60) else rng.choice(plain or allowed)
        if byte == STOP:
            return written.decode()
        if not matcher.accept_tokens([byte]):
            return None
        written.append(byte)
    return None


def measure(name: str, annotation: Any, backend: LLGuidanceBackend) -> TypeFigure:
    """Say what becomes of one type, with the backend that masks most."""
    try:
        output: OutputType[Any] = OutputType(annotation)
        spec = GrammarSpec.from_json_schema(output.schema or {"type": "string"})
    except (EngineError, MiddlewareError) as error:
        return TypeFigure(name, "refused", str(error).split("\n")[0].split(": ")[-1][:90])
    report = support_report(spec)
    checked = min((report.checked(other) for other in BACKENDS), key=len)
    if checked:
        return TypeFigure(name, "checked", NOTES["checked"] + ", ".join(pointer.rsplit("/", 1)[-1] for pointer in checked))
    grammar = backend.compile(spec)
    rng = random.Random(name)
    drawn = [text for _ in range(NUM_DRAWN) if (text := draw(grammar.new_matcher((STOP,)), rng)) is not None]
    accepted = [isinstance(output.validate(text), Accepted) for text in drawn]
    if all(accepted):
        return TypeFigure(name, "masked", "")
    return TypeFigure(name, "masked, rest checked", NOTES["type"])


def measure_all() -> list[TypeFigure]:
    """Say what becomes of every type."""
    torch.set_num_threads(1)
    backend = LLGuidanceBackend(BYTES, num_threads=1)
    return [measure(name, annotation, backend) for name, annotation in TYPES.items()]


def table_row(figure: TypeFigure) -> str:
    """Write a row of the table. A bar ends a cell even inside code, unless it is escaped."""
    name = figure.type.replace("|", "\\|")
    return f"| `{name}` | {figure.status} | {figure.note} |"


def render(figures: list[TypeFigure]) -> str:
    """Write the table of the documentation."""
    lines = [
        "# Pydantic types",
        "",
        "What becomes of a type's schema while an answer is written: *masked*, nothing else can be written; *checked*, a keyword",
        "is checked on the finished object, which is asked for again if it fails; *refused*, before anything is generated. The",
        "object that comes back has always passed the type itself. Made by `python tests/bench/pydantic_types.py --write`.",
        "",
        "| type | status | note |",
        "|---|---|---|",
        *map(table_row, figures),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print and write."""
    parser = make_parser(__doc__ or "")
    parser.add_argument("--write", action="store_true", help="renew docs/pydantic.md")
    arguments = parser.parse_args()
    figures = measure_all()
    print_table("Pydantic types", [asdict(figure) for figure in figures])
    if arguments.write:
        TABLE.write_text(render(figures), encoding="utf-8")
    write_json(arguments.json, "pydantic_types", [json.loads(json.dumps(asdict(figure))) for figure in figures], is_quick=False)


if __name__ == "__main__":
    main()
