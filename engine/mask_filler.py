"""Fill the masks of a step while the model computes.

On CUDA the device computes by itself once it was told to, so the engine's own thread fills afterwards. On the CPU a second thread
does it beside the forward pass, if that leaves a core: all threads of a kernel wait for the one that shares its core, so that to
fill beside all of them cost 1.5 times what it took. Then rows are filled in front of the pass, on all cores at once: behind it
interpreter and states are out of the caches, and known rows took five times as long. For rows that cost less than to wake a
thread nothing runs beside anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from concurrent.futures import ThreadPoolExecutor

import torch

from .grammar.bitmask import BitmaskPool
from .mask import StepMasks, Window, fill_masks
from .metrics import StepClock

BESIDE_FROM_S = 300e-6
"""Seconds of filling from which on it is done beside the model."""
_WEIGHT = 0.2


def has_spare_core() -> bool:
    """Whether PyTorch's threads leave a core of those that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return torch.get_num_threads() < cores


class MaskFiller:
    """Fills masks for one engine.

    Args:
        vocab_size: Columns of the logits.
        pool: Where the tables come from.
        is_device_apart: Whether the model runs on a device of its own, so that tables are pinned and launching comes first.
    """

    def __init__(self, vocab_size: int, pool: BitmaskPool, *, is_device_apart: bool) -> None:
        self._vocab_size = vocab_size
        self._pool = pool
        self._is_device_apart = is_device_apart
        self._expected_s = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="thinkgate-masks")

    def start(self, windows: SequenceOf[Window], clock: StepClock) -> Callable[[], StepMasks]:
        """Begin, or fill at once; gates and matchers of the windows may not be touched until the end.

        Args:
            windows: As for `fill_masks`.
            clock: Takes the time of filling.

        Returns:
            Waits for the end and gives the masks. To be called in any case, also where the model failed.
        """
        if self._is_device_apart:
            return lambda: self._fill(windows, clock)
        if self._expected_s < BESIDE_FROM_S or not has_spare_core():
            with clock.part("mask_wait"):
                masks = self._fill(windows, clock)
            return lambda: masks
        return self._thread.submit(self._fill, windows, clock).result

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _fill(self, windows: SequenceOf[Window], clock: StepClock) -> StepMasks:
        before_s = clock.seconds("fill")
        with clock.part("fill"):
            masks = fill_masks(windows, self._vocab_size, pin_memory=self._is_device_apart, pool=self._pool)
        self._expected_s += _WEIGHT * (clock.seconds("fill") - before_s - self._expected_s)
        return masks
