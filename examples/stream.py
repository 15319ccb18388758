"""Watch one answer form: thinking first, then an object that grows field by field."""

from __future__ import annotations

from engine.pocket.orders import Order
from middleware import Client, FinalResult, PartialObject, ReasoningDelta


def main() -> None:
    num_snapshots = 0
    with Client("local/pocket-r1") as client, client.stream(Order, "Order: 2 mugs at $8 each. Take 10% off.") as events:
        for event in events:
            match event:
                case ReasoningDelta(text=text):
                    print(text, end="", flush=True)
                case PartialObject(value=value):
                    num_snapshots += 1
                    print("\n  so far:", value, end="")
                case FinalResult(result=result):
                    print("\nfinished:", result.output)
                case _:
                    pass

    assert num_snapshots > 3
    assert isinstance(events.result.output, Order)


if __name__ == "__main__":
    main()
