"""What is loaded, and what is refused because it would be computed wrongly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models
from transformers import MambaConfig, MambaForCausalLM, PreTrainedTokenizerFast

from engine import (
    EngineConfig,
    InvalidRequestError,
    LLMEngine,
    ModelLoadError,
    SamplingParams,
    UnknownModelError,
    attention,
    model_files,
    model_runner,
    resolve_model,
    transformers_forward,
)
from engine.attention import PackedBatch
from engine.chat import ChatFormat
from engine.fast_path import forward, torch_ops
from engine.kv_cache import PagedKVCache
from engine.small_windows import SMALL_WINDOW, small_windows
from tests.engine.random_models import save_random_model


def edit_config(model: Path, target: Path, **changes: Any) -> Path:
    shutil.copytree(model, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | changes))
    return target


@pytest.mark.parametrize("name", ["nonsense", "./no/such", "/no/such", "~/no/such/folder", "a/b/c", ""])
def test_unknown_model_says_what_is_known(name: str) -> None:
    with pytest.raises(UnknownModelError) as caught:
        resolve_model(name)
    assert caught.value.hint


def test_hub_id_is_passed_on() -> None:
    assert resolve_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"


def test_folder_without_a_model_is_a_load_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError):
        LLMEngine(EngineConfig(model=str(tmp_path)))


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


DOWN = "model.layers.1.mlp.down_proj.weight"


def halve(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "S17-no-tokenizer": (lambda folder: remove(folder, "tokenizer.json", "tokenizer_config.json"), "tokenizer"),
    "no-weights": (lambda folder: remove(folder, "model.safetensors"), "weights"),
    "half-a-file": (halve, "weights"),
    "missing-weight": (lambda folder: edit_weights(folder, lambda weights: weights.__delitem__(DOWN)), "missing"),
    "wrong-shape": (lambda folder: edit_weights(folder, lambda weights: weights.update({DOWN: torch.ones(3, 4)})), "weights"),
    "no-numbers": (
        lambda folder: edit_weights(folder, lambda weights: weights.update({DOWN: weights[DOWN] * float("nan")})),
        "no numbers",
    ),
    "broken-config": (lambda folder: (folder / "config.json").write_text("{"), "config"),
    "unknown-kind": (lambda folder: (folder / "config.json").write_text('{"model_type": "no_such"}'), "config"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folder_says_what_is_wrong(tiny_model: Path, tmp_path: Path, case: str) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    breaks, word = BROKEN[case]
    breaks(folder)
    with pytest.raises(ModelLoadError, match=word) as caught:
        LLMEngine(EngineConfig(model=str(folder)))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "is_known"),
    [("a/b/c.gguf", True), ("a/c.gguf", False), ("c.gguf", False), ("./c.gguf", False), ("/a/b/c/d.gguf", False)],
)
def test_gguf_names(name: str, is_known: bool) -> None:
    if is_known:
        assert resolve_model(name) == name
    else:
        with pytest.raises(UnknownModelError):
            resolve_model(name)


def test_gguf_file_that_is_none_is_a_load_error(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"nonsense")
    with pytest.raises(ModelLoadError) as caught:
        LLMEngine(EngineConfig(model=str(tmp_path / "x.gguf")))
    assert caught.value.hint


def test_dtype_auto_says_why(tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    edit_weights(folder, lambda weights: weights.update({name: weight.bfloat16() for name, weight in weights.items()}))
    edit_config(folder, tmp_path / "n", dtype="bfloat16")
    with caplog.at_level("INFO", "engine"):
        engine = LLMEngine(EngineConfig(model=str(tmp_path / "n")))
    assert engine._loaded.model.dtype == torch.float32
    assert "do not depend on the batch" in caplog.text
    assert "device auto: " in caplog.text
    engine.close()


def test_checkpoint_that_float32_has_no_room_for_keeps_its_dtype(
    tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    edit_weights(folder, lambda weights: weights.update({name: weight.bfloat16() for name, weight in weights.items()}))
    edit_config(folder, tmp_path / "n", dtype="bfloat16")
    monkeypatch.setattr(model_files, "free_memory_bytes", lambda: 10_000)
    files = model_files.read_model(str(tmp_path / "n"), dtype="auto", device=torch.device("cpu"))
    assert files.model.dtype == torch.bfloat16
    assert "stay torch.bfloat16" in caplog.text


def test_quantized_weights_keep_their_dtype(tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "m"
    shutil.copytree(tiny_model, folder)
    edit_weights(folder, lambda weights: weights.update({name: weight.bfloat16() for name, weight in weights.items()}))
    quantization = {"quant_method": "gguf", "dequantize": False, "gguf_file": "m.gguf"}
    edit_config(folder, tmp_path / "n", dtype="bfloat16", quantization_config=quantization)
    files = model_files.read_model(str(tmp_path / "n"), dtype="auto", device=torch.device("cpu"))
    assert files.model.dtype == torch.bfloat16
    assert "the weights are quantized" in caplog.text


def test_number_of_threads_is_put_back(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    engine = LLMEngine(EngineConfig(model=str(tiny_model), num_threads=before + 1))
    real, seen = engine._runner.run, list[int]()

    def run(chunks: Any) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return real(chunks)

    monkeypatch.setattr(engine._runner, "run", run)
    engine.generate([[1, 2]], SamplingParams(max_tokens=2))
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before
    engine.close()


WINDOWS: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 12},
    "qwen2": {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8, "use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    "gemma3_text": {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_sliding_windows_equal_transformers(tmp_path: Path, pocket_tokenizer: Any, kind: str) -> None:
    model = save_random_model(tmp_path, pocket_tokenizer, kind, **WINDOWS[kind])
    engine = LLMEngine(EngineConfig(model=str(tmp_path), max_model_len=256, max_num_batched_tokens=20))
    assert engine._loaded.window == 12
    assert_equal_to_transformers(engine, model, [[1, 2, 3], [7, 8, 9] * 9, list(range(40, 75)), [5]])
    engine.close()


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("is_fast", [True, False], ids=["fast", "packed"])
def test_large_windows_equal_transformers(
    tmp_path: Path, pocket_tokenizer: Any, kind: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts shorter than the window, as long, longer, and one that reaches it while it is answered, in pieces and together."""
    if not is_fast:
        monkeypatch.setattr(model_runner, "WAYS", (transformers_forward.PackedForward,))
    sizes = WINDOWS[kind] | {"sliding_window": 1500, "max_position_embeddings": 2000}
    model = save_random_model(tmp_path, pocket_tokenizer, kind, **sizes)
    engine = LLMEngine(EngineConfig(model=str(tmp_path), max_num_batched_tokens=400))
    assert engine._loaded.window == 1500
    assert engine._loaded.model.config.sliding_window == 1500
    prompts = [[(7 * index * index + 3) % 900 for index in range(length)] for length in (30, 1495, 1500, 1900)]
    assert_equal_to_transformers(engine, model, prompts)
    engine.close()


