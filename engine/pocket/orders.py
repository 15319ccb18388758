"""Generate written orders with their worked reasoning and their right answer.

Owns the pocket model's domain: the output type `Order`, the wordings, and the arithmetic. The training script, the
accuracy bench and the demo read samples from here; it knows nothing of models, tokenizers or torch.

Money is an integer number of cents inside this module and is written with two decimals outside it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

Currency = Literal["EUR", "USD", "GBP", "CHF"]

TRAIN_SEED = 20261129
"""Seed of the training stream; held-out orders use seeds below `HELD_OUT_SEEDS` and are removed from it by text."""
HELD_OUT_SEEDS = 10_000


class LineItem(BaseModel):
    """One line of an order."""

    name: str
    quantity: int
    unit_price: float


class Order(BaseModel):
    """An order as the pocket model answers it; the discount applies to the subtotal, shipping comes on top."""

    currency: Currency
    items: list[LineItem]
    subtotal: float
    discount_percent: int
    shipping: float
    total: float


@dataclass(frozen=True, slots=True)
class OrderSample:
    """A written order, the reasoning that works it out, and the answer as compact JSON text."""

    text: str
    reasoning: str
    answer: str


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    quantity: int
    cents: int


_NAMES = (
    "lamp chair desk vase table mug plate bowl spoon fork shelf mirror clock rug pillow blanket towel basket candle frame "
    "pen pencil notebook folder stapler ruler marker eraser phone charger cable mouse keyboard monitor speaker camera tripod "
    "shirt jacket scarf hat glove belt sock boot apron kettle toaster pan pot ladle knife tray jar bottle bucket ladder hammer "
    "drill wrench tent lantern helmet bell"
).split()
_COMPOUNDS = ("desk lamp", "coffee mug", "water bottle", "wall clock", "picture frame", "door bell", "garden chair", "tea kettle")
_PLURALS = {"shelf": "shelves", "knife": "knives"}
_NUMBER_WORDS = {
    1: ("one", "a", "a single"), 2: ("two", "a pair of"), 3: ("three",), 4: ("four",), 5: ("five",), 6: ("six", "half a dozen"),
    7: ("seven",), 8: ("eight",), 9: ("nine",), 10: ("ten",), 12: ("twelve", "a dozen"),
}  # fmt: skip
_QUANTITIES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10, 12)
_PERCENT_WORDS = {10: "ten", 20: "twenty", 50: "fifty"}

# Each currency: how an amount is written ({} = the number), and the bare word that may follow a number once.
_MONEY: dict[Currency, tuple[str, ...]] = {
    "EUR": ("€{}", "{} €", "{} euros", "{} EUR", "EUR {}"),
    "USD": ("${}", "${}", "{} dollars", "{} USD", "USD {}"),
    "GBP": ("£{}", "£{}", "{} pounds", "{} GBP", "GBP {}"),
    "CHF": ("{} francs", "CHF {}", "{} CHF", "{} Swiss francs"),
}
_CURRENCY_NOTES: dict[Currency, tuple[str, ...]] = {
    "EUR": ("All prices in euros.", "Prices are in EUR.", "We pay in euros."),
    "USD": ("All prices in dollars.", "Prices are in USD.", "We pay in dollars."),
    "GBP": ("All prices in pounds.", "Prices are in GBP.", "We pay in pounds."),
    "CHF": ("All prices in francs.", "Prices are in CHF.", "We pay in Swiss francs."),
}
_LINE_FORMS = (
    "{n} {names} at {p} each",
    "{n} {names} at {p}",
    "{n} {names} for {p} each",
    "{n} {names}, {p} apiece",
    "{n} {names} ({p} each)",
    "{n} {names} @ {p}",
    "{n} x {name} at {p}",
    "{n} {names} that cost {p} each",
    "{n} {names} priced at {p} per piece",
)
_SINGLE_FORMS = ("{n} {name} at {p}", "{n} {name} for {p}", "{n} {name} ({p})", "{n} {name} that costs {p}", "{n} {name}, {p}")
_RECEIPT_FORMS = ("{d} x {name} @ {p}", "{name} x{d} {p}", "{d} {names} {p} each", "{name}: {d} at {p}", "- {d} {names} at {p}")
_OPENINGS = (
    "",
    "",
    "Hi, ",
    "Hello, ",
    "Good morning, ",
    "Dear team, ",
    "Hey, ",
    "Hi there, ",
)
_REQUESTS = (
    "please send {}.",
    "I would like {}.",
    "we need {}.",
    "I want to order {}.",
    "can I get {}?",
    "put me down for {}.",
    "order: {}.",
    "could you ship {}?",
    "I'll take {}.",
    "we bought {}.",
    "{}.",
    "{}, please.",
    "the school needs {}.",
    "my order is {}.",
)
_RECEIPT_HEADS = ("Receipt:\n", "Invoice\n", "Order form\n", "Shopping list:\n", "Items:\n", "Your basket:\n")
_SHIPPING = (
    "Shipping {}.",
    "Shipping is {}.",
    "Plus {} for delivery.",
    "Delivery costs {}.",
    "Postage {}.",
    "Add {} shipping.",
    "The courier takes {}.",
)
_FREE_SHIPPING = ("Shipping is free.", "Free delivery.", "No shipping, I collect it.", "I will pick it up.")
_DISCOUNT = (
    "{}% off.",
    "Take {}% off.",
    "{}% discount.",
    "We get a {} percent discount.",
    "There is a {}% rebate on the goods.",
    "Members get {}% off.",
    "Use the code for {} percent off.",
)
_DISTRACTORS = (
    "Order number {k}.",
    "Call me at {k} if anything is missing.",
    "My customer number is {k}.",
    "Please deliver before {h} pm.",
    "We are at {h} Main Street.",
    "The {other} for {q} was too expensive, leave it out.",
    "My neighbour paid {q} for a {other}.",
    "We do not need the {other} this time.",
    "Last time it took {h} days.",
    "Ring twice, we live on floor {h}.",
    "The old invoice was {q}.",
    "It is a gift for my sister.",
    "Thanks a lot!",
    "Kind regards, Ada",
    "There are {h} of us in the office.",
    "Leave the box with the porter.",
    "I already have a {other}.",
)


def format_cents(cents: int) -> str:
    """Write an amount of cents with two decimals, as the reasoning and the answer do."""
    return f"{cents // 100}.{cents % 100:02d}"


def plural_names() -> list[tuple[str, str]]:
    """Give (singular, plural) of every item name, longest first."""
    return sorted(((name, _plural(name)) for name in [*_NAMES, *_COMPOUNDS]), key=lambda pair: -len(pair[1]))


def _pick_price(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.6:
        return rng.randint(1, 40) * 100
    if kind < 0.85:
        return rng.randint(1, 20) * 100 + 50
    return rng.randint(9, 20) * 500


def _written_number(rng: random.Random, cents: int) -> str:
    if cents % 100 == 0 and rng.random() < 0.7:
        return str(cents // 100)
    return format_cents(cents)


def _plural(name: str) -> str:
    head, _, last = name.rpartition(" ")
    plural = _PLURALS.get(last) or (last + "es" if last.endswith(("sh", "ch", "ss")) else last + "s")
    return f"{head} {plural}".strip()


class _Writer:
    """Word one order; remembers whether the currency was said yet."""

    def __init__(self, rng: random.Random, currency: Currency) -> None:
        self.rng = rng
        self.currency: Currency = currency
        self.form = rng.choice(_MONEY[currency])
        self.is_said = False
        self.is_sparing = rng.random() < 0.3

    def money(self, cents: int) -> str:
        number = _written_number(self.rng, cents)
        if self.is_sparing and self.is_said:
            return number
        self.is_said = True
        return self.form.format(number)

    def line(self, line: _Line, forms: tuple[str, ...]) -> str:
        digits = str(line.quantity)
        written = digits if self.rng.random() < 0.5 else self.rng.choice(_NUMBER_WORDS[line.quantity])
        names = line.name if line.quantity == 1 else _plural(line.name)
        form = self.rng.choice(forms)
        return form.format(n=written, d=digits, name=line.name, names=names, p=self.money(line.cents))


def _join(parts: list[str], rng: random.Random) -> str:
    if len(parts) == 1:
        return parts[0]
    last = rng.choice((" and ", ", and ", " plus "))
    return rng.choice((", ", ", ", "; ")).join(parts[:-1]) + last + parts[-1]


def _extras(writer: _Writer, shipping: int | None, percent: int, taken: set[str]) -> list[str]:
    rng = writer.rng
    extras: list[str] = []
    if shipping:
        extras.append(rng.choice(_SHIPPING).format(writer.money(shipping)))
    elif shipping == 0:
        extras.append(rng.choice(_FREE_SHIPPING))
    if percent:
        form = rng.choice(_DISCOUNT)
        if rng.random() < 0.6:
            extras.append(form.format(percent))
        else:
            extras.append(form.replace("{}%", "{} percent").format(_PERCENT_WORDS[percent]))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        other = rng.choice([name for name in _NAMES if name not in taken])
        number = writer.form.format(_written_number(rng, _pick_price(rng)))
        extras.append(rng.choice(_DISTRACTORS).format(k=rng.randint(1000, 99999), h=rng.randint(2, 30), other=other, q=number))
    rng.shuffle(extras)
    return extras


def _write_text(writer: _Writer, lines: list[_Line], extras: list[str]) -> str:
    rng = writer.rng
    if rng.random() < 0.25:
        body = rng.choice(_RECEIPT_HEADS) + "\n".join(writer.line(line, _RECEIPT_FORMS) for line in lines)
        separator = "\n"
    else:
        parts = [writer.line(line, _SINGLE_FORMS if line.quantity == 1 else _LINE_FORMS) for line in lines]
        body = rng.choice(_OPENINGS) + rng.choice(_REQUESTS).format(_join(parts, rng))
        body = body[0].upper() + body[1:] if rng.random() < 0.7 else body
        separator = " "
    if not writer.is_said:
        extras = [*extras, rng.choice(_CURRENCY_NOTES[writer.currency])]
    cut = rng.randint(0, len(extras)) if rng.random() < 0.2 else 0
    return separator.join([*extras[:cut], body, *extras[cut:]])


def _reason(currency: Currency, lines: list[_Line], percent: int, shipping: int) -> tuple[str, int, int]:
    """Work the totals out; returns the reasoning, the subtotal and the total in cents."""
    steps: list[str] = [currency]
    sums = [line.quantity * line.cents for line in lines]
    for line, amount in zip(lines, sums, strict=True):
        steps.append(f"{line.name}: {line.quantity} * {format_cents(line.cents)} = {format_cents(amount)}")
    subtotal = sums[0]
    for amount in sums[1:]:
        steps.append(f"{format_cents(subtotal)} + {format_cents(amount)} = {format_cents(subtotal + amount)}")
        subtotal += amount
    total = subtotal
    if percent:
        tenth = subtotal // 10
        off = tenth * (percent // 10)
        steps.append(f"{percent}% off: {format_cents(subtotal)} / 10 = {format_cents(tenth)}")
        if percent > 10:
            steps.append(f"{format_cents(tenth)} * {percent // 10} = {format_cents(off)}")
        total = subtotal - off
        steps.append(f"{format_cents(subtotal)} - {format_cents(off)} = {format_cents(total)}")
    if shipping:
        steps.append(f"shipping: {format_cents(total)} + {format_cents(shipping)} = {format_cents(total + shipping)}")
        total += shipping
    return "; ".join(steps), subtotal, total


def make_order(rng: random.Random) -> OrderSample:
    """Draw one order with its reasoning and answer; the same `rng` state gives the same order."""
    currency: Currency = rng.choice(("EUR", "EUR", "USD", "USD", "GBP", "CHF"))
    names = rng.sample([*_NAMES, *_COMPOUNDS], rng.choice((1, 2, 2, 3, 3, 4)))
    lines = [_Line(name, rng.choice(_QUANTITIES), _pick_price(rng)) for name in names]
    percent = rng.choice((0, 0, 0, 10, 10, 20, 50))
    shipping = rng.choice((None, None, 0, rng.randint(2, 12) * 100, rng.randint(2, 12) * 100, rng.randint(2, 9) * 100 + 50))
    writer = _Writer(rng, currency)
    taken = {word for name in names for word in name.split()}
    # The order body is worded first, so that a currency said only once is said at its first amount.
    if rng.random() < 0.15:
        writer.is_sparing, writer.is_said = True, True
        text = _write_text(writer, lines, [*_extras(writer, shipping, percent, taken), rng.choice(_CURRENCY_NOTES[currency])])
    else:
        extras = _extras(writer, shipping, percent, taken)
        writer.is_said = False
        text = _write_text(writer, lines, extras)
    reasoning, subtotal, total = _reason(currency, lines, percent, shipping or 0)
    items = ",".join(
        f'{{"name":"{line.name}","quantity":{line.quantity},"unit_price":{format_cents(line.cents)}}}' for line in lines
    )
    answer = (
        f'{{"currency":"{currency}","items":[{items}],"subtotal":{format_cents(subtotal)},"discount_percent":{percent},'
        f'"shipping":{format_cents(shipping or 0)},"total":{format_cents(total)}}}'
    )
    return OrderSample(text, reasoning, answer)


def held_out_orders(count: int) -> list[OrderSample]:
    """Give the first `count` orders of the held-out set; the training stream leaves their texts out.

    Raises:
        ValueError: `count` is larger than the held-out set.
    """
    if not 0 <= count <= HELD_OUT_SEEDS:
        raise ValueError(f"count must be between 0 and {HELD_OUT_SEEDS}, not {count}")
    return [make_order(random.Random(seed)) for seed in range(count)]
