"""Key pairs that sign requests (version 4 of AWS's signatures), and who acts with each."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import NamedTuple, Protocol

from cloudcore.iam.principal import Principal


class SignatureKey(NamedTuple):
    """A key pair in force."""

    access_key_id: str
    secret: str
    principal: Principal
    token_sha256: str | None
    """Hex SHA-256 of the session token that requests must carry, or None for a lasting key pair."""

    def __repr__(self) -> str:
        """Return the public part."""
        return f"SignatureKey({self.access_key_id!r})"

    def fits_token(self, token: str | None) -> bool:
        """Return True if a request carries the token of a temporary key, or none for another."""
        if token is None or self.token_sha256 is None:
            return token is None and self.token_sha256 is None
        given = sha256(token.encode("utf-8", "replace")).hexdigest()
        return hmac.compare_digest(given, self.token_sha256)


class SignatureKeys(Protocol):
    """Finds key pairs."""

    async def find(self, access_key_id: str) -> SignatureKey | None:
        """Return the key pair of a public id; None if there is none in force."""
        ...
