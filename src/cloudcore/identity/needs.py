"""What identity depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudcore.identity.last_uses import LastUses
    from cloudcore.identity.oidc.discovery import Discovery
    from cloudcore.identity.oidc.provider_client import ProviderClient
    from cloudcore.identity.services.accounts import PrepareAddition
    from cloudcore.identity.signing_keys import SigningKeys
    from cloudcore.identity.tokens import AccessTokens


class LoginPermission(NamedTuple):
    """What a role must be allowed, to log container clients in."""

    action: str
    resource: str
    """CRN, of the role's account."""


@dataclass(frozen=True, slots=True)
class IdentityNeeds:
    """The dependencies of identity's routes."""

    tokens: AccessTokens
    keys: SigningKeys
    uses: LastUses
    auth_url: str
    """Base URL of the token endpoints, and the issuer (`iss`) of tokens."""
    provider_client: ProviderClient
    """Asks identity providers."""
    discovery: Discovery
    """Metadata and keys of identity providers."""
    prepare_addition: PrepareAddition
    """Prepares what another family adds to each new account."""
    login_permission: Callable[[str], LoginPermission]
    """Returns what a role of an account must be allowed, to log container clients in."""
