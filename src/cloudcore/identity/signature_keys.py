"""Find the key pairs that sign requests: access keys, and the temporary keys of role sessions.

By the same rows and rules as access tokens (`authentication.find_principal`): whatever is
suspended, expired, revoked or deleted signs nothing from the next request on. An access key's
tokens can be revoked one by one; the key itself signs until it is inactive or deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.iam.principal import Principal, PrincipalKind, Source, read_source
from cloudcore.iam.signature_keys import SignatureKey
from cloudcore.identity import assume_role
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rows.service_accounts import (
    KeyOwner,
    find_key_owner,
    find_sealed_secret,
    find_sealed_session,
)
from cloudcore.identity.rows.sessions import LiveSession, find_live_session
from cloudcore.identity.services import service_accounts
from cloudcore.keyring import Keyring


class _Sealed(NamedTuple):
    """A key pair whose secret is sealed."""

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
        """Return the key pair of a public id; None if there is none in force."""
        found = await self._database.read(_find, access_key_id, self._clock())
        if found is None:
            return None
        secret = self._keyring.open(found.secret, found.context).decode()
        return SignatureKey(access_key_id, secret, found.principal, found.token_sha256)


def _find(tx: Connection, access_key_id: str, now: int) -> _Sealed | None:
    owner = find_key_owner(tx, access_key_id)
    if owner is None:
        return _find_session(tx, access_key_id, now)
    secret = find_sealed_secret(tx, access_key_id)
    if secret is None or not owner.is_usable(now) or owner.is_suspended:
        return None
    context = service_accounts.sealing_context(access_key_id)
    return _Sealed(secret, context, _program(owner, now), None)


def _find_session(tx: Connection, access_key_id: str, now: int) -> _Sealed | None:
    sealed = find_sealed_session(tx, access_key_id)
    if sealed is None:
        return None
    session = find_live_session(tx, sealed.sid, now)
    if session is None or session.role_id is None or session.token_sha256 is None:
        return None
    context = assume_role.sealing_context(sealed.sid)
    return _Sealed(sealed.secret_sealed, context, _role(session), session.token_sha256)


def _program(owner: KeyOwner, now: int) -> Principal:
    crn = iam_crn(owner.account_id, "service-account", owner.service_account)
    return Principal(
        kind=PrincipalKind.SERVICE_ACCOUNT,
        id=owner.service_account_id,
        crn=crn,
        account_id=owner.account_id,
        organization_id=None,
        sid=None,
        jti="",
        expires_at=owner.expires_at or now,
        access_key_id=owner.key_id,
        source=Source(crn, owner.service_account),
    )


def _role(session: LiveSession) -> Principal:
    assert session.role_id is not None
    assert session.account_id is not None
    return Principal(
        kind=PrincipalKind.ROLE_SESSION,
        id=session.role_id,
        crn=iam_crn(session.account_id, "role", session.role or ""),
        account_id=session.account_id,
        organization_id=None,
        sid=session.id,
        jti="",
        expires_at=session.expires_at,
        source=read_source(session.first_source),
    )
