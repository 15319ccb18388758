"""What an engine's model was seen to do in its answers: how it spells, and where what it copies ends."""

from __future__ import annotations

from ..grammar.forced import spell_text
from ..grammar.vocabulary import Vocabulary
from .source_text import Ending, Opening
from .spellings import Spellings

MAX_TEXTS = 4096
"""Texts whose tokens are remembered."""
WEIGHT = 0.1
"""Of the last time in how often something ends a value."""
FIRST_SHARES: dict[Ending, float] = {
    "quote": 0.9,
    "line": 0.9,
    "cell": 0.9,
    "comma": 0.8,
    "mark": 0.7,
    "stop": 0.7,
    "falling": 0.6,
    "rising": 0.4,
    "digit": 0.4,
    "same": 0.2,
}
"""How often a copied value ends in front of what stands behind its last word, until this engine knows better."""


class Habits:
    """Shared by all requests of an engine.

    Args:
        vocabulary: Of the model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.spellings = Spellings(vocabulary.token_bytes)
        self._texts: dict[bytes, list[int]] = {}
        self._shares: dict[tuple[Opening, Ending], float] = {}
        self._true_share = 0.5

    def spell(self, text: bytes) -> list[int]:
        """Give ids that spell a text as the tokenizer would; none if the vocabulary cannot write it."""
        found = self._texts.get(text)
        if found is None:
            if len(self._texts) >= MAX_TEXTS:
                self._texts.clear()
            found = self._texts[text] = spell_text(text, self.vocabulary) or []
        return found

    def ends_value(self, opening: Opening, ending: Ending) -> bool:
        """Whether a copied value is expected to end here rather than to go on."""
        return self._share(opening, ending) > 0.5

    def note_ending(self, opening: Opening, ending: Ending, *, is_end: bool) -> None:
        """Take whether a copied value ended here."""
        share = self._share(opening, ending)
        self._shares[opening, ending] = share + WEIGHT * (is_end - share)

    @property
    def usual_words(self) -> tuple[bytes, ...]:
        """Values that are words, the likeliest first."""
        return (b"true", b"false") if self._true_share >= 0.5 else (b"false", b"true")

    def note_word(self, *, is_true: bool) -> None:
        """Take which of two words a value was."""
        self._true_share += WEIGHT * (is_true - self._true_share)

    def _share(self, opening: Opening, ending: Ending) -> float:
        share = self._shares.get((opening, ending))
        if share is not None:
            return share
        # Inside quotes, and behind a label, only their own end counts.
        if opening == "quoted" and ending != "quote":
            return 0.1
        return 0.1 if opening == "labelled" and ending in ("falling", "rising", "digit", "same") else FIRST_SHARES[ending]
