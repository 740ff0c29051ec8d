"""Identity providers: changes and their rules.

An owner of the organization sets up a provider; principals of the accounts assign roles to the
provider's groups (`services.roles`). So `issuer`, `client_id` and `groups_claim` never change:
otherwise an owner could replace the source of the groups.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, invalid_field
from cloudcore.identity.oidc.provider import check_url
from cloudcore.identity.rows.identity_providers import IDENTITY_PROVIDERS, IdentityProvider
from cloudcore.identity.rows.organizations import JOINED
from cloudcore.identity.rows.roles import assignments_of_groups
from cloudcore.identity.rows.sessions import revoke_sessions_of_provider
from cloudcore.identity.services.members import lock_organization
from cloudcore.identity.services.roles import unassign_role
from cloudcore.keyring import Keyring

MAX_PROVIDERS: Final = 10
"""Maximum number of identity providers of an organization."""


def check_issuer(issuer: str, internal_origins: tuple[str, ...]) -> str:
    """Return `issuer` if it is well-formed and this install may call it.

    Raise `InvalidInput` if it is not the URL of an issuer (OpenID Connect Discovery 1.0 §3), or is
    not allowed.
    """
    try:
        check_url(issuer, internal_origins)
    except ValueError as error:
        raise invalid_field("issuer", str(error), "not_allowed") from None
    if urlsplit(issuer).query or issuer.endswith("?"):
        raise invalid_field("issuer", "it has a query")
    return issuer


def seal_client_secret(keyring: Keyring, provider_id: str, secret: str | None) -> bytes | None:
    """Seal the secret of a client; return None for a client without a secret."""
    return keyring.seal(secret.encode(), _context(provider_id)) if secret else None


def open_client_secret(keyring: Keyring, provider: IdentityProvider) -> str | None:
    """Return the client secret for a provider, or None if the client has none."""
    sealed = provider.client_secret_sealed
    return None if sealed is None else keyring.open(sealed, _context(provider.id)).decode()


def create_provider(tx: Connection, provider: IdentityProvider, user_id: str) -> IdentityProvider:
    """Insert a provider of an organization; `user_id` is the person who creates it.

    Raise `NotFound` if the organization does not exist, or the person is not a member; `Conflict`
    if the organization is personal, or has a provider of this name or `MAX_PROVIDERS` providers.
    """
    lock_organization(tx, provider.organization_id)
    if JOINED.get(tx, user_id, provider.organization_id).is_personal:
        raise Conflict("a personal organization has one member, who has a password")
    if IDENTITY_PROVIDERS.count(tx, provider.organization_id, "") >= MAX_PROVIDERS:
        raise Conflict(f"an organization has at most {MAX_PROVIDERS} identity providers")
    if not IDENTITY_PROVIDERS.add(tx, provider):
        raise _taken(provider.name)
    return provider


def update_provider(
    tx: Connection, organization_id: str, provider_id: str, changes: dict[str, Any], now: int
) -> IdentityProvider:
    """Set the columns in `changes` on a provider; return the provider. Deactivation ends sessions.

    Raise `NotFound` if there is no such provider, `Conflict` if the new name is taken. See
    `revoke_sessions_of_provider` for the sessions.
    """
    lock_organization(tx, organization_id)
    provider = IDENTITY_PROVIDERS.get(tx, organization_id, provider_id)
    if not changes:
        return provider
    name = changes.get("name", provider.name)
    if name != provider.name and IDENTITY_PROVIDERS.find_named(tx, organization_id, name):
        raise _taken(name)
    changed = provider._replace(**changes, updated_at=now)
    if changed.status == "active":
        IDENTITY_PROVIDERS.save(tx, changed)
    else:
        _turn_off(tx, changed, now)
    return changed


def delete_provider(tx: Connection, organization_id: str, provider_id: str, now: int) -> None:
    """Delete a provider and end its sessions, or raise `NotFound`.

    The persons stay, but lose the roles that the provider's groups gave them.
    """
    lock_organization(tx, organization_id)
    provider = IDENTITY_PROVIDERS.get(tx, organization_id, provider_id)
    # Lock assignments before the provider's row, as AssumeRole does.
    for account_id, role_id, user_id in assignments_of_groups(tx, provider.id):
        unassign_role(tx, account_id, role_id, user_id, now)
    _turn_off(tx, provider._replace(status="inactive", updated_at=now), now)
    IDENTITY_PROVIDERS.remove(tx, organization_id, provider.id)


def _turn_off(tx: Connection, provider: IdentityProvider, now: int) -> None:
    """Save a provider that is no longer active, and end its sessions."""
    IDENTITY_PROVIDERS.save(tx, provider)
    # The row is locked now, so no role can be assumed through this provider meanwhile.
    revoke_sessions_of_provider(tx, provider.id, now)


def _taken(name: str) -> Conflict:
    return Conflict("the organization has an identity provider of this name", name=name)


def _context(provider_id: str) -> str:
    return f"identity provider {provider_id}"
