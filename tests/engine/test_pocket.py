"""The embedded model's files, template and data; its accuracy is measured in `tests/bench/accuracy.py`."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine import resolve_model
from engine.pocket.orders import HELD_OUT_SEEDS, Order, held_out_orders, make_order

FOLDER = Path(resolve_model("pocket-r1"))


def test_files_are_an_ordinary_folder_of_ten_megabytes_at_most() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= names
    assert {"chat_template.jinja", "README.md", "loss.png", "loss.jsonl"} <= names
    assert sum(path.stat().st_size for path in FOLDER.rglob("*")) <= 10_000_000


def test_markers_are_single_ids_and_plain_text_never_makes_them(pocket_tokenizer: Any) -> None:
    for marker in ("<think>", "</think>"):
        assert len(pocket_tokenizer.encode(marker, add_special_tokens=False)) == 1


MESSAGES = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": " first "},
    {"role": "assistant", "content": "<think>old thoughts</think>{}"},
    {"role": "user", "content": "second"},
]


@pytest.mark.parametrize(
    ("options", "tail"),
    [({}, "<think>"), ({"enable_thinking": True}, "<think>"), ({"enable_thinking": False}, "<think></think>")],
    ids=["default", "on", "off"],
)
def test_template_switches_thinking_and_drops_old_thoughts(pocket_tokenizer: Any, options: dict[str, bool], tail: str) -> None:
    text = pocket_tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True, **options)
    history = "<|system|>S<|end|><|user|>first<|end|><|assistant|>{}<|end|><|user|>second<|end|>"
    assert text == history + "<|assistant|>" + tail


def test_prompt_is_a_token_prefix_of_the_training_text(pocket_tokenizer: Any) -> None:
    for sample in held_out_orders(50):
        prompt = f"<|user|>{sample.text}<|end|><|assistant|><think>"
        whole = pocket_tokenizer.encode(prompt + sample.reasoning + "</think>" + sample.answer)
        assert whole[: len(pocket_tokenizer.encode(prompt))] == pocket_tokenizer.encode(prompt)


def test_answers_follow_from_the_order_and_the_reasoning_adds_up() -> None:
    for seed in range(20_000, 20_400):
        sample = make_order(random.Random(seed))
        answer = json.loads(sample.answer, parse_float=Decimal)
        Order.model_validate_json(sample.answer)
        subtotal = sum(item["quantity"] * item["unit_price"] for item in answer["items"])
        assert answer["subtotal"] == subtotal
        assert answer["total"] == subtotal * (100 - answer["discount_percent"]) / 100 + answer["shipping"]
        for left, operator, right, result in re.findall(r"([\d.]+) ([*+/-]) ([\d.]+) = ([\d.]+)", sample.reasoning):
            a, b = Decimal(left), Decimal(right)
            assert {"*": a * b, "+": a + b, "-": a - b, "/": a / b}[operator] == Decimal(result)


def test_orders_name_their_items_and_currency() -> None:
    for seed in range(300):
        sample = make_order(random.Random(seed))
        order = Order.model_validate_json(sample.answer)
        assert len({item.name for item in order.items}) == len(order.items)
        signs = {"EUR": "€|euro|EUR", "USD": r"\$|dollar|USD", "GBP": "£|pound|GBP", "CHF": "franc|CHF"}
        assert re.search(signs[order.currency], sample.text)
        for item in order.items:
            assert item.name[:3] in sample.text


def test_same_seed_same_order() -> None:
    assert make_order(random.Random(5)) == make_order(random.Random(5))


def test_training_stream_leaves_the_held_out_orders_out() -> None:
    pytest.importorskip("torch")
    from transformers import AutoTokenizer

    from engine.pocket.train import SampleStream, TrainSettings

    stream = SampleStream(AutoTokenizer.from_pretrained(FOLDER), TrainSettings(1, 4, 1e-3, 1e-3, 1))
    held_out = {sample.text for sample in held_out_orders(HELD_OUT_SEEDS)}
    assert len(held_out) > 9_900
    assert not {stream._draw().text for _ in range(2000)} & held_out
    input_ids, labels = next(iter(stream))
    assert input_ids.shape == labels.shape


def test_held_out_count_is_checked() -> None:
    with pytest.raises(ValueError, match="count"):
        held_out_orders(HELD_OUT_SEEDS + 1)
