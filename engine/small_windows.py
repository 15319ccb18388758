"""A model whose attention slides over a few tokens for a while, so that a short prompt shows whether it is computed rightly.

What a window does depends on its size as a number only. So it is enough to compare a model with itself while all windows are
small: the real ones of some thousand tokens would take forward passes of as many, and a few tokens too many would hardly be seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

SMALL_WINDOW = 6


@contextlib.contextmanager
def small_windows(model: Any, window: int | None) -> Iterator[None]:
    """Let all that slides over `window` tokens slide over few, and put it back; None changes nothing.

    A model that keeps its window elsewhere than in its config and its modules goes on with the large one. It then computes other
    logits than the engine, and is refused.
    """
    if window is None or window <= SMALL_WINDOW:
        yield
        return
    modules = list(model.modules())
    configs = [module.config for module in modules if hasattr(module, "config")]
    holders = [holder for holder in [*modules, *configs] if getattr(holder, "sliding_window", None) == window]
    try:
        for holder in holders:
            holder.sliding_window = SMALL_WINDOW
        yield
    finally:
        for holder in holders:
            holder.sliding_window = window