@pytest.mark.parametrize("kind", WINDOWS)
def test_large_window_that_is_not_seen_is_refused(
    tmp_path: Path, pocket_tokenizer: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = attention.attend

    def attend_to_one_more(*args: Any, window: int | None = None, **options: Any) -> torch.Tensor:
        return real(*args, window=None if window is None else window + 1, **options)

    monkeypatch.setattr(transformers_forward, "attend", attend_to_one_more)
    monkeypatch.setattr(torch_ops, "attend", attend_to_one_more)
    monkeypatch.setattr(forward, "load_library", lambda: None)
    save_random_model(
        tmp_path, pocket_tokenizer, kind, **WINDOWS[kind] | {"sliding_window": 1500, "max_position_embeddings": 2000}
    )
    with pytest.raises(ModelLoadError, match="other logits"):
        LLMEngine(EngineConfig(model=str(tmp_path)))
    engine = LLMEngine(EngineConfig(model=str(tmp_path), max_model_len=1500))
    assert engine._loaded.window is None
    engine.close()


def test_small_windows_are_put_back_when_the_check_fails(tmp_path: Path, pocket_tokenizer: Any) -> None:
    model = save_random_model(tmp_path, pocket_tokenizer, "gemma3_text", **WINDOWS["gemma3_text"] | {"sliding_window": 99})
    layers = [layer.self_attn for layer in model.model.layers]

    def check() -> None:
        with small_windows(model, 99):
            assert model.config.sliding_window == SMALL_WINDOW
            assert [layer.sliding_window for layer in layers] == [SMALL_WINDOW, None]
            raise RuntimeError("the check failed")

    with pytest.raises(RuntimeError, match="the check failed"):
        check()
    assert model.config.sliding_window == 99
    assert [layer.sliding_window for layer in layers] == [99, None]


def test_window_with_caps_of_its_own_is_refused(tmp_path: Path, pocket_tokenizer: Any) -> None:
    """Gemma 2 caps its scores, which only its own attention does, and that one does not know our windows."""
    save_random_model(tmp_path, pocket_tokenizer, "gemma2", num_key_value_heads=2, head_dim=8, sliding_window=12)
    with pytest.raises(ModelLoadError):
        LLMEngine(EngineConfig(model=str(tmp_path), max_model_len=256))


def test_other_layouts_of_transformers_run(tiny_model: Path, tmp_path: Path) -> None:
    """The same weights as another architecture: the engine knows none of them by name."""
    folder = edit_config(
        tiny_model, tmp_path / "m", model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None
    )
    engine, llama = LLMEngine(EngineConfig(model=str(folder))), LLMEngine(EngineConfig(model=str(tiny_model)))
    assert engine.generate([[1, 2, 3]])[0].token_ids == llama.generate([[1, 2, 3]])[0].token_ids
    engine.close()
    llama.close()


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"max_model_len": 100_000}, "max_model_len"),
        ({"device": "nope"}, "device"),
        ({"family": "no_such_family"}, "family"),
        ({"dtype": "int3"}, "dtype"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"grammar_timeout_s": 0}, "grammar_timeout_s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_setting_names_itself(tiny_model: Path, options: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        LLMEngine(EngineConfig(model=str(tiny_model), **options))
    assert caught.value.param == param


