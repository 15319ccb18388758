"""Check API keys in constant time; keeps digests, never the keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable


class KeyRing:
    """The keys that open the server; an empty ring leaves it open to everybody."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys if key]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def opens(self, authorization: str | None) -> bool:
        """Say whether an `Authorization` header carries one of the keys.

        Every key is compared in full, so that the time taken tells neither how much matched nor which key.
        """
        if not self._digests:
            return True
        scheme, _, token = (authorization or "").partition(" ")
        offered = _digest(token.strip())
        matches = [hmac.compare_digest(offered, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
