"""Access keys: a public id and a secret that is shown once.

The secret is stored twice: hashed, for the token endpoint, and sealed, because version-4
signatures can only be verified with the secret itself.
"""

from __future__ import annotations

import secrets
import string
from hashlib import sha256
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.names import missing
from cloudcore.identity.rows import service_accounts as rows
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.service_accounts import AccessKey
from cloudcore.identity.services.service_accounts import get_service_account
from cloudcore.keyring import Keyring

MAX_ACTIVE: Final = 2
"""Two, so that a program can move from an old key to a new one."""
MAX_KEPT: Final = 20

_ID_ALPHABET: Final = string.ascii_uppercase + "234567"
_SECRET_ALPHABET: Final = string.ascii_letters + string.digits + "_-"


class NewAccessKey(NamedTuple):
    """A generated key that is not stored yet."""

    access_key_id: str
    secret: str

    def row(
        self, keyring: Keyring, key_id: str, account_id: str, service_account_id: str, now: int
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
    get_service_account(tx, key.account_id, key.service_account_id)
    _check_room(tx, key.account_id, key.service_account_id)
    if rows.count_access_keys(tx, key.account_id, key.service_account_id) >= MAX_KEPT:
        raise Conflict(f"a service account keeps at most {MAX_KEPT} access keys; delete one")
    rows.add_access_key(tx, key)
    return key


def get_access_key(
    tx: Connection, account_id: str, service_account_id: str, key_id: str
) -> AccessKey:
    """Return a key of a service account, or raise `NotFound`."""
    found = rows.find_access_key(tx, account_id, service_account_id, key_id)
    if found is None:
        raise missing("access key")
    return found


def set_access_key_status(
    tx: Connection, account_id: str, service_account_id: str, key_id: str, status: str | None
) -> AccessKey:
    """Set the status of a key; None leaves it unchanged."""
    increment_revision(tx, account_id)
    key = get_access_key(tx, account_id, service_account_id, key_id)
    if status is None or status == key.status:
        return key
    if status == "active":
        _check_room(tx, account_id, service_account_id)
    rows.save_access_key_status(tx, key.id, status)
    return key._replace(status=status)


def delete_access_key(
    tx: Connection, account_id: str, service_account_id: str, key_id: str
) -> None:
    """Delete a key, ending the sessions and login credentials made with it."""
    increment_revision(tx, account_id)
    rows.remove_access_key(tx, get_access_key(tx, account_id, service_account_id, key_id).id)


def _check_room(tx: Connection, account_id: str, service_account_id: str) -> None:
    if rows.count_active_access_keys(tx, account_id, service_account_id) >= MAX_ACTIVE:
        raise Conflict(f"a service account has at most {MAX_ACTIVE} active access keys")
