"""Small tokenizers of every make, built here: what their ids stand for can be read off by eye."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

Scheme = Literal["always", "first", "never"]
SPACE = "\u2581"
BYTE_PIECES = tuple(f"<0x{byte:02X}>" for byte in range(256))
PRINTABLE = tuple(SPACE if byte == 0x20 else chr(byte) for byte in range(0x20, 0x7F))
WORDS = (f"{SPACE}a", f"{SPACE}{SPACE}", f"{SPACE}{{", '{"', '":', f'":{SPACE}', '",', '"}', "true", "é", "東", "<0x4>", "12")


def wrap(tokenizer: Tokenizer, **names: str) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", **names)


def byte_level(*, add_prefix_space: bool = False, pieces: Iterable[str] = (), without: str = "") -> Any:
    alphabet = [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter not in without]
    words = [*alphabet, *(pieces or ("Ġa", "ĠĠ", "Ã©", "ĊĊ", '{"', '":', '"}', "true"))]
    tokenizer = Tokenizer(models.BPE({piece: token_id for token_id, piece in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return wrap(tokenizer)


def metaspace(scheme: Scheme, *, model: Literal["bpe", "unigram"] = "bpe", byte_pieces: Iterable[str] = BYTE_PIECES) -> Any:
    """As sentencepiece with byte fallback, in the form of newer conversions."""
    pieces = ["<unk>", "</s>", *byte_pieces, *dict.fromkeys((*PRINTABLE, *WORDS))]
    if model == "bpe":
        vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
        tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    else:
        tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
    return wrap(tokenizer)


def llama_like(*, byte_pieces: Iterable[str] = BYTE_PIECES, pieces: Iterable[str] = (*PRINTABLE, *WORDS)) -> Any:
    """As the first conversions of Llama had it: the space is put there by a normaliser."""
    words = dict.fromkeys(("<unk>", "</s>", *byte_pieces, *pieces))
    tokenizer = Tokenizer(
        models.BPE({piece: i for i, piece in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return wrap(tokenizer)


def unigram_without_bytes() -> Any:
    """As XGLM: what has no piece is unknown; `<0x41>` is text."""
    pieces = ["<unk>", "</s>", *dict.fromkeys((*PRINTABLE, *WORDS, "<0x41>"))]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], 0, byte_fallback=False))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return wrap(tokenizer)


def other_space_sign() -> Any:
    pieces = ["<unk>", "</s>", *(piece.replace(SPACE, "_") for piece in (*PRINTABLE[:-1], *WORDS) if piece != "_")]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(i)) for i, piece in enumerate(dict.fromkeys(pieces))], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="_")
    tokenizer.decoder = decoders.Metaspace(replacement="_")
    return wrap(tokenizer)


def save_tiny_model(folder: Path, tokenizer: Any, *, config_stop: int | None = None, generation_stop: int | None = None) -> None:
    """Write a random model with a head that is wider than the tokenizer; it ends at the tokenizer's id unless told otherwise."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer) + 7,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id if config_stop is None else config_stop,
    )
    model = LlamaForCausalLM(config)
    if generation_stop is not None:
        assert model.generation_config is not None
        model.generation_config.eos_token_id = [generation_stop]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def with_added(base: Any, *tokens: AddedToken | str, special: bool = False) -> Any:
    base.add_tokens(list(tokens), special_tokens=special)
    return base


ODD: dict[str, Callable[[], Any]] = {
    "byte-level": byte_level,
    "byte-level, prefix space": lambda: byte_level(add_prefix_space=True),
    "metaspace always": lambda: metaspace("always"),
    "metaspace first": lambda: metaspace("first"),
    "metaspace never": lambda: metaspace("never"),
    "unigram with bytes": lambda: metaspace("first", model="unigram"),
    "llama": llama_like,
    "llama, bytes missing": lambda: llama_like(byte_pieces=BYTE_PIECES[0x80:]),
    "unigram without bytes": unigram_without_bytes,
    "other space sign": other_space_sign,
    "added, stripping": lambda: with_added(
        byte_level(), AddedToken("<tool>", lstrip=True, rstrip=True), AddedToken("  \n", lstrip=True), AddedToken("\t\t")
    ),
    "added, normalised": lambda: with_added(
        llama_like(), *(AddedToken(text, normalized=True) for text in ("Tool Call", "    "))
    ),
    "added character": lambda: with_added(
        llama_like(byte_pieces=(), pieces=[piece for piece in (*PRINTABLE, *WORDS) if not set(piece) & {"{", "}"}]),
        *(AddedToken(sign, normalized=False) for sign in "{}"),
    ),
    "added piece that is one already": lambda: with_added(byte_level(), "true"),
    "empty piece": lambda: byte_level(pieces=("", '{"', '"}')),
}  # fmt: skip


def refused_kinds() -> dict[str, Any]:
    """Kinds that put spaces between tokens, or glue them, when they decode."""
    word_piece = Tokenizer(models.WordPiece({"<unk>": 0, "a": 1, "##b": 2}, unk_token="<unk>"))
    word_piece.decoder = decoders.WordPiece()
    suffixed = Tokenizer(models.BPE({"<unk>": 0, "a</w>": 1, "b": 2}, [], end_of_word_suffix="</w>"))
    suffixed.decoder = decoders.BPEDecoder(suffix="</w>")
    words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    by_regex = Tokenizer(models.BPE({"<unk>": 0, "_a": 1}, []))
    by_regex.decoder = decoders.Sequence([decoders.Replace(Regex("_+"), " "), decoders.Fuse()])
    kinds = {"word piece": word_piece, "end-of-word suffix": suffixed, "no decoder": words, "replaced by expression": by_regex}
    return {name: wrap(tokenizer) for name, tokenizer in kinds.items()}
