"""Service accounts, the identities of programs, and their keys: changes and their rules.

An access key is a public id and a secret that is shown once. The secret is stored twice: hashed,
for the token endpoint, and sealed, because version-4 signatures can only be verified with the
secret itself.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.credentials import hash_of, new_key_id, random_text
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.policies import Attachment, PolicyRow
from cloudcore.identity.rows.service_accounts import (
    ACCESS_KEYS,
    SERVICE_ACCOUNTS,
    AccessKey,
    ServiceAccount,
    count_live_access_keys,
)
from cloudcore.identity.services.policies import attach_policy, create_or_find_policy
from cloudcore.keyring import Keyring

MAX_ACTIVE: Final = 2
"""Maximum number of active keys of a service account: two, so that a program can move from an old
key to a new one. Expired keys do not count."""
MAX_KEPT: Final = 20

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
        description: str = "",
        expires_at: int | None = None,
    ) -> AccessKey:
        """Return the row to store."""
        hashed = hash_of(self.secret)
        sealed = keyring.seal(self.secret.encode(), sealing_context(self.access_key_id))
        of = key_id, account_id, service_account_id, self.access_key_id
        return AccessKey(*of, hashed, sealed, now, description, expires_at)


def new_access_key() -> NewAccessKey:
    """Generate a key: an id with 90 random bits, and a secret of 240 random bits."""
    return NewAccessKey(new_key_id("AK"), random_text(_SECRET_ALPHABET, 40))


def sealing_context(access_key_id: str) -> str:
    """Return the sealing context of a key's secret; see `Keyring`."""
    return f"access-key:{access_key_id}"


def create_access_key(tx: Connection, key: AccessKey) -> AccessKey:
    """Add a key to a service account.

    Raise `NotFound` if the service account does not exist, `Conflict` if it has `MAX_ACTIVE` active
    keys, or `MAX_KEPT` keys.
    """
    increment_revision(tx, key.account_id)
    SERVICE_ACCOUNTS.get(tx, key.account_id, key.service_account_id)
    _check_room(tx, key.service_account_id, key.created_at)
    if ACCESS_KEYS.count(tx, (key.account_id, key.service_account_id)) >= MAX_KEPT:
        raise Conflict(f"a service account keeps at most {MAX_KEPT} access keys; delete one")
    ACCESS_KEYS.add(tx, key)
    return key


def update_access_key(
    tx: Connection, owner: tuple[str, str], key_id: str, changes: dict[str, Any], now: int
) -> AccessKey:
    """Set the fields in `changes` on a key; return the key.

    Deactivating a key ends the sessions and logins that were made with it. `owner` is (account id,
    service account id). Raise `Conflict` if the key would become active, and `MAX_ACTIVE` keys are
    active already.
    """
    increment_revision(tx, owner[0])
    key = ACCESS_KEYS.get(tx, owner, key_id)
    changed = key._replace(**changes)
    if changed.is_live(now) and not key.is_live(now):
        _check_room(tx, owner[1], now)
    if changed != key:
        ACCESS_KEYS.save(tx, changed)
    return changed


def delete_access_key(tx: Connection, owner: tuple[str, str], key_id: str) -> None:
    """Delete a key, and so end the sessions and login credentials that were made with it."""
    increment_revision(tx, owner[0])
    ACCESS_KEYS.remove(tx, owner, key_id)


def _check_room(tx: Connection, service_account_id: str, now: int) -> None:
    if count_live_access_keys(tx, service_account_id, now) >= MAX_ACTIVE:
        raise Conflict(
            f"a service account has at most {MAX_ACTIVE} active access keys; delete one, or make it"
            " inactive"
        )


class NewGrant(NamedTuple):
    """A policy to create and to attach to a new service account."""

    policy: PolicyRow
    document: dict[str, Any]
    attachment_id: str


def update_service_account(
    tx: Connection, account_id: str, service_account_id: str, changes: dict[str, Any], now: int
) -> ServiceAccount:
    """Set the fields in `changes` on a service account; return the service account."""
    increment_revision(tx, account_id)
    found = SERVICE_ACCOUNTS.get(tx, account_id, service_account_id)
    if changes:
        found = found._replace(**changes, updated_at=now)
        SERVICE_ACCOUNTS.save(tx, found)
    return found


def delete_service_account(tx: Connection, account_id: str, service_account_id: str) -> None:
    """Delete a service account with its keys, and the sessions and logins made with them."""
    increment_revision(tx, account_id)
    SERVICE_ACCOUNTS.remove(tx, account_id, service_account_id)


def create_service_account(
    tx: Connection,
    new: ServiceAccount,
    grants: Sequence[NewGrant] = (),
    access_key: AccessKey | None = None,
) -> Sequence[PolicyRow]:
    """Create a service account, its access key if passed, and one policy for each grant.

    Return the policies. If a policy with the same name and document exists, it is attached: it may
    be left from a deleted service account of the same name.

    Raise `Conflict` if the name of the service account is taken, a policy with the same name has
    another document, or the policies are too many or too large together.
    """
    increment_revision(tx, new.account_id)
    if not SERVICE_ACCOUNTS.add(tx, new):
        raise Conflict("there is a service account of this name", name=new.name)
    policies = [_grant(tx, new, each) for each in grants]
    if access_key is not None:
        create_access_key(tx, access_key)
    return policies


def _grant(tx: Connection, service_account: ServiceAccount, grant: NewGrant) -> PolicyRow:
    policy = create_or_find_policy(tx, grant.policy, grant.document)
    of = grant.attachment_id, policy.account_id, policy.id, service_account.id, None
    attach_policy(tx, Attachment(*of, grant.policy.created_at))
    return policy
