"""Log container clients in with an access key itself, in accounts that allow it.

The key's id is the user name and its secret the password. Whether the account allows it is read at
every exchange, as are the states of the key, its service account and the account. An unknown id, a
wrong secret, an inactive key and an account that does not allow it take the same work and give the
same error.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.identity.names import source_of_program
from cloudcore.identity.rows.accounts import find_account
from cloudcore.identity.rows.service_accounts import KeyOwner, find_key_owner
from registry.metadata.logins import Login
from registry.metadata.settings import find_settings
from registry.services.bearers import BEARER_SECONDS
from registry.services.logins import KnownLogin, RefusedLogin

_ID: Final = re.compile(r"AK[A-Z2-7]{18}")
_NOBODY: Final = "00000000-0000-0000-0000-000000000000"


def is_access_key_id(username: str) -> bool:
    """Return True if a user name has the form of an access key id."""
    return _ID.fullmatch(username) is not None


def find_key(
    tx: Connection, access_key_id: str, _source_ip: IPv4Address | IPv6Address | None, now: int
) -> KnownLogin | None:
    """Return what is stored of an access key, or None if there is none."""
    owner = find_key_owner(tx, access_key_id)
    # For an unknown key, the same reads find nothing.
    account_id = _NOBODY if owner is None else owner.account_id
    account = find_account(tx, account_id)
    is_allowed = find_settings(tx, account_id).access_key_login
    if owner is None:
        return None
    # This is the one place that says which keys may log in.
    may_log_in = owner.is_usable(now) and not owner.is_suspended and is_allowed
    handle = "" if account is None else account.handle
    login = _login(owner, access_key_id, handle, now) if may_log_in else None
    source = source_of_program(owner.account_id, owner.service_account)
    refused = RefusedLogin(owner.account_id, source.crn, source, (source.crn,))
    return KnownLogin(owner.secret_sha256, login, refused)


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
