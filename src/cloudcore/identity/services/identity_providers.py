"""Identity providers: changes and their rules.

An owner of the organization sets a provider up; principals of the accounts assign roles to its
groups (`services.roles`). So `issuer`, `client_id` and `groups_claim` never change: otherwise an
owner could replace the source of the groups.
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
"""The most identity providers of an organization."""


def check_issuer(issuer: str, internal_origins: tuple[str, ...]) -> str:
    """Check that an issuer is well-formed and that this install may call it, and return it.

    Raise `InvalidInput` if it is not the URL of an issuer (OpenID Connect Discovery 1.0 §3), or it
    is not allowed.
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
    """Return the secret of a provider's client, or None if it has none."""
    sealed = provider.client_secret_sealed
    return None if sealed is None else keyring.open(sealed, _context(provider.id)).decode()


def create_provider(tx: Connection, provider: IdentityProvider, user_id: str) -> IdentityProvider:
    """Insert a provider of an organization that the person `user_id` has joined.

    Raise `NotFound` if the organization does not exist, `Conflict` if it is personal, or has a
    provider of this name or `MAX_PROVIDERS` providers.
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
    """Change the columns of a provider that `changes` has; deactivation ends its sessions."""
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
    """Delete a provider and end its sessions.

    Its persons stay, and lose the roles that its groups gave them.
    """
    lock_organization(tx, organization_id)
    provider = IDENTITY_PROVIDERS.get(tx, organization_id, provider_id)
    # Assignments before the provider's row: the order in which AssumeRole locks them.
    for account_id, role_id, user_id in assignments_of_groups(tx, provider.id):
        unassign_role(tx, account_id, role_id, user_id, now)
    _turn_off(tx, provider._replace(status="inactive", updated_at=now), now)
    IDENTITY_PROVIDERS.remove(tx, organization_id, provider.id)


def _turn_off(tx: Connection, provider: IdentityProvider, now: int) -> None:
    """Save a provider that is no longer active, and end its sessions."""
    IDENTITY_PROVIDERS.save(tx, provider)
    # Now that the row is locked, nobody assumes a role by this provider any more.
    revoke_sessions_of_provider(tx, provider.id, now)


def _taken(name: str) -> Conflict:
    return Conflict("the organization has an identity provider of this name", name=name)


def _context(provider_id: str) -> str:
    return f"identity provider {provider_id}"
