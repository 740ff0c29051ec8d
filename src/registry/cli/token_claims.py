"""Read what an access token says about its owner, without verifying it.

The registry verifies tokens. Here the claims only tell a person who they act as.
"""

from __future__ import annotations

import base64

import msgspec

from cloudcore.command_line import TokenClaims
from registry.cli.failure import CommandFailure


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
