"""Ask several questions at once: the engine works on all of them in one batch, each behind its own gate."""

from __future__ import annotations

import asyncio

from engine.pocket.orders import Order
from middleware import AsyncClient

TEXTS = [
    "We need 4 pens at £2 each.",
    "Hi, can I get two chairs at £15? Postage 3 pounds.",
    "Shopping list:\n3 x lamp @ £9\n2 x bowl @ £4.50",
]


async def main() -> None:
    async with AsyncClient("local/pocket-r1") as client:
        results = await asyncio.gather(*(client.generate(Order, text) for text in TEXTS))
    for text, result in zip(TEXTS, results, strict=True):
        print(f"{text!r}\n  -> {result.output.currency} {result.output.total}")
        assert isinstance(result.output, Order)


if __name__ == "__main__":
    asyncio.run(main())
