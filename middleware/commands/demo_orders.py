"""The demo's orders: texts that the pocket model has not seen in training, with their right answers.

The data is the head of the pocket model's held-out set, copied here so that the demo also runs on models that need no engine;
a test compares the two. To renew the copy after the generator changed: `python -m tests.middleware.commands.test_demo_orders`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pydantic import BaseModel

DATA_FILE = "demo_orders.json"


class LineItem(BaseModel):
    """One line of an order."""

    name: str
    quantity: int
    unit_price: float


class Order(BaseModel):
    """An order; the discount applies to the subtotal, shipping comes on top."""

    currency: Literal["EUR", "USD", "GBP", "CHF"]
    items: list[LineItem]
    subtotal: float
    discount_percent: int
    shipping: float
    total: float


@dataclass(frozen=True, slots=True)
class DemoOrder:
    """A written order and its right answer."""

    text: str
    answer: Order


def load_demo_orders() -> list[DemoOrder]:
    """Read the orders that ship with the package."""
    data = json.loads(resources.files(__package__).joinpath(DATA_FILE).read_text(encoding="utf-8"))
    return [DemoOrder(item["text"], Order.model_validate(item["answer"])) for item in data]
