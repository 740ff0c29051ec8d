"""Log container clients in with an access key itself, in accounts that allow it.

The key's id is the user name and its secret the password. Whether the account allows it is read at
every exchange, as are the states of the key, its service account and the account. An unknown id, a
wrong secret, an inactive key and an account that does not allow it take the same work and give the
same error.
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
from cloudcore.identity.names import source_of_program
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.service_accounts import KeyOwner, find_key_owner
from cloudcore.serving.source_address import rate_subject
from registry.metadata.logins import Login
from registry.metadata.settings import find_settings
from registry.services.bearers import BEARER_SECONDS
from registry.services.login_attempts import (
    RefusedLogin,
    count_failure,
    seconds_refused,
    too_many_failures,
    wrong_login,
)

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
    note_refusal: Callable[[RefusedLogin], None],
) -> Login:
    """Return an access key as a login. A failure takes a second transaction.

    `note_refusal` is called for a key that exists and is refused.

    Raises:
        Unauthenticated: the key is unknown, its secret wrong, or it may not log in.
        TooManyAttempts: too many failures.

    """
    source, now = rate_subject(source_ip), clock()
    found = await database.read(_find, access_key_id, source, now)
    if found.retry_after:
        raise too_many_failures(found.retry_after)
    owner = found.owner
    kept = _DUMMY if owner is None else owner.secret_sha256
    given = sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
    is_right = hmac.compare_digest(given, kept)
    login = _login(found, access_key_id, now)
    if login is None or owner is None or not is_right:
        if owner is not None:
            note_refusal(_refused(owner))
        retry_after = await database.write_relaxed(count_failure, access_key_id, source, now)
        if retry_after:
            raise too_many_failures(retry_after)
        raise wrong_login()
    return login


def find_key_login(tx: Connection, access_key_id: str, now: int) -> Login | None:
    """Return an access key as a login, or None if it may not log in (any more)."""
    return _login(_find(tx, access_key_id, None, now), access_key_id, now)


def _find(tx: Connection, access_key_id: str, source: str | None, now: int) -> _Found:
    """Read the rows of a key; without a `source`, its failed attempts do not count."""
    retry_after = 0
    if source is not None:
        retry_after = seconds_refused(tx, access_key_id, source, now)
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


def _refused(owner: KeyOwner) -> RefusedLogin:
    source = source_of_program(owner.account_id, owner.service_account)
    return RefusedLogin(owner.account_id, source.crn, source, (source.crn,))
