"""Remember which tokens were verified: to verify a signature takes a quarter of a request's time.

Only the signature is remembered, decoded, with the key that made it, so that all spellings of a
token are one. Whether the key is still there is looked at each time, as are the token's end, its
revocation and its owner by those who ask here.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from cloudcore.identity.jws import SigningKey, split_token, verify

MOST: Final = 2048
"""Tokens that are remembered; the one that was verified first is forgotten first."""


class _Verified(NamedTuple):
    key: SigningKey
    signed_sha256: bytes
    payload: bytes


class VerifiedTokens:
    """Verifies tokens, each once."""

    def __init__(self, find_key: Callable[[str], SigningKey | None]) -> None:
        """Verify with the keys that `find_key` returns by their ``kid``."""
        self._find_key = find_key
        self._known: dict[bytes, _Verified] = {}
        """By signature."""

    def payload(self, token: str) -> bytes:
        """Return the claims of a token as JSON.

        Raises:
            Unauthenticated: its signature is not that of one of the keys.

        """
        signed, signature = split_token(token.encode())
        digest = sha256(signed).digest()
        known = self._known.get(signature)
        if (
            known is not None
            and known.signed_sha256 == digest
            and self._find_key(known.key.kid) is known.key
        ):
            return known.payload
        used: list[SigningKey] = []

        def find(kid: str) -> SigningKey | None:
            key = self._find_key(kid)
            used.extend([key] if key else [])
            return key

        payload = verify(token, find)
        if len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[signature] = _Verified(used[0], digest, payload)
        return payload
