"""Train the pocket model from nothing: `python -m engine.pocket.train --out FOLDER`.

Fresh generated orders at every step, loss on the assistant's tokens only, Muon for the matrices and AdamW for the rest, bf16
autocast. Writes an ordinary transformers folder, the loss as JSON lines and the loss curve as a picture.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from .build_tokenizer import MAX_LENGTH, build_tokenizer
from .orders import HELD_OUT_SEEDS, TRAIN_SEED, OrderSample, held_out_orders, make_order

SYSTEM_PROMPTS = (
    "You read orders and answer with one JSON object.",
    "You are a careful clerk. Work the totals out, then answer in JSON.",
    "Extract the order.",
    "You turn written orders into data.",
)
IGNORED = -100
POOL_BATCHES = 24
LENGTH_STEP = 32
LOG_STEPS = 10
SAVE_STEPS = 500


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """What a training run depends on, besides the code; `steps` are those of the learning-rate schedule."""

    steps: int
    batch_size: int
    learning_rate: float
    matrix_learning_rate: float
    seed: int
    stop_after: int | None = None
    no_thinking_share: float = 0.15
    system_share: float = 0.15
    second_turn_share: float = 0.05


def make_model(vocab_size: int, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Build the untrained model: Llama layout, 3.2 M parameters, embeddings tied."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


class SampleStream:
    """Endless batches `(input_ids, labels)` of int64 `(batch, length)`, bucketed by length."""

    def __init__(self, tokenizer: Any, settings: TrainSettings) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.rng = random.Random(settings.seed)
        self.held_out = {sample.text for sample in held_out_orders(HELD_OUT_SEEDS)}

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        size = self.settings.batch_size
        while True:
            pool = sorted((self._encode() for _ in range(size * POOL_BATCHES)), key=lambda pair: len(pair[0]))
            starts = list(range(0, len(pool), size))
            self.rng.shuffle(starts)
            for start in starts:
                yield self._pad(pool[start : start + size])

    def _draw(self) -> OrderSample:
        while (sample := make_order(self.rng)).text in self.held_out:
            pass
        return sample

    def _encode(self) -> tuple[list[int], list[int]]:
        messages: list[dict[str, str]] = []
        if self.rng.random() < self.settings.system_share:
            messages.append({"role": "system", "content": self.rng.choice(SYSTEM_PROMPTS)})
        if self.rng.random() < self.settings.second_turn_share:
            earlier = self._draw()
            messages += [{"role": "user", "content": earlier.text}, {"role": "assistant", "content": earlier.answer}]
        sample = self._draw()
        messages.append({"role": "user", "content": sample.text})
        is_thinking = self.rng.random() >= self.settings.no_thinking_share
        prompt = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=is_thinking
        )
        target = f"{sample.reasoning}</think>{sample.answer}" if is_thinking else sample.answer
        prompt_ids: list[int] = self.tokenizer(prompt)["input_ids"]
        target_ids: list[int] = self.tokenizer(target + self.tokenizer.eos_token)["input_ids"]
        return prompt_ids + target_ids, [IGNORED] * len(prompt_ids) + target_ids

    def _pad(self, rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
        length = math.ceil(max(len(ids) for ids, _ in rows) / LENGTH_STEP) * LENGTH_STEP
        input_ids = torch.full((len(rows), length), int(self.tokenizer.pad_token_id))
        labels = torch.full((len(rows), length), IGNORED)
        for row, (ids, targets) in enumerate(rows):
            input_ids[row, : len(ids)] = torch.tensor(ids)
            labels[row, : len(targets)] = torch.tensor(targets)
        return input_ids, labels


def _schedule(step: int, steps: int) -> float:
    """Factor on the learning rate: 2 % warm-up, flat, then linear to zero over the last 60 %."""
    warm = max(1, steps // 50)
    return min(1.0, (step + 1) / warm, (steps - step) / (0.6 * steps))


def train(settings: TrainSettings, out: Path, *, resume: Path | None = None, use_compile: bool = True) -> None:
    """Train and save to `out`; the loss of every tenth step goes to `out/loss.jsonl`.

    Args:
        settings: What the run depends on.
        out: Folder to write to.
        resume: Folder of an earlier run whose weights and tokenizer are the start; its optimizers are not kept.
        use_compile: Compile the model; needs a C++ compiler.
    """
    # A sure model has gradients below the normal floats, on which a CPU is many times slower. Threads inherit the setting.
    torch.set_flush_denormal(True)
    torch.manual_seed(settings.seed)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer: Any
    if resume is None:
        tokenizer = build_tokenizer()
        model = make_model(64 * math.ceil(len(tokenizer) / 64), tokenizer)
    else:
        tokenizer = AutoTokenizer.from_pretrained(resume)
        model = LlamaForCausalLM.from_pretrained(resume, dtype=torch.float32)
    optimizers = _make_optimizers(model, settings)
    backbone = torch.compile(model.model, dynamic=True) if use_compile else model.model
    num_steps = settings.stop_after or settings.steps
    log = _LossLog(out / "loss.jsonl", resume)
    for step, (input_ids, labels) in zip(range(num_steps), SampleStream(tokenizer, settings), strict=False):
        for optimizer in optimizers:
            group = optimizer.param_groups[0]
            group["lr"] = group["initial_lr"] * _schedule(step, settings.steps)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = backbone(input_ids=input_ids, use_cache=False).last_hidden_state[:, :-1]
            # Only positions that carry loss go through the head: a third of them are prompt or padding.
            is_target = labels[:, 1:] != IGNORED
            loss = cross_entropy(model.lm_head(hidden[is_target]).float(), labels[:, 1:][is_target])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step % LOG_STEPS == 0 or step == num_steps - 1:
            log.add(step, num_steps, loss.item())
        if step and step % SAVE_STEPS == 0:
            _save(model, tokenizer, out)
    _save(model, tokenizer, out)
    plot_loss(log.path, out / "loss.png")


def _make_optimizers(model: LlamaForCausalLM, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    muon = torch.optim.Muon(matrices, lr=settings.matrix_learning_rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(others, lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    for optimizer in (muon, adamw):
        optimizer.param_groups[0]["initial_lr"] = optimizer.param_groups[0]["lr"]
    return [muon, adamw]


class _LossLog:
    """JSON lines of `step`, `loss`, `elapsed_s`; a resumed run goes on counting where the earlier one ended."""

    def __init__(self, path: Path, resume: Path | None) -> None:
        self.path = path
        earlier = (resume / path.name).read_text(encoding="utf-8") if resume is not None else ""
        path.write_text(earlier, encoding="utf-8")
        last = json.loads(earlier.splitlines()[-1]) if earlier else {"step": -1, "elapsed_s": 0.0}
        self._first_step = last["step"] + 1
        self._began = time.monotonic() - last["elapsed_s"]

    def add(self, step: int, num_steps: int, loss: float) -> None:
        elapsed_s = round(time.monotonic() - self._began, 1)
        row = {"step": self._first_step + step, "loss": round(loss, 5), "elapsed_s": elapsed_s}
        with self.path.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
        print(f"step {step + 1}/{num_steps}  loss {loss:.4f}  {elapsed_s / 60:.1f} min", flush=True)


def _save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    copy: Any = LlamaForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    copy.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def plot_loss(log: Path, picture: Path) -> None:
    """Draw the loss curve of a `loss.jsonl` file as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.semilogy([row["step"] for row in rows], [row["loss"] for row in rows], linewidth=0.8)
    axes.set(xlabel="step", ylabel="cross entropy per assistant token (nats)", title="pocket-r1 training loss")
    figure.tight_layout()
    figure.savefig(picture, dpi=100)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--steps", type=int, default=3000, help="optimizer steps (default %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="orders per step (default %(default)s)")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate of AdamW (default %(default)s)")
    parser.add_argument("--matrix-lr", type=float, default=5e-3, help="peak learning rate of Muon (default %(default)s)")
    parser.add_argument("--seed", type=int, default=TRAIN_SEED, help="seed of weights and data (default %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile (needs no C++ compiler; slower)")
    parser.add_argument("--stop-after", type=int, help="end after this many steps of the schedule")
    parser.add_argument("--resume", type=Path, help="start from the weights in this folder")
    args = parser.parse_args()
    settings = TrainSettings(args.steps, args.batch_size, args.lr, args.matrix_lr, args.seed, args.stop_after)
    train(settings, args.out, resume=args.resume, use_compile=not args.no_compile)


if __name__ == "__main__":
    main()
