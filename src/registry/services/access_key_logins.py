"""Log container clients in with an access key itself, in accounts that allow it.

The key's id is the user name and its secret the password. Whether the account allows it is read at
every exchange, as are the states of the key, its service account and the account. An unknown id, a
wrong secret, an inactive key and an account that does not allow it take the same work and give the
same error.

Failures count against two budgets, as those of sign-ins do. If that of a key from an address is
exhausted, the key is refused there, whatever the secret. That of the address only turns further
failures into 429, so that one machine with an old secret does not stop the others behind the same
proxy. It is counted first: an address cannot fill the table of budgets with ids it makes up.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import TooManyAttempts, Unauthenticated
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.key_owners import KeyOwner, find_key_owner
from cloudcore.serving.source_address import rate_subject
from cloudcore.web.ratelimit import Budget, count_request, seconds_exhausted
from registry.metadata.logins import Login
from registry.metadata.settings import find_settings
from registry.services.bearers import BEARER_SECONDS

ADDRESS_BUDGET: Final = Budget(limit=30, window_seconds=300, is_extended=False)
"""Failures per client address (IPv6: /64), over all keys."""
KEY_BUDGET: Final = Budget(limit=10, window_seconds=300, is_extended=False)
"""Failures per client address and access key."""

_ENDPOINT: Final = "access-key-login"
_ID: Final = re.compile(r"AK[A-Z2-7]{18}")
_DUMMY: Final = sha256(b"").hexdigest()
_NOBODY: Final = "00000000-0000-0000-0000-000000000000"


class _Found(NamedTuple):
    """What is stored of an access key id that a client sends."""

    owner: KeyOwner | None
    handle: str
    """Handle of the account."""
    is_allowed: bool
    """True if the account lets access keys log in."""
    retry_after: int
    """Seconds until the client may try this key again; 0: now."""


def is_access_key_id(username: str) -> bool:
    """Return True if a user name has the form of an access key id."""
    return _ID.fullmatch(username) is not None


async def log_in_with_key(
    database: Database,
    clock: Clock,
    access_key_id: str,
    secret: str,
    source_ip: IPv4Address | IPv6Address | None,
    note_refusal: Callable[[KeyOwner], None],
) -> Login:
    """Return an access key as a login. A failure takes a second transaction.

    `note_refusal` is called for a key that exists and is refused, with its owner.

    Raises:
        Unauthenticated: the key is unknown, its secret wrong, or it may not log in.
        TooManyAttempts: too many failures.

    """
    source, now = rate_subject(source_ip), clock()
    found = await database.read(_find, access_key_id, source, now)
    if found.retry_after:
        raise _too_many(found.retry_after)
    owner = found.owner
    kept = _DUMMY if owner is None else owner.secret_sha256
    given = sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
    is_right = hmac.compare_digest(given, kept)
    login = _login(found, access_key_id, now)
    if login is None or owner is None or not is_right:
        if owner is not None:
            note_refusal(owner)
        retry_after = await database.write_relaxed(_count_failure, access_key_id, source, now)
        if retry_after:
            raise _too_many(retry_after)
        raise wrong_login()
    return login


def find_key_login(tx: Connection, access_key_id: str, now: int) -> Login | None:
    """Return an access key as a login, or None if it may not log in (any more)."""
    return _login(_find(tx, access_key_id, None, now), access_key_id, now)


def wrong_login() -> Unauthenticated:
    """Return the error for every invalid login, the same for all causes."""
    return Unauthenticated("the user name or password is wrong, or has expired")


def _find(tx: Connection, access_key_id: str, source: str | None, now: int) -> _Found:
    """Return what is stored of a key; without a `source`, whatever failed before."""
    retry_after = 0
    if source is not None:
        retry_after = seconds_exhausted(
            tx, _ENDPOINT, _key_subject(access_key_id, source), KEY_BUDGET, now
        )
    owner = find_key_owner(tx, access_key_id)
    # For an unknown key, the same reads find nothing.
    account_id = _NOBODY if owner is None else owner.account_id
    account = find_account(tx, account_id)
    is_allowed = find_settings(tx, account_id).access_key_login
    return _Found(owner, "" if account is None else account.handle, is_allowed, retry_after)


def _login(found: _Found, access_key_id: str, now: int) -> Login | None:
    owner = found.owner
    # This is the one place that says which keys may log in.
    if owner is None or not owner.is_usable(now) or owner.is_suspended or not found.is_allowed:
        return None
    end = now + BEARER_SECONDS * MICROSECONDS
    return Login(
        id=owner.key_id,
        account_id=owner.account_id,
        handle=found.handle,
        expires_at=end if owner.expires_at is None else min(end, owner.expires_at),
        service_account_id=owner.service_account_id,
        service_account=owner.service_account,
        sid=None,
        access_key_id=owner.key_id,
        direct_key_id=access_key_id,
    )


def _count_failure(tx: Connection, access_key_id: str, source: str, now: int) -> int:
    """Count a failure; return the seconds until the client may try again, 0 if it may now."""
    subjects = (
        (f"address {source}", ADDRESS_BUDGET),
        (_key_subject(access_key_id, source), KEY_BUDGET),
    )
    for subject, budget in subjects:
        status = count_request(tx, _ENDPOINT, subject, budget, now)
        if status.is_refused:
            return status.reset
    return 0


def _key_subject(access_key_id: str, source: str) -> str:
    return f"{access_key_id} {source}"


def _too_many(retry_after: int) -> TooManyAttempts:
    return TooManyAttempts("too many failed logins with access keys", retry_after=retry_after)
