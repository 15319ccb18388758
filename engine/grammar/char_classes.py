r"""What `\d`, `\w`, `\s` and letter case mean in Python's regular expressions, asked of Python itself.

Computed when first needed: one pass over all characters, some ten milliseconds.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np

from .nodes import MAX_CODE_POINT, Ranges, merge_ranges, negate_ranges

DIGIT = ((0x30, 0x39),)
_BLOCK = 256
_ASCII: dict[str, Ranges] = {
    "d": DIGIT,
    "w": merge_ranges([*DIGIT, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]),
    "s": ((0x09, 0x0D), (0x20, 0x20)),
}


def class_ranges(letter: str, *, is_ascii: bool = False) -> Ranges:
    r"""Give the characters of `\d`, `\D`, `\w`, `\W`, `\s` or `\S`."""
    ranges = _ASCII[letter.lower()] if is_ascii else _unicode_class(letter.lower())
    return negate_ranges(ranges) if letter.isupper() else ranges


def fold_case(ranges: Ranges) -> Ranges:
    """Add the characters that Python takes for one of `ranges` when case is ignored."""
    if not ranges:
        return ranges
    pieces = "".join(rf"\U{low:08x}-\U{high:08x}" for low, high in ranges)
    found = re.findall(f"[{pieces}]", _cased_characters(), re.IGNORECASE)
    return merge_ranges([*ranges, *((ord(char), ord(char)) for char in found)])


@cache
def _unicode_class(letter: str) -> Ranges:
    return merge_ranges((match.start(), match.end() - 1) for match in re.finditer(rf"\{letter}+", _everything()))


@cache
def _cased_characters() -> str:
    everything = _everything()
    blocks = (everything[start : start + _BLOCK] for start in range(0, len(everything), _BLOCK))
    cased = (block for block in blocks if block.lower() != block or block.upper() != block)
    return "".join(char for block in cased for char in block if char.lower() != char or char.upper() != char)


def _everything() -> str:
    """Give all characters, the surrogates too, so that an index is a code point."""
    return np.arange(MAX_CODE_POINT + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
