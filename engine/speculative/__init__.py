"""Drafts: tokens that are likely to come, verified by the model in one pass, so that they never change what comes out."""

from __future__ import annotations

from .drafter import Drafter
from .gain import DraftGain, Found
from .habits import Habits
from .ngram import NgramIndex

__all__ = ["DraftGain", "Drafter", "Found", "Habits", "NgramIndex"]
