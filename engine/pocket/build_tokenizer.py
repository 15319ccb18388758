"""Build the pocket model's tokenizer from generated orders.

Byte-level BPE; every digit is a token of its own, and a JSON key with the punctuation around it is one piece, so that
`"quantity":` costs one token. The BPE is learnt on singular item names: "lamps" is then `lamp` + `s`, which a small model
copies, where two unrelated tokens had to be learnt one by one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .orders import TRAIN_SEED, make_order, plural_names

SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
THINK_TOKENS = ("<think>", "</think>")
VOCAB_SIZE = 1000
MAX_LENGTH = 2048
# Alternatives in order: a JSON key with its punctuation, an operator with its spaces, a digit, a word, the rest. Operators take
# their spaces along, so that a number in the reasoning and the same number in the answer are the same tokens.
_PIECES = Regex(r"""[\]}\[{,"]*"[a-z_]+":\[?"?| [*+=/-] |[:;] |\d| ?[A-Za-z]+|\n| ?[^\sA-Za-z\d]+|\s+""")


def _singular(text: str) -> str:
    for singular, plural in plural_names():
        text = text.replace(plural, singular)
    return text


def _corpus(count: int) -> Iterator[str]:
    rng = random.Random(TRAIN_SEED - 1)
    for _ in range(count):
        sample = make_order(rng)
        yield _singular(sample.text)
        yield sample.reasoning
        yield sample.answer


def build_tokenizer(samples: int = 20_000) -> PreTrainedTokenizerFast:
    """Train the tokenizer on `samples` generated orders; the same count gives the same vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(_PIECES, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, min_frequency=50
    )
    tokenizer.train_from_iterator(_corpus(samples), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    # Not special, as in Qwen3: decoding keeps the markers, and it is the gate's work to find them.
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in THINK_TOKENS])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>", model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")
    return fast
