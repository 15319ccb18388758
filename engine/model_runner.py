"""Run the model for one step and give the logits that are wanted.

Which way a model is run is chosen when it is loaded: the fastest one that computes what the model computes by itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from .attention import Chunk
from .errors import InvalidRequestError, ModelLoadError, NoSuchWayError
from .fast_path.cuda import GraphForward
from .fast_path.forward import FlatForward, NativeForward
from .kv_cache import BlockTable, PagedKVCache
from .model_loader import LoadedModel
from .small_windows import SMALL_WINDOW, small_windows
from .transformers_forward import Forward, PackedForward, PaddedForward

logger = logging.getLogger(__name__)

CHECK_LENGTH = 8
CHECK_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 5e-2}
"""Largest difference of a logit, as a share of the largest logit."""

WAYS: tuple[Callable[[LoadedModel, PagedKVCache], Forward], ...] = (
    GraphForward,
    NativeForward,
    FlatForward,
    PackedForward,
    PaddedForward,
)
"""Ways to run a model, the fastest first."""


@dataclass(slots=True, eq=False)
class _Probe:
    """A row that is no request."""

    token_ids: list[int]
    num_tokens: int
    num_cached_tokens: int = 0
    blocks: BlockTable = field(default_factory=BlockTable)

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        return self.token_ids[start:stop]


class ModelRunner:
    """Computes steps over the paged cache.

    Args:
        loaded: The model.
        kv_cache: Empty; used by this runner alone.

    Raises:
        ModelLoadError: No way computes what the model computes by itself.
        InvalidRequestError: There is no memory for the cache.
    """

    def __init__(self, loaded: LoadedModel, kv_cache: PagedKVCache) -> None:
        self._loaded = loaded
        self._kv_cache = kv_cache
        with small_windows(loaded.model, loaded.window):
            self._forward = self._choose_forward()
        self._forward.settle()

    @property
    def way(self) -> str:
        """How the model is run, in words."""
        return self._forward.name

    @torch.no_grad()
    def run(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        """Compute what is scheduled; the sequences' `num_cached_tokens` grow by it, drafts included.

        Returns:
            Of the model's dtype `(sum of num_logits, vocab_size)`, on its device: the wanted logits of each chunk, in order.
        """
        logits = self._forward(list(chunks))
        for chunk in chunks:
            chunk.sequence.num_cached_tokens += chunk.num_query_tokens
        return logits

    @torch.no_grad()
    def _choose_forward(self) -> Forward:
        """Compare every way with the model's own forward pass without a cache and take the first that agrees.

        A model that none gets right is refused, not run. Costs a few small forward passes; leaves the cache empty.
        """
        token_ids = _probe_token_ids(self._loaded.vocab_size, self._check_length())
        input_ids = torch.tensor([token_ids], device=self._loaded.device)
        expected = self._loaded.model(input_ids=input_ids, use_cache=False).logits[0, -1].float()
        if not expected.isfinite().all():
            raise ModelLoadError("the model's own logits are no numbers", hint="are the weights broken, or is the dtype narrow?")
        complaints = []
        for way in WAYS:
            try:
                forward = way(self._loaded, self._kv_cache)
                difference = self._difference(forward, token_ids, expected)
            except NoSuchWayError as error:
                logger.debug("%s: %s", way.__name__, error)
                continue
            except InvalidRequestError:
                raise  # the cache's: there is no memory for it, whichever way the model is run
            except Exception as error:  # models raise anything when they are given a cache that they do not know
                complaints.append(f"{way.__name__}: {error}")
                continue
            if difference <= CHECK_TOLERANCE[self._loaded.model.dtype]:
                logger.info("the model runs %s%s", forward.name, f" ({'; '.join(complaints)})" if complaints else "")
                return forward
            complaints.append(f"{forward.name}: other logits over the engine's cache than without it ({difference:.2g} off)")
        raise ModelLoadError(f"the engine does not compute this model rightly: {'; '.join(complaints)}")

    def _check_length(self) -> int:
        # Well beyond the window, where there is one.
        window = self._loaded.window
        return CHECK_LENGTH if window is None else min(3 * max(SMALL_WINDOW, CHECK_LENGTH), self._loaded.max_model_len)

    def _difference(self, forward: Forward, token_ids: list[int], expected: torch.Tensor) -> float:
        """Give the largest difference of a logit, as a share of the largest one, over a prompt in pieces and token by token."""
        # A second, shorter row in the same batch makes lengths differ, as they do in real batches.
        length = len(token_ids)
        probes = [_Probe(token_ids[:-2], num_tokens=length - 6), _Probe(token_ids, num_tokens=length - 4)]
        held = [probe for probe in reversed(probes) if self._kv_cache.reserve(probe, len(probe.token_ids))][::-1]
        try:
            if probes[1] not in held:
                raise MemoryError(f"the cache has no room for {length} tokens")
            logits = torch.empty(0)
            while probes[1].num_cached_tokens < length:
                logits = forward([Chunk(probe, probe.num_tokens - probe.num_cached_tokens) for probe in held])
                for probe in held:
                    probe.num_cached_tokens = probe.num_tokens
                    probe.num_tokens += 1
        finally:
            for probe in probes:
                self._kv_cache.free(probe, is_sound=False)
        difference = float((expected - logits[-1].float()).abs().max() / expected.abs().max())
        return difference if math.isfinite(difference) else math.inf


def _probe_token_ids(vocab_size: int, length: int) -> list[int]:
    """Give ids from all over the vocabulary: on special tokens only, bfloat16 logits of small models are close to chance."""
    return [int(vocab_size * (0.618034 * (index + 1) % 1)) for index in range(length)]
