"""Principals of requests, and key pairs that sign requests.

Also the type of the setting for who may create organizations and accounts.
"""

from __future__ import annotations

import hmac
from enum import Enum
from hashlib import sha256
from typing import Literal, NamedTuple, Protocol

import msgspec


class PrincipalKind(Enum):
    """The kind of a principal."""

    USER = "user"
    SERVICE_ACCOUNT = "service_account"
    ROLE_SESSION = "role_session"


class SourceIdentity(NamedTuple):
    """The person or program behind a principal.

    For a role session, the caller that assumed the first role of the chain; else the principal.
    """

    crn: str
    name: str
    """The e-mail address of a person, or the name of a service account."""
    session_name: str | None = None
    """Name of the role session; None without a role."""

    def stored(self) -> str:
        """Return the JSON text to store in a column."""
        return msgspec.json.encode(self).decode()


def stored_source(source: SourceIdentity | None) -> str | None:
    """Return the JSON text to store in a column, or None without a source."""
    return None if source is None else source.stored()


def read_source(text: str | None) -> SourceIdentity | None:
    """Parse the source stored in a column; None if it is null."""
    return None if text is None else msgspec.json.decode(text, type=SourceIdentity)


class Principal(NamedTuple):
    """A signed-in caller. For a role session, `id` and `crn` are those of the role."""

    kind: PrincipalKind
    id: str
    crn: str
    account_id: str | None
    """None for a person who has not assumed a role in an account."""
    organization_id: str | None
    """A person's personal organization; None for other kinds."""
    sid: str | None
    """Id of the token's session, whose revocation revokes the token; None if it has no session."""
    jti: str
    """The token's id (`jti`)."""
    expires_at: int
    """Microseconds since the epoch."""
    access_key_id: str | None = None
    """For a service account, the id of the access key its token was issued for."""
    container_password_id: str | None = None
    """For a role used through a container password, the id of that password."""
    source: SourceIdentity | None = None
    """The person or program behind a role session; otherwise the caller itself."""


class SignatureKey(NamedTuple):
    """An active key pair that signs requests."""

    access_key_id: str
    secret: str
    principal: Principal
    token_sha256: str | None
    """Hex SHA-256 of the session token that requests must carry; None for a permanent key pair."""

    def __repr__(self) -> str:
        """Omit the secret."""
        return f"SignatureKey({self.access_key_id!r})"

    def fits_token(self, token: str | None) -> bool:
        """Return True if `token` is this temporary key's token, or is None for a permanent key."""
        if token is None or self.token_sha256 is None:
            return token is None and self.token_sha256 is None
        given = sha256(token.encode("utf-8", "replace")).hexdigest()
        return hmac.compare_digest(given, self.token_sha256)


class SignatureKeys(Protocol):
    """Finds key pairs."""

    async def find(self, access_key_id: str) -> SignatureKey | None:
        """Return the active key pair with this public id, or None."""


Founders = Literal["nobody", "owners", "anyone"]
"""Who may create organizations and accounts.

`owners`: only persons who own an organization that is not personal, and accounts only in such an
organization.
"""
