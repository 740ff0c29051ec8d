"""Authenticate callers: by an access token, or by the key pair that signed the request.

A token is verified first. Then its revocation, its session or access key, and the owner of these
are looked up, each by one indexed read of committed rows. So a revocation, suspension or deletion
takes effect with the next request. Lookups use the token's claims; no token string is stored.

Key pairs are access keys and the temporary keys of role sessions. They are looked up in the same
rows and under the same rules. Tokens of an access key can be revoked one by one; the key itself can
sign requests until it is inactive, expired or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unauthenticated
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import (
    Principal,
    PrincipalKind,
    SignatureKey,
    SourceIdentity,
    read_source,
)
from cloudcore.identity.audit import organizations_of
from cloudcore.identity.last_uses import LastUses
from cloudcore.identity.names import iam_crn, person_crn
from cloudcore.identity.rights import assume_role
from cloudcore.identity.rights.permissions import Permissions
from cloudcore.identity.rows.issued_tokens import is_token_revoked
from cloudcore.identity.rows.service_accounts import (
    KeyOwner,
    find_key_owner,
    find_sealed_session,
)
from cloudcore.identity.rows.sessions import LiveSession, find_live_session
from cloudcore.identity.services import service_accounts
from cloudcore.identity.tokens.access_tokens import AccessClaims, AccessTokens
from cloudcore.keyring import Keyring
from cloudcore.web.context import Origin


class BearerAuthenticator:
    """The `Authenticator` for access tokens."""

    def __init__(
        self,
        database: Database,
        tokens: AccessTokens,
        permissions: Permissions,
        uses: LastUses,
        clock: Clock,
    ) -> None:
        self._database = database
        self._tokens = tokens
        self._permissions = permissions
        self._uses = uses
        self._clock = clock

    async def authenticate(self, bearer: str, origin: Origin) -> Principal:  # noqa: ARG002
        """Return the principal of a valid access token.

        Raise `Unauthenticated` if the token is invalid, expired or revoked, or its principal is
        suspended or deleted.
        """
        claims = self._tokens.verify(bearer)
        principal = await self._database.read(_find_principal, claims, self._clock())
        if principal is None:
            raise Unauthenticated(
                "the token was revoked, or its principal is suspended or no longer exists"
            )
        return principal

    async def policies_of(self, principal: Principal) -> Sequence[Policy]:
        """Return the current identity policies of a `principal`, and record that it acts now."""
        self._uses.note(principal)
        return await self._permissions.policies_of(principal)

    def organizations_of(self, principal: Principal, tx: Connection) -> Sequence[str]:
        """Return the ids of the organizations that a person (`principal`) belongs to."""
        return organizations_of(principal.id, tx)


def _find_principal(tx: Connection, claims: AccessClaims, now: int) -> Principal | None:
    """Return the principal of a verified token, or None if token or principal are not valid now."""
    if is_token_revoked(tx, claims.jti):
        return None
    if claims.sid is not None:
        session = find_live_session(tx, claims.sid, now)
        return None if session is None else _of_session(claims, session)
    owner = find_key_owner(tx, claims.akid or "")
    if owner is None or not owner.is_in_force(now):
        return None
    return _of_program(owner, claims.jti, claims.exp * MICROSECONDS)


def _of_session(claims: AccessClaims, session: LiveSession) -> Principal:
    if session.user_id is not None:
        assert session.personal_organization_id is not None
        crn = person_crn(session.personal_organization_id, session.user_id)
        return Principal(
            kind=PrincipalKind.USER,
            id=session.user_id,
            crn=crn,
            account_id=None,
            organization_id=session.personal_organization_id,
            sid=session.id,
            jti=claims.jti,
            expires_at=claims.exp * MICROSECONDS,
            source=SourceIdentity(crn, session.email or ""),
        )
    return _of_role(session, claims.jti)


class _Sealed(NamedTuple):
    secret: bytes
    context: str
    principal: Principal
    token_sha256: str | None


class StoredSignatureKeys:
    """The `SignatureKeys` of this install."""

    def __init__(self, database: Database, keyring: Keyring, clock: Clock) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock

    async def find(self, access_key_id: str) -> SignatureKey | None:
        """Return the active key pair with this public id, or None."""
        found = await self._database.read(_find, access_key_id, self._clock())
        if found is None:
            return None
        secret = self._keyring.open(found.secret, found.context).decode()
        return SignatureKey(access_key_id, secret, found.principal, found.token_sha256)


def _find(tx: Connection, access_key_id: str, now: int) -> _Sealed | None:
    owner = find_key_owner(tx, access_key_id)
    if owner is None:
        return _find_session(tx, access_key_id, now)
    if not owner.is_in_force(now):
        return None
    context = service_accounts.sealing_context(access_key_id)
    principal = _of_program(owner, "", owner.expires_at or now)
    return _Sealed(owner.secret_sealed, context, principal, None)


def _find_session(tx: Connection, access_key_id: str, now: int) -> _Sealed | None:
    sealed = find_sealed_session(tx, access_key_id)
    if sealed is None:
        return None
    sid, secret = sealed
    session = find_live_session(tx, sid, now)
    if session is None or session.role_id is None or session.token_sha256 is None:
        return None
    context = assume_role.sealing_context(sid)
    return _Sealed(secret, context, _of_role(session, ""), session.token_sha256)


def _of_program(owner: KeyOwner, jti: str, expires_at: int) -> Principal:
    source = owner.source
    return Principal(
        kind=PrincipalKind.SERVICE_ACCOUNT,
        id=owner.service_account_id,
        crn=source.crn,
        account_id=owner.account_id,
        organization_id=None,
        sid=None,
        jti=jti,
        expires_at=expires_at,
        access_key_id=owner.key_id,
        source=source,
    )


def _of_role(session: LiveSession, jti: str) -> Principal:
    assert session.role_id is not None
    assert session.account_id is not None
    return Principal(
        kind=PrincipalKind.ROLE_SESSION,
        id=session.role_id,
        crn=iam_crn(session.account_id, "role", session.role or ""),
        account_id=session.account_id,
        organization_id=None,
        sid=session.id,
        jti=jti,
        expires_at=session.expires_at,
        source=read_source(session.first_source),
    )
