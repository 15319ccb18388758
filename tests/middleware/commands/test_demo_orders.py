from __future__ import annotations

import json
from pathlib import Path

from engine.pocket import orders
from middleware.commands import demo_orders
from middleware.commands.demo_orders import DATA_FILE, load_demo_orders

NUM_ORDERS = 40


def _held_out_data() -> list[dict[str, object]]:
    samples = orders.held_out_orders(NUM_ORDERS)
    return [{"text": sample.text, "answer": json.loads(sample.answer)} for sample in samples]


def test_demo_orders_are_the_head_of_the_held_out_set() -> None:
    path = Path(demo_orders.__file__).with_name(DATA_FILE)
    assert json.loads(path.read_text(encoding="utf-8")) == _held_out_data(), f"renew with: python -m {__name__}"


def test_demo_order_type_is_the_pocket_models() -> None:
    ours, theirs = demo_orders.Order.model_json_schema(), orders.Order.model_json_schema()
    assert _without_words(ours) == _without_words(theirs)


def test_demo_orders_answers_are_orders() -> None:
    loaded = load_demo_orders()
    assert len(loaded) == NUM_ORDERS
    assert all(order.answer.items and order.text for order in loaded)


def _without_words(schema: object) -> object:
    if isinstance(schema, dict):
        return {key: _without_words(value) for key, value in schema.items() if key != "description"}
    return schema


if __name__ == "__main__":
    Path(demo_orders.__file__).with_name(DATA_FILE).write_text(
        json.dumps(_held_out_data(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
