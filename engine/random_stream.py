"""One uniform number per generated position, a function of the request's seed and the position.

There is no state to advance, so the number of a position is the same whatever the batch, and whether its token was drafted,
sampled, or sampled again after the sequence was preempted.

SplitMix64, https://doi.org/10.1145/2660193.2660195; the seed is mixed once more, so that neighbouring seeds are unrelated.
"""

from __future__ import annotations

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """Give a number in [0, 1) with 53 random bits.

    Args:
        seed: Any whole number; its lowest 64 bits count.
        position: Index of the generated token, from 0.
    """
    return (_mix((_mix(seed & _MASK) + (position + 1) * _GAMMA) & _MASK) >> 11) * 2.0**-53


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
