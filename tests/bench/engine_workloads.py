"""What the engine's benches run: schemas, prompts, and requests that arrive over time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 20},
        "last_name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "is_member": {"type": "boolean"},
        "favourite_colour": {"enum": ["red", "green", "blue", "yellow"]},
    },
    "required": ["first_name", "last_name", "age", "is_member", "favourite_colour"],
    "additionalProperties": False,
}
LINE = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "maxLength": 24},
        "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
        "unit_price": {"type": "integer", "minimum": 1, "maximum": 9999},
    },
    "required": ["description", "quantity", "unit_price"],
    "additionalProperties": False,
}
INVOICE = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "string", "pattern": "^INV-[0-9]{6}$"},
        "issue_date": {"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"},
        "currency": {"enum": ["EUR", "USD", "GBP", "CHF"]},
        "customer_name": {"type": "string", "maxLength": 24},
        "payment_status": {"enum": ["paid", "unpaid", "overdue"]},
        "line_items": {"type": "array", "items": LINE, "minItems": 2, "maxItems": 2},
        "total_amount": {"type": "integer", "minimum": 1, "maximum": 999999},
    },
    "required": [
        "invoice_number",
        "issue_date",
        "currency",
        "customer_name",
        "payment_status",
        "line_items",
        "total_amount",
    ],
    "additionalProperties": False,
}
TEXTS = (
    "The history of the city begins with a small settlement at the river, where merchants from the north",
    "To make a good soup, one needs a large pot, fresh vegetables and some patience. First",
    "The committee met on Monday to discuss the new rules for the library. The chair said that",
    "In the garden behind the house there stood an old apple tree, and every autumn",
)
FACTS = "Maria Keller is 34 years old, likes the colour green and has been a member of the club since last year."
LEDGER = (
    "Invoice INV-204518 of 2024-03-17 to Nordwind Trading in EUR, unpaid: 12 desk lamps at 45 each and 3 oak shelves at 210 "
    "each, 1170 in total."
)


@dataclass(frozen=True, slots=True)
class Job:
    """A request that arrives over time.

    Attributes:
        at_s: Seconds after the beginning.
        prompt: Its ids.
        num_tokens: Tokens of its answer.
    """

    at_s: float
    prompt: list[int]
    num_tokens: int


def make_jobs(beginnings: Sequence[list[int]], *, interval_s: float) -> list[Job]:
    """Give prompts of 10 to 200 tokens and answers of 8 to 128, a mean of `interval_s` apart."""
    rng = random.Random(7)
    clock = 0.0
    jobs = []
    for beginning in beginnings:
        prompt = (beginning * 20)[: rng.randint(10, 200)]
        jobs.append(Job(clock, prompt, min(128, 8 + int(rng.expovariate(1 / 40)))))
        clock += rng.expovariate(1 / interval_s)
    return jobs
