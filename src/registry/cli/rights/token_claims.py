"""Read what an access token says about its owner, without verifying it.

The registry verifies tokens. Here the claims only tell a person who they act as.
"""

from __future__ import annotations

import base64

import msgspec

from registry.cli.failure import CommandFailure


class TokenClaims(msgspec.Struct):
    """The claims of an access token that commands show."""

    sub: str
    """The principal's CRN."""
    exp: int
    """Seconds since the epoch."""
    acc: str | None = None
    """The account's id; None for a person without a role."""
    sid: str | None = None
    """The session, of people and roles."""
    akid: str | None = None
    """The access key, of service accounts."""


def claims_of(token: str) -> TokenClaims:
    """Return the claims of a token (RFC 7519 §3).

    Raises:
        CommandFailure: the token is not one that this registry issues.

    """
    _, _, rest = token.partition(".")
    payload, _, _ = rest.partition(".")
    try:
        text = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(text, type=TokenClaims)
    except (ValueError, msgspec.DecodeError):
        raise CommandFailure(
            "the stored token cannot be read; sign in again with 'entrepot login'"
        ) from None
