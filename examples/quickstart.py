"""One call: a pydantic model in, a validated object out, with the thinking beside it. Runs offline on the pocket model."""

from __future__ import annotations

from engine.pocket.orders import Order  # any pydantic model will do; this is what the pocket model was trained on
from middleware import Client


def main() -> None:
    with Client("local/pocket-r1") as client:
        result = client.generate(Order, "Please send 3 lamps at €4.50 each and two chairs at €15. Shipping is €5.")

    print("thinking:", result.reasoning)
    print("object:  ", result.output)
    print("how:     ", result.enforcement, "-", result.usage)

    assert isinstance(result.output, Order)
    assert result.reasoning
    assert "</think>" not in result.content
    assert result.enforcement == "masked"


if __name__ == "__main__":
    main()
