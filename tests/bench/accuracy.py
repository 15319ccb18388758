"""Does thinking before the constraint pay? The pocket model on held-out orders, three ways.

(a) thinks, then is constrained; (b) is constrained from token 0, without thinking; (c) thinks, then writes freely and the text
is parsed. Greedy. The orders are those of `held_out_orders`, which the training stream leaves out.

    python tests/bench/accuracy.py [--quick] [--json FILE] [--model NAME] [--orders N]
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from pydantic import ValidationError
from reporting import make_parser, print_table, write_json

from engine import EngineConfig, GrammarSpec, LLMEngine, RequestOutput, SamplingParams
from engine.pocket.orders import Order, OrderSample, held_out_orders

MAX_TOKENS = 600


@dataclass(frozen=True, slots=True)
class Way:
    """One way to ask."""

    name: str
    thinks: bool
    is_constrained: bool


WAYS = (
    Way("(a) thinking, then constrained", True, True),
    Way("(b) constrained from token 0, no thinking", False, True),
    Way("(c) thinking, then free text parsed", True, False),
)


@dataclass(frozen=True, slots=True)
class Score:
    """What came out of one way, over all orders; shares in percent, tokens per order."""

    way: str
    orders: int
    schema_valid: float
    all_fields_right: float
    total_right: float
    items_right: float
    reasoning_tokens: float
    answer_tokens: float
    seconds: float


def run_way(engine: LLMEngine, way: Way, samples: list[OrderSample]) -> Score:
    """Ask all orders one way and score the answers."""
    prompts = [engine.render([{"role": "user", "content": sample.text}], thinking=way.thinks) for sample in samples]
    spec = GrammarSpec.from_json_schema(Order.model_json_schema()) if way.is_constrained else None
    began = time.perf_counter()
    outputs = engine.generate(prompts, SamplingParams(max_tokens=MAX_TOKENS), grammars=spec)
    seconds = time.perf_counter() - began
    answers = [_parse(output) for output in outputs]
    wanted = [Order.model_validate_json(sample.answer) for sample in samples]
    pairs = list(zip(answers, wanted, strict=True))
    return Score(
        way=way.name,
        orders=len(samples),
        schema_valid=_percent([answer is not None for answer in answers]),
        all_fields_right=_percent([answer == right for answer, right in pairs]),
        total_right=_percent([answer is not None and answer.total == right.total for answer, right in pairs]),
        items_right=_percent([answer is not None and answer.items == right.items for answer, right in pairs]),
        reasoning_tokens=_mean([output.num_reasoning_tokens for output in outputs]),
        answer_tokens=_mean([len(output.token_ids) - output.num_reasoning_tokens for output in outputs]),
        seconds=round(seconds, 1),
    )


def _parse(output: RequestOutput) -> Order | None:
    try:
        return Order.model_validate_json(output.content)
    except ValidationError:
        return None


def _percent(flags: list[bool]) -> float:
    return round(100 * sum(flags) / len(flags), 1)


def _mean(numbers: list[int]) -> float:
    return round(sum(numbers) / len(numbers), 1)


def main() -> None:
    """Run the command line."""
    parser = make_parser("accuracy of the pocket model with and without thinking")
    parser.add_argument("--model", default="pocket-r1", help="model to ask (default %(default)s)")
    parser.add_argument("--orders", type=int, default=None, help="held-out orders (default 500, quick 40)")
    args = parser.parse_args()
    samples = held_out_orders(args.orders or (40 if args.quick else 500))
    engine = LLMEngine(EngineConfig(model=args.model))
    scores = [run_way(engine, way, samples) for way in WAYS]
    engine.close()
    print_table(
        f"{args.model} on {len(samples)} held-out orders, greedy (percent; tokens per order)", [asdict(score) for score in scores]
    )
    write_json(args.json, "accuracy", [asdict(score) for score in scores], is_quick=args.quick)


if __name__ == "__main__":
    main()
