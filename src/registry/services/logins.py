"""Login credentials of container clients: issued to a signed-in principal, and revoked with it."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, QuotaExceeded
from cloudcore.iam.principal import Principal, PrincipalKind, Source
from cloudcore.identity.login_permission import LoginPermission
from cloudcore.identity.rows.service_accounts import find_key_expiry
from cloudcore.identity.rows.sessions import find_sign_in_expiry
from registry.metadata import logins
from registry.metadata.logins import Login, NewLogin

MAX_OPEN: Final = 10_000
"""The most open logins of one account."""
LOGIN_SECONDS: Final = 12 * 3600
LOG_IN: Final = "registry:GetAuthorizationToken"
USERNAME: Final = "token"
"""The user name of every login credential."""

_PREFIX: Final = "rlc_"
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 43  # of 62 letters: 256 bits, so a plain hash is enough


def login_permission(region: str, account_id: str) -> LoginPermission:
    """Return what a principal of an account must be allowed, to log container clients in."""
    resource = str(Crn("registry", region, account_id, "authorization-token", "own"))
    return LoginPermission(LOG_IN, resource)


class ClientCredential(NamedTuple):
    """What a container client sends as user name and password."""

    username: str
    password: str


class IssuedLogin(NamedTuple):
    """A new login credential; its password is not stored, and cannot be read again."""

    password: str
    issued_at: int
    expires_at: int


def new_password() -> str:
    """Return a random password with a prefix that secret scanners can recognize."""
    return _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def hash_of(password: str) -> str:
    """Return the sha256 of a password as hex, which is all that is stored of it."""
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).hexdigest()


def mint_login(
    tx: Connection, caller: Principal, login_id: str, password: str, now: int
) -> IssuedLogin:
    """Store a new login credential of `caller`, valid for 12 hours.

    It ends earlier if the sign-in of the person, the role session of a program, or the access key
    does that it is made with. A person's role session lasts an hour and is renewed while the person
    is signed in, so it is the sign-in that counts.

    Raises:
        AccessDenied: the caller is a person that has not assumed a role, so it has no account.
        QuotaExceeded: the account has `MAX_OPEN` open logins.

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
    end: int | None
    if is_session:
        end = find_sign_in_expiry(tx, caller.sid or "") or caller.expires_at
    else:
        end = find_key_expiry(tx, caller.access_key_id or "")
    login = NewLogin(
        id=login_id,
        password_sha256=hash_of(password),
        account_id=caller.account_id,
        service_account_id=None if is_session else caller.id,
        access_key_id=None if is_session else caller.access_key_id,
        sid=caller.sid,
        expires_at=expires_at if end is None else min(expires_at, end),
    )
    logins.add_login(tx, login, now)
    return IssuedLogin(password, now, login.expires_at)


def principal_of(login: Login) -> Principal:
    """Return the principal that a login was issued to."""
    if login.role_id is not None:
        kind, ident, name = PrincipalKind.ROLE_SESSION, login.role_id, f"role/{login.role}"
    else:
        assert login.service_account_id is not None
        kind, ident = PrincipalKind.SERVICE_ACCOUNT, login.service_account_id
        name = f"service-account/{login.service_account}"
    crn = f"crn:iam::{login.account_id}:{name}"
    own = None if login.role_id is not None else Source(crn, login.service_account or "")
    return Principal(
        kind=kind,
        id=ident,
        crn=crn,
        account_id=login.account_id,
        organization_id=None,
        sid=login.sid,
        jti=login.id,
        expires_at=login.expires_at,
        access_key_id=login.access_key_id,
        container_password_id=login.id if login.is_container_password else None,
        source=own or login.source,
    )