def test_B17_stop_ids_come_from_all_places(tiny_model: Path, tmp_path: Path) -> None:
    folder = edit_config(tiny_model, tmp_path / "m", eos_token_id=5)
    generation = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(generation | {"eos_token_id": [5, 9]}))
    engine = LLMEngine(EngineConfig(model=str(folder)))
    assert engine._loaded.stop_token_ids == (5, 9, engine.tokenizer.eos_token_id)
    engine.close()


def test_family_is_found_from_markers_switch_and_turn_tokens(pocket_tokenizer: Any) -> None:
    family = ChatFormat(pocket_tokenizer).family
    assert family is not None
    assert family.name == "pocket_r1"


def word_tokenizer(*tokens: str, template: str = "") -> Any:
    words = Tokenizer(models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>"))
    words.decoder = decoders.ByteLevel()
    words.add_tokens(list(tokens))
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", chat_template=template)


@pytest.mark.parametrize(
    ("tokenizer", "name"),
    [
        (
            word_tokenizer(
                "<think>",
                "</think>",
                "<|im_start|>",
                "<|im_end|>",
                template="{{ messages[0].content }}{% if not enable_thinking | default(true) %}<think></think>{% endif %}",
            ),
            "qwen3",
        ),
        (word_tokenizer("<longcat_think>", "</longcat_think>"), "longcat"),
        (word_tokenizer("<think>"), None),
        (word_tokenizer(), None),
    ],
    ids=["qwen3", "longcat", "half-a-pair", "no-markers"],
)
def test_detected_family(tokenizer: Any, name: str | None) -> None:
    family = ChatFormat(tokenizer).family
    assert (family.name if family is not None else None) == name


def test_family_that_is_named_learns_the_switch_of_the_template(pocket_tokenizer: Any) -> None:
    chat = ChatFormat(pocket_tokenizer, "deepseek_r1")
    assert chat.family is not None
    assert chat.family.thinking_switch == "enable_thinking"
    assert pocket_tokenizer.decode(chat.render([{"role": "user", "content": "x"}], thinking=False)).endswith("<think></think>")


@pytest.mark.parametrize(("thinking", "given"), [(True, False), (False, True)])
def test_contradictory_switches_are_refused(pocket_tokenizer: Any, thinking: bool, given: bool) -> None:
    chat = ChatFormat(pocket_tokenizer)
    with pytest.raises(InvalidRequestError, match=f"thinking={thinking} contradicts enable_thinking={given}") as caught:
        chat.render([{"role": "user", "content": "x"}], thinking=thinking, enable_thinking=given)
    assert caught.value.param == "thinking"
    assert chat.render([{"role": "user", "content": "x"}], thinking=given, enable_thinking=given)


def test_guess_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = word_tokenizer("<think>", "</think>", template="{{ messages[0].content }}")
    chat = ChatFormat(tokenizer)
    chat.log_detection()
    assert chat.family is not None
    assert "the chat template never mentions it, so the model may not think at all" in caplog.text


def test_family_without_its_markers_here_says_which_tokens_there_are() -> None:
    tokenizer = word_tokenizer("<think>", "</think>")
    with pytest.raises(ModelLoadError, match=r"'\[THINK\]' of family 'mistral'.*its added tokens are <unk>, <think>, </think>"):
        ChatFormat(tokenizer, "mistral")


def test_family_that_is_not_known_lists_near_names(pocket_tokenizer: Any) -> None:
    with pytest.raises(InvalidRequestError, match="did you mean qwen3") as caught:
        ChatFormat(pocket_tokenizer, "qwen33")
    assert caught.value.param == "family"


def test_family_none_has_no_markers(pocket_tokenizer: Any) -> None:
    assert ChatFormat(pocket_tokenizer, "none").markers is None


def test_switch_that_does_not_exist_is_refused() -> None:
    chat = ChatFormat(word_tokenizer("<think>", "</think>", template="{{ messages[0].content }}<think>"), "deepseek_r1")
    with pytest.raises(InvalidRequestError) as caught:
        chat.render([{"role": "user", "content": "x"}], thinking=False)
    assert caught.value.param == "thinking"


def test_message_that_the_template_refuses_is_the_callers_error(pocket_tokenizer: Any) -> None:
    chat = ChatFormat(pocket_tokenizer, "auto")
    with pytest.raises(InvalidRequestError, match="tool") as caught:
        chat.render([{"role": "tool", "content": "x"}])
    assert caught.value.param == "messages"


def test_model_that_the_cache_gets_wrong_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = attention.pack

    def forgets_the_first_token(chunks: Any, cache: PagedKVCache, device: torch.device) -> PackedBatch:
        batch = real(chunks, cache, device)
        if len(batch.positions) == len(chunks):
            batch.positions -= 1
            batch.slot_mapping -= 1
        return batch

    monkeypatch.setattr(transformers_forward, "pack", forgets_the_first_token)
    monkeypatch.setattr(forward, "pack", forgets_the_first_token)
    for max_num_seqs in (1, 4):
        with pytest.raises(ModelLoadError, match="other logits"):
            LLMEngine(EngineConfig(model=str(tiny_model), max_num_seqs=max_num_seqs))


def test_model_that_knows_no_such_cache_is_refused(tmp_path: Path, pocket_tokenizer: Any) -> None:
    config = MambaConfig(vocab_size=1088, hidden_size=32, num_hidden_layers=2, state_size=4, eos_token_id=988, pad_token_id=987)
    MambaForCausalLM(config).save_pretrained(tmp_path)
    pocket_tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError):
        LLMEngine(EngineConfig(model=str(tmp_path)))


