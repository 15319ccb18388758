"""Read the tokenizer at the head of a GGUF model file. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import IO, Any

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CONTROL = 3


def write_gguf_tokenizer(file: IO[bytes], folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` of a byte-level BPE tokenizer that takes digits one by one (SmolLM)."""
    facts = _read_metadata(file)
    if facts["tokenizer.ggml.model"] != "gpt2" or facts["tokenizer.ggml.pre"] != "smollm":
        raise ValueError(f"not the tokenizer of SmolLM: {facts['tokenizer.ggml.pre']}")
    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    special = [token_id for token_id, kind in enumerate(facts["tokenizer.ggml.token_type"]) if kind == _CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [_added_token(token_id, tokens[token_id]) for token_id in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in facts["tokenizer.ggml.merges"]],
        },
    }
    names = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    config: dict[str, Any] = {key: tokens[facts[f"tokenizer.ggml.{name}_token_id"]] for key, name in names.items()}
    config |= {"chat_template": facts["tokenizer.chat_template"], "model_max_length": facts["llama.context_length"]}
    config |= {"clean_up_tokenization_spaces": False}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")


def _added_token(token_id: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": content, **flags}


def _read_metadata(file: IO[bytes]) -> dict[str, Any]:
    if file.read(4) != b"GGUF":
        raise ValueError("not a GGUF file")
    _read_scalar(file, "I")  # version
    _read_scalar(file, "Q")  # number of tensors
    facts = {}
    for _ in range(_read_scalar(file, "Q")):
        key = _read_string(file)
        facts[key] = _read_value(file, _read_scalar(file, "I"))
    return facts


def _read_value(file: IO[bytes], kind: int) -> Any:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        item_kind = _read_scalar(file, "I")
        return [_read_value(file, item_kind) for _ in range(_read_scalar(file, "Q"))]
    return _read_scalar(file, _SCALARS[kind])


def _read_string(file: IO[bytes]) -> str:
    return file.read(_read_scalar(file, "Q")).decode()


def _read_scalar(file: IO[bytes], code: str) -> Any:
    return struct.unpack(f"<{code}", file.read(struct.calcsize(f"<{code}")))[0]
