"""Login credentials of container clients: minted by a signed-in principal, dead when it is (B2)."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, QuotaExceeded
from cloudcore.iam.principal import Principal, PrincipalKind
from registry.metadata import logins
from registry.metadata.logins import Login, NewLogin

MAX_OPEN: Final = 10_000
"""Open logins that one account may have."""
LOGIN_SECONDS: Final = 12 * 3600
USERNAME: Final = "token"
"""The one user name that goes with a login credential."""

_PREFIX: Final = "rlc_"
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 43  # of 62 letters: 256 bits, so a plain hash is enough


class IssuedLogin(NamedTuple):
    """A new login credential, at the one moment its password is known."""

    password: str
    issued_at: int
    expires_at: int


def new_password() -> str:
    """Return a random password, by its prefix known to those who scan for leaked ones."""
    return _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def hash_of(password: str) -> str:
    """Return what is kept of a password."""
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).hexdigest()


def mint_login(
    tx: Connection, caller: Principal, login_id: str, password: str, now: int
) -> IssuedLogin:
    """Keep a new login credential of `caller`, for twelve hours or while its role session lasts.

    Raises:
        AccessDenied: a person acts in no account before assuming a role.
        QuotaExceeded: the account has too many open logins.

    """
    if caller.kind is PrincipalKind.USER or caller.account_id is None:
        raise AccessDenied("assume a role in an account first; a person owns no repositories")
    used = logins.count_open(tx, caller.account_id, now, MAX_OPEN)
    if used >= MAX_OPEN:
        raise QuotaExceeded(
            f"the account has {MAX_OPEN} open container logins; use one for many jobs,"
            " or end unused ones with POST /v1/oauth/revoke",
            quota="logins",
            limit=MAX_OPEN,
            used=used,
        )
    expires_at = now + LOGIN_SECONDS * MICROSECONDS
    is_session = caller.kind is PrincipalKind.ROLE_SESSION
    login = NewLogin(
        id=login_id,
        password_sha256=hash_of(password),
        account_id=caller.account_id,
        service_account_id=None if is_session else caller.id,
        access_key_id=None if is_session else caller.access_key_id,
        sid=caller.sid,
        expires_at=min(expires_at, caller.expires_at) if is_session else expires_at,
    )
    logins.add_login(tx, login, now)
    return IssuedLogin(password, now, login.expires_at)


def principal_of(login: Login) -> Principal:
    """Return the principal a login stands for."""
    if login.role_id is not None:
        kind, ident, name = PrincipalKind.ROLE_SESSION, login.role_id, f"role/{login.role}"
    else:
        assert login.service_account_id is not None
        kind, ident = PrincipalKind.SERVICE_ACCOUNT, login.service_account_id
        name = f"service-account/{login.service_account}"
    return Principal(
        kind=kind,
        id=ident,
        crn=f"crn:iam::{login.account_id}:{name}",
        account_id=login.account_id,
        organization_id=None,
        sid=login.sid,
        jti=login.id,
        expires_at=login.expires_at,
    )
