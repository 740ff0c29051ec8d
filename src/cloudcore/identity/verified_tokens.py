"""Remember which tokens were verified: to verify a signature takes a quarter of a request's time.

Only the signature is remembered, with the key that made it. Whether the key is still there is
looked at each time, as are the token's end, its revocation and its owner by those who ask here.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from cloudcore.identity.jws import SigningKey, verify

MOST: Final = 2048
"""Tokens that are remembered; the one that was verified first is forgotten first."""


class _Verified(NamedTuple):
    key: SigningKey
    payload: bytes


class VerifiedTokens:
    """Verifies tokens, each once."""

    def __init__(self, find_key: Callable[[str], SigningKey | None]) -> None:
        """Verify with the keys that `find_key` returns by their ``kid``."""
        self._find_key = find_key
        self._known: dict[bytes, _Verified] = {}

    def payload(self, token: str) -> bytes:
        """Return the claims of a token as JSON.

        Raises:
            Unauthenticated: its signature is not that of one of the keys.

        """
        digest = sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._find_key(known.key.kid) is known.key:
            return known.payload
        used: list[SigningKey] = []

        def find(kid: str) -> SigningKey | None:
            key = self._find_key(kid)
            used.extend([key] if key else [])
            return key

        payload = verify(token, find)
        if len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[digest] = _Verified(used[0], payload)
        return payload
