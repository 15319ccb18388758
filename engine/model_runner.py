"""Run the model for one step and give each sequence's next-token logits."""

from __future__ import annotations

import torch

from .kv_cache import KVCache
from .model_loader import LoadedModel
from .sequence import Sequence


class ModelRunner:
    """Runs transformers' own module over the engine's cache.

    Sequences whose prompt is not computed yet are run one by one (their lengths differ); all others share one decode pass.
    """

    def __init__(self, loaded: LoadedModel, kv_cache: KVCache) -> None:
        self._loaded = loaded
        self._kv_cache = kv_cache

    @torch.no_grad()
    def run(self, sequences: list[Sequence]) -> torch.Tensor:
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

    def _forward(self, sequences: list[Sequence]) -> torch.Tensor:
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

    def _attention_mask(self, positions: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor | None:
        """Bool `(rows, 1, query, kv)`, True = visible; None where transformers' causal default is the same."""
        if len(sequences) == 1:
            return None
        kv_length = int(max(sequence.num_cached_tokens for sequence in sequences)) + positions.shape[1]
        return (torch.arange(kv_length, device=positions.device) <= positions[:, :, None])[:, None]
