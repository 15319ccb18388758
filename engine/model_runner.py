"""Run the model for one step and give each sequence's next-token logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .errors import ModelLoadError
from .kv_cache import CachedSequence, KVCache
from .model_loader import LoadedModel

CHECK_LENGTH = 8
CHECK_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 5e-2}
"""Largest difference of a logit, as a share of the largest logit."""


@dataclass(slots=True)
class _Probe:
    """A row that is no request."""

    token_ids: list[int]
    num_given: int
    slot: int | None = None
    num_cached_tokens: int = 0

    def pending_token_ids(self) -> list[int]:
        return self.token_ids[self.num_cached_tokens : self.num_given]


class ModelRunner:
    """Runs transformers' own module over the engine's cache.

    Sequences whose prompt is not computed yet are run one by one (their lengths differ); all others share one decode pass.
    """

    def __init__(self, loaded: LoadedModel, kv_cache: KVCache) -> None:
        self._loaded = loaded
        self._kv_cache = kv_cache

    @torch.no_grad()
    def run(self, sequences: Sequence[CachedSequence]) -> torch.Tensor:
        """Compute all pending tokens of `sequences`.

        Returns:
            float32 `(len(sequences), vocab_size)` on the model's device: logits of each sequence's next token.
        """
        rows: dict[int, torch.Tensor] = {}
        decoding: list[int] = []
        for index, sequence in enumerate(sequences):
            if len(sequence.pending_token_ids()) == 1 and sequence.num_cached_tokens:
                decoding.append(index)
            else:
                rows[index] = self._forward([sequence])[0]
        if decoding:
            logits = self._forward([sequences[index] for index in decoding])
            rows |= dict(zip(decoding, logits, strict=True))
        return torch.stack([rows[index] for index in range(len(sequences))]).float()

    @torch.no_grad()
    def check_cache(self) -> None:
        """Compare logits over the cache, prompt and then token by token, with the model's own without a cache.

        A model that the cache gets wrong is refused, not run. Costs a few small forward passes; leaves the cache empty.

        Raises:
            ModelLoadError: The logits differ, or the model does not run over this cache at all.
        """
        token_ids = [1 + index % (self._loaded.vocab_size - 1) for index in range(CHECK_LENGTH)]
        # A second, shorter row in the same batch makes lengths differ, as they do in real batches.
        probes = [_Probe(token_ids[:-2], num_given=2), _Probe(token_ids, num_given=4)]
        held: list[_Probe] = []
        for probe in reversed(probes):
            if self._kv_cache.can_allocate(probe):
                self._kv_cache.allocate(probe)
                held.insert(0, probe)
        try:
            model = self._loaded.model
            expected = model(input_ids=torch.tensor([token_ids], device=self._loaded.device), use_cache=False).logits[0, -1]
            logits = self.run(held)
            for _ in range(CHECK_LENGTH - 4):
                for probe in held:
                    probe.num_given += 1
                logits = self.run(held)
        except Exception as error:  # models raise anything when they are given a cache that they do not know
            raise ModelLoadError(f"this model does not run over the engine's cache: {error!r}") from error
        finally:
            for probe in held:
                self._kv_cache.free(probe)
        difference = float((expected.float() - logits[-1]).abs().max())
        if not difference <= CHECK_TOLERANCE[model.dtype] * float(expected.abs().max()):
            raise ModelLoadError(f"this model computes other logits over the engine's cache than without it ({difference:g} off)")

    def _forward(self, sequences: Sequence[CachedSequence]) -> torch.Tensor:
        device = self._loaded.device
        pending = [sequence.pending_token_ids() for sequence in sequences]
        length = len(pending[0])
        starts = torch.tensor([sequence.num_cached_tokens for sequence in sequences], device=device)
        positions = starts[:, None] + torch.arange(length, device=device)
        cache = self._kv_cache.view(sequences, length)
        output = self._loaded.model(
            input_ids=torch.tensor(pending, device=device),
            position_ids=positions,
            attention_mask=self._attention_mask(positions, sequences),
            use_cache=True,
            logits_to_keep=1,
            **{self._loaded.cache_argument: cache},
        )
        for sequence in sequences:
            sequence.num_cached_tokens += length
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _attention_mask(self, positions: torch.Tensor, sequences: Sequence[CachedSequence]) -> torch.Tensor | None:
        """Bool `(rows, 1, query, kv)`, True = visible; None where transformers' causal default is the same."""
        if len(sequences) == 1:
            return None
        kv_length = int(max(sequence.num_cached_tokens for sequence in sequences)) + positions.shape[1]
        return (torch.arange(kv_length, device=positions.device) <= positions[:, :, None])[:, None]
