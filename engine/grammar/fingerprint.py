"""Which vocabulary a compiled grammar belongs to, in one line of text."""

from __future__ import annotations

import hashlib
import struct

from .vocabulary import Vocabulary


def vocabulary_fingerprint(vocabulary: Vocabulary) -> str:
    """Give a digest of everything a compiled grammar depends on: each token's bytes by id, the width, the stop ids."""
    lengths = [len(token) for token in vocabulary.token_bytes]
    digest = hashlib.sha256()
    for numbers in ([vocabulary.vocab_size, len(lengths)], vocabulary.stop_token_ids, lengths):
        digest.update(struct.pack(f"<q{len(numbers)}q", len(numbers), *numbers))
    digest.update(b"".join(vocabulary.token_bytes))
    return digest.hexdigest()
