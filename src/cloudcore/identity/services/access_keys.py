"""Access keys: a public id and a secret that is shown once.

The secret is stored twice: hashed, for the token endpoint, and sealed, because version-4
signatures can only be verified with the secret itself.
"""

from __future__ import annotations

import secrets
import string
from hashlib import sha256
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.service_accounts import (
    ACCESS_KEYS,
    SERVICE_ACCOUNTS,
    AccessKey,
    count_live_access_keys,
)
from cloudcore.keyring import Keyring

MAX_ACTIVE: Final = 2
"""Two, so that a program can move from an old key to a new one; an expired key does not count."""
MAX_KEPT: Final = 20

_ID_ALPHABET: Final = string.ascii_uppercase + "234567"
_SECRET_ALPHABET: Final = string.ascii_letters + string.digits + "_-"


class NewAccessKey(NamedTuple):
    """A generated key that is not stored yet."""

    access_key_id: str
    secret: str

    def row(
        self,
        keyring: Keyring,
        key_id: str,
        account_id: str,
        service_account_id: str,
        now: int,
        *,
        description: str = "",
        expires_at: int | None = None,
    ) -> AccessKey:
        """Return the row to store."""
        return AccessKey(
            key_id,
            account_id,
            service_account_id,
            self.access_key_id,
            sha256(self.secret.encode()).hexdigest(),
            keyring.seal(self.secret.encode(), sealing_context(self.access_key_id)),
            "active",
            None,
            now,
            description,
            expires_at,
        )


def new_access_key() -> NewAccessKey:
    """Generate a key: 90 random bits of id, 240 of secret."""
    return NewAccessKey(
        "AK" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(18)),
        "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(40)),
    )


def sealing_context(access_key_id: str) -> str:
    """Return the sealing context of a key's secret; see `Keyring`."""
    return f"access-key:{access_key_id}"


def create_access_key(tx: Connection, key: AccessKey) -> AccessKey:
    """Add a key to a service account."""
    increment_revision(tx, key.account_id)
    SERVICE_ACCOUNTS.get(tx, key.account_id, key.service_account_id)
    _check_room(tx, key.service_account_id, key.created_at)
    if ACCESS_KEYS.count(tx, (key.account_id, key.service_account_id)) >= MAX_KEPT:
        raise Conflict(f"a service account keeps at most {MAX_KEPT} access keys; delete one")
    ACCESS_KEYS.add(tx, key)
    return key


def update_access_key(
    tx: Connection,
    account_id: str,
    service_account_id: str,
    key_id: str,
    changes: dict[str, Any],
    now: int,
) -> AccessKey:
    """Change the given fields of a key; what was made with it ends with it.

    Raises:
        Conflict: the key comes to life, and `MAX_ACTIVE` keys live already.

    """
    increment_revision(tx, account_id)
    key = ACCESS_KEYS.get(tx, (account_id, service_account_id), key_id)
    changed = key._replace(**changes)
    if changed.is_live(now) and not key.is_live(now):
        _check_room(tx, service_account_id, now)
    if changed != key:
        ACCESS_KEYS.save(tx, changed)
    return changed


def delete_access_key(
    tx: Connection, account_id: str, service_account_id: str, key_id: str
) -> None:
    """Delete a key, ending the sessions and login credentials made with it."""
    increment_revision(tx, account_id)
    ACCESS_KEYS.remove(tx, (account_id, service_account_id), key_id)


def _check_room(tx: Connection, service_account_id: str, now: int) -> None:
    if count_live_access_keys(tx, service_account_id, now) >= MAX_ACTIVE:
        raise Conflict(
            f"a service account has at most {MAX_ACTIVE} active access keys; delete one, or make it"
            " inactive"
        )
