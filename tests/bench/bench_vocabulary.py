"""The vocabulary that grammars are measured on: Qwen3's, 151,936 columns with padding; for our backends and for raw ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import llguidance
import xgrammar
from transformers import AutoTokenizer

from engine.grammar.vocabulary import Vocabulary, read_vocabulary

CACHE = Path(os.environ.get("THINKGATE_TEST_CACHE") or Path(__file__).parents[2] / ".cache") / "tokenizers"
COLUMNS = 151_936


class BenchVocabulary:
    """A real tokenizer of common size.

    Raises:
        SystemExit: It is not on this machine.
    """

    def __init__(self) -> None:
        folders = sorted(path.parent for path in CACHE.glob("qwen3*/**/tokenizer.json"))
        if not folders:
            raise SystemExit("no tokenizer of common size here; run `make tokenizers` first")
        self.folder = folders[0]
        self._tokenizer: Any = AutoTokenizer.from_pretrained(self.folder)
        self.vocabulary: Vocabulary = read_vocabulary(
            self._tokenizer, vocab_size=COLUMNS, stop_token_ids=[int(self._tokenizer.get_vocab()["<|im_end|>"])]
        )

    def encode(self, text: str) -> list[int]:
        """Write a text as the tokenizer does."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def raw_llguidance(self) -> llguidance.LLTokenizer:
        """Make llguidance's tokenizer from its own wrapper."""
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self._tokenizer, n_vocab=COLUMNS, eos_token=self.vocabulary.stop_token_ids[0])

    def raw_xgrammar(self) -> xgrammar.TokenizerInfo:
        """Make xgrammar's description by its own reader."""
        return xgrammar.TokenizerInfo.from_huggingface(
            self._tokenizer, vocab_size=COLUMNS, stop_token_ids=list(self.vocabulary.stop_token_ids)
        )