def assert_equal_to_transformers(engine: LLMEngine, model: Any, prompts: list[list[int]], max_tokens: int = 16) -> None:
    for prompt, output in zip(prompts, engine.generate(prompts, SamplingParams(max_tokens=max_tokens)), strict=True):
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=max_tokens, do_sample=False)[0, len(prompt) :].tolist()
        assert output.token_ids == expected


GQA = {"num_key_value_heads": 2, "head_dim": 8}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("llama", GQA, "fast path"),
    "llama-untied-biased": ("llama", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}, "fast path"),
    "llama-tied-rope": (
        "llama",
        {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}},
        "fast path",
    ),
    "mistral": ("mistral", GQA | {"sliding_window": None}, "fast path"),
    "qwen2": ("qwen2", {"num_key_value_heads": 2}, "fast path"),
    "qwen3": ("qwen3", GQA, "fast path"),
    "qwen3-wide-heads": ("qwen3", {"num_key_value_heads": 2, "head_dim": 64}, "fast path"),
    "llama-gelu": ("llama", GQA | {"hidden_act": "gelu"}, "packed"),
    "llama-dynamic-rope": (
        "llama",
        GQA | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}},
        "packed",
    ),
    "gpt2": ("gpt2", {}, "packed"),
    "gpt_neox": ("gpt_neox", {}, "packed"),
    "phi": ("phi", {}, "packed"),
    "gemma": ("gemma", GQA, "packed"),
    "olmo2": ("olmo2", {"num_key_value_heads": 2}, "packed"),
    "stablelm": ("stablelm", {"num_key_value_heads": 4}, "padded"),
    "mixtral": ("mixtral", {"num_key_value_heads": 2, "num_local_experts": 4, "sliding_window": None}, "packed"),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_equal_transformers(tmp_path: Path, pocket_tokenizer: Any, name: str) -> None:
    kind, sizes, way = ARCHITECTURES[name]
    model = save_random_model(tmp_path, pocket_tokenizer, kind, **sizes)
    engine = LLMEngine(EngineConfig(model=str(tmp_path), max_num_batched_tokens=20))
    assert way in engine._runner.way
    assert_equal_to_transformers(engine, model, [[1, 2, 3], [7, 8, 9, 10, 11, 12], [5], list(range(40, 75))])
    engine.close()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt_neox"])
def test_padded_way_equals_transformers(
    tmp_path: Path, pocket_tokenizer: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_runner, "WAYS", (transformers_forward.PaddedForward,))
    model = save_random_model(tmp_path, pocket_tokenizer, kind)
    engine = LLMEngine(EngineConfig(model=str(tmp_path), max_num_batched_tokens=20))
    assert_equal_to_transformers(engine, model, [[1, 2, 3], [7, 8, 9, 10, 11, 12], [5], list(range(40, 75))])
    engine.close()


def test_module_keeps_its_own_attention_outside_the_engine(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_runner, "WAYS", (transformers_forward.PackedForward,))
    engine = LLMEngine(EngineConfig(model=str(tiny_model)))
    [output] = engine.generate([[1, 2, 3]], SamplingParams(max_tokens=8))
    alone = engine._loaded.model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False)
    assert output.token_ids == alone[0, 3:].tolist()
    engine.close()
