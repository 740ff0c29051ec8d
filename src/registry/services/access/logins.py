"""Login credentials of container clients: issue them to signed-in principals, and check them.

Failures with long-lived credentials at ``/v2/token`` count against two budgets, as for sign-ins:
one per client address and credential, one per address. When the first is exhausted, the credential
is refused at that address, whatever the secret. When the second is exhausted, further failures are
answered by 429, but a right secret is still accepted, so that one machine with an old secret does
not block others behind the same proxy. The address is counted first, so that a client cannot fill
the table of budgets with invented ids.

In accounts that allow it, an access key is itself a login credential: its id is the user name, its
secret the password. That setting and the states of key, service account and account are read at
every exchange.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.account_rows import lock_account
from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import AccessDenied, TooManyAttempts, Unauthenticated
from cloudcore.iam.principal import Principal, PrincipalKind, SourceIdentity
from cloudcore.identity.rights.permissions import LoginPermission
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.service_accounts import KeyOwner, find_key_owner, find_key_owner_by_id
from cloudcore.identity.rows.sessions import find_sign_in_expiry
from cloudcore.resource_names import Crn
from cloudcore.serving.clients import rate_subject
from cloudcore.web.rate_limits import Budget, count_request, seconds_exhausted
from registry.metadata import logins
from registry.metadata.logins import Login, NewLogin
from registry.metadata.settings import find_settings
from registry.services.access.bearers import BEARER_SECONDS

LOGIN_SECONDS: Final = 12 * 3600
LOG_IN: Final = "registry:GetAuthorizationToken"
USERNAME: Final = "token"
"""The user name of every login credential."""

_DUMMY: Final = hashlib.sha256(b"").hexdigest()
_PREFIX: Final = "rlc_"
_LETTERS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH: Final = 43  # of 62 letters: 256 bits, so a plain hash is enough


def login_permission(region: str, account_id: str) -> LoginPermission:
    """Return the permission that a principal of an account needs for container logins."""
    resource = str(Crn("registry", region, account_id, "authorization-token", "own"))
    return LoginPermission(LOG_IN, resource)


class ClientCredential(NamedTuple):
    """The user name and password that a container client sends."""

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
    """Return the sha256 of a password in hex, which is all that is stored of it."""
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).hexdigest()


def mint_login(
    tx: Connection, caller: Principal, login_id: str, password: str, now: int
) -> IssuedLogin:
    """Store a new login credential of `caller`, valid for 12 hours.

    It ends earlier if the access key, the program's role session or the person's sign-in behind it
    does. (A person's role session lasts an hour and is renewed while the person is signed in, so
    the sign-in counts, not the role session.)

    Raise `AccessDenied` if the caller is a person without an assumed role, and so without an
    account; `QuotaExceeded` if the account has the maximum number of open logins.
    """
    if caller.kind is PrincipalKind.USER or caller.account_id is None:
        raise AccessDenied("assume a role in an account first; a person owns no repositories")
    lock_account(tx, caller.account_id)
    use = logins.OPEN.check(
        tx,
        caller.account_id,
        "the account has {limit} open container logins; use one for many jobs,"
        " or end unused ones with POST /v1/oauth/revoke",
        now=now,
    )
    expires_at = now + LOGIN_SECONDS * MICROSECONDS
    is_session = caller.kind is PrincipalKind.ROLE_SESSION
    end: int | None
    if is_session:
        end = find_sign_in_expiry(tx, caller.sid or "") or caller.expires_at
    else:
        key = find_key_owner_by_id(tx, caller.access_key_id or "")
        end = key and key.expires_at
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
    logins.OPEN.emit_level(tx, caller.account_id, use, now)
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
    own = None if login.role_id is not None else SourceIdentity(crn, login.service_account or "")
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


ADDRESS_BUDGET: Final = Budget(limit=30, window_seconds=300, is_extended=False)
"""Failures per client address (IPv6: /64), over all credentials."""
CREDENTIAL_BUDGET: Final = Budget(limit=10, window_seconds=300, is_extended=False)
"""Failures per client address and credential."""

NAMED_LOGIN: Final = "ecp_"
"""Prefix of the passwords that persons make for container clients."""
_ENDPOINT: Final = "access-key-login"


class RefusedLogin(NamedTuple):
    """The data for the audit log about a refused login, or a refused request by a login."""

    account_id: str
    principal: str
    """CRN of the service account or role."""
    source: SourceIdentity | None
    resources: Sequence[str] = ()
    """CRNs of the resources concerned."""


def _count_failure(tx: Connection, credential_id: str, source: str, now: int) -> int:
    """Count a failure; return the seconds until the client may try again, or 0."""
    subjects = (
        (f"address {source}", ADDRESS_BUDGET),
        (_subject(credential_id, source), CREDENTIAL_BUDGET),
    )
    for subject, budget in subjects:
        status = count_request(tx, _ENDPOINT, subject, budget, now)
        if status.is_refused:
            return status.reset
    return 0


def wrong_login() -> Unauthenticated:
    """Return the error for every invalid login, the same for all causes."""
    return Unauthenticated("the user name or password is wrong, or has expired")


class StoredLogin(NamedTuple):
    """The stored row of a long-lived credential, found by its id."""

    secret_sha256: str
    login: Login | None
    """None if the credential may not log in now."""
    refused: RefusedLogin
    """The data for the audit log if the credential is refused."""


FindLogin = Callable[[Connection, str, IPv4Address | IPv6Address | None, int], StoredLogin | None]


async def log_in(
    database: Database,
    clock: Clock,
    credential_id: str,
    secret: str,
    source_ip: IPv4Address | IPv6Address | None,
    find: FindLogin,
    note_refusal: Callable[[RefusedLogin], None],
) -> Login:
    """Return the login of a long-lived credential. A failure takes a second transaction.

    An unknown credential, a wrong secret, and a credential that may not log in take the same work
    and give the same error. `note_refusal` is called if the credential exists and is refused.

    Raise `Unauthenticated` if the credential is unknown, its secret is wrong, or it may not log in;
    `TooManyAttempts` after too many failures.
    """
    source, now = rate_subject(source_ip), clock()

    def read(tx: Connection) -> tuple[int, StoredLogin | None]:
        subject = _subject(credential_id, source)
        retry_after = seconds_exhausted(tx, _ENDPOINT, subject, CREDENTIAL_BUDGET, now)
        return retry_after, find(tx, credential_id, source_ip, now)

    retry_after, known = await database.read(read)
    if retry_after:
        raise _too_many_failures(retry_after)
    kept = _DUMMY if known is None else known.secret_sha256
    is_right = hmac.compare_digest(hash_of(secret), kept)
    if known is not None and known.login is not None and is_right:
        return known.login
    if known is not None:
        note_refusal(known.refused)
    retry_after = await database.write_relaxed(_count_failure, credential_id, source, now)
    raise _too_many_failures(retry_after) if retry_after else wrong_login()


def _too_many_failures(retry_after: int) -> TooManyAttempts:
    return TooManyAttempts("too many failed logins", retry_after=retry_after)


def _subject(credential_id: str, source: str) -> str:
    return f"{credential_id} {source}"


_ID: Final = re.compile(r"AK[A-Z2-7]{18}")
UNUSED_ID: Final = "00000000-0000-0000-0000-000000000000"
"""An id that nothing has, for reads that are to find nothing."""


def is_access_key_id(username: str) -> bool:
    """Return True if a user name has the form of an access key id."""
    return _ID.fullmatch(username) is not None


def find_key(
    tx: Connection, access_key_id: str, _source_ip: IPv4Address | IPv6Address | None, now: int
) -> StoredLogin | None:
    """Return the stored access key with this id, or None."""
    owner = find_key_owner(tx, access_key_id)
    # For an unknown key, the same reads find nothing.
    account_id = UNUSED_ID if owner is None else owner.account_id
    account = find_account(tx, account_id)
    is_allowed = find_settings(tx, account_id).access_key_login
    if owner is None:
        return None
    # This is the one place that says which keys may log in.
    may_log_in = owner.is_usable(now) and not owner.is_suspended and is_allowed
    handle = "" if account is None else account.handle
    login = _login(owner, access_key_id, handle, now) if may_log_in else None
    source = owner.source
    refused = RefusedLogin(owner.account_id, source.crn, source, (source.crn,))
    return StoredLogin(owner.secret_sha256, login, refused)


def _login(owner: KeyOwner, access_key_id: str, handle: str, now: int) -> Login:
    end = now + BEARER_SECONDS * MICROSECONDS
    return Login(
        id=owner.key_id,
        account_id=owner.account_id,
        handle=handle,
        expires_at=end if owner.expires_at is None else min(end, owner.expires_at),
        service_account_id=owner.service_account_id,
        service_account=owner.service_account,
        sid=None,
        access_key_id=owner.key_id,
        direct_key_id=access_key_id,
    )
