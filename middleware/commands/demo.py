"""`thinkgate demo`: a model reads orders, thinks in the open, and answers with objects."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..errors import GenerationError, InvalidRequestError
from ..result import Result, Usage
from .demo_orders import DemoOrder, Order, load_demo_orders
from .plain import token_counts

if TYPE_CHECKING:
    from .display import Display

MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class DemoRow:
    """How one order went; `result` is None when there was no valid answer, and `error` says why."""

    order: DemoOrder
    result: Result[Order] | None
    error: GenerationError | None
    time_s: float

    @property
    def is_right(self) -> bool:
        """Whether every field is as it should be."""
        return self.result is not None and self.result.output == self.order.answer

    def cells(self, number: int) -> tuple[str, ...]:
        """Give the row of the closing table."""
        usage = self.result.usage if self.result else self.error.usage if self.error else Usage()
        thinking, answer = token_counts(usage)
        is_valid = "yes" if self.result else "no"
        is_right = "yes" if self.is_right else "no"
        return f"order {number}", f"{self.time_s:.2f} s", thinking, answer, is_valid, is_right

    def line(self) -> str:
        """Give the JSON line."""
        source = self.result or self.error
        assert source is not None
        body: dict[str, Any] = {
            "output": self.result.output.model_dump(mode="json") if self.result else None,
            "reasoning": source.reasoning,
            "valid": self.result is not None,
            "usage": asdict(source.usage),
            "right": self.is_right,
            "time_s": round(self.time_s, 3),
            "prompt": self.order.text,
        }
        if self.error is not None:
            body["error"] = {"type": type(self.error).__name__, "message": self.error.message, "phase": self.error.phase}
        return json.dumps(body, ensure_ascii=False)


def run(client: Client, *, count: int, as_json: bool) -> int:
    """Run the demo on the first `count` orders; the exit code is 1 if an answer was not valid.

    Raises:
        InvalidRequestError: There are not that many orders.
        UpstreamError: The model cannot be asked.
    """
    orders = load_demo_orders()
    if not 1 <= count <= len(orders):
        raise InvalidRequestError(f"--count must be between 1 and {len(orders)}", param="count")
    show = _run_as_json if as_json else _run_on_screen
    rows = show(client, orders[:count])
    return 0 if all(row.result for row in rows) else 1


def _run_as_json(client: Client, orders: list[DemoOrder]) -> list[DemoRow]:
    client.load()
    rows = []
    for order in orders:
        rows.append(_answer(client, order, None))
        print(rows[-1].line(), flush=True)
    return rows


def _run_on_screen(client: Client, orders: list[DemoOrder]) -> list[DemoRow]:
    from .display import Display

    display = Display(sys.stdout)
    started_at = time.perf_counter()
    with display.progress(f"Loading {client.model} ..."):
        client.load()
    display.note(f"Loaded {client.model} in {time.perf_counter() - started_at:.1f} s. Grey is thinking, free of any constraint;")
    display.note("the JSON after it is constrained to the schema of `Order`.")
    rows = []
    for number, order in enumerate(orders, 1):
        display.heading(f"Order {number} of {len(orders)}")
        display.quote(order.text)
        rows.append(_answer(client, order, display))
        if error := rows[-1].error:
            display.warn(f"{type(error).__name__}: {error}")
    columns = ("", "time", "thinking tokens", "answer tokens", "valid", "right")
    display.table(f"{client.model} on {len(rows)} orders", columns, [row.cells(n) for n, row in enumerate(rows, 1)])
    display.note("valid: keeps to the schema; right: every field is as in the known answer.")
    return rows


def _answer(client: Client, order: DemoOrder, display: Display | None) -> DemoRow:
    started_at = time.perf_counter()
    result: Result[Order] | None = None
    failure: GenerationError | None = None
    try:
        with client.stream(Order, order.text, max_tokens=MAX_TOKENS, temperature=0.0) as events:
            if display is not None:
                display.follow(events)
            else:
                for _ in events:
                    pass
            result = events.result
    except GenerationError as error:
        failure = error
    return DemoRow(order, result, failure, time.perf_counter() - started_at)
