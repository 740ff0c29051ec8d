"""Dependencies of identity's routes, and ports for others: authentication, tokens, signing keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloudcore.iam.audit import AUDITOR
from cloudcore.iam.service_roles import SERVICE_ROLES, ServiceRoles
from cloudcore.identity.last_uses import FLUSH_SECONDS, LastUses
from cloudcore.identity.oidc.provider import Discovery, ProviderClient
from cloudcore.identity.rights.permissions import Permissions, PermissionToLogIn
from cloudcore.identity.rights.service_sessions import SessionsOfService
from cloudcore.identity.tokens.access_tokens import AccessTokens
from cloudcore.identity.tokens.authentication import BearerAuthenticator
from cloudcore.identity.tokens.signing_keys import KeyKind, SigningKeys
from cloudcore.jobs.background import recording, repeated
from cloudcore.ports import KEYRING, Opening, Port, offer
from cloudcore.web.context import AUTHENTICATOR, CONTROL_SETTINGS

if TYPE_CHECKING:
    from cloudcore.identity.services.accounts import PrepareAddition

_KEY_REFRESH_SECONDS: Final = 60

KEY_KINDS: Final[Port[Mapping[str, KeyKind]]] = Port("iam.key_kinds")
"""The kinds of signing keys of the install, by the name of their key set."""
PREPARE_ACCOUNT: Final[Port[PrepareAddition]] = Port("iam.prepare_account")
LOGIN_PERMISSION: Final[Port[PermissionToLogIn]] = Port("iam.login_permission")
SIGNING_KEYS: Final[Port[SigningKeys]] = Port("iam.signing_keys")
TOKENS: Final[Port[AccessTokens]] = Port("iam.tokens")
LAST_USES: Final[Port[LastUses]] = Port("iam.last_uses")


@dataclass(frozen=True, slots=True)
class IdentityNeeds:
    """The dependencies of identity's routes."""

    tokens: AccessTokens
    keys: SigningKeys
    uses: LastUses
    auth_url: str
    """Base URL of the token endpoints, and the issuer (`iss`) of tokens."""
    provider_client: ProviderClient
    """The HTTP client for identity providers."""
    discovery: Discovery
    """Fetches and caches the metadata and keys of identity providers."""
    prepare_account: PrepareAddition
    """Prepares what other families add to each new account."""
    login_permission: PermissionToLogIn
    """Returns the permission that a role needs for container clients to log in with it."""


async def open_needs(opening: Opening) -> IdentityNeeds:
    """Return identity's dependencies in this process."""
    settings = await opening.get(CONTROL_SETTINGS)
    client = ProviderClient(settings.oidc_internal_origins)
    return IdentityNeeds(
        await opening.get(TOKENS),
        await opening.get(SIGNING_KEYS),
        await opening.get(LAST_USES),
        settings.auth_url,
        client,
        Discovery(client),
        await opening.get(PREPARE_ACCOUNT),
        await opening.get(LOGIN_PERMISSION),
    )


async def _open_keys(opening: Opening) -> SigningKeys:
    install, keyring = opening.install, await opening.get(KEYRING)
    keys = SigningKeys(install.database, keyring, install.clock, await opening.get(KEY_KINDS))
    await keys.refresh()
    await opening.resources.enter_async_context(repeated(_KEY_REFRESH_SECONDS, keys.refresh))
    return keys


async def _open_tokens(opening: Opening) -> AccessTokens:
    keys, settings = await opening.get(SIGNING_KEYS), await opening.get(CONTROL_SETTINGS)
    return AccessTokens(keys, settings.auth_url, opening.install.clock)


async def _open_uses(opening: Opening) -> LastUses:
    """Return the recorder of last uses; it is flushed when the process ends."""
    uses = LastUses(opening.install.database, opening.install.clock)
    await opening.resources.enter_async_context(
        recording(FLUSH_SECONDS, uses.flush, "the last uses of keys and roles")
    )
    return uses


async def _open_authenticator(opening: Opening) -> BearerAuthenticator:
    database, tokens = opening.install.database, await opening.get(TOKENS)
    uses = await opening.get(LAST_USES)
    permissions = Permissions(database)
    return BearerAuthenticator(database, tokens, permissions, uses, opening.install.clock)


async def _open_service_roles(opening: Opening) -> Callable[[str], ServiceRoles]:
    keyring, tokens = await opening.get(KEYRING), await opening.get(TOKENS)
    auditor, install = await opening.get(AUDITOR), opening.install
    of = install.database, install.clock, install.new_id
    return lambda service: SessionsOfService(service, *of, keyring, tokens, auditor)


OFFERS: Final = (
    offer(SIGNING_KEYS, _open_keys),
    offer(TOKENS, _open_tokens),
    offer(LAST_USES, _open_uses),
    offer(AUTHENTICATOR, _open_authenticator),
    offer(SERVICE_ROLES, _open_service_roles),
)
